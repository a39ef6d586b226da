"""Slices of the engine and the initial view of the UI, in a module that loads quickly.

See `service.rendering.shown_slices` and `service.rendering.initial_view`.
"""

from dataclasses import dataclass

from service.trace.errors import UnknownSlice


@dataclass(frozen=True)
class EngineSlice:
    """The properties that identify a slice in the engine.

    Attributes:
        ts: start in the engine's time, in ns.
        dur: duration in ns.
        name: the engine's name of the slice.
        pid: the track's process in the trace, as text.
        tid: the track's thread in the trace, as text.
        nth: index, from 0 and in order of id, among the slices that share all other properties.
    """

    ts: int
    dur: int
    name: str
    pid: str
    tid: str
    nth: int


@dataclass(frozen=True)
class InitialView:
    """The initial view of the UI.

    Attributes:
        start: start of the span to show, in the engine's time in ns; None for the whole timeline.
        end: end of that span.
        slice: the slice to select; None if there is none, or if the slice was given by the engine's id.
        events: number of events that the UI shows; None if they are not counted.
    """

    start: int | None = None
    end: int | None = None
    slice: EngineSlice | None = None
    events: int | None = None


def check_engine_id(number: int, events: int) -> None:
    """Check that the engine may have a slice of an id; raises `UnknownSlice`.

    Args:
        number: the id.
        events: number of the trace's events.
    """
    if number >= events:
        raise UnknownSlice(
            f"No slice has the id {number}: the trace has {events} events, and ids count from 0.", events=events
        )


def not_one_event(name: str) -> UnknownSlice:
    """Return the error for a slice of the engine that is not one event of the columns."""
    return UnknownSlice(
        f"The slice {short(name)} of the engine is not one event of the trace: it consists of two events, such as its"
        " begin and its end, or of one that is on no thread."
    )


def short(name: str | None) -> str:
    """Return the beginning of a name in quotes, for a message."""
    return repr((name or "")[:100])

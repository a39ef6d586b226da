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
    """

    start: int | None = None
    end: int | None = None
    slice: EngineSlice | None = None


def not_one_event(name: str) -> UnknownSlice:
    """Return the error for a slice of the engine that is not one event of the columns."""
    return UnknownSlice(
        f"The slice {short(name)} of the engine is not one event of the trace: it consists of two events, such as its"
        " begin and its end, or of one that is on no thread."
    )


def short(name: str | None) -> str:
    """Return the beginning of a name in quotes, for a message."""
    return repr((name or "")[:100])

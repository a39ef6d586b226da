"""The initial view of the UI on a trace, in a module that loads quickly; see `service.rendering.initial_view`."""

from dataclasses import dataclass


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

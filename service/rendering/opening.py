"""The place at which the UI opens on a trace: a span of the engine's time, and the slice to select.

The engine numbers its slices only once it has loaded a trace. A slice is therefore named by what the engine has of it:
start, duration, name and thread, and its place among the slices that share all of these.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from service.cutting.clip import clipped_times
from service.cutting.rows import RowSelector, nothing_selected
from service.rendering.base import SPAN_MAX, base_of, engine_times
from service.rendering.values import plain
from service.store.census import key_of
from service.store.folder import EVENTS
from service.store.parts import TRACK, Flags, Ints, Part, Parts
from service.trace.errors import AmbiguousSlice, UnknownSlice
from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import FLOW_PHASES

MARGIN = 0.03
"""Share of a selection's time that is shown on each side of it."""

SLICE_MARGIN = 1.5
"""Durations of a slice that are shown on each side of it."""

SLICE_MARGIN_MIN_NS = 1000

LISTED_MAX = 20
"""Slices that an error lists."""

_COLUMNS = ("position", "ph", "name", "ts_ns", "dur_ns", *TRACK)
_NO_SLICE = FLOW_PHASES | {"C", "M", "B", "E", "b", "n", "e"}
_PHASE_NAMES = {"C": "a counter", "M": "metadata", **dict.fromkeys(FLOW_PHASES, "an end of an arrow")}


@dataclass(frozen=True)
class EngineSlice:
    """What identifies a slice in the engine.

    Attributes:
        ts: its start in the engine's time, in ns.
        dur: its duration in ns.
        name: as the engine has it.
        pid: of its track, as the trace has it; likewise `tid`.
        tid: as text, as in `torch_track`.
        nth: its place, from 0, among the slices for which all of these are the same, by id.
    """

    ts: int
    dur: int
    name: str
    pid: str
    tid: str
    nth: int


@dataclass(frozen=True)
class Opening:
    """Where the UI opens.

    Attributes:
        start: of the span to show, in the engine's time in ns; likewise `end`. None for the whole timeline.
        end: None where `start` is.
        slice: to select, None for none, or for one that is named by its id in the engine.
    """

    start: int | None = None
    end: int | None = None
    slice: EngineSlice | None = None


def opening_of(
    columns: Path, summary: Mapping[str, Any], selection: Selection | None, reference: SliceReference | None
) -> Opening:
    """Find where the UI opens on a trace, or on a selection of it.

    Args:
        columns: the folder that ingest made of the trace.
        summary: of the trace, as the catalog has it.
        selection: what the UI shows; None for all.
        reference: the slice to select; None for none.

    Raises:
        SelectionError: the trace has nothing of the selection.
        UnknownSlice: the trace, or the selection, does not have the slice.
        AmbiguousSlice: the reference fits several slices.
        ExportFailed: the columns can't be read.
    """
    with closing(Parts(columns / EVENTS)) as parts:
        view = _View(parts, summary, selection)
        if reference is None:
            return view.selected()
        if reference.kind == "id":
            return view.numbered(reference.number)
        return view.at(view.row_of(reference))


class _View:
    """The events that the UI shows.

    Args:
        parts: the trace's columns.
        summary: of the trace.
        selection: what is shown; None for all.

    Raises:
        SelectionError: the trace has nothing of the selection.
    """

    def __init__(self, parts: Parts, summary: Mapping[str, Any], selection: Selection | None) -> None:
        self._parts = parts
        self._summary = summary
        self._rows = RowSelector(parts, [selection], summary) if selection else None
        if self._rows and not self._rows.keeps_any():
            raise nothing_selected(summary)
        self._clip = self._rows.time(0) if self._rows and selection and selection.straddle == "clip" else None

    @cached_property
    def _kept(self) -> Flags | None:
        """Which rows are shown; None for all."""
        return None if self._rows is None else self._rows.kept() != 0

    # -- spans --------------------------------------------------------------------------------------------------------

    def selected(self) -> Opening:
        """The time of the selection's window and steps; all of the timeline for a selection without these."""
        bounds, around = self._summary["bounds"], self._rows.time_with_steps(0) if self._rows else None
        if around is None or not bounds:
            return Opening()
        intervals = around.intervals
        start, end = max(intervals[0][0], bounds["start_ns"]), min(intervals[-1][1], bounds["end_ns"])
        return self._shown(start, end, round(MARGIN * (end - start))) if start < end else Opening()

    def _shown(self, start: int, end: int, margin: int) -> Opening:
        """The span with a margin, as far as the engine's time goes."""
        base, bounds = base_of(self._parts), self._summary["bounds"]
        first, last = max(start - margin, bounds["start_ns"]), min(end + margin, bounds["end_ns"])
        (begin,), (lasts,) = engine_times(np.array([first]), np.array([last - first]), base)
        return Opening(int(begin), int(begin + lasts))

    # -- slices -------------------------------------------------------------------------------------------------------

    def numbered(self, number: int) -> Opening:
        """The slice of an id, which only the engine can find; an id that no engine can have is refused."""
        if number >= self._parts.rows:
            raise UnknownSlice(
                f"No slice has the id {number}: the trace has {self._parts.rows} events, and ids count from 0.",
                events=self._parts.rows,
            )
        return Opening()

    def row_of(self, reference: SliceReference) -> int:
        """The row of a slice that is named by its position, or by its time and name."""
        row = self._by_position(reference.number) if reference.kind == "position" else self._by_time(reference)
        if self._kept is not None and not self._kept[row]:
            raise UnknownSlice(f"The slice {reference} is not in the selection; open it without one, or with another.")
        return row

    def _by_position(self, position: int) -> int:
        holding = [index for index in range(len(self._parts)) if _holds(self._parts.span(index, "position"), position)]
        for part in self._parts.read(("position", "ph", "ts_ns"), holding):
            for row in np.flatnonzero(part.ints("position") == position).tolist():
                self._check_slice(part, row)
                return part.first + int(row)
        raise UnknownSlice(
            f"The trace has no event at position {position}; its events have positions {self._positions()}."
        )

    def _positions(self) -> str:
        spans = [span for index in range(len(self._parts)) if (span := self._parts.span(index, "position"))]
        return f"from {min(span[0] for span in spans)} to {max(span[1] for span in spans)}" if spans else "none"

    def _check_slice(self, part: Part, row: int) -> None:
        position, phase = part.table["position"][row].as_py(), part.table["ph"][row].as_py()
        if phase in _NO_SLICE:
            what = _PHASE_NAMES.get(phase, "one of the events that begin and end a slice; the slice has an id in SQL")
            raise UnknownSlice(
                f"The event at position {position} is no slice: its phase is {phase!r}, {what}.", phase=phase
            )
        if not part.has("ts_ns")[row]:
            raise UnknownSlice(f"The event at position {position} has no time, and no place on the timeline.")

    def _by_time(self, reference: SliceReference) -> int:
        time, name = reference.number, reference.name
        rows: list[int] = []
        positions: list[int] = []
        for part in self._parts.read(_COLUMNS, self._beginning(time)):
            found = np.flatnonzero(_slices(part, {name}.__contains__) & (part.starts == time))
            rows += (part.first + found).tolist()
            positions += part.ints("position")[found].tolist()
        kept = [at for at, row in enumerate(rows) if self._kept is None or self._kept[row]]
        if len(kept) > 1:
            listed = [positions[at] for at in kept[:LISTED_MAX]]
            raise AmbiguousSlice(
                f"{len(kept)} slices are named {_short(name)} and begin at {time} ns, at the positions"
                f" {', '.join(map(str, listed))}{', …' if len(kept) > LISTED_MAX else ''};"
                " name the one to open by its position.",
                matches=len(kept), positions=listed,
            )  # fmt: skip
        if not rows:
            raise self._unknown(reference)
        return rows[kept[0] if kept else 0]

    def _unknown(self, reference: SliceReference) -> UnknownSlice:
        """The error for a time at which no slice of the name begins, with the slice of that name that is nearest."""
        nearest: tuple[int, int, int] | None = None  # its distance, its time and its position
        for part in self._parts.read(_COLUMNS):
            found = np.flatnonzero(_slices(part, {reference.name}.__contains__) & self._shows(part))
            if len(found):
                starts = part.starts[found].tolist()
                at = min(range(len(found)), key=lambda at, starts=starts: abs(starts[at] - reference.number))  # type: ignore[misc]
                distance = abs(starts[at] - reference.number)
                if nearest is None or distance < nearest[0]:
                    nearest = distance, starts[at], int(part.ints("position")[found[at]])
        where = "trace" if self._kept is None else "selection"
        if nearest is None:
            return UnknownSlice(f"The {where} has no slice named {_short(reference.name)}.")
        _, time, position = nearest
        return UnknownSlice(
            f"No slice of the {where} named {_short(reference.name)} begins at {reference.number} ns;"
            f" the nearest begins at {time} ns, at position {position}.",
            nearest={"ts_ns": time, "position": position},
        )  # fmt: skip

    def at(self, row: int) -> Opening:
        """The slice of a row, with the span around it."""
        base = base_of(self._parts)
        (part,) = self._parts.read(_COLUMNS, [self._index(row)])
        here = row - part.first
        starts, stops = self._times(part)
        start, stop = int(starts[here]), int(stops[here])
        begins, lasts = engine_times(starts, stops - starts, base)
        name = _engine_name(part.table["name"][here].as_py())
        pid, tid = _track(part, here)
        nth = self._nth(row, (int(begins[here]), int(lasts[here]), name, pid, tid), base)
        shown = EngineSlice(int(begins[here]), int(lasts[here]), name, str(pid), str(tid), nth)
        margin = max(round(SLICE_MARGIN * (stop - start)), SLICE_MARGIN_MIN_NS)
        span = self._shown(start, stop, margin)
        return Opening(span.start, span.end, shown)

    def _nth(self, row: int, same: tuple[Any, ...], base: int) -> int:
        """Count the slices before a row that share its start, duration and name in the engine, its pid and its tid."""
        begin, lasting, name, *track = same
        is_moved = self._clip or begin in {0, SPAN_MAX}
        near = range(len(self._parts)) if is_moved else self._beginning(begin + base)
        count = 0
        for part in self._parts.read(_COLUMNS, [index for index in near if index <= self._index(row)]):
            starts, stops = self._times(part)
            begins, lasts = engine_times(starts, stops - starts, base)
            found = (
                _slices(part, lambda other: _engine_name(other) == name)
                & self._shows(part)
                & (begins == begin)
                & (lasts == lasting)
            )
            found &= np.arange(len(part)) + part.first < row
            count += sum([*_track(part, at)] == track for at in np.flatnonzero(found).tolist())
        return count

    def _times(self, part: Part) -> tuple[Ints, Ints]:
        """The start and end of the events of a part, as they are shown."""
        return clipped_times(part, self._clip) if self._clip else (part.starts, part.ends)

    def _shows(self, part: Part) -> Flags:
        return np.ones(len(part), np.bool_) if self._kept is None else self._kept[part.rows]

    def _beginning(self, time: int) -> list[int]:
        """The parts in which an event may begin at a time."""
        return [index for index in range(len(self._parts)) if _holds(self._parts.span(index, "ts_ns"), time)]

    def _index(self, row: int) -> int:
        """The part that has a row."""
        first = 0
        for index in range(len(self._parts)):
            first += self._parts.length(index)
            if row < first:
                return index
        raise IndexError(f"the trace has no row {row}")


def _slices(part: Part, is_named: Callable[[str | None], bool]) -> Flags:
    """Which events the engine shows as slices, those of a duration and instants, with a name that meets a condition."""
    return ~part.which("ph", _NO_SLICE.__contains__) & part.has("ts_ns") & part.which("name", is_named)


def _engine_name(name: str | None) -> str:
    """The name of a slice as the engine has it; measured on trace_processor v54."""
    return plain(name) if name else "[No name]"


def _holds(span: tuple[int, int] | None, value: int) -> bool:
    return span is not None and span[0] <= value <= span[1]


def _track(part: Part, row: int) -> tuple[str | int, str | int]:
    pid, pid_text, tid, tid_text = (part.table[column][row].as_py() for column in TRACK)
    return key_of(pid, pid_text), key_of(tid, tid_text)


def _short(name: str | None) -> str:
    return repr((name or "")[:100])

"""The initial view of the UI on a trace: a span of the engine's time, and the slice to select.

The engine numbers its slices only when it loads a trace. A slice is therefore identified by its properties in the
engine: start, duration, name, thread, and its index among the slices that share all of these.
"""

from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from service.cutting.clip import clipped_times
from service.cutting.rows import RowSelector, nothing_selected
from service.rendering.sanitizing import plain
from service.rendering.time_base import SPAN_MAX, engine_times, time_base
from service.rendering.view import EngineSlice, InitialView
from service.store.folder import EVENTS
from service.store.parts import TRACK, Flags, Ints, Part, Parts
from service.trace.errors import AmbiguousSlice, UnknownSlice
from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import FLOW_PHASES, Summary, key_of

MARGIN = 0.03
"""Margin on each side of a selection's time, as a fraction of that time."""

SLICE_MARGIN = 1.5
"""Margin on each side of a slice, as a multiple of its duration."""

SLICE_MARGIN_MIN_NS = 1000

LISTED_MAX = 20
"""Number of slices that an error lists."""

_COLUMNS = ("position", "ph", "name", "ts_ns", "dur_ns", *TRACK)
_NO_SLICE = FLOW_PHASES | {"C", "M", "B", "E", "b", "n", "e"}
_PHASE_NAMES = {"C": "a counter", "M": "metadata", **dict.fromkeys(FLOW_PHASES, "an end of an arrow")}


def initial_view(
    columns: Path, summary: Summary, selection: Selection | None, reference: SliceReference | None
) -> InitialView:
    """Find the initial view on a trace, or on a selection of it.

    Args:
        columns: the folder of the trace's columns.
        summary: the trace's summary from the catalog.
        selection: the part that the UI shows; None for the whole trace.
        reference: the slice to select; None to select no slice.

    Raises:
        SelectionError: the selection is empty.
        UnknownSlice: the slice is not in the trace, or not in the selection.
        AmbiguousSlice: the reference matches several slices.
        ExportFailed: the columns can't be read.
    """
    with closing(Parts(columns / EVENTS)) as parts:
        view = _ShownEvents(parts, summary, selection)
        if reference is None:
            return view.selected()
        if reference.kind == "id":
            return view.of_engine_id(reference.number)
        return view.of_row(view.row_of(reference))


class _ShownEvents:
    """The events that the UI shows.

    Args:
        parts: the trace's columns.
        summary: the trace's summary.
        selection: the part that is shown; None for the whole trace.

    Raises:
        SelectionError: the selection is empty.
    """

    def __init__(self, parts: Parts, summary: Summary, selection: Selection | None) -> None:
        self._parts = parts
        self._summary = summary
        self._rows = RowSelector(parts, [selection], summary) if selection else None
        if self._rows and not self._rows.keeps_any():
            raise nothing_selected(summary)
        self._clip = self._rows.time(0) if self._rows and selection and selection.straddle == "clip" else None

    @cached_property
    def _kept(self) -> Flags | None:
        """The rows that are shown; None for all."""
        return None if self._rows is None else self._rows.kept() != 0

    # -- spans --------------------------------------------------------------------------------------------------------

    def selected(self) -> InitialView:
        """Return the view on the selection's window and steps, or on the whole timeline if it has neither."""
        bounds, around = self._summary.bounds, self._rows.time_with_steps(0) if self._rows else None
        if around is None or not bounds:
            return InitialView()
        intervals = around.intervals
        start, end = max(intervals[0][0], bounds["start_ns"]), min(intervals[-1][1], bounds["end_ns"])
        return self._span(start, end, round(MARGIN * (end - start))) if start < end else InitialView()

    def _span(self, start: int, end: int, margin: int) -> InitialView:
        """Return the view on a span with a margin, within the engine's range."""
        base, bounds = time_base(self._parts), self._summary.bounds
        if bounds is None:
            return InitialView()
        first, last = max(start - margin, bounds["start_ns"]), min(end + margin, bounds["end_ns"])
        (begin,), (duration,) = engine_times(np.array([first]), np.array([last - first]), base)
        return InitialView(int(begin), int(begin + duration))

    # -- slices -------------------------------------------------------------------------------------------------------

    def of_engine_id(self, number: int) -> InitialView:
        """Return the view on a slice that is given by the engine's id; raises `UnknownSlice` for an impossible id."""
        if number >= self._parts.rows:
            raise UnknownSlice(
                f"No slice has the id {number}: the trace has {self._parts.rows} events, and ids count from 0.",
                events=self._parts.rows,
            )
        return InitialView()

    def row_of(self, reference: SliceReference) -> int:
        """Return the row of a slice that is referenced by its position, or by its time and name.

        Raises:
            UnknownSlice: the slice is not in the trace, or not in the selection.
            AmbiguousSlice: the reference matches several slices.
        """
        row = self._by_position(reference.number) if reference.kind == "position" else self._by_time(reference)
        if self._kept is not None and not self._kept[row]:
            raise UnknownSlice(f"The slice {reference} is not in the selection; open it without one, or with another.")
        return row

    def _by_position(self, position: int) -> int:
        candidates = [
            index for index in range(len(self._parts)) if _holds(self._parts.span(index, "position"), position)
        ]
        for part in self._parts.read(("position", "ph", "ts_ns"), candidates):
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
            meaning = _PHASE_NAMES.get(phase, "half of a slice with two events; SQL returns the slice's id")
            raise UnknownSlice(
                f"The event at position {position} is no slice: its phase is {phase!r}, {meaning}.", phase=phase
            )
        if not part.has("ts_ns")[row]:
            raise UnknownSlice(f"The event at position {position} has no time, and is not on the timeline.")

    def _by_time(self, reference: SliceReference) -> int:
        time, name = reference.number, reference.name
        rows: list[int] = []
        positions: list[int] = []
        for part in self._parts.read(_COLUMNS, self._beginning(time)):
            matches = np.flatnonzero(_slices(part, {name}.__contains__) & (part.starts == time))
            rows += (part.first + matches).tolist()
            positions += part.ints("position")[matches].tolist()
        kept = [index for index, row in enumerate(rows) if self._kept is None or self._kept[row]]
        if len(kept) > 1:
            listed = [positions[index] for index in kept[:LISTED_MAX]]
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
        """Return the error for a reference that matches no slice. It reports the nearest slice with the same name."""
        nearest: tuple[int, int, int] | None = None  # distance, time and position
        for part in self._parts.read(_COLUMNS):
            matches = np.flatnonzero(_slices(part, {reference.name}.__contains__) & self._is_shown(part))
            if len(matches):
                starts = part.starts[matches].tolist()
                at = min(range(len(matches)), key=lambda at, starts=starts: abs(starts[at] - reference.number))  # type: ignore[misc]
                distance = abs(starts[at] - reference.number)
                if nearest is None or distance < nearest[0]:
                    nearest = distance, starts[at], int(part.ints("position")[matches[at]])
        where = "trace" if self._kept is None else "selection"
        if nearest is None:
            return UnknownSlice(f"The {where} has no slice named {_short(reference.name)}.")
        _, time, position = nearest
        return UnknownSlice(
            f"No slice of the {where} named {_short(reference.name)} begins at {reference.number} ns;"
            f" the nearest begins at {time} ns, at position {position}.",
            nearest={"ts_ns": time, "position": position},
        )  # fmt: skip

    def of_row(self, row: int) -> InitialView:
        """Return the view on the slice of a row and the span around it."""
        base = time_base(self._parts)
        (part,) = self._parts.read(_COLUMNS, [self._index(row)])
        index = row - part.first
        starts, stops = self._times(part)
        start, stop = int(starts[index]), int(stops[index])
        begins, durations = engine_times(starts, stops - starts, base)
        name = _engine_name(part.table["name"][index].as_py())
        pid, tid = _track(part, index)
        nth = self._nth(row, (int(begins[index]), int(durations[index]), name, pid, tid), base)
        chosen = EngineSlice(int(begins[index]), int(durations[index]), name, str(pid), str(tid), nth)
        margin = max(round(SLICE_MARGIN * (stop - start)), SLICE_MARGIN_MIN_NS)
        span = self._span(start, stop, margin)
        return InitialView(span.start, span.end, chosen)

    def _nth(self, row: int, properties: tuple[Any, ...], base: int) -> int:
        """Count the slices before a row that share its pid and tid, and its start, duration and name in the engine."""
        begin, duration, name, *track = properties
        is_moved = self._clip or begin in {0, SPAN_MAX}
        candidates = range(len(self._parts)) if is_moved else self._beginning(begin + base)
        count = 0
        for part in self._parts.read(_COLUMNS, [index for index in candidates if index <= self._index(row)]):
            starts, stops = self._times(part)
            begins, durations = engine_times(starts, stops - starts, base)
            same = (
                _slices(part, lambda other: _engine_name(other) == name)
                & self._is_shown(part)
                & (begins == begin)
                & (durations == duration)
            )
            same &= np.arange(len(part)) + part.first < row
            count += sum([*_track(part, at)] == track for at in np.flatnonzero(same).tolist())
        return count

    def _times(self, part: Part) -> tuple[Ints, Ints]:
        """Return the starts and ends of a part's events. They are clipped if the selection clips events."""
        return clipped_times(part, self._clip) if self._clip else (part.starts, part.ends)

    def _is_shown(self, part: Part) -> Flags:
        return np.ones(len(part), np.bool_) if self._kept is None else self._kept[part.rows]

    def _beginning(self, time: int) -> list[int]:
        """Return the indices of the parts whose time span includes a time, so that an event may begin at it."""
        return [index for index in range(len(self._parts)) if _holds(self._parts.span(index, "ts_ns"), time)]

    def _index(self, row: int) -> int:
        """Return the index of the part that has a row."""
        first = 0
        for index in range(len(self._parts)):
            first += self._parts.length(index)
            if row < first:
                return index
        raise IndexError(f"the trace has no row {row}")


def _slices(part: Part, is_named: Callable[[str | None], bool]) -> Flags:
    """Return flags of the events that the engine shows as slices or instants, and whose name meets a condition."""
    return ~part.which("ph", _NO_SLICE.__contains__) & part.has("ts_ns") & part.which("name", is_named)


def _engine_name(name: str | None) -> str:
    """Return the engine's name of a slice; measured on trace_processor v54."""
    return plain(name) if name else "[No name]"


def _holds(span: tuple[int, int] | None, value: int) -> bool:
    return span is not None and span[0] <= value <= span[1]


def _track(part: Part, row: int) -> tuple[str | int, str | int]:
    pid, pid_text, tid, tid_text = (part.table[column][row].as_py() for column in TRACK)
    return key_of(pid, pid_text), key_of(tid, tid_text)


def _short(name: str | None) -> str:
    return repr((name or "")[:100])

"""Slices that the engine shows, and their events in the columns.

The engine numbers its slices only when it loads a trace. A slice is therefore identified by its properties in the
engine: start, duration, name, thread, and its index among the slices that share all of these.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from service.cutting.clip import CELLS, clipped, clipped_times
from service.cutting.rows import RowSelector, nothing_selected
from service.rendering.arrow_order import with_slices_before_ends
from service.rendering.sanitizing import plain
from service.rendering.time_base import SPAN_MAX, engine_times, time_base
from service.rendering.view import EngineSlice, not_one_event, short
from service.store.columns import by_time
from service.store.parts import TRACK, Flags, Ints, Part, Parts
from service.trace.errors import AmbiguousSlice, UnknownSlice
from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import FLOW_PHASES, NESTABLE_PHASES, TIMELESS_PHASES, Summary, key_of

LISTED_MAX = 20
"""Number of slices that an error lists."""

_COLUMNS = ("position", "ph", "name", "ts_ns", "dur_ns", *TRACK)
_NO_SLICE = TIMELESS_PHASES | NESTABLE_PHASES
_PHASE_NAMES = {
    "C": "a counter",
    "M": "metadata",
    "n": "an async instant; SQL returns the slice's id",
    **dict.fromkeys(FLOW_PHASES, "an end of an arrow"),
}


class ShownSlices:
    """The slices that the engine shows of a trace, or of a selection of it.

    Args:
        parts: the trace's columns.
        summary: the trace's summary.
        selection: the part that is shown; None for the whole trace.

    Raises:
        SelectionError: the selection is empty.
    """

    def __init__(self, parts: Parts, summary: Summary, selection: Selection | None) -> None:
        self._parts = parts
        self._selector = RowSelector(parts, [selection], summary) if selection else None
        if self._selector and not self._selector.keeps_any():
            raise nothing_selected(summary)
        is_clipped = self._selector and selection and selection.straddle == "clip"
        self._clip = self._selector.time(0) if self._selector and is_clipped else None

    @property
    def selector(self) -> RowSelector | None:
        """The selector of the selection's rows; None for the whole trace."""
        return self._selector

    @property
    def events(self) -> int:
        """The number of events that are shown."""
        return self._parts.rows if self._kept is None else int(self._kept.sum())

    @cached_property
    def _kept(self) -> Flags | None:
        """The rows that are shown; None for all."""
        return None if self._selector is None else self._selector.kept() != 0

    # -- rows ---------------------------------------------------------------------------------------------------------

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
        raise UnknownSlice(f"The trace has no event at position {position}; {self._positions()}.")

    def _positions(self) -> str:
        spans = [span for index in range(len(self._parts)) if (span := self._parts.span(index, "position"))]
        if not spans:
            return "it has no events at all"
        return f"its events have positions from {min(span[0] for span in spans)} to {max(span[1] for span in spans)}"

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
                f"{len(kept)} slices are named {short(name)} and begin at {time} ns, at the positions"
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
            return UnknownSlice(f"The {where} has no slice named {short(reference.name)}.")
        _, time, position = nearest
        return UnknownSlice(
            f"No slice of the {where} named {short(reference.name)} begins at {reference.number} ns;"
            f" the nearest begins at {time} ns, at position {position}.",
            nearest={"ts_ns": time, "position": position},
        )  # fmt: skip

    # -- slices of the engine -----------------------------------------------------------------------------------------

    def row_of_engine_slice(self, chosen: EngineSlice, alike: int) -> int:
        """Return the row of a slice of the engine.

        Args:
            chosen: the slice.
            alike: number of the engine's slices that share its properties.

        Raises:
            UnknownSlice: the engine's slices with these properties are not events of the columns, one by one.
        """
        rows = self._alike(chosen)
        if len(rows) != alike:
            raise not_one_event(chosen.name)
        return rows[chosen.nth]

    def engine_slice(self, row: int) -> tuple[EngineSlice, int, int]:
        """Return the slice of a row in the engine, and its start and end on the trace's own clock, in ns."""
        (part,) = self._parts.read(_COLUMNS, [self._part_of(row)])
        index = row - part.first
        starts, stops = self._times(part)
        begins, durations = engine_times(starts, stops - starts, self._base)
        name, track = _engine_name(part.table["name"][index].as_py()), _track(part, index)
        first = EngineSlice(int(begins[index]), int(durations[index]), name, *track, nth=0)
        return replace(first, nth=self._alike(first).index(row)), int(starts[index]), int(stops[index])

    def _alike(self, chosen: EngineSlice) -> list[int]:
        """Return the rows of the slices that share the properties of a slice, in the engine's order.

        Args:
            chosen: the slice; its index among these slices does not matter.
        """
        is_moved = self._clip or chosen.ts in {0, SPAN_MAX}
        candidates = range(len(self._parts)) if is_moved else self._beginning(chosen.ts + self._base)
        alike: list[int] = []
        times: set[int] = set()
        for part in self._parts.read(_COLUMNS, candidates):
            starts, stops = self._times(part)
            begins, durations = engine_times(starts, stops - starts, self._base)
            same = (
                _slices(part, lambda name: _engine_name(name) == chosen.name)
                & self._is_shown(part)
                & (begins == chosen.ts)
                & (durations == chosen.dur)
            )
            rows = [row for row in np.flatnonzero(same).tolist() if _track(part, row) == (chosen.pid, chosen.tid)]
            alike += [part.first + row for row in rows]
            times.update(starts[rows].tolist())
        return alike if chosen.dur or len(alike) == 1 else self._in_document_order(alike, [*times], candidates)

    def _in_document_order(self, rows: list[int], times: list[int], candidates: Sequence[int]) -> list[int]:
        """Return rows of slices without duration in the order of a document; see `with_slices_before_ends`.

        Args:
            rows: the rows.
            times: the times at which their slices begin.
            candidates: the indices of the parts that have events of these times.
        """
        tables = []
        for part in self._parts.read(_COLUMNS, candidates):
            starts, stops = self._times(part)
            columns = {name: part.table[name] for name in ("ph", *TRACK)} | {
                "ts_ns": pa.array(starts),
                "dur_ns": pa.array(stops - starts, mask=~part.has("dur_ns")),
                "row": pa.array(part.first + np.arange(len(part))),
            }
            tables.append(pa.table(columns).filter(pa.array(self._is_shown(part) & np.isin(starts, times))))
        ordered, _ = by_time(pa.concat_tables(tables))
        places = {row: place for place, row in enumerate(with_slices_before_ends(ordered)["row"].to_pylist())}
        return sorted(rows, key=places.__getitem__)

    def event(self, row: int, columns: Sequence[str]) -> dict[str, Any]:
        """Return columns of the event of a row, as the selection has it: with new times and arguments if it is cut."""
        (part,) = self._parts.read([*{"ph", *CELLS, *columns}], [self._part_of(row)])
        table = part.table.slice(row - part.first, 1)
        return dict((clipped(table, self._clip) if self._clip else table).select([*columns]).to_pylist()[0])

    def _times(self, part: Part) -> tuple[Ints, Ints]:
        """Return the starts and ends of a part's events. They are clipped if the selection clips events."""
        return clipped_times(part, self._clip) if self._clip else (part.starts, part.ends)

    @cached_property
    def _base(self) -> int:
        return time_base(self._parts)

    def _is_shown(self, part: Part) -> Flags:
        return np.ones(len(part), np.bool_) if self._kept is None else self._kept[part.rows]

    def _beginning(self, time: int) -> list[int]:
        """Return the indices of the parts whose time span includes a time, so that an event may begin at it."""
        return [index for index in range(len(self._parts)) if _holds(self._parts.span(index, "ts_ns"), time)]

    def _part_of(self, row: int) -> int:
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


def _track(part: Part, row: int) -> tuple[str, str]:
    """Return the pid and the tid of a row, as text."""
    pid, pid_text, tid, tid_text = (part.table[column][row].as_py() for column in TRACK)
    return str(key_of(pid, pid_text)), str(key_of(tid, tid_text))

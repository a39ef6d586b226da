"""Clipping of slices at the edges of a selection's time. An added argument keeps the original start and duration."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.cutting.criteria import IntervalSet
from service.store.columns import by_time
from service.store.parts import Ints, Part
from service.trace.text import Members, Number, read, with_member, written
from service.trace.time import decimal, decimals_of

MARK = "clipped"
"""Argument that a cut slice gets: an object with its original ``ts`` and ``dur``."""

CELLS = ("ts_ns", "ts_digits", "dur_ns", "dur_digits", "args", "rest", "verbatim")
"""The columns of a slice that change where it is cut, and those that this needs."""


class SliceClipper:
    """Incremental clipper: takes and returns events sorted by time, and cuts their slices.

    Slices outside of the selection's intervals stay unchanged, because the closure added them.
    """

    def __init__(self, time: IntervalSet) -> None:
        self._time = time
        self._pending: pa.Table | None = None  # events that later events may still precede

    def clip(self, table: pa.Table) -> pa.Table:
        """Clip the next table, and return the events so far that no later event can precede."""
        cut = clipped(table, self._time)
        if cut is table and self._pending is None:
            return table
        ordered, times = by_time(pa.concat_tables([self._pending, cut]) if self._pending else cut)
        ready = len(ordered)
        part = Part(0, 0, table)
        if part.has("ts_ns").all():  # more timed events may follow
            ready = int(np.searchsorted(times, part.starts[-1], "right"))
        self._pending = ordered.slice(ready) if ready < len(ordered) else None
        return ordered.slice(0, ready)

    def flush(self) -> pa.Table | None:
        """Return the remaining events. Call this after the last table."""
        return self._pending


def clipped(table: pa.Table, time: IntervalSet) -> pa.Table:
    """Return events in the same order, with slices that overlap `time` cut to it; the table itself if none is cut."""
    part = Part(0, 0, table)
    starts, ends = clipped_times(part, time)
    changed = np.flatnonzero((starts != part.starts) | (ends != part.ends))
    return _cut(table, changed, starts[changed], (ends - starts)[changed])


def clipped_times(part: Part, time: IntervalSet) -> tuple[Ints, Ints]:
    """Return the start and the end of each event of a part in ns; slices that overlap `time` are cut to it."""
    starts, ends = part.starts.copy(), part.ends.copy()
    rows = np.flatnonzero(part.slices & part.has("ts_ns") & time.overlaps(starts, ends))
    starts[rows], ends[rows] = time.clipped(starts[rows], ends[rows])
    return starts, ends


def _cut(table: pa.Table, rows: Ints, starts: Ints, durations: Ints) -> pa.Table:
    """Return the table with new times, in ns, and the argument `MARK` in the given rows."""
    if not len(rows):
        return table
    cells = {name: table[name].take(rows).to_pylist() for name in CELLS}
    events = [dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)]
    for event, start, duration in zip(events, starts.tolist(), durations.tolist(), strict=True):
        event.update(_cut_event(event, start, duration))
    mask = np.zeros(len(table), np.bool_)
    mask[rows] = True
    for name in CELLS:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        values = pa.array([event[name] for event in events], field.type)
        table = table.set_column(index, field, pc.replace_with_mask(table[name].combine_chunks(), mask, values))
    return table


def _cut_event(event: dict[str, Any], start: int, duration: int) -> dict[str, Any]:
    """Return the changed cells of an event that gets a new start and duration, in ns."""
    changed: dict[str, Any] = {"ts_ns": start, "dur_ns": duration}
    if event["verbatim"]:
        return changed | {"rest": _cut_text(event["rest"], start, duration)}
    original = {key: decimal(event[f"{key}_ns"], event[f"{key}_digits"]) for key in ("ts", "dur")}
    mark = written(Members((key, Number(text)) for key, text in original.items()))
    for key in ("ts", "dur"):
        changed[f"{key}_digits"] = max(event[f"{key}_digits"], decimals_of(changed[f"{key}_ns"]))
    return changed | {"args": with_member(event["args"] or "{}", MARK, mark)}


def _cut_text(text: str, start: int, duration: int) -> str:
    """Return the JSON text of an event with a new start and duration, in ns, and the argument `MARK`."""
    times = {key: Number(decimal(ns, decimals_of(ns))) for key, ns in (("ts", start), ("dur", duration))}
    event = read(text)
    original = Members((key, value) for time in times for key, value in event if key == time)
    changed = Members((key, times.get(key, value)) for key, value in event)
    args = dict(event).get("args", Members())
    if isinstance(args, Members):
        changed = Members((key, value) for key, value in changed if key != "args")
        changed.append(("args", Members([*args, (MARK, original)])))
    return written(changed)

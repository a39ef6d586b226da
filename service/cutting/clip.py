"""Slices cut at the edges of a selection's time: they begin and end within it, and tell where they began and ended."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.cutting.criteria import Time
from service.store.columns import by_time
from service.store.parts import Ints, Part
from service.trace.text import Members, Number, read, with_member, written
from service.trace.time import decimal, decimals_of

MARK = "clipped"
"""The argument of a cut slice: an object of the ``ts`` and the ``dur`` that it came with."""

_CELLS = ("ts_ns", "ts_digits", "dur_ns", "dur_digits", "args", "rest", "verbatim")


class Clip:
    """Cuts the slices of events that come in order of time, and gives the events on in order of time again.

    Slices that share no time with it came along with others, and stay as they are.
    """

    def __init__(self, time: Time) -> None:
        self._time = time
        self._later: pa.Table | None = None  # slices that now begin behind what has passed

    def passed(self, table: pa.Table) -> pa.Table:
        """The events of the next table, as far as no more can come between them."""
        part = Part(0, 0, table)
        starts, ends = part.starts, part.ends
        begins, stops = clipped_times(part, self._time)
        changed = np.flatnonzero((begins != starts) | (stops != ends))
        if not len(changed) and self._later is None:
            return table
        cut = _cut(table, changed, begins[changed], (stops - begins)[changed])
        ordered, times = by_time(pa.concat_tables([self._later, cut]) if self._later else cut)
        passed = len(ordered)
        if part.has("ts_ns").all():  # there may be more with a time
            passed = int(np.searchsorted(times, starts[-1], "right"))
        self._later = ordered.slice(passed) if passed < len(ordered) else None
        return ordered.slice(0, passed)

    def rest(self) -> pa.Table | None:
        """What has not been given on yet, once no more comes."""
        return self._later


def clipped_times(part: Part, time: Time) -> tuple[Ints, Ints]:
    """The start and the end of each event of a part in ns, those of slices that share time with `time` cut to it."""
    begins, stops = part.starts.copy(), part.ends.copy()
    over = np.flatnonzero(part.slices & part.has("ts_ns") & time.meet(begins, stops))
    begins[over], stops[over] = time.clipped(begins[over], stops[over])
    return begins, stops


def _cut(table: pa.Table, rows: Ints, starts: Ints, lasts: Ints) -> pa.Table:
    """The table with other times, and the mark, in some rows."""
    if not len(rows):
        return table
    cells = {name: table[name].take(rows).to_pylist() for name in _CELLS}
    events = [dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)]
    for event, start, last in zip(events, starts.tolist(), lasts.tolist(), strict=True):
        event.update(_cut_event(event, start, last))
    mask = np.zeros(len(table), np.bool_)
    mask[rows] = True
    for name in _CELLS:
        place = table.schema.get_field_index(name)
        kind = table.schema.field(place)
        values = pa.array([event[name] for event in events], kind.type)
        table = table.set_column(place, kind, pc.replace_with_mask(table[name].combine_chunks(), mask, values))
    return table


def _cut_event(event: dict[str, Any], start: int, last: int) -> dict[str, Any]:
    """What changes in an event's cells where it begins at a time and lasts a time, in ns."""
    changed: dict[str, Any] = {"ts_ns": start, "dur_ns": last}
    if event["verbatim"]:
        return changed | {"rest": _cut_text(event["rest"], start, last)}
    was = {key: decimal(event[f"{key}_ns"], event[f"{key}_digits"]) for key in ("ts", "dur")}
    mark = written(Members((key, Number(text)) for key, text in was.items()))
    for key in ("ts", "dur"):
        changed[f"{key}_digits"] = max(event[f"{key}_digits"], decimals_of(changed[f"{key}_ns"]))
    return changed | {"args": with_member(event["args"] or "{}", MARK, mark)}


def _cut_text(text: str, start: int, last: int) -> str:
    """The text of an event likewise."""
    times = {key: Number(decimal(ns, decimals_of(ns))) for key, ns in (("ts", start), ("dur", last))}
    event = read(text)
    mark = Members((key, value) for key, value in event if key in times)
    marked = Members((key, times.get(key, value)) for key, value in event)
    args = dict(event).get("args", Members())
    if isinstance(args, Members):
        marked = Members((key, value) for key, value in marked if key != "args")
        marked.append(("args", Members([*args, (MARK, mark)])))
    return written(marked)

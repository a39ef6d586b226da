"""Anomalies of a trace that are not errors: the number and the first examples of each, found in its columns."""

import heapq
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from service.store.parts import METADATA, Flags, Ints, Part, Parts
from service.store.tally_sums import TallySums
from service.trace.health import EXAMPLES_MAX, Health
from service.trace.summary import Summary

APART_NS = 60_000_000_000
"""Minimum gap in ns between outlier events and all other events."""

EPOCH_NS = 1_262_304_000_000_000_000
"""The year 2010 in ns since 1970. Profiles are not older, so a clock with smaller times does not count from 1970."""

_NAME_MAX = 60  # characters of a name in an example
_SHOWN = ("position", "name", "cat", "ph", "ts_ns", "dur_ns")


def note_anomalies(
    parts: Parts, sums: TallySums, unlaunched: Ints, envelope: Mapping[str, Any], summary: Summary, health: Health
) -> None:
    """Find the anomalies of a trace, and add them to its health.

    Args:
        parts: the events.
        sums: the sums over the tally of the events.
        unlaunched: rows of the work that has no launch, in ascending order.
        envelope: the document's members except for its events.
        summary: the summary so far.
        health: the health to add to.

    Raises:
        ExportFailed: the events can't be read.
    """

    def note(code: str, count: int, flags: Callable[[Part], Flags]) -> None:
        if count:
            health.add(code, count=count)
            for text in _examples(parts, flags):
                health.add_example(code, text=text)

    note("no_time", sums.without_time, lambda part: ~part.has("ts_ns") & ~part.which("ph", METADATA))
    note("no_duration", sums.without_duration, lambda part: ~part.has("dur_ns") & part.slices)
    note("negative_times", sums.before_zero, lambda part: part.ints("ts_ns") < 0)
    note("negative_durations", sums.negative, lambda part: part.ints("dur_ns") < 0)

    rows, latest = range(sums.before_zero + sums.at_zero, sums.with_time), 0
    if rows:
        early, late = _edges(parts, rows)
        latest = int(late[0])
        if early[0] > APART_NS:
            note("zero_times", sums.at_zero, lambda part: part.starts == 0)
        before, behind = _far(early, late)
        near = rows[before], rows[-1 - behind]
        note("outlier_times", before + behind, lambda part: (part.ints("ts_ns") > 0) & ~_within(part, *near))

    note("unlinked_kernels", len(unlaunched), lambda part: _at(part, unlaunched))

    if summary.rank is None and not summary.ranks:
        health.add("unknown_rank")
    if summary.base_ns is None:
        base = envelope.get("baseTimeNanoseconds")
        if base is not None or (sums.with_time and latest < EPOCH_NS):
            shown = base is not None and not isinstance(base, dict | list)
            health.add("unknown_base", text=f"baseTimeNanoseconds: {base}" if shown else None)


def _examples(parts: Parts, flags: Callable[[Part], Flags]) -> list[str]:
    """Return the texts of the first flagged events in the order of the file."""
    examples: list[tuple[int, str]] = []
    for part in parts.read(_SHOWN):
        rows = np.flatnonzero(flags(part))
        first = rows[np.argsort(part.ints("position")[rows], kind="stable")[:EXAMPLES_MAX]]
        shown = part.table.select(_SHOWN).take(first).to_pylist()
        examples = heapq.nsmallest(EXAMPLES_MAX, [*examples, *((event["position"], _shown(event)) for event in shown)])
    return [text for _, text in examples]


def _shown(event: Mapping[str, Any]) -> str:
    names = [event[key] for key in ("name", "cat", "ph") if event[key] is not None]
    times = [
        f"{key} {event[column]} ns" for key, column in (("ts", "ts_ns"), ("dur", "dur_ns")) if event[column] is not None
    ]
    return ", ".join([*(name[:_NAME_MAX] for name in names[:1]), *times])


def _within(part: Part, first: int, last: int) -> Flags:
    """Flag the rows of a part from the row `first` to the row `last` of the trace."""
    rows = np.arange(part.rows.start, part.rows.stop)
    return (first <= rows) & (rows <= last)


def _edges(parts: Parts, rows: range) -> tuple[Ints, Ints]:
    """Return the starts of about the first and the last hundredth of the events at `rows`, which are in order."""
    edge = min(len(rows) // 100 + 1, (len(rows) - 1) // 2)
    early, late = (_starts(parts, part[0], part[-1]) for part in (rows[: edge + 1], rows[-1 - edge :]))
    return early, late


def _starts(parts: Parts, first: int, last: int) -> Ints:
    """Return the starts of the events from the row `first` to the row `last`, in ns."""
    chosen = parts.read(["ts_ns"], parts.between(first, last))
    return np.concatenate([part.starts[_within(part, first, last)] for part in chosen])


def _at(part: Part, rows: Ints) -> Flags:
    """Flag the rows of a part that are among rows of the trace, which are in ascending order."""
    flags = np.zeros(len(part), np.bool_)
    first, last = np.searchsorted(rows, [part.rows.start, part.rows.stop])
    flags[rows[first:last] - part.first] = True
    return flags


def _far(early: Ints, late: Ints) -> tuple[int, int]:
    """Return the numbers of outliers at the start and at the end.

    The distance of an outlier from the other events exceeds both `APART_NS` and the time between the two edges.
    """
    apart = max(APART_NS, late[0] - early[-1])
    before, behind = (np.flatnonzero(np.diff(part) > apart) for part in (early, late))
    return (
        int(before[-1]) + 1 if len(before) else 0,
        len(late) - 1 - int(behind[0]) if len(behind) else 0,
    )

"""Tally of a trace's events by their classes, made while they are written."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.store.event_classes import EventClass, EventClasses
from service.store.parts import Part
from service.streaming.scan.compiled import compiled

_EVENTS, _START, _END, _TIMED, _BEFORE_ZERO, _AT_ZERO, _LASTING, _NEGATIVE = range(8)
_WIDTH = _NEGATIVE + 1
_ROWS_AT_ONCE = 10_000  # rows that are listed at a time
_TIME_MAX = (1 << 63) - 1

Ints = npt.NDArray[np.int64]


class TallyRow(NamedTuple):
    """A class of events, and what is counted of them.

    Attributes:
        event_class: what the events have in common.
        events: their number.
        start_ns, end_ns: their first start and last end.
        timed, before_zero, at_zero: the numbers of those with a start, and of those that start before 0 and at 0.
        lasting, negative: the numbers of those with a duration, and with one below zero.
    """

    event_class: EventClass
    events: int
    start_ns: int | None
    end_ns: int | None
    timed: int
    before_zero: int
    at_zero: int
    lasting: int
    negative: int


@compiled
def _add(classes: Ints, starts: Ints, lasts: Ints, have_start: Any, have_last: Any, rows: Ints) -> None:
    """Add events to the rows of their classes.

    Args:
        classes: the class of each event.
        starts: the start of each event in ns.
        lasts: its duration in ns.
        have_start: whether it has a start.
        have_last: whether it has a duration.
        rows: the table, with a row for each class.
    """
    for event in range(len(classes)):
        row = classes[event]
        rows[row, _EVENTS] += 1
        start, last = starts[event], lasts[event]
        if have_start[event]:
            end = start
            if have_last[event] and last > 0 and (start <= 0 or last <= _TIME_MAX - start):
                end = start + last
            is_first = rows[row, _TIMED] == 0
            rows[row, _START] = start if is_first else min(rows[row, _START], start)
            rows[row, _END] = end if is_first else max(rows[row, _END], end)
            rows[row, _TIMED] += 1
            rows[row, _BEFORE_ZERO] += start < 0
            rows[row, _AT_ZERO] += start == 0
        rows[row, _LASTING] += have_last[event]
        rows[row, _NEGATIVE] += have_last[event] and last < 0


class Tally:
    """The tally.

    Args:
        classes: the classes of the trace's events.
    """

    def __init__(self, classes: EventClasses) -> None:
        self._classes = classes
        self._rows = np.zeros((1, _WIDTH), np.int64)

    def add(self, part: Part) -> None:
        """Add the next events."""
        classes = self._classes.of(part)
        if len(self._rows) < len(self._classes):
            rows = np.zeros((2 * len(self._classes), _WIDTH), np.int64)
            rows[: len(self._rows)] = self._rows
            self._rows = rows
        starts, lasts = part.numbers("ts_ns"), part.numbers("dur_ns")
        _add(classes, starts, lasts, part.has("ts_ns"), part.has("dur_ns"), self._rows)

    def rows(self) -> Iterator[TallyRow]:
        """Yield the rows of the tally."""
        counts = self._counts().to_batches(max_chunksize=_ROWS_AT_ONCE)
        values = (row for batch in counts for row in zip(*(column.to_pylist() for column in batch), strict=True))
        for event_class, row in zip(self._classes.listed(), values, strict=True):
            yield TallyRow(event_class, *row)

    def _counts(self) -> pa.Table:
        rows = self._rows[: len(self._classes)]
        untimed = rows[:, _TIMED] == 0
        return pa.table(
            {
                "events": pa.array(rows[:, _EVENTS]),
                "start_ns": pa.array(rows[:, _START], mask=untimed),
                "end_ns": pa.array(rows[:, _END], mask=untimed),
                "timed": pa.array(rows[:, _TIMED]),
                "before_zero": pa.array(rows[:, _BEFORE_ZERO]),
                "at_zero": pa.array(rows[:, _AT_ZERO]),
                "lasting": pa.array(rows[:, _LASTING]),
                "negative": pa.array(rows[:, _NEGATIVE]),
            }
        )

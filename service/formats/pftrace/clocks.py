"""The clocks of a trace, and the zero of its times."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

BOOT_TIME, REAL_TIME = 6, 1
"""Clocks of Perfetto: that of a trace unless it names another, and that of the time since 1970."""
TIME_MAX = 1 << 62
"""The end of the times that an event can have, in ns."""

_OF_SEQUENCES = range(64, 128)  # clocks that each sequence of packets has for itself
_EPOCH_NS = 10**18  # later than this since 1970; a clock that starts with the machine never gets there
_INTERVAL_NS = 7_889_238 * 10**9  # Kineto's zeros are multiples of it, so that times in µs are exact as floating point


@dataclass
class _Clock:
    last: int
    to_trace: int
    multiplier: int
    is_incremental: bool


class Clocks:
    """Converts the timestamps of packets to ns on one clock.

    Without snapshots of clocks, all times are on the clock of the first event, as PyTorch writes them: ns since 1970.
    Times since 1970 are rebased, as Kineto does it.
    """

    def __init__(self) -> None:
        self._clocks: dict[tuple[int, int], _Clock] = {}
        self._trace_clock = BOOT_TIME
        self._first: int | None = None
        self._zero: int | None = None
        self._epoch: int | None = None

    @property
    def base_ns(self) -> int | None:
        """Zero of the times in ns since 1970, or None if it is unknown."""
        return (self._zero or 0) + self._epoch if self._epoch is not None else self._zero or None

    def set_zero(self, zero_ns: int) -> None:
        """Set the zero of the times of events, on the clock of the first event."""
        self._zero = zero_ns

    def add_snapshot(self, sequence: int, snapshot: Any) -> None:
        """Relate clocks by a snapshot: the values of several clocks at one time."""
        if not self._clocks and snapshot.primary_trace_clock:
            self._trace_clock = snapshot.primary_trace_clock
        values = {
            self._key(sequence, clock.clock_id): (clock, clock.timestamp * (clock.unit_multiplier_ns or 1))
            for clock in snapshot.clocks
        }
        now = self._now({key: value for key, (_, value) in values.items()})
        for key, (clock, value) in values.items():
            multiplier = clock.unit_multiplier_ns or 1
            self._clocks[key] = _Clock(value, now - value, multiplier, clock.is_incremental)
        real_time = values.get((0, REAL_TIME))
        if real_time and self._epoch is None:
            self._epoch = real_time[1] - now

    def time(self, sequence: int, clock_id: int, timestamp: int) -> int | None:
        """Return a time in ns; None if nothing relates its clock to that of the trace, or if it is too large."""
        clock_id = clock_id or self._trace_clock
        clock = self._clocks.get((sequence if clock_id in _OF_SEQUENCES else 0, clock_id))
        if clock is None:
            time = self._of_first(clock_id, timestamp)
        elif clock.is_incremental:
            clock.last += timestamp * clock.multiplier
            time = clock.last + clock.to_trace
        else:
            time = timestamp * clock.multiplier + clock.to_trace
        if time is None or not -TIME_MAX < time < TIME_MAX:
            return None
        if self._zero is None:
            self._zero = time - time % _INTERVAL_NS if time > _EPOCH_NS else 0
        return time - self._zero

    def _of_first(self, clock_id: int, timestamp: int) -> int | None:
        """Return a time of the clock of the first event, if no snapshot has one; else None."""
        if self._clocks or clock_id in _OF_SEQUENCES:
            return timestamp if clock_id == self._trace_clock else None
        if self._first is None:
            self._first = clock_id
        return timestamp if clock_id == self._first else None

    def _now(self, values: dict[tuple[int, int], int]) -> int:
        """Return the time of a snapshot on the clock of the trace."""
        if (now := values.get((0, self._trace_clock))) is not None:
            return now
        known: Iterable[int] = (
            value + self._clocks[key].to_trace for key, value in values.items() if key in self._clocks
        )
        return next(iter(known), next(iter(values.values()), 0))

    @staticmethod
    def _key(sequence: int, clock_id: int) -> tuple[int, int]:
        return sequence if clock_id in _OF_SEQUENCES else 0, clock_id

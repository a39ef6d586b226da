"""Transfers that share a store: each gets an equal share of its throughput, up to a limit of its own."""

import heapq
from math import inf


class Transfers:
    """Transfers through one store, which all have the same rate at a time.

    So any two of them move the same number of bytes in the same time. Each needs only one number: the sum of bytes,
    counted from the start of the simulation, at which it ends.

    Args:
        total: throughput of the store, in bytes per second.
        limit: the largest throughput of one transfer.
    """

    def __init__(self, total: float, limit: float) -> None:
        self._total, self._limit = total, limit
        self._moved = self._now = 0.0
        self._ends: list[tuple[float, int]] = []
        self._cancelled: set[int] = set()

    def __len__(self) -> int:
        """Return the number of transfers that are under way."""
        return len(self._ends) - len(self._cancelled)

    @property
    def rate(self) -> float:
        """Bytes per second of each transfer."""
        return min(self._limit, self._total / max(1, len(self)))

    def start(self, key: int, size: float, now: float) -> None:
        """Start a transfer of so many bytes; no other one has had its key."""
        self._advance(now)
        heapq.heappush(self._ends, (self._moved + size, key))

    def cancel(self, key: int, now: float) -> None:
        """Cancel a transfer that is under way."""
        self._advance(now)
        self._cancelled.add(key)

    @property
    def next_end(self) -> float:
        """The time at which the next transfer ends; infinite if there is none."""
        self._drop_cancelled()
        return self._now + max(self._ends[0][0] - self._moved, 0.0) / self.rate if self._ends else inf

    def end_next(self) -> int:
        """End the next transfer, at its time, and return its key."""
        self._advance(self.next_end)
        target, key = heapq.heappop(self._ends)
        self._moved = target  # without the error of adding up times
        return key

    def _advance(self, now: float) -> None:
        self._moved += self.rate * (now - self._now)
        self._now = now

    def _drop_cancelled(self) -> None:
        while self._ends and self._ends[0][1] in self._cancelled:
            self._cancelled.remove(heapq.heappop(self._ends)[1])

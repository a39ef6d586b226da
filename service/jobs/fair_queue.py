"""A queue whose clients can't take all workers: each has at most so many items in work at a time."""

import threading
from collections import Counter
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class Entry(NamedTuple, Generic[Item]):
    """An item that waits or is in work, and the client that it is for."""

    turn: int
    number: int
    client: Hashable
    item: Item


class FairQueue(Generic[Item]):
    """Items that wait for the threads that work on them; those of clients with the least in work go first.

    Args:
        per_client: items of one client that are in work at once.
    """

    def __init__(self, per_client: int) -> None:
        self._per_client = per_client
        self._waiting: list[Entry[Item]] = []
        self._in_work: Counter[Hashable] = Counter()
        self._changed = threading.Condition()

    def put(self, entry: Entry[Item]) -> None:
        """Add an item."""
        with self._changed:
            self._waiting.append(entry)
            self._changed.notify()

    def take(self) -> Entry[Item]:
        """Wait for an item whose client may have it worked on, and take it; `done` ends that work."""
        with self._changed:
            while (entry := self._next()) is None:
                self._changed.wait()
            self._waiting.remove(entry)
            self._in_work[entry.client] += 1
            return entry

    def done(self, entry: Entry[Item]) -> None:
        """End the work on an item."""
        with self._changed:
            self._in_work[entry.client] -= 1
            if not self._in_work[entry.client]:
                del self._in_work[entry.client]
            self._changed.notify()

    def _next(self) -> Entry[Item] | None:
        """The first item of the clients with the least in work, by turn and number."""
        allowed = [entry for entry in self._waiting if self._in_work[entry.client] < self._per_client]
        return min(allowed, key=lambda entry: (self._in_work[entry.client], entry.turn, entry.number), default=None)

"""A fair queue: it bounds the number of items of each client that are in work at the same time."""

import threading
from collections import Counter
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class Entry(NamedTuple, Generic[Item]):
    """An item of a queue.

    Attributes:
        turn: items with a lower turn go first.
        number: among items with the same turn, those with a lower number go first.
        client: the client that the item is for.
        item: the item.
        is_large: whether the item takes much memory: of each client, one such item is in work at a time.
    """

    turn: int
    number: int
    client: Hashable
    item: Item
    is_large: bool = False


class FairQueue(Generic[Item]):
    """Queue between threads. Items of the clients with the fewest items in work go first.

    Args:
        per_client: maximum number of items of one client that are in work at the same time.
    """

    def __init__(self, per_client: int) -> None:
        self._per_client = per_client
        self._waiting: list[Entry[Item]] = []
        self._in_work: Counter[Hashable] = Counter()
        self._with_large: set[Hashable] = set()
        """Clients with a large item in work."""
        self._changed = threading.Condition()

    def put(self, entry: Entry[Item]) -> None:
        """Add an item."""
        with self._changed:
            self._waiting.append(entry)
            self._changed.notify()

    def take(self) -> Entry[Item]:
        """Wait for an item whose client has not reached a bound, and return it; the caller must call `done` later."""
        with self._changed:
            while (entry := self._next()) is None:
                self._changed.wait()
            self._waiting.remove(entry)
            self._in_work[entry.client] += 1
            if entry.is_large:
                self._with_large.add(entry.client)
            return entry

    def done(self, entry: Entry[Item]) -> None:
        """Record the end of the work on an item."""
        with self._changed:
            self._in_work[entry.client] -= 1
            if not self._in_work[entry.client]:
                del self._in_work[entry.client]
            if entry.is_large:
                self._with_large.remove(entry.client)
            self._changed.notify_all()

    def _next(self) -> Entry[Item] | None:
        """Return the first item of the clients with the fewest items in work, by turn and number."""
        allowed = [
            entry
            for entry in self._waiting
            if self._in_work[entry.client] < self._per_client
            and not (entry.is_large and entry.client in self._with_large)
        ]
        return min(allowed, key=lambda entry: (self._in_work[entry.client], entry.turn, entry.number), default=None)

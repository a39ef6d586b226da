"""Queues of WebSocket messages, bounded in bytes by backpressure.

A connection whose queue is full is not read, so TCP makes its client wait.
"""

import asyncio
from collections import deque

MESSAGE_MAX_BYTES = 5 << 20
"""Size of a message; a statement over HTTP may have 4 MiB."""
QUEUED_MESSAGES_MAX = 256
"""Number of messages in the queue of a connection."""
CONNECTION_MAX_BYTES = 8 << 20
"""Bytes that a connection may hold."""
TOTAL_MAX_BYTES = 64 << 20
"""Bytes that all connections together may hold."""
UNCOUNTED_BYTES = 64 << 10
"""Bytes of each connection that do not count in the total, so that small requests never wait for other connections."""


class ByteBudget:
    """A number of bytes that several connections share.

    Args:
        maximum: bytes that are held at the same time; a larger request is granted when no bytes are held.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._released = asyncio.Event()
        self.held = 0

    async def take(self, size: int) -> None:
        """Take bytes; waits until that many are free."""
        while self.held and self.held + size > self._maximum:
            self._released.clear()
            await self._released.wait()
        self.held += size

    def give_back(self, size: int) -> None:
        """Return bytes."""
        self.held -= size
        self._released.set()


class Inbox:
    """The queue of messages of one connection.

    Args:
        total: the budget that all connections share.
        maximum: bytes that this connection may hold.
    """

    def __init__(self, total: ByteBudget, maximum: int = CONNECTION_MAX_BYTES) -> None:
        self._total = total
        self._maximum = maximum
        self._messages: deque[bytes] = deque()
        self._added, self._removed = asyncio.Event(), asyncio.Event()
        self._held = 0  # bytes of the messages that are queued or being answered
        self._counted = 0  # those of the held bytes that are taken from the total

    async def put(self, message: bytes) -> None:
        """Add a message; waits until there is room for it."""
        size = len(message)
        while self._held and (self._held + size > self._maximum or len(self._messages) >= QUEUED_MESSAGES_MAX):
            self._removed.clear()
            await self._removed.wait()
        uncovered = max(self._held + size - UNCOUNTED_BYTES, 0) - self._counted
        if uncovered > 0:
            await self._total.take(uncovered)
            self._counted += uncovered
        self._held += size
        self._messages.append(message)
        self._added.set()

    async def get(self) -> bytes:
        """Take the next message; waits for it. Its bytes are held until `done`."""
        while not self._messages:
            self._added.clear()
            await self._added.wait()
        return self._messages.popleft()

    def done(self, *, unfinished: int) -> None:
        """Release the bytes of the messages taken so far, which have been answered.

        Args:
            unfinished: bytes at their end that begin an incomplete request; these stay held.
        """
        self._held = sum(map(len, self._messages)) + unfinished
        still_counted = max(self._held - UNCOUNTED_BYTES, 0)
        if still_counted < self._counted:
            self._total.give_back(self._counted - still_counted)
            self._counted = still_counted
        self._removed.set()

    def close(self) -> None:
        """Drop all messages, and release all bytes."""
        self._messages.clear()
        self.done(unfinished=0)

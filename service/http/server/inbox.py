"""Queues of WebSocket messages, bounded in bytes by backpressure.

A connection whose queue is full is not read, so TCP makes its client wait.
"""

import asyncio
from collections import deque

MESSAGE_MAX = 5 << 20
"""Bytes of one message; a statement over HTTP may have 4 MiB."""
MESSAGES_MAX = 256
CONNECTION_MAX = 8 << 20
TOTAL_MAX = 64 << 20
FREE = 64 << 10
"""Bytes of each connection that do not count in the total: small requests never wait for other connections."""


class ByteBudget:
    """A number of bytes that several holders share.

    Args:
        maximum: bytes held at the same time; a single holder may take more if no other has any.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._released = asyncio.Event()
        self.held = 0

    async def take(self, size: int) -> None:
        """Take bytes, once that many are free."""
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
        total: the budget of all connections.
        maximum: bytes of this connection.
    """

    def __init__(self, total: ByteBudget, maximum: int = CONNECTION_MAX) -> None:
        self._total = total
        self._maximum = maximum
        self._messages: deque[bytes] = deque()
        self._added, self._removed = asyncio.Event(), asyncio.Event()
        self._held = 0  # bytes of messages that wait or are being answered
        self._counted = 0  # bytes of these in the total

    async def put(self, message: bytes) -> None:
        """Add a message, once there is space for it."""
        size = len(message)
        while self._held and (self._held + size > self._maximum or len(self._messages) >= MESSAGES_MAX):
            self._removed.clear()
            await self._removed.wait()
        more = max(self._held + size - FREE, 0) - self._counted
        if more > 0:
            await self._total.take(more)
            self._counted += more
        self._held += size
        self._messages.append(message)
        self._added.set()

    async def get(self) -> bytes:
        """Take the next message; its bytes count until `done`."""
        while not self._messages:
            self._added.clear()
            await self._added.wait()
        return self._messages.popleft()

    def done(self, *, unfinished: int) -> None:
        """Release the bytes of messages that were answered.

        Args:
            unfinished: bytes of them that are the beginning of an incomplete request.
        """
        self._held = sum(map(len, self._messages)) + unfinished
        kept = max(self._held - FREE, 0)
        if kept < self._counted:
            self._total.give_back(self._counted - kept)
            self._counted = kept
        self._removed.set()

    def close(self) -> None:
        """Release all bytes."""
        self._messages.clear()
        self.done(unfinished=0)

"""Messages of WebSockets that wait for their turn: bounded in bytes, by making the client wait.

A connection whose inbox is full is not read any more, and TCP makes its client wait.
"""

import asyncio
from collections import deque

MESSAGE_MAX = 5 << 20
"""Bytes of one message; a statement over HTTP may have 4 MiB."""
MESSAGES_MAX = 256
CONNECTION_MAX = 8 << 20
TOTAL_MAX = 64 << 20
FREE = 64 << 10
"""Bytes of each connection that do not count in the total, so that small requests never wait for others."""


class ByteBudget:
    """Bytes that several holders share.

    Args:
        most: bytes held at once; a single holder may take more while nobody else has any.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._news = asyncio.Event()
        self.held = 0

    async def take(self, size: int) -> None:
        """Take bytes, once there are so many."""
        while self.held and self.held + size > self._most:
            self._news.clear()
            await self._news.wait()
        self.held += size

    def give_back(self, size: int) -> None:
        """Give bytes back."""
        self.held -= size
        self._news.set()


class Inbox:
    """The messages of one connection.

    Args:
        total: the budget of all connections.
        most: bytes of this one that may wait.
    """

    def __init__(self, total: ByteBudget, most: int = CONNECTION_MAX) -> None:
        self._total = total
        self._most = most
        self._messages: deque[bytes] = deque()
        self._arrived, self._left = asyncio.Event(), asyncio.Event()
        self._held = 0  # of messages that wait or are being answered
        self._counted = 0  # of these, in the total

    async def put(self, message: bytes) -> None:
        """Add a message, once there is room for it."""
        size = len(message)
        while self._held and (self._held + size > self._most or len(self._messages) >= MESSAGES_MAX):
            self._left.clear()
            await self._left.wait()
        more = max(self._held + size - FREE, 0) - self._counted
        if more > 0:
            await self._total.take(more)
            self._counted += more
        self._held += size
        self._messages.append(message)
        self._arrived.set()

    async def get(self) -> bytes:
        """Take the next message; its bytes count until `done`."""
        while not self._messages:
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()

    def done(self, *, unfinished: int) -> None:
        """Give back the bytes of messages that were answered.

        Args:
            unfinished: bytes of them that are kept, as the beginning of a request.
        """
        self._held = sum(map(len, self._messages)) + unfinished
        kept = max(self._held - FREE, 0)
        if kept < self._counted:
            self._total.give_back(self._counted - kept)
            self._counted = kept
        self._left.set()

    def close(self) -> None:
        """Give everything back."""
        self._messages.clear()
        self.done(unfinished=0)

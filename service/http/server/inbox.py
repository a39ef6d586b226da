"""Queues of WebSocket messages, bounded in bytes by backpressure.

A connection whose queue is full is not read, so TCP makes its client wait.
"""

import asyncio
from collections import deque

MESSAGE_MAX_BYTES = 5 << 20
"""Maximum bytes of a message: more than the 4 MiB that an SQL statement may have over HTTP."""
QUEUED_MESSAGES_MAX = 256
"""Maximum number of messages in the queue of a connection."""
CONNECTION_MAX_BYTES = 8 << 20
"""Maximum bytes of messages that a connection holds, by default."""
TOTAL_MAX_BYTES = 64 << 20
"""Maximum bytes of messages that all connections together hold."""
UNCOUNTED_BYTES = 64 << 10
"""Bytes of each connection that the total does not count, so that small requests never wait for other connections."""


class ByteBudget:
    """A number of bytes that several connections share.

    Args:
        maximum: maximum bytes held at the same time. A caller that takes more waits until no bytes are held.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._released = asyncio.Event()
        self.held = 0

    async def take(self, size: int) -> None:
        """Wait until `size` bytes are free, and take them."""
        while self.held and self.held + size > self._maximum:
            self._released.clear()
            await self._released.wait()
        self.held += size

    def give_back(self, size: int) -> None:
        """Return bytes, and let waiting connections take them."""
        self.held -= size
        self._released.set()


class Inbox:
    """The queue of messages of one connection.

    Args:
        total: the budget that all connections share.
        maximum: maximum bytes that this connection holds; a larger message waits until the connection holds none.
    """

    def __init__(self, total: ByteBudget, maximum: int = CONNECTION_MAX_BYTES) -> None:
        self._total = total
        self._maximum = maximum
        self._messages: deque[bytes] = deque()
        self._added, self._removed = asyncio.Event(), asyncio.Event()
        self._held = 0  # bytes of the messages that are queued or being answered
        self._counted = 0  # held bytes that are taken from the total

    async def put(self, message: bytes) -> None:
        """Wait until there is room for a message, and add it."""
        size = len(message)
        while self._held and (self._held + size > self._maximum or len(self._messages) >= QUEUED_MESSAGES_MAX):
            self._removed.clear()
            await self._removed.wait()
        wanted = max(self._held + size - UNCOUNTED_BYTES, 0) - self._counted
        if wanted > 0:
            await self._total.take(wanted)
            self._counted += wanted
        self._held += size
        self._messages.append(message)
        self._added.set()

    async def get(self) -> bytes:
        """Wait for the next message, and return it. Its bytes are held until `done`."""
        while not self._messages:
            self._added.clear()
            await self._added.wait()
        return self._messages.popleft()

    def done(self, *, unfinished: int) -> None:
        """Release the bytes of all messages that `get` has returned; called once these are answered.

        Args:
            unfinished: bytes at the end of these messages that begin an incomplete request. They stay held.
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

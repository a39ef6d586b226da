"""Limits on the unread bytes of responses: for each response, and for all responses together."""

from collections.abc import Callable

BUFFER_MAX = 256 << 20
"""Largest number of unread bytes of one response."""
BUFFERS_MAX = 512 << 20
"""Largest number of unread bytes of all responses together; beyond it, the largest buffer overflows."""


class ResponseBuffers:
    """The sizes of all unread responses."""

    def __init__(self) -> None:
        self._open: set[ResponseBuffer] = set()
        self.total = 0

    def open(self, on_overflow: Callable[[], None]) -> "ResponseBuffer":
        """Return an empty buffer.

        Args:
            on_overflow: called once if the buffer exceeds a limit.
        """
        buffer = ResponseBuffer(self, on_overflow)
        self._open.add(buffer)
        return buffer

    def grow(self, buffer: "ResponseBuffer", size: int) -> None:
        """Add a buffer's new bytes to the total.

        The buffer overflows if it exceeds its own limit. If the total exceeds its limit, the largest buffer overflows.
        """
        self.total += size
        if buffer.size > BUFFER_MAX:
            buffer.overflow()
        elif self.total > BUFFERS_MAX:
            max(self._open, key=lambda open_buffer: open_buffer.size).overflow()

    def remove(self, buffer: "ResponseBuffer") -> None:
        """Remove a buffer and its bytes from the total."""
        self._open.discard(buffer)
        self.total -= buffer.size


class ResponseBuffer:
    """The size of one client's unread response; created by `ResponseBuffers.open`."""

    def __init__(self, buffers: ResponseBuffers, on_overflow: Callable[[], None]) -> None:
        self._buffers = buffers
        self._on_overflow = on_overflow
        self._closed = False
        self.size = 0

    def add(self, size: int) -> bool:
        """Count more bytes, and return whether the buffer is open; if it is closed, the caller must drop the bytes."""
        if not self._closed:
            self.size += size
            self._buffers.grow(self, size)
        return not self._closed

    def subtract(self, size: int) -> None:
        """Count bytes that the client has read."""
        if not self._closed:
            self.size -= size
            self._buffers.total -= size

    def overflow(self) -> None:
        """Close the buffer and report the overflow."""
        self.close()
        self._on_overflow()

    def close(self) -> None:
        """Stop counting the bytes of this buffer."""
        if not self._closed:
            self._closed = True
            self._buffers.remove(self)
            self.size = 0

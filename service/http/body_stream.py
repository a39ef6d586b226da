"""Request bodies that are files: read in blocks, and drained if they are refused."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from service.trace.errors import ExpectationFailed, IncompleteBody, TracedockError

BLOCK = 1 << 20
"""Bytes of a block."""
DRAIN_S = 2.0
"""Seconds for which a refused body is read."""


def announced_size(request: Request) -> int | None:
    """Return the ``Content-Length`` of a request in bytes; None without one."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def check_expectation(request: Request) -> None:
    """Raise `ExpectationFailed` if the client expects anything but ``100-continue``."""
    expected = request.headers.get("expect", "100-continue")
    if expected.lower() != "100-continue":
        raise ExpectationFailed(f"The server does not support `Expect: {expected[:100]}`.")


class Body:
    """The body of a request, as it arrives; made by `receiving`.

    Args:
        chunks: its bytes.
        stalled_s: seconds without a byte after which the client counts as disconnected; None for no limit.
    """

    def __init__(self, chunks: AsyncGenerator[bytes], stalled_s: float | None) -> None:
        self._chunks = chunks
        self._stalled_s = stalled_s
        self.is_started = False

    async def each(self, write: Callable[[memoryview], Coroutine[Any, Any, None]]) -> None:
        """Write each of its `blocks` while the next one is read; raises the errors of `write`, or `IncompleteBody`."""
        writing: asyncio.Task[None] | None = None
        try:
            async for block in self.blocks():
                if writing:
                    await asyncio.wait([writing])  # not the task itself, so that it is not cancelled
                    writing.result()
                writing = asyncio.create_task(write(block))
        finally:
            if writing:
                await asyncio.wait([writing])
                writing.result()

    async def blocks(self) -> AsyncIterator[memoryview]:
        """Yield blocks of `BLOCK` bytes, and then the rest; raises `IncompleteBody` after the last byte that arrived.

        Each block is valid until the next but one: they alternate between two buffers.
        """
        filled, failure = 0, None
        block, other = memoryview(bytearray(BLOCK)), memoryview(b"")
        try:
            async for chunk in self._chunks_in_time():
                rest = memoryview(chunk)
                while rest:
                    count = min(len(rest), BLOCK - filled)
                    block[filled : filled + count] = rest[:count]
                    filled, rest = filled + count, rest[count:]
                    if filled == BLOCK:
                        yield block
                        block, other, filled = other or memoryview(bytearray(BLOCK)), block, 0
        except ClientDisconnect:
            failure = "The client disconnected."
        except TimeoutError:
            failure = f"No byte arrived for {self._stalled_s:g} seconds."
        if filled:
            yield block[:filled]
        if failure:
            raise IncompleteBody(failure)

    async def _chunks_in_time(self) -> AsyncIterator[bytes]:
        """Yield the bytes; raises `TimeoutError` if none arrive for too long."""
        while True:
            if self._stalled_s is None:
                chunk = await anext(self._chunks, None)
            else:
                async with asyncio.timeout(self._stalled_s):
                    chunk = await anext(self._chunks, None)
            if chunk is None:
                return
            self.is_started = True
            yield chunk

    async def drain(self) -> None:
        """Read the rest of the body for a while: a client that is cut off while it sends reads no response."""
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(DRAIN_S):
                async for _ in self._chunks:
                    pass


@asynccontextmanager
async def receiving(request: Request, *, stalled_s: float | None = None) -> AsyncIterator[Body]:
    """Read the body of a request; the rest is drained if the body is refused within the block."""
    check_expectation(request)
    body = Body(request.stream(), stalled_s)
    try:
        yield body
    except TracedockError:
        # a client that expects 100-continue, and has not begun, waits for the response and sends nothing
        if body.is_started or "expect" not in request.headers:
            await body.drain()
        raise

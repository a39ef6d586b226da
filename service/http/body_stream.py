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
"""Maximum seconds for which the rest of a refused body is read."""


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
    """The body of a request, read while it arrives.

    Args:
        chunks: the chunks of bytes of the body.
        stalled_s: seconds without a byte after which the client counts as disconnected; None for no limit.
    """

    def __init__(self, chunks: AsyncGenerator[bytes], stalled_s: float | None) -> None:
        self._chunks = chunks
        self._stalled_s = stalled_s
        self.is_started = False

    async def each(self, write: Callable[[memoryview], Coroutine[Any, Any, None]]) -> None:
        """Write each of the `blocks` while the next one is read; raises `IncompleteBody`, or an error of `write`."""
        writing: asyncio.Task[None] | None = None
        try:
            async for block in self.blocks():
                if writing:
                    await asyncio.wait([writing])  # awaiting the task itself would pass a cancellation on to it
                    writing.result()
                writing = asyncio.create_task(write(block))
        finally:
            if writing:
                await asyncio.wait([writing])
                writing.result()

    async def blocks(self) -> AsyncIterator[memoryview]:
        """Yield blocks of `BLOCK` bytes, and then the rest.

        Blocks alternate between two buffers: each is valid until the next but one is requested.

        Raises:
            IncompleteBody: the client disconnected or stalled; all bytes that arrived were yielded before.
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
        """Yield the chunks; raises `TimeoutError` if no byte arrives for `stalled_s` seconds."""
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
        """Read the rest of the body, for at most `DRAIN_S`: a client cut off while sending loses the response."""
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(DRAIN_S):
                async for _ in self._chunks:
                    pass


@asynccontextmanager
async def receiving(request: Request, *, stalled_s: float | None = None) -> AsyncIterator[Body]:
    """Provide the body of a request; if the ``async with`` block raises `TracedockError`, drain the rest of the body.

    Raises:
        ExpectationFailed: the client expects something other than ``100-continue``.
        IncompleteBody: the body is a part of a file (RFC 9110, section 14.5).
    """
    check_expectation(request)
    if part := request.headers.get("content-range"):
        raise IncompleteBody(f"`Content-Range: {part[:100]}` says that the body is a part: send all of it, or use tus.")
    body = Body(request.stream(), stalled_s)
    try:
        yield body
    except TracedockError:
        # a client that expects 100-continue and has sent nothing yet waits for the response: nothing to drain
        if body.is_started or "expect" not in request.headers:
            await body.drain()
        raise

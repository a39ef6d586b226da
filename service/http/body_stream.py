"""Bodies that are files: read in blocks, and heard out where they are refused."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from service.trace.errors import IncompleteBody, TracedockError, UnmetExpectation

BLOCK = 1 << 20
LINGER_S = 2.0


def announced_size(request: Request) -> int | None:
    """How many bytes the body has, where that is told."""
    told = request.headers.get("content-length", "")
    return int(told) if told.isdecimal() else None


def check_expectation(request: Request) -> None:
    """Raise `UnmetExpectation` if the client waits for anything but the word that it may send its body."""
    expected = request.headers.get("expect", "100-continue")
    if expected.lower() != "100-continue":
        raise UnmetExpectation(f"The server does not know what `Expect: {expected[:100]}` means.")


class Body:
    """The body of a request, on its way; made by `receiving`.

    Args:
        chunks: its bytes.
        stalled_s: how long nothing may come before the client counts as gone.
    """

    def __init__(self, chunks: AsyncGenerator[bytes], stalled_s: float | None) -> None:
        self._chunks = chunks
        self._stalled_s = stalled_s
        self.begun = False

    async def each(self, write: Callable[[memoryview], Coroutine[Any, Any, None]]) -> None:
        """Have each of its `blocks` written while the next is read; raises what `write` does, or `IncompleteBody`."""
        writing: asyncio.Task[None] | None = None
        try:
            async for block in self.blocks():
                if writing:
                    await asyncio.wait([writing])  # not itself: it is not to be cancelled
                    writing.result()
                writing = asyncio.create_task(write(block))
        finally:
            if writing:
                await asyncio.wait([writing])
                writing.result()

    async def blocks(self) -> AsyncIterator[memoryview]:
        """Blocks of the size `BLOCK`, and then the rest; raises `IncompleteBody` after all that came.

        Each block is there until the next but one: two places hold them in turns.
        """
        filled, left = 0, None
        block, other = memoryview(bytearray(BLOCK)), memoryview(b"")
        try:
            async for chunk in self._in_time():
                rest = memoryview(chunk)
                while rest:
                    count = min(len(rest), BLOCK - filled)
                    block[filled : filled + count] = rest[:count]
                    filled, rest = filled + count, rest[count:]
                    if filled == BLOCK:
                        yield block
                        block, other, filled = other or memoryview(bytearray(BLOCK)), block, 0
        except ClientDisconnect:
            left = "The client left."
        except TimeoutError:
            left = f"Nothing came for {self._stalled_s:g} seconds."
        if filled:
            yield block[:filled]
        if left:
            raise IncompleteBody(left)

    async def _in_time(self) -> AsyncIterator[bytes]:
        """The bytes; raises `TimeoutError` when nothing comes for too long."""
        while True:
            if self._stalled_s is None:
                chunk = await anext(self._chunks, None)
            else:
                async with asyncio.timeout(self._stalled_s):
                    chunk = await anext(self._chunks, None)
            if chunk is None:
                return
            self.begun = True
            yield chunk

    async def hear_out(self) -> None:
        """Take what else the client sends, for a while: who is cut off in mid-sentence reads no answer."""
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(LINGER_S):
                async for _ in self._chunks:
                    pass


@asynccontextmanager
async def receiving(request: Request, *, stalled_s: float | None = None) -> AsyncIterator[Body]:
    """Read the body of a request; one that is refused within is heard out, if it comes anyway."""
    check_expectation(request)
    body = Body(request.stream(), stalled_s)
    try:
        yield body
    except TracedockError:
        if body.begun or "expect" not in request.headers:  # else it waits for the answer before it sends more
            await body.hear_out()
        raise

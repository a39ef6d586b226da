"""Work for a client that ends when the client leaves."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

Result = TypeVar("Result")


async def unless_left(request: Request, work: Coroutine[None, None, Result]) -> Result:
    """Return the result of some work, which is cancelled as soon as the client leaves.

    Args:
        request: the client's, whose body has been read.
        work: to do for it.

    Raises:
        ClientDisconnect: the client has left.
    """
    working, watching = asyncio.create_task(work), asyncio.create_task(_left(request))
    try:
        await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.wait([working, watching])


async def _left(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

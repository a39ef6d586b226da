"""Work that is cancelled when its client disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

Result = TypeVar("Result")


async def cancelled_on_disconnect(request: Request, work: Coroutine[None, None, Result]) -> Result:
    """Await work and return its result, or cancel the work as soon as the client disconnects.

    Args:
        request: the client's request; its body must have been read.
        work: the work.

    Raises:
        ClientDisconnect: the client has disconnected.
    """
    working, watching = asyncio.create_task(work), asyncio.create_task(disconnected(request))
    try:
        await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.wait([working, watching])


async def disconnected(request: Request) -> None:
    """Return once the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

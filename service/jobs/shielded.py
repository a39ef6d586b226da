"""Work that must not be interrupted."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def shielded(work: Coroutine[Any, Any, _T]) -> _T:
    """Await work to its end, and return its result.

    A cancellation of the caller does not stop the work: it is raised once the work has ended, whatever its outcome.
    """
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation:
        raise cancellation
    return task.result()

"""Work that must not be interrupted."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def shielded(work: Coroutine[Any, Any, _T]) -> _T:
    """Await work to its end, even if the caller is cancelled meanwhile. The cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait([task])

"""What can't be stopped half way: work of threads, for which who is interrupted waits nevertheless."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def unbroken(work: Coroutine[Any, Any, _T]) -> _T:
    """Wait for work to its end, also when this is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait([task])

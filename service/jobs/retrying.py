"""Retries of changes of the catalog that must be made, even if the disk is full for a while."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from service.trace.errors import DiskFull

RETRY_S = 1.0
"""Seconds between two attempts to write on a full disk."""

T = TypeVar("T")

log = logging.getLogger(__name__)


async def until_written(change: Callable[[], T], description: str) -> T:
    """Make a change, retry it until the disk has room for it, and return its result.

    Args:
        change: makes the change; raises `DiskFull` if there is no room.
        description: name of the change, for the log.
    """
    warned = False
    while True:
        try:
            return change()
        except DiskFull as error:
            if not warned:
                log.warning("%s is not recorded until the disk has room: %s", description, error.detail)
            warned = True
        await asyncio.sleep(RETRY_S)

"""Retries of changes of the catalog that must be made, even if the disk is full for a while."""

import asyncio
import logging
from collections.abc import Callable

from service.trace.errors import DiskFull

RETRY_S = 1.0
"""Seconds between two attempts to write on a full disk."""

log = logging.getLogger(__name__)


async def until_written(change: Callable[[], object], description: str) -> None:
    """Make a change, and retry it until the disk has room for it.

    Args:
        change: makes the change; raises `DiskFull` if there is no room.
        description: name of the change, for the log.
    """
    warned = False
    while True:
        try:
            change()
        except DiskFull as error:
            if not warned:
                log.warning("%s is not recorded until the disk has room: %s", description, error.detail)
            warned = True
        else:
            return
        await asyncio.sleep(RETRY_S)

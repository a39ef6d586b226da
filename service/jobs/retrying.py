"""Changes of the catalog that must be made sooner or later, also where the disk is full for a while."""

import asyncio
import logging
from collections.abc import Callable

from service.trace.errors import DiskFull

RETRY_S = 1.0
"""Seconds between two attempts to write on a full disk."""

log = logging.getLogger(__name__)


async def until_written(change: Callable[[], object], what: str) -> None:
    """Make a change, and make it anew until the disk has room for it.

    Args:
        change: raises `DiskFull` if there is no room.
        what: is changed, as the log names it.
    """
    warned = False
    while True:
        try:
            change()
        except DiskFull as error:
            if not warned:
                log.warning("%s can't be noted before there is room: %s", what, error.detail)
            warned = True
        else:
            return
        await asyncio.sleep(RETRY_S)

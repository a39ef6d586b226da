"""What the two clients do in different ways; `tracedock.synchronous.runtime` is written by hand, too."""

from asyncio import sleep
from asyncio import to_thread as in_thread

__all__ = ["in_thread", "sleep"]

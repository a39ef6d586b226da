"""What the two clients do in different ways; `tracedock.asynchronous.runtime` is the counterpart."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import Any, TypeVar

__all__ = ["in_thread", "sleep"]

Result = TypeVar("Result")


def in_thread(function: Callable[..., Result], *args: Any, **keywords: Any) -> Result:
    """Call a function here; the asynchronous client calls it in a thread, so that the event loop goes on."""
    return function(*args, **keywords)

"""Client of a Tracedock server: uploads PyTorch profiler traces, and queries and analyses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracedock.training import handler

__version__ = "0.1.0"
__all__ = ["__version__", "handler"]


def __getattr__(name: str) -> Any:
    """Load what a program uses, when it uses it: httpx takes a tenth of a second."""
    if name == "handler":
        from tracedock.training import handler  # noqa: PLC0415

        return handler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

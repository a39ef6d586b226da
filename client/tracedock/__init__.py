"""Client of a Tracedock server: uploads PyTorch profiler traces, and queries and analyses them.

The names are imported when they are first used, so that `import tracedock` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers know this name; the module `typing` loads slowly
if TYPE_CHECKING:
    from typing import Any

    from tracedock import errors as errors
    from tracedock.asynchronous.client import AsyncClient as AsyncClient
    from tracedock.errors import ApiError as ApiError
    from tracedock.errors import ClientError as ClientError
    from tracedock.errors import UnreachableError as UnreachableError
    from tracedock.retries import Retries as Retries
    from tracedock.selection import Selection as Selection
    from tracedock.synchronous.client import Client as Client
    from tracedock.tables import Analysis as Analysis
    from tracedock.tables import Column as Column
    from tracedock.tables import Table as Table
    from tracedock.training import handler as handler

__version__ = "0.1.0"

_MODULES = {
    "Analysis": "tracedock.tables",
    "ApiError": "tracedock.errors",
    "AsyncClient": "tracedock.asynchronous.client",
    "Client": "tracedock.synchronous.client",
    "ClientError": "tracedock.errors",
    "Column": "tracedock.tables",
    "Retries": "tracedock.retries",
    "Selection": "tracedock.selection",
    "Table": "tracedock.tables",
    "UnreachableError": "tracedock.errors",
    "handler": "tracedock.training",
}
"""The module of each public name."""

__all__ = ["__version__", "errors", *_MODULES]  # noqa: PLE0604 - all of them are texts


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("tracedock.errors")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

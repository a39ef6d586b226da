"""Compiles functions to machine code at their first call, and keeps the code for the processes that follow.

numba looks whether a function's own file has changed, but not those whose functions it calls: so the code is kept in a
folder that is named after all sources of this package.
"""

import hashlib
import os
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def _cache_folder() -> Path | None:
    """Where the machine code is kept: in this Python environment, else in the user's cache, if one can be written."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    for root in (Path(sysconfig.get_path("data"), "share"), user):
        folder = root / "tracedock" / f"scan-{digest.hexdigest()[:12]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None


_FOLDER = _cache_folder()
if _FOLDER:
    numba.config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined] # the module makes its attributes as it is read

_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}  # no objects, and so no count of references to them


def compiled(function: Function) -> Function:
    """The function as machine code, which runs without Python's global lock and makes no objects."""
    machine_code: Function = numba.njit(**_OPTIONS, cache=_FOLDER is not None)(function)
    return machine_code


def inlined(function: Function) -> Function:
    """The function as machine code in the place of each call: for what runs at every byte or two."""
    machine_code: Function = numba.njit(**_OPTIONS, forceinline=True)(function)
    return machine_code


def called(function: Function) -> Function:
    """A function that is `inlined`, for Python to call: code that stands in places of calls is not kept by itself."""
    python: Function = function.py_func  # type: ignore[attr-defined] # as numba made it
    return compiled(python)

"""Compiles functions to machine code at their first call, and keeps the code for the processes that follow."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator

from service.streaming.scan.machine_code import COMPILE, PACKAGE, folder

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])

_FOLDER = folder()
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}  # no objects, and so no count of references to them

numba.config.CPU_NAME, numba.config.CPU_FEATURES = "generic", ""  # type: ignore[attr-defined] # made as it is read


class _Locator(UserProvidedCacheLocator):
    """Finds the machine code of a function by its module's path in this package; see numba's `_CacheLocator`."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        super().__init__(function, source)  # type: ignore[no-untyped-call] # numba ships no types
        self._cache_path = str(_FOLDER.path / Path(source).relative_to(PACKAGE).with_suffix("")) if _FOLDER else ""

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> "_Locator":
        """The locator of a function, also where its folder can only be read."""
        return cls(function, source)


class _Implementation(CompileResultCacheImpl):
    """Turns machine code into bytes, as numba does, and finds it by `_Locator`."""

    _locator_classes = [_Locator]  # noqa: RUF012 - as the class that it comes from has it


class _Cache(FunctionCache):
    """The machine code of one function on disk. Code that can't be written is used all the same, and logged."""

    _impl_class = _Implementation

    def save_overload(self, signature: object, code: object) -> None:
        """Write machine code that was just compiled."""
        try:
            super().save_overload(signature, code)  # type: ignore[no-untyped-call]
        except OSError as error:
            log.warning("%s was compiled and can't be kept (%s): run `%s` where it can", self, error, COMPILE)


def compiled(function: Function) -> Function:
    """The function as machine code, which runs without Python's global lock and makes no objects."""
    machine_code: Function = numba.njit(**_OPTIONS)(function)
    if _FOLDER:
        cache = _Cache(function)  # type: ignore[no-untyped-call]
        machine_code._cache = cache  # type: ignore[attr-defined] # noqa: SLF001 - numba has no other way in
    return machine_code


def inlined(function: Function) -> Function:
    """The function as machine code in the place of each call: for what runs at every byte or two."""
    machine_code: Function = numba.njit(**_OPTIONS, forceinline=True)(function)
    return machine_code


def called(function: Function) -> Function:
    """A function that is `inlined`, for Python to call: code that stands in places of calls is not kept by itself."""
    python: Function = function.py_func  # type: ignore[attr-defined] # as numba made it
    return compiled(python)

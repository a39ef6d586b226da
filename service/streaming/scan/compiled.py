"""Compilation of functions to machine code at their first call, cached on disk for later processes."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite.binding import parse_bitcode
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator

from service.streaming.scan.machine_code import COMPILE, PACKAGE, folder

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])

_FOLDER = folder()
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}  # no objects, so no reference counting

numba.config.CPU_NAME, numba.config.CPU_FEATURES = "generic", ""  # type: ignore[attr-defined] # created when read


class _Locator(UserProvidedCacheLocator):
    """Locator of cached machine code by the module's path in this package; see numba's `_CacheLocator`."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        super().__init__(function, source)  # type: ignore[no-untyped-call] # numba ships no types
        self._cache_path = str(_FOLDER.path / Path(source).relative_to(PACKAGE).with_suffix("")) if _FOLDER else ""

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> "_Locator":
        """Return the locator of a function, even if its folder is read-only."""
        return cls(function, source)


class _Implementation(CompileResultCacheImpl):
    """Serialisation of machine code as in numba, located by `_Locator`."""

    _locator_classes = [_Locator]  # noqa: RUF012 - as in the base class

    def rebuild(self, context: object, saved: tuple[Any, ...]) -> Any:
        """Return the machine code that was saved.

        Only a compilation of a caller needs the parsed form of its bitcode. Numba keeps that in memory, where it takes
        seven times the space; here, it is parsed again when it is needed.
        """
        code = super().rebuild(context, saved)  # type: ignore[no-untyped-call]
        _, kind, contents = saved[0]
        if kind == "object":
            _, bitcode = contents
            code.library._shared_module.close()  # noqa: SLF001 - numba has no public way
            code.library._shared_module = None  # noqa: SLF001
            code.library._get_module_for_linking = lambda: parse_bitcode(bitcode)  # noqa: SLF001
        return code


class _Cache(FunctionCache):
    """Disk cache of one function's machine code. Code that can't be written is still used; the failure is logged."""

    _impl_class = _Implementation

    def load_overload(self, signature: object, context: object) -> Any:
        """Return saved machine code, or None.

        Numba's own method first loads all that a compilation needs, in 17 MB of memory and 0.2 s. If there is no saved
        code, the compilation loads it.
        """
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, context)  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, signature: object, code: object) -> None:
        """Write newly compiled machine code."""
        try:
            super().save_overload(signature, code)  # type: ignore[no-untyped-call]
        except OSError as error:
            log.warning("the machine code of %s can't be saved (%s): run `%s` where it can", self, error, COMPILE)


def compiled(function: Function) -> Function:
    """Return the function as machine code, which runs without the GIL and creates no Python objects."""
    machine_code: Function = numba.njit(**_OPTIONS)(function)
    if _FOLDER:
        cache = _Cache(function)  # type: ignore[no-untyped-call]
        machine_code._cache = cache  # type: ignore[attr-defined] # noqa: SLF001 - numba has no public way
    return machine_code


def inlined(function: Function) -> Function:
    """Return the function as machine code that is inlined at each call: for functions that run at every byte or two."""
    machine_code: Function = numba.njit(**_OPTIONS, forceinline=True)(function)
    return machine_code


def called(function: Function) -> Function:
    """Return an `inlined` function in a form that Python can call: inlined code is not cached on its own."""
    python: Function = function.py_func  # type: ignore[attr-defined] # numba sets it
    return compiled(python)

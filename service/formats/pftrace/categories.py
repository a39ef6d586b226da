"""The categories of events that have none: PyTorch wrote them only later than the format."""

import re
from collections.abc import Mapping
from typing import Any

from service.formats.pftrace.tracks import Place

_DRIVER = re.compile(r"cu[A-Z]")
_COPIES = (("Memcpy", "gpu_memcpy"), ("Memset", "gpu_memset"))
_OPERATOR = frozenset({"Sequence number", "Fwd thread id", "Input Dims", "Input type", "Concrete Inputs"})
_BARE_OPERATOR = "detach"  # the one operator whose name has no namespace
_STEP = "ProfilerStep#"
STAGES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
}
"""The category of a GPU stage, by its name."""


def category_of(name: str, arguments: Mapping[str, Any], place: Place) -> str | None:
    """Return the category that Kineto gives an event with this name, these arguments and this place, if it is known.

    The table "`.pftrace`" in `docs/importing.md` defines it.
    """
    if place.device is not None:
        return _on_device(name, arguments)
    if place.is_overhead:
        return "overhead"
    return _on_host(name, arguments)


def _on_device(name: str, arguments: Mapping[str, Any]) -> str:
    if "cuda_sync_kind" in arguments:
        return "cuda_sync"
    if "correlation" not in arguments and "grid" not in arguments:
        return "gpu_user_annotation"
    return next((category for start, category in _COPIES if name.startswith(start)), "kernel")


def _on_host(name: str, arguments: Mapping[str, Any]) -> str | None:
    if "cbid" in arguments:
        return "cuda_driver" if _DRIVER.match(name) else "cuda_runtime"
    if "Python id" in arguments:
        return "python_function"
    if name.startswith(_STEP):
        return "user_annotation"
    if not _OPERATOR.isdisjoint(arguments):
        return "cpu_op"
    if "External id" in arguments:
        return "cpu_op" if "::" in name or name == _BARE_OPERATOR else "user_annotation"
    return None

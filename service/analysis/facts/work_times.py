"""Times of work on devices by type, read directly from the file of work where that suffices."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.analysis.table import codes
from service.trace.kernel_names import communicates
from service.trace.summary import GPU_CATEGORIES

TYPES = ("COMP", "COMM", "MEM", "OTHER")
"""Types of work by their code."""

_COPIES = frozenset({"gpu_memcpy", "Memcpy"})
_MEMSETS = frozenset({"gpu_memset", "Memset"})
_KERNELS = GPU_CATEGORIES - _COPIES - _MEMSETS
_COLUMNS = ("device", "cat", "name", "ts_ns", "dur_ns", "names_collective")


class WorkTimes(NamedTuple):
    """Work in order of time: devices, type codes, starts and ends."""

    devices: pa.ChunkedArray
    types: Any
    starts: Ints
    ends: Ints


def work_times(scope: Scope, parameters: WorkParameters) -> WorkTimes:
    """Return the times of the work that the parameters count.

    Opening a database and querying it takes 30 to 80 ms longer than reading the file.
    """
    from service.attribution.file import read_work  # noqa: PLC0415 - loads numba, which the server does without

    all_work = parameters.types == "exact" and parameters.last_step == "keep" and not parameters.linked_only
    if all_work and not scope.is_selection and (work := read_work(scope.columns, _COLUMNS)) is not None:
        return _times(work, _COPIES | _MEMSETS if parameters.memset == "mem" else _COPIES)
    scope.define_work(parameters)
    work = scope.table("SELECT device, type, start_ns, end_ns FROM work")
    return WorkTimes(
        work["device"], codes(work["type"], TYPES), *(work[name].to_numpy() for name in ("start_ns", "end_ns"))
    )


def _times(work: pa.Table, memory: frozenset[str]) -> WorkTimes:
    """Return the times of work, whose types are those of `Scope.define_work`.

    Args:
        work: `_COLUMNS` of the file of work.
        memory: categories of the type MEM.
    """
    from service.store.parts import Part  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

    part = Part(0, 0, work)
    named = part.which("name", lambda name: name is not None and communicates(name))
    communicating = named | (part.which("cat", _KERNELS.__contains__) & part.ints("names_collective"))
    types = np.where(part.which("cat", memory.__contains__), 2, communicating).astype(np.int8)
    ends = part.starts + np.maximum(part.ints("dur_ns"), 0)
    return WorkTimes(work["device"], types, part.starts, np.maximum(part.starts, ends))  # a larger end overflowed

"""Times of work on devices by type, read directly from a trace's columns where that suffices."""

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.analysis.table import codes
from service.store.folder import EVENTS
from service.trace.kernel_names import communicates
from service.trace.summary import GPU_CATEGORIES

if TYPE_CHECKING:
    from service.store.parts import Parts  # loads pyarrow.parquet

TYPES = ("COMP", "COMM", "MEM", "OTHER")
"""Types of work by their code."""

_COPIES = frozenset({"gpu_memcpy", "Memcpy"})
_MEMSETS = frozenset({"gpu_memset", "Memset"})
_COLLECTIVE = "record_param_comms"
_NONE = np.iinfo(np.int64).min
_FEW = 1 << 20
"""Count of events below which reading the columns is faster than opening and querying a database."""


class WorkTimes(NamedTuple):
    """Work in order of time: devices, type codes, starts and ends."""

    devices: pa.ChunkedArray
    types: Any
    starts: Ints
    ends: Ints


def work_times(scope: Scope, parameters: WorkParameters) -> WorkTimes:
    """Return the times of the work that the parameters count."""
    small = scope.trace_events < _FEW
    all_work = parameters.types == "exact" and parameters.last_step == "keep" and not parameters.linked_only
    if small and all_work and not scope.is_selection:
        from service.store.parts import Parts  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

        with closing(Parts(scope.columns / EVENTS)) as parts:
            times = _read(parts, _COPIES | _MEMSETS if parameters.memset == "mem" else _COPIES)
        if times:
            return times
    scope.define_work(parameters)
    work = scope.table("SELECT device, type, start_ns, end_ns FROM work")
    return WorkTimes(
        work["device"], codes(work["type"], TYPES), *(work[name].to_numpy() for name in ("start_ns", "end_ns"))
    )


def _read(parts: "Parts", memory: frozenset[str]) -> WorkTimes | None:
    """Read work from columns; None if only arguments can show which kernels communicate."""
    kinds = {**dict.fromkeys(GPU_CATEGORIES, 1), **dict.fromkeys(_COPIES | _MEMSETS, 2), **dict.fromkeys(memory, 3)}
    devices, types, starts, ends = [], [], [], []
    collectives, others = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for part in parts.read(("ph", "cat", "name", "ts_ns", "dur_ns", "device", "external_id")):
        codes_, words = part.coded("cat")
        kind = np.array([*(kinds.get(word, 0) for word in words), 0], np.int8)[codes_]
        rows = np.flatnonzero((kind > 0) & part.slices & part.has("ts_ns"))
        kind = kind[rows]
        codes_, words = part.coded("name")
        is_work_name = np.zeros(len(words) + 1, bool)
        is_work_name[codes_[rows]] = True  # the code of null is -1, the last entry
        communicating = np.array(
            [is_work_name[code] and communicates(word) for code, word in enumerate(words)] + [False]
        )[codes_[rows]]
        if _COLLECTIVE in words:
            described = part.slices & (codes_ == words.index(_COLLECTIVE)) & part.has("external_id")
            collectives.append(part.ints("external_id")[described])
        others.append(part.ints("external_id", _NONE)[rows[(kind == 1) & ~communicating]])
        part_starts = part.starts[rows]
        part_ends = part_starts + np.maximum(part.ints("dur_ns")[rows], 0)
        types.append(np.where(kind == 3, 2, np.where((kind == 1) & communicating, 1, 0)).astype(np.int8))
        starts.append(part_starts)
        ends.append(np.maximum(part_starts, part_ends))  # a slice whose end overflows ends at its start
        devices.append(part.table["device"].take(rows))
    collective_ids = np.setdiff1d(np.concatenate(collectives), [_NONE])
    if len(collective_ids) and np.isin(np.concatenate(others), collective_ids).any():
        return None
    return WorkTimes(
        pa.chunked_array([chunk for column in devices for chunk in column.chunks], pa.int64()),
        *(np.concatenate([np.zeros(0, np.int64), *columns]) for columns in (types, starts, ends)),
    )

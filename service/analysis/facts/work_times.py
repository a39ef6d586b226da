"""When devices work, by type: all that many questions need, straight from a trace's columns where that will do."""

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
    from service.store.parts import Parts  # which loads pyarrow.parquet

TYPES = ("COMP", "COMM", "MEM", "OTHER")
"""The types of work by their numbers."""

_COPIES = frozenset({"gpu_memcpy", "Memcpy"})
_MEMSETS = frozenset({"gpu_memset", "Memset"})
_COLLECTIVE = "record_param_comms"
_NONE = np.iinfo(np.int64).min
_FEW = 1 << 20
"""Events that are read in less time than a database is opened and asked."""


class WorkTimes(NamedTuple):
    """Work in order of time: where, of which type, from when to when."""

    devices: pa.ChunkedArray
    types: Any
    starts: Ints
    ends: Ints


def work_times(scope: Scope, parameters: WorkParameters) -> WorkTimes:
    """The times of the work that parameters count."""
    small = scope.summary["events"]["kept"] < _FEW
    every = parameters.types == "exact" and parameters.last_step == "keep" and not parameters.linked_only
    if small and every and not scope.cut:
        from service.store.parts import Parts  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

        with closing(Parts(scope.columns / EVENTS)) as parts:
            found = _read(parts, _COPIES | _MEMSETS if parameters.memset == "mem" else _COPIES)
        if found:
            return found
    scope.work(parameters)
    told = scope.table("SELECT device, type, start_ns, end_ns FROM work")
    return WorkTimes(
        told["device"], codes(told["type"], TYPES), *(told[name].to_numpy() for name in ("start_ns", "end_ns"))
    )


def _read(parts: "Parts", memory: frozenset[str]) -> WorkTimes | None:
    """Work as columns have it; None where arguments have to tell what communicates."""
    kinds = {**dict.fromkeys(GPU_CATEGORIES, 1), **dict.fromkeys(_COPIES | _MEMSETS, 2), **dict.fromkeys(memory, 3)}
    devices, types, starts, ends = [], [], [], []
    collectives, others = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for part in parts.read(("ph", "cat", "name", "ts_ns", "dur_ns", "device", "external_id")):
        codes_, words = part.coded("cat")
        kind = np.array([*(kinds.get(word, 0) for word in words), 0], np.int8)[codes_]
        rows = np.flatnonzero((kind > 0) & part.slices & part.has("ts_ns"))
        kind = kind[rows]
        codes_, words = part.coded("name")
        of_work = np.zeros(len(words) + 1, bool)
        of_work[codes_[rows]] = True  # no name is -1, which is the last
        named = np.array([of_work[code] and communicates(word) for code, word in enumerate(words)] + [False])
        named = named[codes_[rows]]
        if _COLLECTIVE in words:
            told = part.slices & (codes_ == words.index(_COLLECTIVE)) & part.has("external_id")
            collectives.append(part.ints("external_id")[told])
        others.append(part.ints("external_id", _NONE)[rows[(kind == 1) & ~named]])
        began = part.starts[rows]
        over = began + np.maximum(part.ints("dur_ns")[rows], 0)
        types.append(np.where(kind == 3, 2, np.where((kind == 1) & named, 1, 0)).astype(np.int8))
        starts.append(began)
        ends.append(np.maximum(began, over))  # what would end after all time ends at once, as everywhere
        devices.append(part.table["device"].take(rows))
    told = np.setdiff1d(np.concatenate(collectives), [_NONE])
    if len(told) and np.isin(np.concatenate(others), told).any():
        return None
    return WorkTimes(
        pa.chunked_array([chunk for column in devices for chunk in column.chunks], pa.int64()),
        *(np.concatenate([np.zeros(0, np.int64), *columns]) for columns in (types, starts, ends)),
    )

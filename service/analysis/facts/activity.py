"""What a rank does, on its devices and its host, sorted into the categories that a step's time goes to."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.analysis.facts.coverage import Coverage
from service.analysis.facts.intervals import Ints
from service.analysis.facts.launches import calls_of, first_places
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.store.census import END
from service.trace.summary import LAUNCH_PATTERN, OP_CATEGORIES, STEP_PREFIX

Rules = Literal["exact", "tensorboard"]

CATEGORIES = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec", "other")
"""What a step's time can go to: a time counts for the first of these that lasts."""

KERNEL, MEMCPY, MEMSET, COMMUNICATION, RUNTIME, DATALOADER, CPU_EXEC, OTHER = range(len(CATEGORIES))

OPS = "(" + ", ".join(f"'{category}'" for category in sorted(OP_CATEGORIES)) + ")"
"""SQL for the categories of operators and annotations on the host."""

LOADING = r"^enumerate\((DataLoader\)#[\s\S]*\.__next__\Z|DataPipe\)#)"
"""A regular expression of the names of the annotations in which a program waits for its data."""

COLLECTIVE = "^(nccl|rccl|hccl|xccl|gloo|mpi|ucc):"
"""A regular expression of the names of the annotations of what a process group does."""

_TB_KINDS = ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
TB_NAMES = frozenset(f"{backend}:{name}" for backend in ("nccl", "gloo") for name in _TB_KINDS)
"""The names of the only annotations that communicate to TensorBoard."""

TB_COLLECTIVES = "(" + ", ".join(f"'{name}'" for name in sorted(TB_NAMES)) + ")"
"""SQL for these."""

_TB_RUNTIMES = "Runtime|(cuda|mtia|glow|xpu|privateuse1)_runtime"

_WORK = f"""
SELECT
    CASE kind WHEN 'memcpy' THEN {MEMCPY} WHEN 'memset' THEN {MEMSET}
        ELSE if({{communicates}}, {COMMUNICATION}, {KERNEL}) END::TINYINT AS category,
    start_ns, end_ns, correlation, device
FROM work
"""
_UNSORTED_WORK = "SELECT NULL::TINYINT AS category, start_ns, end_ns, correlation, device FROM work"
_STEPS = f"""
SELECT TRY_CAST(regexp_extract(name, '^{STEP_PREFIX}([0-9]{{1,18}})$', 1) AS BIGINT) AS step, ts_ns AS start_ns,
    {END} AS end_ns
FROM events
WHERE ph = 'X' AND cat IN {OPS} AND starts_with(name, '{STEP_PREFIX}') AND ts_ns NOTNULL AND step NOTNULL
ORDER BY ts_ns, step
"""
_TB_COMMUNICATES = f"""
coalesce(external_id, -1) IN (SELECT coalesce(external_id, -1) FROM events WHERE ph = 'X' AND name IN {TB_COLLECTIVES})
"""


@dataclass(frozen=True)
class Spans:
    """Things that last, as arrays of when they start and end."""

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, found: pa.Table, prefix: str = "") -> "Spans":
        """Those of a table."""
        return cls(found[f"{prefix}start_ns"].to_numpy(), found[f"{prefix}end_ns"].to_numpy())

    def only(self, chosen: Any) -> "Spans":
        """Some of them."""
        return Spans(self.starts[chosen], self.ends[chosen])

    def covered(self) -> Coverage:
        """What they cover."""
        return Coverage(self.starts, self.ends)

    def bounds(self) -> list[int]:
        """When the first starts and the last ends; nothing of none."""
        return [int(self.starts.min()), int(self.ends.max())] if len(self.starts) else []


@dataclass(frozen=True)
class Activity:
    """What a rank does.

    Args:
        work: of its devices.
        categories: of each piece of work, unless they were not wanted.
        devices: on which each is done, -1 where that is not told.
        calls: for each piece of work the call that launched it, or any.
        launched: of which pieces of work the call is known.
        steps: the annotations of its steps, in order of time.
        numbers: of the steps.
        covers: what each category but the last covers; none where that was not wanted.
        bounds: of all that the host does: the times of the first start and of the last end, if there are any.
        op_bounds: of operators alone.
    """

    work: Spans
    categories: npt.NDArray[np.int8]
    devices: Ints
    calls: Spans
    launched: npt.NDArray[np.bool_]
    steps: Spans
    numbers: Ints
    covers: list[Coverage]
    bounds: list[int]
    op_bounds: list[int]


def activity_of(scope: Scope, rules: Rules, *, categories: bool = True) -> Activity:
    """What a rank does.

    Args:
        scope: the rank.
        rules: whose.
        categories: whether it is wanted what is spent on what; where there are steps, the rest is there sooner without.
    """
    return scope.once(("activity", rules, categories), lambda: _activity(scope, rules, categories))


def _activity(scope: Scope, rules: Rules, categories: bool) -> Activity:
    numbers, steps = steps_of(scope)
    categories = categories or not len(numbers)
    scope.work(WorkParameters(), typed=categories)
    communicates = _TB_COMMUNICATES if rules == "tensorboard" else "type = 'COMM'"
    found = scope.table(_WORK.format(communicates=communicates) if categories else _UNSORTED_WORK)
    work, kinds = Spans.of(found), found["category"].fill_null(-1).to_numpy()
    called = calls_of(scope, categories=_TB_RUNTIMES if rules == "tensorboard" else LAUNCH_PATTERN)
    calls = Spans.of(called, "call_")
    places = _launches(found["correlation"], called["correlation"])
    covers, bounds, op_bounds = [Coverage.none()] * OTHER, calls.bounds(), list[int]()
    if categories:
        covers[:RUNTIME] = [work.only(kinds == category).covered() for category in range(RUNTIME)]
        covers[RUNTIME] = calls.covered()
    launchings = calls.only(places) if len(calls.starts) else Spans(work.starts, work.starts)
    devices = found["device"].fill_null(-1).to_numpy()
    del called, calls, found
    if categories:
        spans, kinds_of_ops = _ops(scope, rules)
        bounds += spans.bounds()
        for category in (COMMUNICATION, DATALOADER, CPU_EXEC):
            chosen = spans.only(kinds_of_ops == category)
            covers[category] = covers[category].with_more(chosen.covered())
            op_bounds = chosen.bounds() if category == CPU_EXEC else op_bounds
    bounds = [min(bounds), max(bounds)] if bounds else []
    return Activity(work, kinds, devices, launchings, places >= 0, steps, numbers, covers, bounds, op_bounds)


def _ops(scope: Scope, rules: Rules) -> tuple[Spans, npt.NDArray[np.int8]]:
    """The operators and annotations of a rank, and the category of each."""
    slices = scope.slices()
    chosen = slices.of_categories(OP_CATEGORIES.__contains__)
    kinds = np.array([*(category_of(name, rules) for name in slices.names), CPU_EXEC], np.int8)
    host, regions = slices.host, slices.regions
    spans, found = Spans(host.starts[chosen], host.ends[chosen]), kinds[host.names[chosen]]
    if rules == "exact":
        return spans, found
    # to TensorBoard, regions on devices are operators too
    both = Spans(np.concatenate([spans.starts, regions.starts]), np.concatenate([spans.ends, regions.ends]))
    return both, np.concatenate([found, kinds[regions.names]])


def category_of(name: str, rules: Rules) -> int:
    """The category to which an operator or an annotation belongs, by its name."""
    if name.startswith("aten::"):
        return CPU_EXEC
    if name.startswith(STEP_PREFIX):
        return OTHER
    if re.search(LOADING, name):
        return DATALOADER
    communicates = name in TB_NAMES if rules == "tensorboard" else re.search(COLLECTIVE, name)
    return COMMUNICATION if communicates else CPU_EXEC


def steps_of(scope: Scope) -> tuple[Ints, Spans]:
    """The numbers and the annotations of a rank's steps, in order of time."""
    if scope.cut or scope.summary["ranks"]:
        found = scope.table(_STEPS)
        return found["step"].to_numpy(), Spans.of(found)
    told = scope.summary["steps"]  # ingest has looked already
    numbers, *times = (np.array([one[name] for one in told], np.int64) for name in ("number", "start_ns", "end_ns"))
    return numbers, Spans(*times)


def _launches(correlations: pa.ChunkedArray, calls: pa.ChunkedArray) -> Ints:
    """The place of the first call with the correlation of each piece of work, or -1."""
    known = np.flatnonzero(calls.is_valid().to_numpy())
    places = first_places(calls.drop_null().to_numpy(), correlations.fill_null(0).to_numpy())
    return np.where(correlations.is_valid().to_numpy() & (places >= 0), np.append(known, -1)[places], -1)

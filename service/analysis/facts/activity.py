"""The activity of a rank's devices and host, sorted into the categories of a step's time."""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.analysis.facts.coverage import Coverage
from service.analysis.facts.intervals import Ints
from service.analysis.facts.launches import calls_of, first_positions
from service.analysis.facts.scope import Scope
from service.analysis.facts.selected_steps import part_steps
from service.store.steps import merged_steps
from service.trace.summary import LAUNCH_PATTERN, OP_CATEGORIES, STEP_PREFIX, is_launch

if TYPE_CHECKING:
    from service.analysis.facts.device_events import DeviceEvents  # loads numba, which questions describe without
    from service.cutting.part_steps import PartSteps  # loads numba, which describing questions does without

Rules = Literal["exact", "tensorboard"]

CATEGORIES = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec", "other")
"""Categories of a step's time, by priority: each moment counts for the first active category."""

KERNEL, MEMCPY, MEMSET, COMMUNICATION, RUNTIME, DATALOADER, CPU_EXEC, OTHER = range(len(CATEGORIES))

OPS = "(" + ", ".join(f"'{category}'" for category in sorted(OP_CATEGORIES)) + ")"
"""SQL list of the categories of operators and annotations on the host."""

LOADING = r"^enumerate\((DataLoader\)#[\s\S]*\.__next__\Z|DataPipe\)#)"
"""Regular expression of the names of annotations that load data."""

COLLECTIVE = "^(nccl|rccl|hccl|xccl|gloo|mpi|ucc):"
"""Regular expression of the names of a process group's annotations."""

_ON_DEVICES = "^(nccl|rccl|hccl|xccl):"
"""Regular expression of the names of annotations whose communication is work on devices, if it is recorded."""

_TB_KINDS = ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
TB_NAMES = frozenset(f"{backend}:{name}" for backend in ("nccl", "gloo") for name in _TB_KINDS)
"""Names of the annotations that count as communication for TensorBoard."""

TB_COLLECTIVES = "(" + ", ".join(f"'{name}'" for name in sorted(TB_NAMES)) + ")"
"""SQL list of `TB_NAMES`."""

_TB_RUNTIMES = "Runtime|(cuda|mtia|glow|xpu|privateuse1)_runtime"

_TB_IDS = f"SELECT DISTINCT coalesce(external_id, -1) AS id FROM events WHERE ph = 'X' AND name IN {TB_COLLECTIVES}"
"""SQL for the External ids of TensorBoard's communication; -1 stands for none."""


@dataclass(frozen=True)
class Intervals:
    """Intervals of time, as arrays of their starts and ends in ns."""

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, table: pa.Table, prefix: str = "") -> "Intervals":
        """Read the intervals of a table's rows."""
        return cls(table[f"{prefix}start_ns"].to_numpy(), table[f"{prefix}end_ns"].to_numpy())

    def only(self, chosen: Any) -> "Intervals":
        """Return the intervals at some indices, or those that a mask flags."""
        return Intervals(self.starts[chosen], self.ends[chosen])

    def coverage(self) -> Coverage:
        """Return the union of the intervals."""
        return Coverage(self.starts, self.ends)

    def bounds(self) -> list[int]:
        """Return the first start and the last end in ns, or an empty list if there are no intervals."""
        return [int(self.starts.min()), int(self.ends.max())] if len(self.starts) else []


@dataclass(frozen=True)
class Activity:
    """The activity of a rank.

    Args:
        work: work of the devices.
        categories: category of each piece of work; -1 if categories were not requested.
        devices: device of each piece of work; -1 if unknown.
        work_steps: number of the step of each piece of work; -1 for none.
        calls: call that launched each piece of work; arbitrary if unknown. By the exact rules, which need no ends, each
            ends where it starts.
        launched: whether the call of each piece of work is known.
        steps: annotations of the steps, in order of time.
        numbers: numbers of the steps.
        covers: coverage of each category except the last; each is empty if categories were not requested.
        bounds: first start and last end on the host; empty if the host has no slices, or if categories were not
            requested.
        op_bounds: first start and last end of slices of the category `cpu_exec`; empty likewise.
        selected: steps that the activity is about, if it is that of a selection or of a part of a trace.
        rank: the rank, if it is one of a merged trace.
    """

    work: Intervals
    categories: npt.NDArray[np.int8]
    devices: Ints
    work_steps: Ints
    calls: Intervals
    launched: npt.NDArray[np.bool_]
    steps: Intervals
    numbers: Ints
    covers: list[Coverage]
    bounds: list[int]
    op_bounds: list[int]
    selected: "PartSteps | None"
    rank: int | None


def activity_of(scope: Scope, rules: Rules, *, categories: bool = True) -> Activity:
    """Return the activity of a rank.

    Args:
        scope: scope of the rank.
        rules: `exact`, or `tensorboard` for TensorBoard's rules.
        categories: whether to determine categories, which takes longer. A trace without steps always has them.
    """
    return scope.cached(("activity", rules, categories), lambda: _activity(scope, rules, categories))


def _activity(scope: Scope, rules: Rules, categories: bool) -> Activity:
    from service.analysis.facts.device_events import TYPED, device_events  # noqa: PLC0415 - loads numba
    from service.analysis.facts.unions import unions_of_groups  # noqa: PLC0415 - likewise

    if not categories and len(steps_of(scope)[0]):
        return scope.cached(("work", rules), lambda: _without_categories(scope, rules))
    with scope.beside(Scope.slices):
        activity = scope.cached(("work", rules), lambda: _without_categories(scope, rules))
        work, covers = activity.work, activity.covers.copy()
        of_rules = ("external_id",) if rules == "tensorboard" else ()
        work_categories = _categories(scope, rules, device_events(scope, (*of_rules, *TYPED)))
        by_category = unions_of_groups(work.starts, work.ends, work_categories, RUNTIME)
    covers[:RUNTIME] = [Coverage.of_union(*union) for union in by_category]
    on_host = _on_host(scope, rules, launches_kernels=bool(covers[COMMUNICATION]))
    covers[RUNTIME] = on_host[RUNTIME]
    for category in (COMMUNICATION, DATALOADER, CPU_EXEC):
        covers[category] = covers[category].with_more(on_host[category])
    bounds = [bound for cover in on_host for bound in cover.bounds()]
    bounds, op_bounds = [min(bounds), max(bounds)] if bounds else [], on_host[CPU_EXEC].bounds()
    return replace(activity, categories=work_categories, covers=covers, bounds=bounds, op_bounds=op_bounds)


def _without_categories(scope: Scope, rules: Rules) -> Activity:
    from service.analysis.facts.device_events import TIMES, device_events  # noqa: PLC0415 - loads numba

    numbers, steps = steps_of(scope)
    of_launch = "correlation" if rules == "tensorboard" else "launch_ts_ns"
    events = device_events(scope, ("device", "step", of_launch, *TIMES))
    work = Intervals(events.starts, events.ends)
    launches, launched = _launches(scope, rules, events, work)
    devices, work_steps = (events.ints(name, -1) for name in ("device", "step"))
    rank = scope.rank if scope.summary.ranks else None
    return Activity(
        work, np.full(len(events), -1, np.int8), devices, work_steps, launches, launched, steps, numbers,
        [Coverage.none()] * OTHER, [], [], part_steps(scope), rank,
    )  # fmt: skip


def _on_host(scope: Scope, rules: Rules, *, launches_kernels: bool) -> list[Coverage]:
    """Return the coverage of calls, and of operators and annotations, by category.

    Args:
        scope: scope of the rank.
        rules: see `activity_of`.
        launches_kernels: whether kernels communicate. Then annotations that launch them do not count as communication:
            the host is done before the kernels are.
    """
    from service.analysis.facts.slices import BY_NAME  # noqa: PLC0415 - loads numba, which the server does without
    from service.analysis.facts.unions import unions_of_groups  # noqa: PLC0415 - likewise

    slices = scope.slices()
    name_categories = np.array([*(category_of(name, rules) for name in slices.names), CPU_EXEC], np.int8)
    if rules == "exact" and launches_kernels:
        name_categories[[bool(re.search(_ON_DEVICES, name)) for name in slices.names] + [False]] = CPU_EXEC
    calls = re.compile(_runtimes(rules))
    groups = [
        BY_NAME if name in OP_CATEGORIES else RUNTIME if is_launch(name) and calls.fullmatch(name) else -1
        for name in slices.categories
    ]
    covers = slices.unions(groups, name_categories.tolist(), len(CATEGORIES))
    if rules == "exact":
        return covers
    # TensorBoard counts annotations on devices as operators, too
    regions = slices.regions
    unions = unions_of_groups(regions.starts, regions.ends, name_categories[regions.names], len(CATEGORIES))
    return [cover.with_more(Coverage.of_union(*union)) for cover, union in zip(covers, unions, strict=True)]


def category_of(name: str, rules: Rules) -> int:
    """Return the category of an operator or annotation by its name."""
    if name.startswith("aten::"):
        return CPU_EXEC
    if name.startswith(STEP_PREFIX):
        return OTHER
    if re.search(LOADING, name):
        return DATALOADER
    communicates = name in TB_NAMES if rules == "tensorboard" else re.search(COLLECTIVE, name)
    return COMMUNICATION if communicates else CPU_EXEC


def steps_of(scope: Scope) -> tuple[Ints, Intervals]:
    """Return the numbers and the annotations of a rank's steps, in order of time."""
    numbers, starts, ends = merged_steps(scope.steps)
    return numbers, Intervals(starts, ends)


def _runtimes(rules: Rules) -> str:
    """Return a regular expression of the categories of runtime and driver calls."""
    return _TB_RUNTIMES if rules == "tensorboard" else LAUNCH_PATTERN


def _categories(scope: Scope, rules: Rules, work: "DeviceEvents") -> npt.NDArray[np.int8]:
    """Return the category of each piece of work."""
    from service.analysis.facts.device_events import COMM, MEMCPYS, MEMSETS  # noqa: PLC0415 - loads numba

    if rules == "tensorboard":
        communicates = np.isin(work.ints("external_id", -1), scope.table(_TB_IDS)["id"].to_numpy())
    else:
        communicates = work.types() == COMM
    categories = np.where(communicates, COMMUNICATION, KERNEL).astype(np.int8)
    for category, names in ((MEMCPY, MEMCPYS), (MEMSET, MEMSETS)):
        categories[work.which("cat", names.__contains__)] = category
    return categories


def _launches(
    scope: Scope, rules: Rules, events: "DeviceEvents", work: Intervals
) -> tuple[Intervals, npt.NDArray[np.bool_]]:
    """Return the call that launched each piece of work, and whether it is known; if not, the call is arbitrary."""
    if rules == "exact":
        starts = events.ints("launch_ts_ns")
        return Intervals(starts, starts), events.has("launch_ts_ns")
    calls = calls_of(scope, categories=_runtimes(rules))
    call_of_work = _calls_of_work(events.table["correlation"], calls["correlation"])
    if not len(calls):
        return work, np.zeros(len(events), np.bool_)
    return Intervals.of(calls, "call_").only(call_of_work), call_of_work >= 0


def _calls_of_work(correlations: pa.ChunkedArray, calls: pa.ChunkedArray) -> Ints:
    """Return, for each piece of work, the index of the first call with its correlation id, or -1."""
    indices = np.flatnonzero(calls.is_valid().to_numpy())
    positions = first_positions(calls.drop_null().to_numpy(), correlations.fill_null(0).to_numpy())
    return np.where(correlations.is_valid().to_numpy() & (positions >= 0), np.append(indices, -1)[positions], -1)

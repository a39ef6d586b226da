"""What should be done next?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.activity import (
    CATEGORIES,
    COMMUNICATION,
    DATALOADER,
    KERNEL,
    TB_NAMES,
    Rules,
    Spans,
    activity_of,
    category_of,
)
from service.analysis.facts.coverage import Coverage
from service.analysis.facts.device_properties import capability_of, properties_of
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters, Windows, windows_of
from service.analysis.facts.tensor_cores import OPERATORS, on_tensor_cores
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.steps import by_priority
from service.analysis.steps import missing as missing_steps
from service.analysis.table import RANK, Columns, count, ns, number, rows_made, word
from service.trace.kernel_names import uses_matrix_cores
from service.trace.summary import OP_CATEGORIES, OPERATOR_CATEGORIES

if TYPE_CHECKING:
    from service.analysis.facts.slices import Slices  # which loads numba; who only describes questions need not

_FOUND = (
    word("rule", "that was checked"),
    count("device", "number of the GPU that it is about; empty where it is about all"),
    number("value", "what was found"),
    number("limit", "that the rule sets"),
    word("unit", "of both: `%` or `devices`"),
)
_PLACE = (
    word("name", "of what to look at in the timeline"),
    ns("start", "of that"),
    ns("end", "of that"),
)
_RECOMMENDATIONS = (RANK, *_FOUND, word("advice", "what could be done"), word("reason", "why"), *_PLACE)
_CHECKS = (
    RANK,
    *_FOUND,
    word("found", "`yes` if the rule applies, `no` if not, and `unknown` if the trace can't tell"),
)
TABLES: Mapping[str, Columns] = {"recommendations": _RECOMMENDATIONS, "checks": _CHECKS}

LOADING_MAX = 5
COMMUNICATION_MAX = 10
UTILIZATION_MIN = 50
MEMORY_MAX = 90
"""TensorBoard's limits, in %."""

TENSOR_CORES_SINCE = 7
NCCL_SINCE = 3.5
"""Compute capabilities."""

ADVICE = {
    "dataloader": "Load data in other processes: set num_workers of the DataLoader.",
    "communication": "Compress gradients, accumulate them over several steps, or use larger batches.",
    "utilization": "Use larger batches, if the model converges with them.",
    "tensor_cores": "Use automatic mixed precision, so that these operators run on tensor cores.",
    "memory": "Checkpoint activations, or use automatic mixed precision.",
    "data_parallel": "Use DistributedDataParallel instead of DataParallel.",
    "nccl": "Use the backend nccl for DistributedDataParallel: it is the fastest on these GPUs.",
}
"""What each rule advises, in the order in which they are checked."""

_COULD = """
SELECT
    sum(lasting) AS whole, sum(lasting) FILTER (eligible) AS could,
    arg_max(position, lasting) FILTER (eligible) AS longest
FROM (
    SELECT
        position, (end_ns - start_ns)::DOUBLE AS lasting,
        coalesce(external_id IN (SELECT external_id FROM eligible), false) AS eligible
    FROM work WHERE kind = 'kernel' AND external_id <> 0
)
"""
_AT = "SELECT name, start_ns, end_ns FROM work WHERE position = $position"
_LONGEST_COMMUNICATION = """
SELECT name, start_ns, end_ns FROM work WHERE type = 'COMM' ORDER BY end_ns - start_ns DESC, start_ns, position LIMIT 1
"""
_MEMORY = r"""
SELECT device, arg_max(ts_ns, allocated) AS peak_ns, max(allocated) AS allocated FROM (
    SELECT
        ts_ns,
        TRY_CAST(nullif(regexp_extract(args, '"Device Id":\s*([0-9]{1,9})', 1), '') AS BIGINT) AS device,
        TRY_CAST(nullif(regexp_extract(args, '"Total Allocated":\s*([0-9]{1,18})', 1), '') AS BIGINT) AS allocated
    FROM events
    WHERE ph = 'i' AND name = '[memory]' AND ts_ns NOTNULL AND regexp_matches(args, '"Device Type":\s*1\b')
) WHERE device NOTNULL AND allocated NOTNULL GROUP BY device ORDER BY device
"""


Place = tuple[str | None, int, int]
"""A name, and when it starts and ends."""


@dataclass(frozen=True)
class _Check:
    """What a rule found: `applies` is None where the trace can't tell; `place` is name, start and end."""

    rule: str
    applies: bool | None
    value: float | None
    limit: float
    reason: str = ""
    unit: str = "%"
    device: int | None = None
    place: Place | None = None


def answer(scope: Scope, parameters: StepParameters) -> Tables:
    """What the rules find, and what of that is to be done."""
    windows, lengths, kernels, devices = _steps(scope, parameters)
    scope.work(WorkParameters())
    checks = [*_of_steps(scope, windows, lengths, parameters), *_of_devices(kernels, devices, windows)]
    checks += [*_of_memory(scope), *_of_tensor_cores(scope, parameters)]
    checks += _of_processes(scope, len(np.unique(devices)), parameters)
    order = [*ADVICE]
    checks.sort(key=lambda one: order.index(one.rule))
    rows, told = [], []
    for one in checks:
        about = [scope.rank, one.rule, one.device, one.value, one.limit, one.unit]
        told.append([*about, "unknown" if one.applies is None else "yes" if one.applies else "no"])
        if one.applies:
            rows.append([*about, ADVICE[one.rule], one.reason, *(one.place or (None, None, None))])
    return {"recommendations": rows_made(_RECOMMENDATIONS, rows), "checks": rows_made(_CHECKS, told)}


def _steps(scope: Scope, parameters: StepParameters) -> tuple[Windows, list[Ints], Spans, Ints]:
    """The steps, what their time goes to, and all kernels with their devices; of the rest nothing is kept."""
    activity = activity_of(scope, parameters.rules)
    windows = windows_of(activity, parameters)
    chosen = np.isin(activity.categories, (KERNEL, COMMUNICATION))
    return windows, by_priority(windows, activity.covers), activity.work.only(chosen), activity.devices[chosen]


def _of_steps(scope: Scope, windows: Windows, lengths: list[Ints], parameters: StepParameters) -> Iterator[_Check]:
    """Whether steps wait for data, or for communication, for too long."""
    whole = sum((windows.ends - windows.starts).tolist())
    for category, limit, what in (
        (DATALOADER, LOADING_MAX, "in waiting for a DataLoader"),
        (COMMUNICATION, COMMUNICATION_MAX, "in communication that nothing hides"),
    ):
        value = 100 * sum(lengths[category].tolist()) / whole if whole else None
        applies = None if value is None else value > limit
        found = None
        if applies and category == COMMUNICATION:
            found = next((_place(row) for row in scope.table(_LONGEST_COMMUNICATION).to_pylist()), None)
        if applies and not found:
            found = _longest(scope, category, parameters.rules)
        reason = f"{value or 0:.1f} % of the steps are {what}."
        yield _Check(CATEGORIES[category], applies, value, limit, reason, place=found)


def _place(found: Mapping[str, Any]) -> Place:
    return found["name"], found["start_ns"], found["end_ns"]


def _longest(scope: Scope, category: int, rules: Rules) -> Place | None:
    """The longest operator or annotation of a category."""
    slices = scope.slices()
    rows = np.flatnonzero(
        slices.of_categories(OP_CATEGORIES.__contains__)
        & slices.host_named(lambda name: category_of(name, rules) == category)
    )
    return _at(slices, int(rows[np.argmax((slices.host.ends - slices.host.starts)[rows])])) if len(rows) else None


def _at(slices: "Slices", row: int) -> Place:
    return slices.names[slices.host.names[row]], int(slices.host.starts[row]), int(slices.host.ends[row])


def _of_devices(kernels: Spans, devices: Ints, windows: Windows) -> Iterator[_Check]:
    """Whether GPUs idle."""
    first, last = int(windows.starts[0]), int(windows.ends[-1])
    for device in np.unique(devices).tolist():
        cover = kernels.only(devices == device).covered()
        busy = int(cover.between(windows.starts[:1], windows.ends[-1:])[0])
        value = 100 * busy / (last - first) if last > first else None
        yield _Check(
            "utilization",
            None if value is None else value < UTILIZATION_MIN,
            value,
            UTILIZATION_MIN,
            f"A kernel runs in {value or 0:.1f} % of the steps.",
            device=None if device < 0 else device,
            place=_longest_gap(cover, first, last),
        )


def _of_tensor_cores(scope: Scope, parameters: StepParameters) -> Iterator[_Check]:
    """Whether operators could use tensor cores, and none does; unknown where no name says yes and some say nothing."""
    slices = scope.slices()
    eligible = slices.of_categories(OPERATOR_CATEGORIES.__contains__) & slices.host_named(OPERATORS.__contains__)
    scope.db.register("eligible", pa.table({"external_id": slices.host.external_ids[eligible]}))
    [found] = scope.table(_COULD).to_pylist()
    scope.db.unregister("eligible")
    capabilities = _capabilities(scope)
    of_name = on_tensor_cores if parameters.rules == "tensorboard" else uses_matrix_cores
    uses = {of_name(name) for name in scope.kernel_names}
    used = True in uses
    value = 100 * (found["could"] or 0) / found["whole"] if found["whole"] else None
    if not value and eligible.any():
        value = None  # there are such operators, but nothing tells which kernels are theirs
    wanting = bool(capabilities and capabilities[0] >= TENSOR_CORES_SINCE and not used and value)
    unknown = not capabilities or (not used and (value is None or None in uses))
    reason = (
        f"{value or 0:.0f} % of the time of kernels is in those of operators that could use tensor cores; none does."
    )
    at = scope.table(_AT, position=found["longest"]).to_pylist() if wanting else []
    longest = _place(at[0]) if at else None
    if scope.has_work:
        yield _Check("tensor_cores", None if unknown else wanting, value, 0, reason, place=longest)


def _longest_gap(cover: Coverage, first: int, last: int) -> tuple[str, int, int]:
    """The longest time between `first` and `last` that is not covered."""
    starts = np.clip(np.append(cover.starts, last), first, last)
    ends = np.clip(np.concatenate([[first], cover.ends]), first, last)
    longest = int((starts - ends).argmax())
    return "no kernel", int(ends[longest]), int(starts[longest])


def _of_memory(scope: Scope) -> Iterator[_Check]:
    """Whether the memory of a GPU is nearly full."""
    sizes = {one["id"]: one["memory_bytes"] for one in scope.summary["devices"]}
    told = scope.table(_MEMORY).to_pylist() if "[memory]" in scope.names() else []
    for row in told:
        size = sizes.get(row["device"])
        value = 100 * row["allocated"] / size if size else None
        yield _Check(
            "memory", None if value is None else value > MEMORY_MAX, value, MEMORY_MAX,
            f"{value or 0:.1f} % of the {(size or 0) / 2**30:.1f} GiB are allocated at the peak.",
            device=row["device"], place=("[memory]", row["peak_ns"], row["peak_ns"]),
        )  # fmt: skip


def _of_processes(scope: Scope, devices: int, parameters: StepParameters) -> Iterator[_Check]:
    """Whether the program uses several GPUs as it should."""
    parallel, distributed = "DataParallel.forward", "DistributedDataParallel.forward"
    slices = scope.slices()
    places: dict[str, Place] = {}
    for name in (parallel, distributed):
        named = np.flatnonzero(slices.of_categories(OP_CATEGORIES.__contains__) & slices.host_named(name.__eq__))
        if len(named):
            places[name] = _at(slices, int(named[0]))
    reason = f"DataParallel runs a model on {devices} GPUs."
    place = places.get(parallel)
    yield _Check("data_parallel", place is not None and devices > 1, devices, 1, reason, "devices", place=place)
    if distributed in places:
        exact = parameters.rules == "exact"
        nccl = any(name.startswith("nccl:") and (exact or name in TB_NAMES) for name in slices.names)
        nccl = nccl or (exact and scope.has_communication)
        able = sum(one >= NCCL_SINCE for one in _capabilities(scope))
        reason = "DistributedDataParallel communicates, and nothing of NCCL is in the trace."
        yield _Check("nccl", able > 0 and not nccl, able, 0, reason, "devices", place=places[distributed])


def _capabilities(scope: Scope) -> list[float]:
    """The compute capabilities of the GPUs of which they are known, as numbers."""
    return [float(known) for one in properties_of(scope) if (known := capability_of(one))]


QUESTION = Question(
    name="recommendations",
    answers="What should be done next?",
    definition="TensorBoard's rules: more than 5 % of the steps in a DataLoader, or 10 % in exposed communication; a"
    " kernel in less than half of the steps; operators that could use tensor cores, and none that does; more than 90 %"
    " of a GPU's memory; DataParallel on several GPUs; DistributedDataParallel without NCCL.",
    source="https://github.com/pytorch/kineto/blob/041e7ce99f1562dd81232ee58b7c454ef16bfae2/tb_plugin/"
    "torch_tb_profiler/profiler/data.py",
    tables=TABLES,
    parameters=StepParameters,
    missing=missing_steps,
    answer=answer,
)

"""What should be done next?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.analysis import collectives
from service.analysis.collectives import CollectiveParameters
from service.analysis.facts.activity import (
    CATEGORIES,
    COMMUNICATION,
    CPU_EXEC,
    DATALOADER,
    KERNEL,
    MEMCPY,
    MEMSET,
    TB_NAMES,
    Intervals,
    Rules,
    activity_of,
    category_of,
)
from service.analysis.facts.checks import (
    COMPILE,
    DO_LESS,
    IDLE_ADVICE,
    IDLE_MEASURES,
    LARGER_BATCHES,
    REPLAY,
    TABLES,
    UNSPLIT_COMMUNICATION_ADVICE,
    Check,
    Evidence,
    TimelineSpan,
    check_tables,
)
from service.analysis.facts.coverage import Coverage
from service.analysis.facts.device_properties import capability_of, properties_of
from service.analysis.facts.intervals import Ints
from service.analysis.facts.matrix_core_check import is_reduced, matrix_core_check
from service.analysis.facts.memory_changes import CUDA, EVENT, memory_changes_of
from service.analysis.facts.run_checks import RunWaits, run_checks
from service.analysis.facts.scope import Scope
from service.analysis.facts.step_windows import StepParameters, Windows, windows_of
from service.analysis.question import Question, Tables, WorkParameters, concatenated
from service.analysis.steps import by_priority, time_by_category
from service.analysis.steps import missing as missing_steps
from service.formats.names import listed
from service.trace.summary import OP_CATEGORIES, is_launch

if TYPE_CHECKING:
    from service.analysis.facts.slices import Slices  # loads numba, which descriptions of questions do without

LOADING_MAX = 5
COMMUNICATION_MAX = 10
UTILIZATION_MIN = 50
MEMORY_MAX = 90
"""Limits of TensorBoard's rules, in %."""

CAUSE_MIN = 50
"""Smallest share of the time, in %, that a cause takes in advice on it."""

NCCL_SINCE = 3.5
"""Minimum compute capability of GPUs that can use NCCL."""

_EXCHANGED = ("communications", "covers", "about")
"""Tables of each rank from the analysis of collectives."""

_LONGEST_COMMUNICATION = """
SELECT name, start_ns, end_ns FROM work WHERE type = 'COMM' ORDER BY end_ns - start_ns DESC, start_ns, position LIMIT 1
"""


def answer(scope: Scope, parameters: StepParameters) -> Tables:
    """Return the checks and recommendations of a rank."""
    return scope.cached(("recommendations", parameters.model_dump_json()), lambda: _answer(scope, parameters))


def _answer(scope: Scope, parameters: StepParameters) -> Tables:
    windows, lengths, kernels, devices = _steps(scope, parameters)
    scope.define_work(WorkParameters())
    as_tensorboard = parameters.rules == "tensorboard"
    checks = [*_of_steps(scope, windows, lengths, parameters), *_of_devices(kernels, devices, windows)]
    checks += [*_of_memory(scope), *matrix_core_check(scope, as_tensorboard=as_tensorboard)]
    checks += _of_processes(scope, len(np.unique(devices)), parameters)
    if not as_tensorboard:
        checks = [_with_fitting_advice(check, scope, windows) for check in checks]
    return check_tables(scope.rank, checks, by_time=not as_tensorboard)


def _with_fitting_advice(check: Check, scope: Scope, windows: Windows) -> Check:
    """Replace TensorBoard's advice of a check if it does not fit the trace."""
    if check.rule == "utilization" and check.applies:
        return _with_causes(check, scope, windows)
    if check.rule == "dataloader" and check.place and "_MultiProcessing" in (check.place.name or ""):
        return replace(check, advice=IDLE_ADVICE["data"].text)
    if check.rule == "communication":
        return replace(check, advice=UNSPLIT_COMMUNICATION_ADVICE)
    if check.rule == "memory" and check.applies and is_reduced(scope):
        return replace(check, advice="Checkpoint activations, or use smaller batches.")
    return check


def _with_causes(check: Check, scope: Scope, windows: Windows) -> Check:
    """Add to the check of utilization what happens while no device works, with advice on the main cause."""
    whole = int(windows.ends[-1] - windows.starts[0])
    key = ("times without kernels", int(windows.starts[0]), int(windows.ends[-1]))
    times = scope.cached(key, lambda: _times_without_kernels(scope, windows))  # the same for all devices
    figures = [Evidence(measure, times[cause], "ns") for cause, measure in IDLE_MEASURES.items()]
    check = replace(check, evidence=(*check.evidence, *figures))
    main = max(times, key=lambda cause: times[cause])
    share = 100 * times[main] / whole
    if share < CAUSE_MIN:
        return check
    reason = f"{check.reason} In {share:.1f} % of it {IDLE_ADVICE[main].reason}."
    if main == "host" and scope.slice_count("python_function"):
        reason += " Recording Python's stack, as in this trace, slows the host."
    advice = IDLE_ADVICE[main].text
    if main == "host":
        advice = advice.format(remedies=listed(_remedies(scope)))
    return replace(check, advice=advice, reason=reason)


def _remedies(scope: Scope) -> tuple[str, ...]:
    """Return the remedies against a slow host, without those that the trace shows in use."""
    is_compiled = any(name.startswith("triton_") for name in scope.kernel_names)  # Inductor names its kernels so
    has_graphs = any(name.endswith("GraphLaunch") for name in scope.names())
    unused = [remedy for remedy, is_used in ((COMPILE, is_compiled), (REPLAY, has_graphs)) if not is_used]
    return *(unused or [DO_LESS]), LARGER_BATCHES


def _times_without_kernels(scope: Scope, windows: Windows) -> dict[str, int]:
    """Return the time from the first step to the last by what happens while no kernel runs, in ns.

    Annotations say nothing about what the host does, and synchronizing calls wait.
    """
    from service.analysis.facts.slices import BY_NAME  # noqa: PLC0415 - loads numba, which the server does without

    activity, slices = activity_of(scope, "exact"), scope.slices()
    operates = [category_of(name, "exact") == CPU_EXEC for name in slices.names]
    calls = ["Synchronize" not in name for name in slices.names]
    active = Coverage.none()
    for has_category, has_name in ((("cpu_op", "Operator").__contains__, operates), (is_launch, calls)):
        groups = [BY_NAME if has_category(category) else -1 for category in slices.categories]
        [cover] = slices.unions(groups, [*(0 if named else -1 for named in has_name), -1], 1)
        active = active.with_more(cover)
    covers = {
        "kernels": activity.work.only(np.isin(activity.categories, (KERNEL, COMMUNICATION))).coverage(),
        "copies": activity.covers[MEMCPY].with_more(activity.covers[MEMSET]),
        "communication": activity.covers[COMMUNICATION],
        "data": activity.covers[DATALOADER],
        "host": active,
    }
    first, last = windows.first(1), windows.ends[-1:]
    lengths = by_priority(replace(first, ends=last), [*covers.values()])
    times = {cause: int(length[0]) for cause, length in zip((*covers, "nothing"), lengths, strict=True)}
    del times["kernels"]
    return times


def joined(answers: Sequence[Tables], parameters: StepParameters) -> Tables:
    """Combine the checks of all ranks into checks of the run; for one rank or TensorBoard's rules, only concatenate."""
    own = [{name: tables[name] for name in TABLES} for tables in answers]
    if len(answers) == 1 or parameters.rules == "tensorboard":
        return concatenated(own)
    communicating = [{name: tables[name] for name in _EXCHANGED} for tables in answers if _EXCHANGED[0] in tables]
    of_run = check_tables(None, run_checks(own, _waiting(communicating)))
    of_ranks = concatenated(own)
    return {**of_run, "checks": concatenated([of_run, of_ranks])["checks"]}


def _waiting(communicating: Sequence[Tables]) -> RunWaits | None:
    """Return how the ranks wait for each other, or None if no rank communicates."""
    if not communicating:
        return None
    together = collectives.joined(communicating, CollectiveParameters())
    ranks, lateness = (together[name].to_pylist() for name in ("ranks", "lateness"))
    waiting = RunWaits(ranks, lateness, together["steps"], None)
    if (late := waiting.most_waited_for) is None:
        return waiting
    wait_rows = _late_starts(together["waits"], late["rank"])
    if not wait_rows:
        return waiting
    latest = max(wait_rows, key=lambda row: (row["late_ns"], -row["start_ns"]))
    abouts = [tables["about"].to_pylist()[0] for tables in communicating]
    bases = {about["rank"]: about["base_ns"] for about in abouts}
    first, own = abouts[0]["base_ns"], bases[late["rank"]]
    start = latest["start_ns"] - (own - first if None not in bases.values() else 0)
    return waiting._replace(place=TimelineSpan(latest["collective"], start - latest["late_ns"], start))


def _late_starts(waits: pa.Table, rank: int | None) -> list[dict[str, Any]]:
    """Return the communications of a rank whose delay is known."""
    chosen = pc.and_(pc.is_in(waits["rank"], pa.array([rank], pa.int64())), pc.is_valid(waits["late_ns"]))
    rows: list[dict[str, Any]] = waits.select(["collective", "start_ns", "late_ns"]).filter(chosen).to_pylist()
    return rows


def _steps(scope: Scope, parameters: StepParameters) -> tuple[Windows, list[Ints], Intervals, Ints]:
    """Return the steps, their time by category, and all kernels with their devices.

    Only kernels are copied, so the memory of all other work is freed on return.
    """
    activity = activity_of(scope, parameters.rules)
    windows = windows_of(scope, activity, parameters)
    chosen = np.isin(activity.categories, (KERNEL, COMMUNICATION))
    lengths = time_by_category(scope, activity, parameters)
    return windows, lengths, activity.work.only(chosen), activity.devices[chosen]


def _of_steps(scope: Scope, windows: Windows, lengths: list[Ints], parameters: StepParameters) -> Iterator[Check]:
    """Check whether steps wait too long for data or for communication."""
    whole = sum((windows.ends - windows.starts).tolist())
    for category, limit, activity in (
        (DATALOADER, LOADING_MAX, "waiting for a DataLoader"),
        (COMMUNICATION, COMMUNICATION_MAX, "exposed communication"),
    ):
        value = 100 * sum(lengths[category].tolist()) / whole if whole else None
        applies = None if value is None else value > limit
        place = None
        if applies and category == COMMUNICATION:
            place = next((_place(row) for row in scope.table(_LONGEST_COMMUNICATION).to_pylist()), None)
        if applies and not place:
            place = _longest(scope, category, parameters.rules)
        reason = f"{value or 0:.1f} % of the steps' time is {activity}."
        yield Check(
            CATEGORIES[category], applies, value, limit, reason, place=place, evidence=(
                Evidence(f"{activity} during steps", sum(lengths[category].tolist()), "ns", place),
                Evidence("time of steps", whole, "ns"),
                Evidence("number of steps", len(windows), "steps"),
            ),
        )  # fmt: skip


def _place(row: Mapping[str, Any]) -> TimelineSpan:
    return TimelineSpan(row["name"], row["start_ns"], row["end_ns"])


def _longest(scope: Scope, category: int, rules: Rules) -> TimelineSpan | None:
    """Return the longest operator or annotation of a category."""
    slices = scope.slices()
    rows = np.flatnonzero(
        slices.of_categories(OP_CATEGORIES.__contains__)
        & slices.host_named(lambda name: category_of(name, rules) == category)
    )
    return _at(slices, int(rows[np.argmax((slices.host.ends - slices.host.starts)[rows])])) if len(rows) else None


def _at(slices: "Slices", row: int) -> TimelineSpan:
    return TimelineSpan(slices.names[slices.host.names[row]], int(slices.host.starts[row]), int(slices.host.ends[row]))


def _of_devices(kernels: Intervals, devices: Ints, windows: Windows) -> Iterator[Check]:
    """Check whether GPUs idle."""
    first, last = int(windows.starts[0]), int(windows.ends[-1])
    span = "from the first step to the last" if windows.labels()[0] is not None else "of the trace"
    for device in np.unique(devices).tolist():
        cover = kernels.only(devices == device).coverage()
        busy = int(cover.between(windows.starts[:1], windows.ends[-1:])[0])
        value = 100 * busy / (last - first) if last > first else None
        gap = _longest_gap(cover, first, last)
        yield Check(
            "utilization",
            None if value is None else value < UTILIZATION_MIN,
            value,
            UTILIZATION_MIN,
            f"A kernel runs in {value or 0:.1f} % of the time {span}.",
            device=None if device < 0 else device,
            place=gap,
            evidence=(
                Evidence("some kernel runs", busy, "ns"),
                Evidence(f"time {span}", last - first, "ns"),
                Evidence("longest time without a kernel", gap.end_ns - gap.start_ns, "ns", gap),
            ),
        )


def _longest_gap(cover: Coverage, first: int, last: int) -> TimelineSpan:
    """Return the longest interval between `first` and `last` that is not covered."""
    starts = np.clip(np.append(cover.starts, last), first, last)
    ends = np.clip(np.concatenate([[first], cover.ends]), first, last)
    longest = int((starts - ends).argmax())
    return TimelineSpan("no kernel", int(ends[longest]), int(starts[longest]))


def _of_memory(scope: Scope) -> Iterator[Check]:
    """Check whether the memory of a GPU is nearly full."""
    sizes = {device["id"]: device["memory_bytes"] for device in scope.summary.devices}
    for device, allocated, peak_ns in _peaks(memory_changes_of(scope)):
        size = sizes.get(device)
        value = 100 * allocated / size if size else None
        peak = TimelineSpan(EVENT, peak_ns, peak_ns)
        yield Check(
            "memory", None if value is None else value > MEMORY_MAX, value, MEMORY_MAX,
            f"{value or 0:.1f} % of the {(size or 0) / 2**30:.1f} GiB are allocated at the peak.",
            device=device, place=peak, evidence=(
                Evidence("allocated at the peak", allocated, "bytes", peak),
                Evidence("memory of the device", size or 0, "bytes"),
            ),
        )  # fmt: skip


def _peaks(changes: pa.Table) -> Iterator[tuple[int, int, int]]:
    """Yield each GPU, its peak of allocated bytes, and the first time of that peak."""
    is_gpu = pc.and_(pc.equal(changes["device_type"], CUDA), pc.greater_equal(changes["device_id"], 0))
    recorded = changes.filter(pc.and_(is_gpu, pc.is_valid(changes["allocated"])))
    allocated, times = recorded["allocated"].to_numpy(), recorded["at"].to_numpy()
    devices = recorded["device_id"].to_numpy()
    for device in np.unique(devices).tolist():
        rows = np.flatnonzero(devices == device)
        top = rows[np.argmax(allocated[rows])]
        yield device, int(allocated[top]), int(times[top])


def _of_processes(scope: Scope, devices: int, parameters: StepParameters) -> Iterator[Check]:
    """Check whether the program uses several GPUs in the recommended way."""
    parallel, distributed = "DataParallel.forward", "DistributedDataParallel.forward"
    slices = scope.slices()
    places: dict[str, TimelineSpan] = {}
    for name in (parallel, distributed):
        named = np.flatnonzero(slices.of_categories(OP_CATEGORIES.__contains__) & slices.host_named(name.__eq__))
        if len(named):
            places[name] = _at(slices, int(named[0]))
    reason = f"DataParallel runs a model on {devices} GPUs."
    place = places.get(parallel)
    working = (Evidence("devices that do work", devices, "devices", place),)
    applies = place is not None and devices > 1
    yield Check("data_parallel", applies, devices, 1, reason, "devices", place=place, evidence=working)
    if distributed in places:
        exact = parameters.rules == "exact"
        nccl = any(name.startswith("nccl:") and (exact or name in TB_NAMES) for name in slices.names)
        nccl = nccl or (exact and scope.has_communication)
        capable = sum(capability >= NCCL_SINCE for capability in _capabilities(scope))
        reason = "DistributedDataParallel communicates, and nothing of NCCL is in the trace."
        place = places[distributed]
        evidence = (Evidence("devices that can use NCCL", capable, "devices", place),)
        yield Check("nccl", capable > 0 and not nccl, capable, 0, reason, "devices", place=place, evidence=evidence)


def _capabilities(scope: Scope) -> list[float]:
    """Return the known compute capabilities of the GPUs, as numbers."""
    return [float(capability) for device in properties_of(scope) if (capability := capability_of(device))]


QUESTION = Question(
    name="recommendations",
    short_question="What should be done next?",
    definition="TensorBoard's rules: more than 5 % of the time of steps in a DataLoader, or more than 10 % in exposed"
    " communication; a kernel in less than half of the time from the first step to the last; operators that could use"
    " tensor cores, though no kernel does; more than 90 % of a GPU's memory in use; DataParallel on several GPUs;"
    " DistributedDataParallel without NCCL. If kernels run rarely and, in at least half of the time, only copies run,"
    " or the host communicates, or it waits for a DataLoader, or it runs operators and calls, or none of these is"
    " recorded, then the advice is about that. Advice on the largest share of the time comes first. Names of kernels"
    " show what uses tensor cores, or AMD's matrix cores, and in which precision. Of several ranks, advice is about the"
    " run, and exposed communication is separated into transfer and waiting for a late rank.",
    source="https://github.com/pytorch/kineto/blob/041e7ce99f1562dd81232ee58b7c454ef16bfae2/tb_plugin/"
    "torch_tb_profiler/profiler/data.py",
    tables=TABLES,
    parameters=StepParameters,
    inapplicable_reason=missing_steps,
    answer=answer,
    join_ranks=joined,
    exchange="collectives",
)

"""Where does a step go?"""

import numpy as np
import pyarrow as pa

from service.analysis.facts.activity import (
    CATEGORIES,
    COMMUNICATION,
    CPU_EXEC,
    KERNEL,
    OPS,
    Activity,
    activity_of,
)
from service.analysis.facts.coverage import Coverage
from service.analysis.facts.intervals import Ints, percentage
from service.analysis.facts.scope import WORK, Scope
from service.analysis.facts.snapshot_document import is_snapshot
from service.analysis.facts.step_windows import StepParameters, Windows, windows_of
from service.analysis.question import Question, Tables
from service.analysis.table import RANK, count, ns, number, pct, table_of, table_of_rows, word

STEP_NUMBER = count("step", "number of the step; empty if the trace has no steps, and the row is the whole trace")
_STEPS = (
    RANK,
    STEP_NUMBER,
    ns("start", "of the step"),
    ns("end", "of the step"),
    ns("total", "from start to end"),
    ns("kernel", "with computing on a device"),
    ns("memcpy", "of the rest, with copies"),
    ns("memset", "of the rest, with memsets"),
    ns("communication", "of the rest, with communication, on a device or the host"),
    ns("runtime", "of the rest, in calls of a runtime or a driver"),
    ns("dataloader", "of the rest, in waiting for a DataLoader"),
    ns("cpu_exec", "of the rest, in operators or annotations of the host"),
    ns("other", "in none of these"),
)
_AVERAGE = (
    RANK,
    word("category", "`total`, or a category of a step's time"),
    number("mean_ns", "over the steps", "ns"),
    pct("share", "of the mean step"),
)
_COMMUNICATION = (
    RANK,
    STEP_NUMBER,
    ns("computation", "with computing and no communication; on the host if no device computes at all"),
    ns("overlap", "with both"),
    ns("communication", "with communication and no computing"),
    ns("other", "with neither"),
)


def by_priority(windows: Windows, covers: list[Coverage]) -> list[Ints]:
    """Return the time of each window by category, in ns.

    Each moment counts for the first category that covers it. The last array is the time that no category covers.
    """
    lengths, so_far, before = [], Coverage.none(), np.zeros(len(windows), np.int64)
    for cover in covers:
        so_far = so_far.with_more(cover)
        now = so_far.between(windows.starts, windows.ends)
        lengths.append(now - before)
        before = now
    return [*lengths, windows.ends - windows.starts - before]


def time_by_category(scope: Scope, activity: Activity, parameters: StepParameters) -> list[Ints]:
    """Return the time of each step of a rank by category of its activity, in ns; see `by_priority`."""
    key = ("time by category", parameters.rules, parameters.bounds, parameters.last_step)
    return scope.cached(key, lambda: by_priority(windows_of(scope, activity, parameters), activity.covers))


def answer(scope: Scope, parameters: StepParameters) -> Tables:
    """Return the time by category of each step and of a mean step, and how far computing hides communication."""
    activity = activity_of(scope, parameters.rules)
    windows, covers = windows_of(scope, activity, parameters), activity.covers
    lengths = time_by_category(scope, activity, parameters)
    totals = windows.ends - windows.starts
    about = {"rank": pa.nulls(len(windows), pa.int64()) if scope.rank is None else [scope.rank] * len(windows)}
    about["step"] = windows.labels()
    steps = {**about, "start_ns": windows.starts, "end_ns": windows.ends, "total_ns": totals}
    steps |= {f"{category}_ns": length for category, length in zip(CATEGORIES, lengths, strict=True)}
    means = [sum(times.tolist()) / len(windows) for times in (totals, *lengths)]
    average = [
        [scope.rank, category, mean, percentage(mean, means[0])]
        for category, mean in zip(("total", *CATEGORIES), means, strict=True)
    ]
    return {
        "steps": table_of(_STEPS, steps),
        "average": table_of_rows(_AVERAGE, average),
        "communication": table_of(_COMMUNICATION, {**about, **hidden_communication(windows, covers)}),
    }


def hidden_communication(windows: Windows, covers: list[Coverage]) -> dict[str, Ints]:
    """Return, for each window, the time with computing only, communication only, both, and neither."""
    computing, communicating = covers[KERNEL] or covers[CPU_EXEC], covers[COMMUNICATION]
    computes, communicates, either = (
        coverage.between(windows.starts, windows.ends)
        for coverage in (computing, communicating, computing.with_more(communicating))
    )
    return {
        "computation_ns": either - communicates,
        "overlap_ns": computes + communicates - either,
        "communication_ns": either - computes,
        "other_ns": windows.ends - windows.starts - either,
    }


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has neither work on a device nor operators or calls on a host; None if it has."""
    if not scope.has_work and is_snapshot(scope):
        return "This trace is a memory snapshot, which has no times of work."
    lasts = scope.has_slice(f"(cat IN {WORK} OR cat IN {OPS} OR {scope.is_call})")
    return None if lasts else "This trace has no work on a device, and no operators or calls on a host."


QUESTION = Question(
    name="steps",
    short_question="Where does a step go?",
    definition="Of each step: how long a device computes; of the rest, how long it copies; and so on with memsets,"
    " communication, calls of a runtime, a DataLoader, operators and annotations, and what is left. A step lasts until"
    " the host and all that was launched in it are done, and the next one starts there. A trace with no steps counts"
    " as one step. Of a step that a time window cuts, only the part in the window counts. Annotations of NCCL and the"
    " like count as communication only where no kernel communicates: otherwise they launch kernels, which count.",
    source="https://github.com/pytorch/kineto/blob/041e7ce99f1562dd81232ee58b7c454ef16bfae2/tb_plugin/"
    "torch_tb_profiler/profiler/overall_parser.py",
    tables={"steps": _STEPS, "average": _AVERAGE, "communication": _COMMUNICATION},
    parameters=StepParameters,
    inapplicable_reason=missing,
    answer=answer,
    cost=2,
)

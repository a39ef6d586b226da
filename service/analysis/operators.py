"""What does each operator cost on the host, on devices and in memory, by itself and with all that it calls?"""

from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from pydantic import Field

from service.analysis.facts.attribution import ATTRIBUTION, attribution_of
from service.analysis.facts.host import (
    IS_ANNOTATION,
    IS_OP,
    IS_PYTHON,
    SHAPES,
    host_of,
    host_where,
)
from service.analysis.facts.memory_events import CHANGES
from service.analysis.facts.scope import Scope
from service.analysis.facts.tensor_cores import on_tensor_cores
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, Column, count, ns, number, pct, table_of, word
from service.trace.kernel_names import uses_matrix_cores
from service.trace.summary import HOST_CATEGORIES, NOT_OPERATORS

OPERATORS = (
    RANK,
    word("name", "of the operator; `ProfilerStep*` are all steps"),
    word("shapes", "of its inputs, with `group_by=shapes`"),
    word("kind", "op, annotation, python (a function), call (of a runtime or driver), or memory"),
    count("calls", "number of calls; an only child of the same name does not count"),
    ns("host_self", "on the host, without what it called"),
    ns("host_total", "on the host, with what it called"),
    ns("device_self", "on devices, of work that it launched directly"),
    ns("device_total", "on devices, with work that was launched by what it called"),
    Column("host_memory_self_bytes", "int", "bytes", "allocated less freed on the host, without what it called"),
    Column("host_memory_total_bytes", "int", "bytes", "allocated less freed on the host while it ran"),
    Column("device_memory_self_bytes", "int", "bytes", "allocated less freed on devices, without what it called"),
    Column("device_memory_total_bytes", "int", "bytes", "allocated less freed on devices while it ran"),
    word("tensor_cores_eligible", "yes if it, or an operator that it called, can run on tensor cores"),
    ns("tensor_cores_self", "of device_self, in kernels whose names say that they use matrix cores"),
    ns("tensor_cores_total", "of device_total, in kernels whose names say that they use matrix cores"),
    ns("tensor_cores_unknown_self", "of device_self, in kernels whose names no pattern knows"),
    ns("tensor_cores_unknown_total", "of device_total, in kernels whose names no pattern knows"),
    pct("host_self", "of the sum of host_self over all rows"),
    pct("device_self", "of the durations of all work on devices, attributed or not"),
    number("host_mean_us", "host_total of a call", "µs"),
)
TOTALS = (
    RANK,
    count("calls", "of all operators"),
    ns("host", "time of the host in all operators"),
    ns("device", "time of all work on devices"),
    ns("unattributed", "of that, work without a launching operator or call in the trace"),
)

_COLLECTIVES = tuple(
    f"{library}:{name}"
    for library in ("nccl", "gloo")
    for name in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)
"""Annotations in which TensorBoard nests operators, in addition to those of loaders, optimizers and steps."""


class OperatorParameters(Parameters):
    """Parameters of `operators`."""

    group_by: Literal["name", "shapes"] = Field(
        "name", description="rows for each name, or for each name and shapes of inputs"
    )
    nesting: Literal["torch", "tensorboard"] = Field(
        "torch",
        description="`tensorboard` reproduces its Operator view: only operators nest, own time on the host excludes"
        " runtime calls, work launched by driver calls is left out, and times are doubles of microseconds",
    )


def answer(scope: Scope, parameters: OperatorParameters) -> Tables:
    """Return the operators of a rank, their totals, and how work on devices was attributed."""
    from service.analysis.facts.device_work import device_work  # noqa: PLC0415 - loads numba, which the server does without
    from service.analysis.facts.operator_rows import OperatorRows  # noqa: PLC0415 - likewise

    plugin = parameters.nesting == "tensorboard"
    by_shapes = parameters.group_by == "shapes"
    if plugin or by_shapes or scope.has_categories(["python_function"]):
        host = host_where(scope, _nodes(scope, plugin), SHAPES if by_shapes else None)
    else:
        host = host_of(scope, named=lambda name: name not in NOT_OPERATORS)
    with ThreadPoolExecutor(1, "rows") as thread:
        future = thread.submit(OperatorRows, host, plugin)  # compiled code, which runs while the database reads
        work = device_work(scope, on_tensor_cores if plugin else uses_matrix_cores, runtime_calls=plugin)
        changes = scope.table(CHANGES)
    rows = future.result()
    rows.add_time(work)
    rows.add_memory(changes)
    operators, totals = rows.tables()
    operators["rank"], totals["rank"] = [scope.rank] * len(operators["name"]), [scope.rank]
    return {
        "operators": table_of(OPERATORS, operators),
        "totals": table_of(TOTALS, totals),
        "attribution": attribution_of(scope),
    }


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no operators."""
    return None if scope.has_categories(HOST_CATEGORIES) else "No operators are in this trace."


def _nodes(scope: Scope, plugin: bool) -> str:
    """Return SQL that selects the slices to nest."""
    if not plugin:
        left_out = ", ".join(f"'{name}'" for name in sorted(NOT_OPERATORS))
        kinds = f"{IS_OP} OR {IS_ANNOTATION} OR {IS_PYTHON} OR {scope.is_call}"
        return f"({kinds}) AND coalesce(name NOT IN ({left_out}), true)"
    collectives = ", ".join(f"'{name}'" for name in _COLLECTIVES)
    return f"""(
        {IS_OP} OR {IS_PYTHON} AND starts_with(name, 'nn.Module: ') OR cat = 'user_annotation' AND (
            starts_with(name, 'ProfilerStep#') OR starts_with(name, 'Optimizer.step') OR name IN ({collectives})
            OR starts_with(name, 'enumerate(DataLoader)#') AND ends_with(name, '.__next__')
            OR starts_with(name, 'enumerate(DataPipe)#')))"""


QUESTION = Question(
    name="operators",
    short_question="Which operator costs?",
    definition="As torch's key_averages: slices of the host nest within their thread; a slice is no parent of one that"
    " ends after it; an only child of the same name is merged into its parent; a slice's own time is without its"
    " children. Work on devices counts for the innermost operator around its launch, for the launch itself where no"
    " operator is around it, and for all that enclose it; the table `attribution` names the rules. Memory counts for"
    " slices that run while it is allocated or freed, on any thread; self memory is without that of the children.",
    source="https://github.com/pytorch/pytorch/blob/main/torch/autograd/profiler_util.py",
    tables={"operators": OPERATORS, "totals": TOTALS, "attribution": ATTRIBUTION},
    parameters=OperatorParameters,
    inapplicable_reason=missing,
    answer=answer,
    cost=5,
)

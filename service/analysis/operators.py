"""What does each operator cost on the host, on devices and in memory, by itself and with all that it calls?"""

from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from pydantic import Field

from service.analysis.facts.attribution import ATTRIBUTION, attribution_of
from service.analysis.facts.execution_traces import EXECUTION_TRACES, gained_shapes_of, notes_of, shapes_sql
from service.analysis.facts.host import (
    IS_ANNOTATION,
    IS_OP,
    IS_PYTHON,
    host_of,
    host_where,
)
from service.analysis.facts.memory_changes import memory_changes_of
from service.analysis.facts.scope import Scope
from service.analysis.facts.tensor_cores import on_tensor_cores
from service.analysis.question import Parameters, Question, Tables
from service.analysis.table import RANK, Column, count, ns, number, pct, table_of, table_of_rows, word
from service.trace.kernel_names import uses_matrix_cores
from service.trace.summary import HOST_CATEGORIES, NOT_OPERATORS

OPERATORS = (
    RANK,
    word("name", "of the operator; `ProfilerStep*` stands for all steps"),
    word("shapes", "of its inputs, with `group_by=shapes`"),
    word("kind", "op, annotation, python (a function), call (of a runtime or driver), or memory"),
    count("calls", "number of calls; an only child with its parent's name does not count"),
    ns("host_self", "on the host, without what it called"),
    ns("host_total", "on the host, with what it called"),
    ns("device_self", "on devices, of work that it launched directly"),
    ns("device_total", "on devices, of work that it launched directly or through what it called"),
    Column("host_memory_self_bytes", "int", "bytes", "allocated minus freed on the host, without what it called"),
    Column("host_memory_total_bytes", "int", "bytes", "allocated minus freed on the host while it ran"),
    Column("device_memory_self_bytes", "int", "bytes", "allocated minus freed on devices, without what it called"),
    Column("device_memory_total_bytes", "int", "bytes", "allocated minus freed on devices while it ran"),
    word("tensor_cores_eligible", "yes if it, or an operator that it called, can run on tensor cores"),
    ns("tensor_cores_self", "part of device_self in kernels whose names say that they use matrix cores"),
    ns("tensor_cores_total", "part of device_total in kernels whose names say that they use matrix cores"),
    ns("tensor_cores_unknown_self", "part of device_self in kernels whose names match no pattern"),
    ns("tensor_cores_unknown_total", "part of device_total in kernels whose names match no pattern"),
    pct("host_self", "of the sum of host_self over all rows"),
    pct("device_self", "of the durations of all work on devices, attributed or not"),
    number("host_mean_us", "mean host_total of a call", "µs"),
)
TOTALS = (
    RANK,
    count("calls", "of all operators"),
    ns("host", "time of the host in all operators"),
    ns("device", "time of all work on devices"),
    ns("unattributed", "part of device: work with neither a launching operator nor a launching call in the trace"),
)

_COLLECTIVES = tuple(
    f"{library}:{name}"
    for library in ("nccl", "gloo")
    for name in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)
"""Annotations of collectives.

TensorBoard nests operators in these, and in the annotations of data loaders, optimizers and steps.
"""


class OperatorParameters(Parameters):
    """Parameters of `operators`."""

    group_by: Literal["name", "shapes"] = Field(
        "name", description="one row for each name, or for each combination of a name and input shapes"
    )
    nesting: Literal["torch", "tensorboard"] = Field(
        "torch",
        description="`tensorboard` reproduces TensorBoard's Operator view: only operators nest, own time on the host"
        " excludes runtime calls, work launched by driver calls is left out, and times are rounded to doubles of"
        " microseconds",
    )


def answer(scope: Scope, parameters: OperatorParameters) -> Tables:
    """Return the operators of a rank, their totals, and how work on devices was attributed."""
    from service.analysis.facts.device_work import device_work  # noqa: PLC0415 - loads numba, which the server does without
    from service.analysis.facts.operator_rows import OperatorRows  # noqa: PLC0415 - also loads numba

    as_tensorboard = parameters.nesting == "tensorboard"
    by_shapes = parameters.group_by == "shapes"
    if as_tensorboard or by_shapes or scope.has_categories(["python_function"]):
        host = host_where(scope, _nesting_condition(scope, as_tensorboard), shapes_sql(scope) if by_shapes else None)
    else:
        host = host_of(scope, named=lambda name: name not in NOT_OPERATORS)
    with ThreadPoolExecutor(1, "rows") as thread:
        future_rows = thread.submit(OperatorRows, host, as_tensorboard)  # compiled code runs while the database reads
        uses_cores = on_tensor_cores if as_tensorboard else uses_matrix_cores
        work = device_work(scope, uses_cores, runtime_calls=as_tensorboard)
        memory_changes = memory_changes_of(scope)
    rows = future_rows.result()
    rows.add_time(work)
    rows.add_memory(memory_changes)
    operators, totals = rows.tables()
    operators["rank"] = [scope.rank] * len(operators["name"])
    totals["rank"] = [scope.rank]
    return {
        "operators": table_of(OPERATORS, operators),
        "totals": table_of(TOTALS, totals),
        "attribution": attribution_of(scope),
        "execution_traces": (
            gained_shapes_of(scope).rows(scope.rank) if by_shapes else table_of_rows(EXECUTION_TRACES, [])
        ),
    }


def missing(scope: Scope) -> str | None:
    """Return the reason why the analysis does not apply; None if the trace has operators."""
    return None if scope.has_categories(HOST_CATEGORIES) else "This trace has no operators."


def _nesting_condition(scope: Scope, as_tensorboard: bool) -> str:
    """Return the SQL condition that selects the slices to nest."""
    if not as_tensorboard:
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
    short_question="Which operators cost the most?",
    definition="As in torch's key_averages: slices of the host nest within their thread. A slice that ends after"
    " another slice is not its child. An only child with its parent's name is merged into the parent. A slice's own"
    " time excludes that of its children. Work on devices counts for the innermost operator around its launch, or for"
    " the launch itself if no operator is around it, and in totals for all slices that enclose these. The table"
    " `attribution` names the rules. Memory that is allocated or freed counts for the slices that run at that time, on"
    " any thread. A slice's own memory excludes that of its children. With `group_by=shapes`, operators without shapes"
    " in the trace have those of an execution trace of the same capture that is attached to the trace, or to its run"
    " with the rank in its name: the id of a node (`rf_id`) is that of an operator (`Record function id`, or"
    " `External id` where that is 0), and 95 % of the names agree. The table `execution_traces` and the notes say so.",
    source="https://github.com/pytorch/pytorch/blob/main/torch/autograd/profiler_util.py",
    tables={
        "operators": OPERATORS,
        "totals": TOTALS,
        "attribution": ATTRIBUTION,
        "execution_traces": EXECUTION_TRACES,
    },
    parameters=OperatorParameters,
    inapplicable_reason=missing,
    answer=answer,
    notes_of=lambda tables: [*notes_of(tables["execution_traces"])],
    cost=5,
    is_large=True,
)

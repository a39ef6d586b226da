"""Which kinds of work take the time, and which kernels, launched how?"""

from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from service.analysis.facts.attribution import ATTRIBUTION, attribution_of
from service.analysis.facts.deviations import squared_deviations
from service.analysis.facts.intervals import clamp_int64, group_rows, percentage
from service.analysis.facts.kernel_shapes import kernel_shapes, with_shapes
from service.analysis.facts.scope import Scope
from service.analysis.facts.work_times import work_times
from service.analysis.kernel_totals import NAMES, TOTAL_KERNELS, TOTAL_TYPES, joined, names_of
from service.analysis.question import Question, Tables, WorkParameters
from service.analysis.table import (
    DEVICE,
    RANK,
    Column,
    Columns,
    count,
    ns,
    number,
    pct,
    table_of,
    table_of_rows,
    word,
)
from service.streaming.integers import distinct
from service.trace.kernel_names import precision, uses_matrix_cores

_DURATIONS = (
    count("count", "how many ran"),
    ns("sum", "of their durations"),
    number("mean_ns", "of their durations", "ns"),
    ns("min", "of their durations"),
    ns("max", "of their durations"),
    number("stddev_ns", "of their durations, of a sample; 0 of a single one", "ns"),
)
_METRICS = (
    word("tensor_cores", "yes, no, or unknown: the use of matrix cores by its name"),
    word("precision", "of its matrix multiplication, from its name: bf16, fp16, tf32, fp8, ..."),
    number("blocks_per_sm", "mean over its time; empty if the trace does not record it"),
    pct("occupancy", "mean of the estimated achieved occupancy over its time, likewise"),
)
TYPES = (
    RANK,
    DEVICE,
    word("types", "of the work that runs at once: COMP, COMM, MEM, or several of them"),
    ns("time", "in which exactly these run"),
    pct("time", "of the time in which the device works at all"),
)
KERNELS = (
    RANK,
    DEVICE,
    word("type", "COMP, COMM or MEM"),
    word("name", "of the kernel; `others` beyond `top`"),
    *_DURATIONS,
    *_METRICS,
)
CONFIGURATIONS = (
    RANK,
    DEVICE,
    word("name", "of the kernel; `others` beyond `top`"),
    word("op", "that launched it: the innermost operator around its launch"),
    word("grid", "of blocks, as the trace has it"),
    word("block", "of threads, as the trace has it"),
    count("registers", "per thread"),
    Column("shared_memory_bytes", "int", "bytes", "of a block"),
    *_DURATIONS,
    *_METRICS,
)

_NAMED = ("COMP", "COMM", "MEM")
_WORK = """
CREATE OR REPLACE TEMP TABLE launched AS
SELECT
    position, device, type, kind = 'kernel' AS is_kernel, dur_ns, hash(name) AS name_hash, shape,
    operator_row
FROM {work}
"""
"""Creates a table of work with its shape and operator. Names are long, so only their hashes are copied."""
_GROUPED = f"""
CREATE OR REPLACE TEMP TABLE counted AS
SELECT
    device, type, is_kernel, shape, op, min(position) AS position,
    count(*) AS events, sum(dur_ns) AS total, min(dur_ns) AS shortest, max(dur_ns) AS longest,
    {squared_deviations("dur_ns")} AS deviations
FROM launched LEFT JOIN ops USING (operator_row)
GROUP BY device, type, is_kernel, shape, name_hash, op
"""
_NAMED_GROUPS = """
CREATE OR REPLACE TEMP TABLE named AS
SELECT
    counted.* EXCLUDE (shape, position, op), work.name, op_names.name AS op,
    shapes.* EXCLUDE (shape, in_tail, estimated_blocks, estimated_occupancy)
FROM counted
LEFT JOIN shapes USING (shape)
LEFT JOIN op_names USING (op)
LEFT JOIN (
    SELECT position, name FROM work WHERE position IN (SELECT position FROM counted)
) AS work ON work.position = counted.position
"""
_SORTED_GROUPS = """
CREATE OR REPLACE TEMP TABLE grouped AS
SELECT named.*, tensor_cores, precision FROM named LEFT JOIN matrix_cores ON matrix_cores.name = named.name
ORDER BY ALL  -- sums of doubles are the same only in the same order
"""
_AGGREGATED = f"""
WITH keyed AS (
    SELECT *, dense_rank() OVER (PARTITION BY device, {{within}} ORDER BY of_key DESC, {{key}}) AS place
    FROM (SELECT *, sum(total) OVER (PARTITION BY device, {{within}}, {{key}}) AS of_key FROM grouped WHERE {{where}})
), placed AS (
    SELECT
        *, sum(total) OVER same / sum(events) OVER same AS mean, total / events AS own_mean
    FROM (SELECT *, least(place, $top + 1) AS slot FROM keyed)
    WINDOW same AS (PARTITION BY device, {{within}}, slot)
)
SELECT
    device, {{columns}}, sum(events)::BIGINT AS count, least(sum(total), {2**63 - 1})::BIGINT AS sum_ns,
    any_value(mean)::DOUBLE AS mean_ns, min(shortest) AS min_ns, max(longest) AS max_ns,
    CASE WHEN sum(events) > 1
         THEN sqrt(sum(deviations + events * (own_mean - mean) * (own_mean - mean)) / (sum(events) - 1))
         ELSE 0 END AS stddev_ns,
    CASE WHEN slot <= $top AND bool_or(is_kernel) THEN any_value(tensor_cores) END AS tensor_cores,
    CASE WHEN slot <= $top AND bool_or(is_kernel) THEN any_value(precision) END AS precision,
    sum(blocks_per_sm * total) / nullif(sum(total) FILTER (blocks_per_sm NOTNULL), 0) AS blocks_per_sm,
    sum(occupancy * total) / nullif(sum(total) FILTER (occupancy NOTNULL), 0) AS occupancy_pct
FROM placed GROUP BY device, {{within}}, slot ORDER BY device, slot > $top, sum_ns DESC, {{within}}, slot
"""


class KernelParameters(WorkParameters):
    """Parameters of `kernel_breakdown`."""

    top: int = Field(
        100, ge=1, le=1_000_000, description="maximum number of names of each type; all further ones are `others`"
    )


def answer(scope: Scope, parameters: KernelParameters) -> Tables:
    """Return the tables of a rank."""
    with kernel_shapes(scope):
        scope.define_work(parameters)
    _group(scope)
    kernels = _AGGREGATED.format(
        within="type",
        key="name",
        where="true",
        columns="type, CASE WHEN slot > $top THEN 'others' ELSE any_value(name) END AS name",
    )
    configuration = ("name", "op", "grid", "block", "registers", "shared_memory_bytes")
    columns = ", ".join(f"CASE WHEN slot <= $top THEN any_value({key}) END AS {key}" for key in configuration[1:])
    configurations = _AGGREGATED.format(
        within="is_kernel",
        key=", ".join(configuration),
        where="is_kernel",
        columns=f"CASE WHEN slot > $top THEN 'others' ELSE any_value(name) END AS name, {columns}",
    )
    return {
        "types": table_of_rows(TYPES, _at_once(scope, parameters)),
        "kernels": _ranked(KERNELS, scope, scope.table(kernels, top=parameters.top)),
        "configurations": _ranked(CONFIGURATIONS, scope, scope.table(configurations, top=parameters.top)),
        "attribution": attribution_of(scope),
        NAMES: names_of(scope),
    }


def _group(scope: Scope) -> None:
    """Create the table ``grouped``: the number and durations of work by name and launch."""
    from service.analysis.facts.device_events import device_events  # noqa: PLC0415 - loads numba, which the server does without

    scope.db.execute(_WORK.format(work=with_shapes(scope, "work")))
    rows = device_events(scope, ("operator",)).ints("operator", -1)
    operators = distinct(rows[rows >= 0])
    codes, names = scope.names_at(operators)
    registered = {
        "ops": pa.table({"operator_row": operators, "op": pa.array(codes, mask=codes < 0)}),
        "op_names": pa.table({"op": np.arange(len(names)), "name": pa.array(names, pa.string())}),
    }
    for name, table in registered.items():
        scope.db.register(name, table)
    scope.db.execute(_GROUPED)
    scope.db.execute(_NAMED_GROUPS)
    scope.db.register("matrix_cores", _matrix_cores(scope))
    scope.db.execute(_SORTED_GROUPS)
    for name in (*registered, "matrix_cores"):
        scope.db.unregister(name)


def _matrix_cores(scope: Scope) -> pa.Table:
    """Derive the use of matrix cores and the precision from each distinct kernel name."""
    names = scope.table("SELECT DISTINCT name FROM named WHERE is_kernel AND name NOTNULL")["name"].to_pylist()
    uses = [{True: "yes", False: "no", None: "unknown"}[uses_matrix_cores(name)] for name in names]
    columns = {"name": names, "tensor_cores": uses, "precision": [precision(name) for name in names]}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _ranked(columns: Columns, scope: Scope, table: pa.Table) -> pa.Table:
    return table_of(columns, table.append_column("rank", pa.array([scope.rank] * len(table), pa.int64())))


def _at_once(scope: Scope, parameters: KernelParameters) -> list[list[Any]]:
    """Return the time in which each combination of types runs, on each device."""
    from service.analysis.facts.unions import lengths_of_sets  # noqa: PLC0415 - loads numba, which the server does without

    work = work_times(scope, parameters)
    named = np.where(work.types < len(_NAMED), work.types, -1).astype(np.int8)
    rows: list[list[Any]] = []
    for (device,), members in group_rows(work.devices):
        lengths = lengths_of_sets(work.starts[members], work.ends[members], named[members], len(_NAMED)).tolist()
        times = {_running(state): time for state, time in enumerate(lengths) if state and time}
        for running, time in sorted(times.items(), key=lambda item: -item[1]):
            rows.append([scope.rank, device, running, clamp_int64(time), percentage(time, sum(times.values()))])
    return rows


def _running(state: int) -> str:
    """Return the names of the types in a set, which are the bits of a number."""
    return " + ".join(name for kind, name in enumerate(_NAMED) if state >> kind & 1)


def missing(scope: Scope) -> str | None:
    """Return a reason if the trace has no work on a GPU."""
    return scope.no_work_reason


QUESTION = Question(
    name="kernel_breakdown",
    short_question="Which kinds of work take the time of a GPU, and which kernels, launched how?",
    definition="Of each rank and device: for each set of types of work, the time in which exactly these run; for each"
    " type, the kernels by name, those with the largest sum of durations first; and kernels by name, op, grid, block,"
    " registers and shared memory. The op is the innermost operator around the launch. Blocks per SM and occupancy are"
    " means, weighted by duration. The tables of totals add up all ranks.",
    source="https://github.com/pytorch/kineto/blob/main/tb_plugin/torch_tb_profiler/profiler/kernel_parser.py",
    tables={"types": TYPES, "kernels": KERNELS, "configurations": CONFIGURATIONS, "attribution": ATTRIBUTION}
    | {"total_types": TOTAL_TYPES, "total_kernels": TOTAL_KERNELS},
    parameters=KernelParameters,
    inapplicable_reason=missing,
    answer=answer,
    join_ranks=lambda answers, parameters: joined(answers, parameters.top),
    cost=6,
)

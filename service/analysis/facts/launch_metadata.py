"""Metadata of collectives from the host: `record_param_comms` and annotations around each launch."""

import json
from math import prod
from typing import Any, NamedTuple

import pyarrow as pa

from service.analysis.facts.bandwidths import ELEMENT_BYTES
from service.analysis.facts.host import THREAD
from service.analysis.facts.intervals import Ints
from service.analysis.facts.launches import calls_of, first_positions
from service.analysis.facts.scope import Scope
from service.store.database import END

ANNOTATED = "^((nccl|rccl|hccl|xccl|gloo|mpi|ucc):|symm_mem::)"
"""Regular expression of the names of slices whose inputs are those of a collective."""

RECORDED = "record_param_comms"
"""Name of the slice whose arguments describe a collective."""

_SIZE_MAX = 1 << 62


def text_arg(key: str) -> str:
    """Return SQL for a text argument; an argument with an escape that stands for no character keeps its escapes."""
    written = f"""nullif(regexp_extract(args, '"{key}":\\s*"((?:[^"\\\\]|\\\\.)*)"', 1), '')"""
    unescaped = f"""try(json_extract_string('"' || {written} || '"', '$'))"""
    return f"""CASE WHEN contains({written}, '\\') THEN coalesce({unescaped}, {written}) ELSE {written} END"""


def int_arg(key: str) -> str:
    """Return SQL for an integer argument."""
    return f"""TRY_CAST(nullif(regexp_extract(args, '"{key}":\\s*([0-9]{{1,18}})\\b', 1), '') AS BIGINT)"""


FIELDS = (
    "collective", "dtype", "process_group", "group_description", "group_ranks", "seq", "group_size", "in_elements",
    "out_elements",
)  # fmt: skip
"""Fields of a collective in the arguments of a kernel or of `record_param_comms`."""

COLLECTIVE_ARGS = f"""
{text_arg("Collective name")} AS collective, {text_arg("dtype")} AS dtype,
coalesce({text_arg("Process Group Name")}, {int_arg("Process Group ID")}::VARCHAR) AS process_group,
{text_arg("Process Group Description")} AS group_description, {text_arg("Process Group Ranks")} AS group_ranks,
{int_arg("Seq")} AS seq, {int_arg("Group size")} AS group_size, {int_arg("In msg nelems")} AS in_elements,
{int_arg("Out msg nelems")} AS out_elements
"""
"""SQL for `FIELDS`."""

_CALLS = f"""
SELECT correlation, thread, start_ns, end_ns FROM (
    SELECT
        correlation, {THREAD} AS thread, ts_ns AS start_ns, {END} AS end_ns,
        row_number() OVER (PARTITION BY correlation ORDER BY ts_ns, position) AS place
    FROM events
    WHERE ph = 'X' AND ts_ns NOTNULL AND {{calls}}
        AND correlation IN (SELECT correlation FROM work WHERE type = 'COMM')
) WHERE place = 1
"""
_DESCRIBING = f"""
SELECT name, {THREAD} AS thread, ts_ns AS start_ns, {END} AS end_ns, args, {{fields}} FROM events
WHERE ph = 'X' AND ts_ns NOTNULL AND ({{named}})
"""

SliceRow = dict[str, Any]
"""A slice around a launch: ``name, thread, start_ns, end_ns, args`` and `FIELDS`."""


class Inputs(NamedTuple):
    """Input tensors of an operator: number of elements, type of the first tensor, and size in bytes."""

    elements: int | None
    dtype: str | None
    size: int | None


class Launch(NamedTuple):
    """A call that launches a collective.

    Args:
        start_ns: start of the call.
        recorded: innermost slice around the call that has `FIELDS`.
        annotation: innermost annotation around the call.
    """

    start_ns: int
    recorded: SliceRow | None
    annotation: SliceRow | None


def launches_by_correlation(scope: Scope, correlations: Ints, *, with_slices: bool) -> dict[int, Launch]:
    """Return the launch of each communicating kernel in the view ``work``, by correlation id.

    Args:
        scope: scope of the rank.
        correlations: the kernels' correlation ids.
        with_slices: whether to find the slices around the launches, too.
    """
    if not with_slices:
        calls = calls_of(scope)
        calls = calls.filter(calls["correlation"].is_valid())
        positions = first_positions(calls["correlation"].to_numpy(), correlations)
        starts = calls["call_start_ns"].take(pa.array(positions, mask=positions < 0))
        known = zip(correlations.tolist(), starts.to_pylist(), strict=True)
        return {correlation: Launch(start, None, None) for correlation, start in known if start is not None}
    launching = scope.table(_CALLS.format(calls=scope.is_call)).to_pylist()
    named = f"{scope.name_matches(f'^{RECORDED}$')} OR {scope.name_matches(ANNOTATED)}"
    slices = scope.table(_DESCRIBING.format(named=named, fields=COLLECTIVE_ARGS)).to_pylist()
    launches: dict[int, Launch] = {}
    stack: list[SliceRow] = []
    for row in sorted(
        slices + launching, key=lambda row: (row["thread"], row["start_ns"], -row["end_ns"], "correlation" in row)
    ):
        stack = [outer for outer in stack if _encloses(outer, row)]
        if "correlation" in row:
            innermost_first = stack[::-1]
            recorded = next((outer for outer in innermost_first if outer["collective"] is not None), None)
            annotation = next((outer for outer in innermost_first if outer["name"] != RECORDED), None)
            launches[row["correlation"]] = Launch(row["start_ns"], recorded, annotation)
        else:
            stack.append(row)
    return launches


def _encloses(outer: SliceRow, inner: SliceRow) -> bool:
    """Return whether a slice encloses another slice, given that the other one does not start earlier."""
    return outer["thread"] == inner["thread"] and inner["start_ns"] < outer["end_ns"] >= inner["end_ns"]  # type: ignore[no-any-return]


def operation_of(name: str) -> str:
    """Return the operation that an annotation names: `all_reduce` for `nccl:all_reduce`."""
    return name[name.index(":") :].lstrip(":") if ":" in name else name


def inputs_of(args: str | None) -> Inputs:
    """Read the inputs of an operator from its arguments; fields are None if they are missing or invalid."""
    try:
        members = json.loads(args or "{}")
        dims, types = members["Input Dims"], members["Input type"]
        counts = [_elements(shape) for shape in dims]
        tensors = [
            (count, dtype) for count, dtype in zip(counts, types, strict=True) if dtype in ELEMENT_BYTES and count
        ]
        size = sum(count * ELEMENT_BYTES[dtype] for count, dtype in tensors)
        count, dtype = sum(count for count, _ in tensors), tensors[0][1]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return Inputs(None, None, None)
    return Inputs(count, dtype, size) if 0 < size < _SIZE_MAX else Inputs(None, dtype, None)


def _elements(shape: Any) -> int:
    """Count the elements of a tensor, or of a list of tensors, by their shapes."""
    if any(isinstance(dim, list) for dim in shape):
        return sum(_elements(dim) for dim in shape)
    return prod(shape) if shape and all(type(dim) is int and 0 <= dim < 1 << 40 for dim in shape) else 0

"""What the host tells of the collectives that it launches: `record_param_comms` and annotations around each launch."""

import json
from math import prod
from typing import Any, NamedTuple

from service.analysis.facts.bandwidths import ELEMENT_BYTES
from service.analysis.facts.host import THREAD
from service.analysis.facts.scope import Scope
from service.store.census import END

ANNOTATED = "^((nccl|rccl|hccl|xccl|gloo|mpi|ucc):|symm_mem::)"
"""A regular expression of the names of slices whose inputs are those of a collective."""

RECORDED = "record_param_comms"
"""Name of the slice whose arguments tell of a collective."""

_SIZE_MAX = 1 << 62


def text(key: str) -> str:
    """SQL for an argument that is a text."""
    return f"""nullif(regexp_extract(args, '"{key}":\\s*"((?:[^"\\\\]|\\\\.)*)"', 1), '')"""


def whole(key: str) -> str:
    """SQL for an argument that is a whole number."""
    return f"""TRY_CAST(nullif(regexp_extract(args, '"{key}":\\s*([0-9]{{1,18}})\\b', 1), '') AS BIGINT)"""


FIELDS = (
    "collective", "dtype", "process_group", "group_description", "group_ranks", "seq", "group_size", "in_elements",
    "out_elements",
)  # fmt: skip
"""What the arguments of a kernel or of `record_param_comms` tell of a collective."""

TOLD = f"""
{text("Collective name")} AS collective, {text("dtype")} AS dtype,
coalesce({text("Process Group Name")}, {whole("Process Group ID")}::VARCHAR) AS process_group,
{text("Process Group Description")} AS group_description, {text("Process Group Ranks")} AS group_ranks,
{whole("Seq")} AS seq, {whole("Group size")} AS group_size, {whole("In msg nelems")} AS in_elements,
{whole("Out msg nelems")} AS out_elements
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
_TELLING = f"""
SELECT name, {THREAD} AS thread, ts_ns AS start_ns, {END} AS end_ns, args, {{told}} FROM events
WHERE ph = 'X' AND ts_ns NOTNULL AND ({{named}})
"""

Told = dict[str, Any]


class Inputs(NamedTuple):
    """The tensors that an operator takes: their elements and bytes, and the type of the first."""

    elements: int | None
    dtype: str | None
    size: int | None


class Launch(NamedTuple):
    """A call that launches a collective.

    Args:
        start_ns: of the call.
        recorded: the innermost slice around it that tells `FIELDS`.
        annotation: the innermost annotation around it.
    """

    start_ns: int
    recorded: Told | None
    annotation: Told | None


def launches_of(scope: Scope, *, telling: bool) -> dict[int, Launch]:
    """The launching call of each communicating kernel in the view ``work``, by correlation.

    Args:
        scope: the rank.
        telling: whether what is around these calls is wanted.
    """
    calls = scope.table(_CALLS.format(calls=scope.calls)).to_pylist()
    if not telling:
        return {one["correlation"]: Launch(one["start_ns"], None, None) for one in calls}
    named = f"{scope.named(f'^{RECORDED}$')} OR {scope.named(ANNOTATED)}"
    slices = scope.table(_TELLING.format(named=named, told=TOLD)).to_pylist()
    found: dict[int, Launch] = {}
    around: list[Told] = []
    for one in sorted(
        slices + calls, key=lambda one: (one["thread"], one["start_ns"], -one["end_ns"], "correlation" in one)
    ):
        around = [each for each in around if _encloses(each, one)]
        if "correlation" in one:
            innermost = around[::-1]
            recorded = next((each for each in innermost if each["collective"] is not None), None)
            annotation = next((each for each in innermost if each["name"] != RECORDED), None)
            found[one["correlation"]] = Launch(one["start_ns"], recorded, annotation)
        else:
            around.append(one)
    return found


def _encloses(outer: Told, inner: Told) -> bool:
    """Whether one slice encloses another that starts no sooner."""
    return outer["thread"] == inner["thread"] and inner["start_ns"] < outer["end_ns"] >= inner["end_ns"]  # type: ignore[no-any-return]


def operation_of(name: str) -> str:
    """What an annotation does: `all_reduce` of `nccl:all_reduce`."""
    return name[name.index(":") :].lstrip(":") if ":" in name else name


def inputs_of(args: str | None) -> Inputs:
    """The inputs that the arguments of an operator tell."""
    try:
        told = json.loads(args or "{}")
        dims, types = told["Input Dims"], told["Input type"]
        counts = [_elements(one) for one in dims]
        known = [(count, name) for count, name in zip(counts, types, strict=True) if name in ELEMENT_BYTES and count]
        size = sum(count * ELEMENT_BYTES[name] for count, name in known)
        count, name = sum(count for count, _ in known), known[0][1]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return Inputs(None, None, None)
    return Inputs(count, name, size) if 0 < size < _SIZE_MAX else Inputs(None, name, None)


def _elements(dims: Any) -> int:
    """The number of elements of tensors of these dimensions."""
    if any(isinstance(one, list) for one in dims):
        return sum(_elements(one) for one in dims)
    return prod(dims) if dims and all(type(one) is int and 0 <= one < 1 << 40 for one in dims) else 0

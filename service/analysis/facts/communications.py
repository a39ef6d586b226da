"""How a rank communicates: its kernels that do, or what its process groups do on the host, and what is told of it."""

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from math import prod
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from service.analysis.facts.activity import COLLECTIVE, OPS, TB_COLLECTIVES, steps_of
from service.analysis.facts.scope import Scope
from service.analysis.question import WorkParameters
from service.store.census import END

SCHEMA = pa.schema(
    {
        "process_group": pa.string(),
        "by_seq": pa.int64(),
        "number": pa.int64(),
        "occurrence": pa.int64(),
        "index": pa.int64(),
        "collective": pa.string(),
        "told": pa.int64(),
        "calls": pa.int64(),
        "dtype": pa.string(),
        "group_size": pa.int64(),
        "in_elements": pa.int64(),
        "out_elements": pa.int64(),
        "size_bytes": pa.int64(),
        "stream": pa.int64(),
        "step": pa.int64(),
        "start_ns": pa.int64(),
        "end_ns": pa.int64(),
    }
)
"""A communication of a rank.

Those of several ranks are one collective if they agree in ``process_group, by_seq, number, occurrence``: the number is
the process group's own, ``Seq``, where it is told, else the place among those of the group. ``told`` is 1 where the
program tells what is done, and 0 where only a kernel's name does; ``calls`` is 0 of the kernels of an annotation that
is counted itself.
"""

ELEMENT_BYTES = {
    **dict.fromkeys(("Bool", "Byte", "Char", "unsigned char", "signed char", "bool"), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short", "c10::BFloat16", "c10::Half", "short int"), 2),
    **dict.fromkeys(("Float", "Int", "float", "int"), 4),
    **dict.fromkeys(("Double", "Long", "double", "long int", "ComplexFloat", "c10::complex<float>"), 8),
    **dict.fromkeys(("ComplexDouble", "c10::complex<double>"), 16),
}
"""How long an element is, by its type's name."""

_BYTES_MAX = 1 << 62


def _text(key: str) -> str:
    return f"""nullif(regexp_extract(args, '"{key}":\\s*"((?:[^"\\\\]|\\\\.)*)"', 1), '')"""


def _whole(key: str) -> str:
    return f"""TRY_CAST(nullif(regexp_extract(args, '"{key}":\\s*([0-9]{{1,18}})', 1), '') AS BIGINT)"""


_PLAIN = "regexp_replace(lower(name), '[^a-z0-9]', '', 'g')"
_BY_NAME = f"""CASE
    WHEN regexp_matches({_PLAIN}, 'allreduce|crossdevicereduce') THEN 'allreduce'
    WHEN contains({_PLAIN}, 'reducescatter') THEN 'reduce_scatter' WHEN contains({_PLAIN}, 'allgather') THEN 'allgather'
    WHEN contains({_PLAIN}, 'alltoall') THEN 'all_to_all' WHEN contains({_PLAIN}, 'sendrecv') THEN 'sendrecv'
    WHEN contains({_PLAIN}, 'broadcast') THEN 'broadcast' WHEN contains({_PLAIN}, 'reduce') THEN 'reduce' END"""

_KERNELS = f"""
SELECT
    *, coalesce(bool_and(seq NOTNULL) OVER (PARTITION BY process_group), false)::BIGINT AS by_seq,
    row_number() OVER (PARTITION BY process_group ORDER BY start_ns, position) - 1 AS index,
    row_number() OVER (PARTITION BY process_group, seq ORDER BY start_ns, position) - 1 AS same
FROM (
    SELECT
        position, start_ns, end_ns, stream, correlation, coalesce({_text("Collective name")}, {_BY_NAME}) AS collective,
        contains(args, '"Collective name"')::BIGINT AS told, {_text("dtype")} AS dtype,
        {_text("Process Group Name")} AS process_group, {_whole("Seq")} AS seq, {_whole("Group size")} AS group_size,
        {_whole("In msg nelems")} AS in_elements, {_whole("Out msg nelems")} AS out_elements
    FROM work WHERE type = 'COMM'
)
ORDER BY start_ns, position
"""
_LAUNCHES = """
SELECT correlation, min(ts_ns) AS launch_ns FROM events
WHERE ph = 'X' AND {calls} AND correlation IN (SELECT correlation FROM work WHERE type = 'COMM') GROUP BY correlation
"""
_ANNOTATIONS = f"""
SELECT name, {{external_id}} AS external_id, ts_ns AS start_ns, {END} AS end_ns, args FROM events
WHERE ph = 'X' AND cat IN {OPS} AND ts_ns NOTNULL AND {{named}}
"""
_OF_ANNOTATIONS = f"""
SELECT external_id, start_ns, end_ns FROM work
WHERE kind = 'kernel' AND external_id IN (SELECT external_id FROM events WHERE ph = 'X' AND name IN {TB_COLLECTIVES})
ORDER BY external_id, start_ns, -end_ns
"""


def communications_of(scope: Scope, rules: Literal["exact", "tensorboard"]) -> pa.Table:
    """What a rank communicates, in order of time.

    Args:
        scope: the rank.
        rules: `tensorboard` takes the annotations of process groups with the kernels of the same External id; else it
            is kernels that communicate, or annotations alone where there are none.
    """
    if rules == "exact" and scope.has_communication:
        return _kernels(scope)
    plugin = rules == "tensorboard"
    annotations = scope.table(
        _ANNOTATIONS.format(
            named=f"name IN {TB_COLLECTIVES}" if plugin else scope.named(COLLECTIVE),
            external_id="external_id" if plugin else "NULL",
        )
    ).to_pylist()
    annotations.sort(key=lambda one: (one["start_ns"], -one["end_ns"]))
    ranges: Mapping[int, list[tuple[int, int]]] = {}
    if plugin:
        scope.work(WorkParameters(), typed=False)
        kernels = scope.table(_OF_ANNOTATIONS).to_pylist()
        ranges = {
            key: [(one["start_ns"], one["end_ns"]) for one in found]
            for key, found in groupby(kernels, key=lambda one: one["external_id"])
        }
    return _annotated(scope, annotations, ranges)


def _kernels(scope: Scope) -> pa.Table:
    scope.work(WorkParameters(), args=True)
    found = scope.table(_KERNELS)
    launches = scope.table(_LAUNCHES.format(calls=scope.calls)).to_pydict()
    launched = dict(zip(launches["correlation"], launches["launch_ns"], strict=True))
    starts = found["start_ns"].to_pylist()
    called = [launched.get(key, start) for key, start in zip(found["correlation"].to_pylist(), starts, strict=True)]
    rows = found.to_pydict()
    rows["number"] = [seq if by_seq else index for seq, by_seq, index in _zipped(rows, "seq", "by_seq", "index")]
    rows["occurrence"] = [same if by_seq else 0 for same, by_seq in _zipped(rows, "same", "by_seq")]
    rows["size_bytes"] = [
        _size(outs if _is_gathered(name) else ins, dtype)
        for name, dtype, ins, outs in _zipped(rows, "collective", "dtype", "in_elements", "out_elements")
    ]
    rows["step"], rows["calls"] = _steps(scope, called), [1] * len(called)
    return pa.table({field.name: pa.array(rows[field.name], field.type) for field in SCHEMA}, SCHEMA)


def _zipped(rows: Mapping[str, list[Any]], *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(rows[name] for name in names), strict=True)


def _is_gathered(collective: str | None) -> bool:
    return collective is not None and "allgather" in collective.replace("_", "").lower()


def _size(elements: int | None, dtype: str | None) -> int | None:
    """How many bytes that many elements are."""
    length = ELEMENT_BYTES.get(dtype or "", 1 if (dtype or "").startswith("Float8") else None)
    return None if elements is None or length is None or elements * length > _BYTES_MAX else elements * length


def _annotated(
    scope: Scope, annotations: list[dict[str, Any]], ranges: Mapping[int, list[tuple[int, int]]]
) -> pa.Table:
    """The communications of annotations, each with some more times."""
    rows: list[dict[str, Any]] = []
    steps = _steps(scope, [one["start_ns"] for one in annotations])
    for number, (one, step) in enumerate(zip(annotations, steps, strict=True)):
        times = [(one["start_ns"], one["end_ns"]), *ranges.get(one["external_id"], [])]
        elements, dtype, size = _inputs(one["args"])
        about = {
            "by_seq": 0, "number": number, "index": number, "collective": one["name"], "told": 1, "dtype": dtype,
            "in_elements": elements, "size_bytes": size, "step": step,
        }  # fmt: skip
        for occurrence, (start, end) in enumerate(sorted(times, key=lambda each: (each[0], -each[1]))):
            rows.append(
                {**about, "occurrence": occurrence, "calls": int(not occurrence), "start_ns": start, "end_ns": end}
            )
    return pa.Table.from_pylist(rows, SCHEMA)


def _inputs(args: str | None) -> tuple[int | None, str | None, int | None]:
    """How many elements an operator takes, of which type, and how many bytes, as its arguments tell."""
    try:
        told = json.loads(args or "{}")
        dims, types = told["Input Dims"], told["Input type"]
        counts = [_elements(one) for one in dims]
        known = [(count, name) for count, name in zip(counts, types, strict=True) if name in ELEMENT_BYTES and count]
        size = sum(count * ELEMENT_BYTES[name] for count, name in known)
        count, name = sum(count for count, _ in known), known[0][1]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None, None, None
    return (count, name, size) if 0 < size < _BYTES_MAX else (None, name, None)


def _elements(dims: Any) -> int:
    """How many elements tensors of these dimensions have."""
    if any(isinstance(one, list) for one in dims):
        return sum(_elements(one) for one in dims)
    return prod(dims) if dims and all(type(one) is int and 0 <= one < 1 << 40 for one in dims) else 0


def _steps(scope: Scope, times: list[int]) -> list[int | None]:
    """The number of the step in whose annotation each time lies."""
    numbers, steps = steps_of(scope)
    if not len(numbers):
        return [None] * len(times)
    at = np.searchsorted(steps.starts, np.array(times, np.int64), side="right") - 1
    return [
        number if step >= 0 and time <= end else None
        for step, time, number, end in zip(
            at.tolist(), times, numbers[at].tolist(), steps.ends[at].tolist(), strict=True
        )
    ]

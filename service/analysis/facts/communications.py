"""Communications of a rank: kernels that communicate, or what process groups do on the host."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from service.analysis.facts.activity import COLLECTIVE, OPS, TB_COLLECTIVES, steps_of
from service.analysis.facts.bandwidths import size_of
from service.analysis.facts.launch_metadata import (
    FIELDS,
    TOLD,
    Launch,
    inputs_of,
    launches_of,
    operation_of,
)
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.store.census import END
from service.trace.process_groups import ProcessGroups

SCHEMA = pa.schema(
    {
        "process_group": pa.string(),
        "group_description": pa.string(),
        "group_ranks": pa.string(),
        "by_seq": pa.int64(),
        "number": pa.int64(),
        "occurrence": pa.int64(),
        "index": pa.int64(),
        "collective": pa.string(),
        "source": pa.string(),
        "calls": pa.int64(),
        "dtype": pa.string(),
        "group_size": pa.int64(),
        "assumed_size": pa.int64(),
        "in_elements": pa.int64(),
        "out_elements": pa.int64(),
        "size_bytes": pa.int64(),
        "stream": pa.int64(),
        "step": pa.int64(),
        "launch_ns": pa.int64(),
        "start_ns": pa.int64(),
        "end_ns": pa.int64(),
    }
)
"""A communication of a rank.

Those of several ranks are one collective if they agree in ``process_group, by_seq, number, occurrence``: the number is
the process group's own, ``Seq``, where it is told, else the place among those of the group. ``source`` is what tells of
it: `KERNEL`, `LAUNCH`, `ANNOTATION` or `NAME`. ``assumed_size`` is 1 where the group size is that of the job.
``launch_ns`` is when the host launches it. ``calls`` is 0 of the kernels of an annotation that is counted itself.
"""

KERNEL, LAUNCH, ANNOTATION, NAME = "kernel", "launch", "annotation", "name"
"""Sources: a kernel's arguments; those of `record_param_comms` around its launch; an annotation; a kernel's name."""

_PLAIN = "regexp_replace(lower(name), '[^a-z0-9]', '', 'g')"
_BY_NAME = f"""CASE
    WHEN regexp_matches({_PLAIN}, 'allreduce|crossdevicereduce') THEN 'allreduce'
    WHEN contains({_PLAIN}, 'reducescatter') THEN 'reduce_scatter' WHEN contains({_PLAIN}, 'allgather') THEN 'allgather'
    WHEN contains({_PLAIN}, 'alltoall') THEN 'all_to_all' WHEN contains({_PLAIN}, 'sendrecv') THEN 'sendrecv'
    WHEN contains({_PLAIN}, 'broadcast') THEN 'broadcast' WHEN contains({_PLAIN}, 'reduce') THEN 'reduce' END"""

_KERNELS = f"""
SELECT position, start_ns, end_ns, stream, correlation, step, {_BY_NAME} AS by_name, {TOLD} FROM work
WHERE type = 'COMM' ORDER BY start_ns, position
"""
_NUMBERED = """
SELECT *, CASE WHEN by_seq THEN seq ELSE index END AS number, CASE WHEN by_seq THEN same ELSE 0 END AS occurrence
FROM (
    SELECT
        *, coalesce(bool_and(seq NOTNULL) OVER (PARTITION BY process_group), false) AS by_seq,
        row_number() OVER (PARTITION BY process_group ORDER BY place) - 1 AS index,
        row_number() OVER (PARTITION BY process_group, seq ORDER BY place) - 1 AS same
    FROM told_kernels
) ORDER BY place
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
_TOLD_KERNELS = pa.schema(
    [
        pa.field("place", pa.int64()),
        pa.field("seq", pa.int64()),
        *(one for one in SCHEMA if one.name not in ("by_seq", "number", "occurrence", "index", "calls", "step")),
    ]
)


def communications_of(scope: Scope, rules: Literal["exact", "tensorboard"]) -> pa.Table:
    """Communications of a rank, in order of time.

    Args:
        scope: the rank.
        rules: `tensorboard` takes the annotations of process groups with the kernels of the same External id; else it
            is kernels that communicate, or annotations alone where there are none.
    """
    groups = ProcessGroups.listed(scope.envelope, scope.rank, scope.summary.get("world_size"))
    if rules == "exact" and scope.has_communication:
        return _kernels(scope, groups)
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
    return _annotated(scope, groups, annotations, ranges)


def _kernels(scope: Scope, groups: ProcessGroups) -> pa.Table:
    """Kernels that communicate, with what they or their launches tell."""
    scope.work(WorkParameters(), args=True)
    kernels = scope.table(_KERNELS).to_pylist()
    launches = launches_of(scope, telling=any(one["collective"] is None for one in kernels))
    for place, one in enumerate(kernels):
        launch = launches.get(one["correlation"])
        one |= {"place": place, "launch_ns": launch and launch.start_ns, **_told(one, launch)}
    any_told = any(one["process_group"] is not None or one["group_size"] is not None for one in kernels)
    for one in kernels:
        _complete(one, groups, any_told=any_told)
    scope.db.register("told_kernels", pa.Table.from_pylist(kernels, _TOLD_KERNELS))
    numbered = scope.table(_NUMBERED)
    scope.db.unregister("told_kernels")
    columns = dict(zip(numbered.column_names, numbered.columns, strict=True))
    columns["step"] = pa.chunked_array([pa.array([one["step"] for one in kernels], pa.int64())])
    columns["calls"] = pa.chunked_array([pa.array([1] * len(kernels), pa.int64())])
    return pa.table([columns[one.name].cast(one.type) for one in SCHEMA], SCHEMA)


def _told(kernel: Mapping[str, Any], launch: Launch | None) -> dict[str, Any]:
    """What is told of a kernel, and by what: its own arguments, what is around its launch, or its name."""
    if kernel["collective"] is not None:
        return {"source": KERNEL}
    unknown = {name: kernel[name] for name in FIELDS} | {"collective": kernel["by_name"], "source": NAME}
    if launch is None:
        return unknown
    if launch.recorded:
        return {name: launch.recorded[name] for name in FIELDS} | {"source": LAUNCH}
    if launch.annotation:
        inputs = inputs_of(launch.annotation["args"])
        told = {"collective": operation_of(launch.annotation["name"]), "source": ANNOTATION}
        return unknown | told | {"dtype": inputs.dtype, "in_elements": inputs.elements, "size_bytes": inputs.size}
    return unknown


def _complete(communication: dict[str, Any], groups: ProcessGroups, *, any_told: bool) -> None:
    """Add what the trace lists of the process group, and the size of the collective."""
    group = groups.of(communication.get("process_group"), any_told=any_told)
    communication["assumed_size"] = int(group.assumed and communication.get("group_size") is None)
    described = {"group_size": group.size, "group_description": group.description, "group_ranks": group.ranks}
    communication |= {name: value for name, value in described.items() if communication.get(name) is None}
    about = (communication.get(name) for name in ("collective", "dtype", "in_elements", "out_elements", "group_size"))
    communication["size_bytes"] = size_of(*about, input_bytes=communication.get("size_bytes"))


def _annotated(
    scope: Scope,
    groups: ProcessGroups,
    annotations: list[dict[str, Any]],
    ranges: Mapping[int, list[tuple[int, int]]],
) -> pa.Table:
    """The communications of annotations, each with some more times."""
    rows: list[dict[str, Any]] = []
    steps = _steps(scope, [one["start_ns"] for one in annotations])
    for number, (one, step) in enumerate(zip(annotations, steps, strict=True)):
        times = [(one["start_ns"], one["end_ns"]), *ranges.get(one["external_id"], [])]
        inputs = inputs_of(one["args"])
        about = {
            "by_seq": 0, "number": number, "index": number, "collective": one["name"], "source": ANNOTATION,
            "dtype": inputs.dtype, "in_elements": inputs.elements, "size_bytes": inputs.size, "step": step,
            "launch_ns": one["start_ns"],
        }  # fmt: skip
        _complete(about, groups, any_told=False)
        for occurrence, (start, end) in enumerate(sorted(times, key=lambda each: (each[0], -each[1]))):
            rows.append(
                {**about, "occurrence": occurrence, "calls": int(not occurrence), "start_ns": start, "end_ns": end}
            )
    return pa.Table.from_pylist(rows, SCHEMA)


def _steps(scope: Scope, times: list[int]) -> list[int | None]:
    """The number of the step in whose annotation each time on the host lies."""
    numbers, steps = steps_of(scope)
    if not len(numbers):
        return [None] * len(times)
    at = np.searchsorted(steps.starts, np.array(times, np.int64), side="right") - 1
    return [
        number if step >= 0 and time < end else None
        for step, time, number, end in zip(
            at.tolist(), times, numbers[at].tolist(), steps.ends[at].tolist(), strict=True
        )
    ]

"""Communications of a rank: kernels that communicate, or process groups' annotations on the host."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from service.analysis.facts.activity import COLLECTIVE, OPS, TB_COLLECTIVES, steps_of
from service.analysis.facts.bandwidths import POINT_TO_POINT, kind_of, size_of
from service.analysis.facts.launch_metadata import (
    COLLECTIVE_ARGS,
    FIELDS,
    Launch,
    inputs_of,
    launches_by_correlation,
    operation_of,
)
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.store.database import END
from service.trace.process_groups import ProcessGroups
from service.trace.summary import OP_CATEGORIES

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
"""Columns of a rank's communications.

Communications of several ranks form one collective if they agree in ``process_group, by_seq, number, occurrence``, and
in their group's first rank, if groups share a name; see `service.trace.process_groups.identities`. The number is the
sequence number of the process group (``Seq``) if it is recorded, else the index within the group. ``by_seq`` is 0 for
an index, 1 for the number of a collective, and 2 for that of a send or receive: process groups count these separately.
``source`` is the source of the metadata: `KERNEL`, `LAUNCH`, `ANNOTATION` or `NAME`. ``assumed_size`` is 1 if the group
size is assumed to be that of the job. ``launch_ns`` is the time of the launch on the host. ``calls`` is 0 for kernels
of an annotation that counts itself.
"""

KERNEL, LAUNCH, ANNOTATION, NAME = "kernel", "launch", "annotation", "name"
"""Sources of metadata: a kernel's arguments; `record_param_comms` around its launch; an annotation; a kernel's name."""

_PLAIN = "regexp_replace(lower(name), '[^a-z0-9]', '', 'g')"
_BY_NAME = f"""CASE
    WHEN regexp_matches({_PLAIN}, 'allreduce|crossdevicereduce') THEN 'allreduce'
    WHEN contains({_PLAIN}, 'reducescatter') THEN 'reduce_scatter' WHEN contains({_PLAIN}, 'allgather') THEN 'allgather'
    WHEN contains({_PLAIN}, 'alltoall') THEN 'all_to_all' WHEN contains({_PLAIN}, 'sendrecv') THEN 'sendrecv'
    WHEN contains({_PLAIN}, 'broadcast') THEN 'broadcast' WHEN contains({_PLAIN}, 'reduce') THEN 'reduce' END"""

_KERNELS = f"""
SELECT position, start_ns, end_ns, stream, correlation, step, {_BY_NAME} AS by_name, {COLLECTIVE_ARGS}
FROM (SELECT * EXCLUDE args FROM work WHERE type = 'COMM') JOIN (SELECT position, args FROM events) USING (position)
ORDER BY start_ns, position
"""
_ANNOTATIONS = f"""
SELECT name, external_id, ts_ns AS start_ns, {END} AS end_ns, args FROM events
WHERE ph = 'X' AND cat IN {OPS} AND ts_ns NOTNULL AND name IN {TB_COLLECTIVES}
"""
_ANNOTATED_KERNELS = f"""
SELECT external_id, start_ns, end_ns FROM work
WHERE kind = 'kernel' AND external_id IN (SELECT external_id FROM events WHERE ph = 'X' AND name IN {TB_COLLECTIVES})
ORDER BY external_id, start_ns, -end_ns
"""


def communications_of(scope: Scope, rules: Literal["exact", "tensorboard"], *, sizes: bool = True) -> pa.Table:
    """Return the communications of a rank, in order of time, with the columns of `SCHEMA`.

    Args:
        scope: scope of the rank.
        rules: `exact` takes kernels that communicate or, without any, the annotations of process groups; `tensorboard`
            takes these annotations with the kernels of the same External id.
        sizes: whether types and sizes are needed. Those of annotations are in their arguments, which take long to read.
    """
    groups = ProcessGroups.listed(scope.envelope, scope.rank, scope.world_size)
    if rules == "exact" and scope.has_communication:
        return scope.cached("communicating kernels", lambda: _kernels(scope, groups))
    return scope.cached(("communications", rules, sizes), lambda: _annotations(scope, groups, rules, sizes=sizes))


def _annotations(
    scope: Scope, groups: ProcessGroups, rules: Literal["exact", "tensorboard"], *, sizes: bool
) -> pa.Table:
    """Return a communication for each annotation and, by TensorBoard's rules, for each of its kernels."""
    if rules == "exact":
        return _annotated(scope, groups, _of_process_groups(scope, sizes=sizes), {})
    annotations = scope.table(_ANNOTATIONS).to_pylist()
    annotations.sort(key=lambda annotation: (annotation["start_ns"], -annotation["end_ns"]))
    scope.define_work(WorkParameters(), typed=False)
    kernels = scope.table(_ANNOTATED_KERNELS).to_pylist()
    ranges = {
        external_id: [(kernel["start_ns"], kernel["end_ns"]) for kernel in group]
        for external_id, group in groupby(kernels, key=lambda kernel: kernel["external_id"])
    }
    return _annotated(scope, groups, annotations, ranges)


def _of_process_groups(scope: Scope, *, sizes: bool) -> list[dict[str, Any]]:
    """Return the annotations of process groups, in order of time; with arguments if sizes are needed."""
    from service.analysis.facts.collective_args import collective_args  # noqa: PLC0415 - loads pyarrow.parquet

    slices = scope.slices()
    named = slices.host_named(lambda name: re.search(COLLECTIVE, name))
    chosen = np.flatnonzero(named & slices.of_categories(OP_CATEGORIES.__contains__))
    host = slices.host
    columns = (column[chosen].tolist() for column in (host.starts, host.ends, host.names, host.rows))
    starts, ends, names, rows = columns
    args = collective_args(scope, rows) if sizes else [None] * len(rows)
    return [
        {"name": slices.names[name], "external_id": None, "start_ns": start, "end_ns": end, "args": text}
        for start, end, name, text in zip(starts, ends, names, args, strict=True)
    ]


def _kernels(scope: Scope, groups: ProcessGroups) -> pa.Table:
    """Return the kernels that communicate, with the metadata of kernels and launches."""
    scope.define_work(WorkParameters())
    kernels = scope.table(_KERNELS).to_pylist()
    correlations = {kernel["correlation"] for kernel in kernels} - {None}
    with_slices = any(kernel["collective"] is None for kernel in kernels)
    launches = launches_by_correlation(scope, np.array([*correlations], np.int64), with_slices=with_slices)
    for kernel in kernels:
        launch = launches.get(kernel["correlation"])
        kernel |= {"calls": 1, "launch_ns": launch and launch.start_ns, **_metadata(kernel, launch)}
    any_recorded = any(kernel["process_group"] is not None or kernel["group_size"] is not None for kernel in kernels)
    for kernel in kernels:
        _complete(kernel, groups, any_recorded=any_recorded)
    _add_numbers(kernels)
    return pa.Table.from_pylist(kernels, SCHEMA)


def _add_numbers(kernels: Sequence[dict[str, Any]]) -> None:
    """Add the numbers of a rank's kernels, which are in order of time, in their process groups; see `SCHEMA`."""
    sequences = [(kernel["process_group"], kind_of(kernel["collective"]) in POINT_TO_POINT) for kernel in kernels]
    without_seq = {sequence for sequence, kernel in zip(sequences, kernels, strict=True) if kernel["seq"] is None}
    in_group, of_seq = Counter[str | None](), Counter[tuple[str | None, bool, int]]()
    for (group, in_pairs), kernel in zip(sequences, kernels, strict=True):
        index, seq = in_group[group], kernel["seq"]
        in_group[group] += 1
        if (group, in_pairs) in without_seq:
            kernel |= {"by_seq": 0, "index": index, "number": index, "occurrence": 0}
        else:
            occurrence = of_seq[group, in_pairs, seq]
            kernel |= {"by_seq": 1 + in_pairs, "index": index, "number": seq, "occurrence": occurrence}
            of_seq[group, in_pairs, seq] += 1


def _metadata(kernel: Mapping[str, Any], launch: Launch | None) -> dict[str, Any]:
    """Return a kernel's metadata and their source: its arguments, the slices around its launch, or its name."""
    if kernel["collective"] is not None:
        return {"source": KERNEL}
    unknown = {name: kernel[name] for name in FIELDS} | {"collective": kernel["by_name"], "source": NAME}
    if launch is None:
        return unknown
    if launch.recorded:
        return {name: launch.recorded[name] for name in FIELDS} | {"source": LAUNCH}
    if launch.annotation:
        inputs = inputs_of(launch.annotation["args"])
        operation = {"collective": operation_of(launch.annotation["name"]), "source": ANNOTATION}
        return unknown | operation | {"dtype": inputs.dtype, "in_elements": inputs.elements, "size_bytes": inputs.size}
    return unknown


def _complete(communication: dict[str, Any], groups: ProcessGroups, *, any_recorded: bool) -> None:
    """Add the size of the collective, and what the trace records about its process group."""
    group = groups.of(communication.get("process_group"), any_recorded=any_recorded)
    communication["assumed_size"] = int(group.assumed and communication.get("group_size") is None)
    described = {"group_size": group.size, "group_description": group.description, "group_ranks": group.ranks}
    communication |= {name: value for name, value in described.items() if communication.get(name) is None}
    fields = (communication.get(name) for name in ("collective", "dtype", "in_elements", "out_elements", "group_size"))
    communication["size_bytes"] = size_of(*fields, input_bytes=communication.get("size_bytes"))


def _annotated(
    scope: Scope,
    groups: ProcessGroups,
    annotations: list[dict[str, Any]],
    ranges: Mapping[int, list[tuple[int, int]]],
) -> pa.Table:
    """Return a communication for each annotation, and one more for each range with the annotation's External id."""
    rows: list[dict[str, Any]] = []
    steps = _steps(scope, [annotation["start_ns"] for annotation in annotations])
    described: dict[tuple[str, str | None], dict[str, Any]] = {}  # most annotations repeat
    for number, (annotation, step) in enumerate(zip(annotations, steps, strict=True)):
        times = [(annotation["start_ns"], annotation["end_ns"]), *ranges.get(annotation["external_id"], [])]
        name, args = annotation["name"], annotation["args"]
        if (name, args) not in described:
            described[name, args] = _described(name, args, groups)
        row = {
            **described[name, args], "by_seq": 0, "number": number, "index": number, "step": step,
            "launch_ns": annotation["start_ns"],
        }  # fmt: skip
        for occurrence, (start, end) in enumerate(sorted(times, key=lambda time: (time[0], -time[1]))):
            rows.append(
                {**row, "occurrence": occurrence, "calls": int(not occurrence), "start_ns": start, "end_ns": end}
            )
    return pa.Table.from_pylist(rows, SCHEMA)


def _described(name: str, args: str | None, groups: ProcessGroups) -> dict[str, Any]:
    """Return what the name and the arguments of an annotation tell about its communication."""
    inputs = inputs_of(args)
    communication = {
        "collective": name, "source": ANNOTATION, "dtype": inputs.dtype, "in_elements": inputs.elements,
        "size_bytes": inputs.size,
    }  # fmt: skip
    _complete(communication, groups, any_recorded=False)
    return communication


def _steps(scope: Scope, times: list[int]) -> list[int | None]:
    """Return the number of the step whose annotation contains each time on the host."""
    numbers, steps = steps_of(scope)
    if not len(numbers):
        return [None] * len(times)
    latest = np.searchsorted(steps.starts, np.array(times, np.int64), side="right") - 1
    return [
        number if step >= 0 and time < end else None
        for step, time, number, end in zip(
            latest.tolist(), times, numbers[latest].tolist(), steps.ends[latest].tolist(), strict=True
        )
    ]

"""Work on devices: kernels, copies, memsets and whole graphs; and the waits for it."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from service.formats.events import events, nullable, words
from service.formats.nsys.allowed import COPIES, GRAPHS, KERNELS, MEMSETS, WAITS
from service.formats.nsys.arguments import Argument, ArgumentWriter, Correlations, array_text
from service.formats.nsys.calls import Launches, correlations_of
from service.formats.nsys.combinations import combinations
from service.formats.nsys.database import Database
from service.formats.nsys.devices import Devices
from service.formats.nsys.identifiers import Flags, Ints, Processes, has, process_of
from service.formats.nsys.projection import Projection
from service.formats.nsys.strings import Strings
from service.streaming.integers import ints

SYNC_TRACK = 1_000_000
"""Added to a stream's number for the track of its waits, as Kineto does, so that they do not overlap with work."""

_NO_STREAM = (1 << 32) - 1
_COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "Unified HtoD", 12: "Unified DtoH", 13: "Unified DtoD",
}  # fmt: skip
_MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static",
}  # fmt: skip
_WAIT_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_UNKNOWN = "Unknown"

_PLACE = (
    Argument("device", ("deviceId",)),
    Argument("context", ("contextId",)),
    Argument("stream", ("streamId",)),
    Argument("process", ("pid",)),
)
_NODE = Argument("graph node id", ("graphNodeId",))
_BYTES = Argument("bytes", ("bytes",))
_ARGUMENTS: Mapping[str, tuple[Argument, ...]] = {
    KERNELS: (
        *_PLACE,
        Argument("registers per thread", ("registersPerThread",)),
        Argument("shared memory", ("staticSharedMemory", "dynamicSharedMemory"), lambda *sizes: str(sum(sizes))),
        Argument("grid", ("gridX", "gridY", "gridZ"), array_text),
        Argument("block", ("blockX", "blockY", "blockZ"), array_text),
        Argument("graph id", ("graphId",)),
        _NODE,
    ),
    COPIES: (
        *_PLACE, Argument("fromDevice", ("srcDeviceId",)), Argument("toDevice", ("dstDeviceId",)), _BYTES,
        Argument("memory bandwidth (GB/s)", ("bytes", "duration"), lambda size, duration: repr(size / duration)), _NODE,
    ),
    MEMSETS: (
        *_PLACE, _BYTES,
        Argument("memory bandwidth (GB/s)", ("bytes", "duration"), lambda size, duration: repr(size / duration)), _NODE,
    ),
    GRAPHS: (*_PLACE, Argument("graph id", ("graphId",)), Argument("graph exec id", ("graphExecId",))),
    WAITS: (
        Argument("cuda_sync_kind", ("syncType",), lambda kind: f'"{_WAIT_KINDS.get(kind, _UNKNOWN)}"'), *_PLACE,
        Argument("cuda_event_id", ("eventId",)),
    ),
}  # fmt: skip
_CATEGORIES = {
    KERNELS: "kernel", COPIES: "gpu_memcpy", MEMSETS: "gpu_memset", GRAPHS: "kernel", WAITS: "cuda_sync",
}  # fmt: skip
WORK_TABLES = (KERNELS, COPIES, MEMSETS, GRAPHS)


class Exported(NamedTuple):
    """Objects that the mappings of all tables share: tables, names, processes, launches, devices and ranges."""

    database: Database
    strings: Strings
    processes: Processes
    launches: Launches
    devices: Devices
    projection: Projection


def work(table: str, exported: Exported) -> Iterator[pa.RecordBatch]:
    """Yield the work of a table, or its waits, and the ends of the flows that lead there."""
    writer = ArgumentWriter(_ARGUMENTS[table])
    for rows in exported.database.event_rows(table):
        starts, ends = ints(rows["start"]), ints(rows["end"])
        process, known = _processes(rows)
        correlations = correlations_of(rows, process, known, exported.processes)
        device = exported.devices.of(ints(rows["deviceId"]), process, known)
        stream = ints(rows["streamId"])
        stream = np.where(stream == _NO_STREAM, -1, stream)
        columns = {name: rows[name] for name in rows.column_names} | _derived(rows, device, stream, process, known)
        track = np.where(stream < 0, stream, stream + SYNC_TRACK) if table == WAITS else stream
        exported.devices.note(device, stream, track)
        yield events(
            len(rows), cat=_CATEGORIES[table], name=_NAMES[table](columns, exported.strings), ts=starts,
            dur=ends - starts, pid=device, tid=track, device=device, stream=stream,
            correlation=nullable(correlations.unique, correlations.present),
            bytes=columns["bytes"].combine_chunks() if "bytes" in columns else None,
            args=writer.write(columns, correlations),
        )  # fmt: skip
        if table != WAITS:
            yield from _linked(exported, correlations, starts, ends, device, stream)


def _linked(
    exported: Exported, correlations: Correlations, starts: Ints, ends: Ints, device: Ints, stream: Ints
) -> Iterator[pa.RecordBatch]:
    """Yield the ends of the flows to work that has a launch."""
    launch, linked = exported.launches.find(correlations.unique, correlations.present)
    if linked.any():
        at = np.flatnonzero(linked)
        exported.projection.add(launch[at], starts[at], ends[at], device[at], stream[at])
        yield events(
            len(at), ph="f", cat="ac2g", name="ac2g", ts=starts[at], pid=device[at], tid=stream[at],
            id=correlations.unique[at], rest='{"bp": "e"}',
        )  # fmt: skip


def _processes(rows: pa.Table) -> tuple[Ints, Flags]:
    """Return the process of each row, and flags of the rows in which it is known."""
    if "globalPid" not in rows.column_names:
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    return process_of(ints(rows["globalPid"])), has(rows["globalPid"])


def _derived(rows: pa.Table, device: Ints, stream: Ints, process: Ints, known: Flags) -> dict[str, pa.ChunkedArray]:
    """Return columns that are computed from others: the numbers of the place, and the duration if it is positive."""
    duration = ints(rows["end"]) - ints(rows["start"])
    columns = {
        "deviceId": pa.array(device),
        "streamId": pa.array(stream),
        "pid": nullable(process & 0xFFFFFF, known),
        "duration": nullable(duration, duration > 0),
    }
    return {name: pa.chunked_array([column]) for name, column in columns.items()}


Columns = Mapping[str, pa.ChunkedArray]


def _kernel_names(columns: Columns, strings: Strings) -> pa.Array:
    names = columns.get("demangledName", columns.get("shortName"))
    if names is None:
        names = pa.chunked_array([pa.nulls(len(columns["start"]), pa.int64())])
    return strings.words(ints(names), has(names))


def _copy_names(columns: Columns, _: Strings) -> pa.Array:
    """Return names like ``Memcpy HtoD (Pinned -> Device)``."""
    kinds, sources, targets = (_kinds(columns, name) for name in ("copyKind", "srcKind", "dstKind"))
    firsts, places = combinations([kinds, sources, targets], len(kinds))
    texts = []
    for row in firsts.tolist():
        kind, source, target = int(kinds[row]), int(sources[row]), int(targets[row])
        memory = f" ({_MEMORY_KINDS.get(source, _UNKNOWN)} -> {_MEMORY_KINDS.get(target, _UNKNOWN)})"
        known = source in _MEMORY_KINDS or target in _MEMORY_KINDS
        texts.append(f"Memcpy {_COPY_KINDS.get(kind, _UNKNOWN)}{memory if known else ''}")
    return words(places, texts)


def _memset_names(columns: Columns, _: Strings) -> pa.Array:
    """Return names like ``Memset (Device)``."""
    distinct, places = np.unique(_kinds(columns, "memKind"), return_inverse=True)
    return words(places, [f"Memset ({_MEMORY_KINDS.get(kind, _UNKNOWN)})" for kind in distinct.tolist()])


def _graph_names(columns: Columns, _: Strings) -> pa.Array:
    """Return names like ``CUDA graph 8``."""
    distinct, places = np.unique(_kinds(columns, "graphId"), return_inverse=True)
    return words(places, [f"CUDA graph {number}" if number >= 0 else "CUDA graph" for number in distinct.tolist()])


def _wait_names(columns: Columns, _: Strings) -> pa.Array:
    distinct, places = np.unique(_kinds(columns, "syncType"), return_inverse=True)
    return words(places, [_WAIT_KINDS.get(kind, f"{_UNKNOWN} Sync") for kind in distinct.tolist()])


def _kinds(columns: Columns, name: str) -> Ints:
    """Return the values of a column, with -1 for null or without the column."""
    return ints(columns[name], -1) if name in columns else np.full(len(columns["start"]), -1)


_NAMES: Mapping[str, Callable[[Columns, Strings], pa.Array]] = {
    KERNELS: _kernel_names, COPIES: _copy_names, MEMSETS: _memset_names, GRAPHS: _graph_names, WAITS: _wait_names,
}  # fmt: skip

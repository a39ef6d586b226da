"""The critical path as events: a track of its own, arrows along it, and arrows between the tracks that it crosses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.host import THREAD
from service.analysis.facts.intervals import Ints
from service.analysis.facts.longest_path import HOST_START, KINDS, WORK_START
from service.analysis.facts.path_edges import PathEdges
from service.analysis.facts.scope import Scope
from service.store.columns import by_time
from service.store.parts import TRACK
from service.streaming.integers import distinct
from service.streaming.schema import SCHEMA
from service.trace.errors import NotApplicable

CATEGORY = "critical_path"
PROCESS = '"Critical path"'
"""Pid of the track's process, as JSON text; no pid of a trace has this value."""

_NAMED = tuple(KINDS.index(kind) for kind in ("host", "launch", "compute", "communication", "memory"))
"""Kinds of edges shown by the name of their slice or work; the others are shown by their kind."""
_CROSSING = tuple(KINDS.index(kind) for kind in ("handover", "launch", "event", "return"))
"""Kinds of edges that lead from one track to another."""

_IDS = 1 << 32
"""Count of arrow ids reserved for each track."""

Columns = Mapping[str, Any]


def path_events(scope: Scope, edges: PathEdges, *, tid: int) -> pa.Table:
    """Return the events of a path, in order of time, with the columns of a trace; positions count from 0.

    Each edge with a duration is a slice, with an arrow to the next slice. If the path leads to another thread or
    stream, an arrow connects the two tracks.

    Args:
        scope: scope of the rank.
        edges: edges of the path.
        tid: tid of the track.

    Raises:
        NotApplicable: no edge of the path has a duration.
    """
    timed = np.flatnonzero(edges.until > edges.at)
    if not len(timed):
        raise NotApplicable("The critical path takes no time at all.")
    track = {"pid_text": PROCESS, "tid": tid}
    crossing = np.flatnonzero(np.isin(edges.kind, _CROSSING))
    ids = tid * _IDS + np.arange(len(timed) - 1 + len(crossing))
    along, across = ids[: len(timed) - 1], ids[len(timed) - 1 :]
    tables = [
        _table(len(timed), {**track, **_slices(edges, timed)}),
        _flows("s", along, {**track, "ts_ns": edges.at[timed[:-1]]}),
        _flows("f", along, {**track, "ts_ns": edges.at[timed[1:]]}),
        _flows("s", across, _point_columns(scope, edges, edges.sources(crossing))),
        _flows("f", across, _point_columns(scope, edges, edges.targets(crossing))),
        _names(track, f"rank {scope.rank}" if scope.rank is not None else "path"),
    ]
    events, _ = by_time(pa.concat_tables(tables))
    return events.set_column(0, SCHEMA.field("position"), pa.array(np.arange(len(events))))


def _slices(edges: PathEdges, chosen: Ints) -> Columns:
    """Return the columns of the slices of the path's track."""
    kinds, names = edges.kind[chosen], edges.names[chosen]
    words = pa.array([*KINDS, *(word or "" for word in edges.all_words)], pa.string())
    shown = np.where(np.isin(kinds, _NAMED), names + len(KINDS), kinds)
    parts = {"number": chosen, "length_ns": edges.length[chosen]}
    texts = [pa.scalar('{"kind": "'), pa.array(KINDS).take(pa.array(kinds)), pa.scalar('"')]
    for name, values in parts.items():
        texts += [pa.scalar(f', "{name}": '), pc.cast(pa.array(values), pa.string())]
    return {
        "ph": "X",
        "cat": CATEGORY,
        "name": words.take(pa.array(shown)).dictionary_encode(),
        "ts_ns": edges.at[chosen],
        "ts_digits": 3,
        "dur_ns": edges.until[chosen] - edges.at[chosen],
        "dur_digits": 3,
        "args": pc.binary_join_element_wise(*texts, pa.scalar("}"), ""),
    }


def _flows(ph: str, ids: Ints, columns: Columns) -> pa.Table:
    """Return the flow events at one end of arrows."""
    rest = {"rest": '{"bp": "e"}'} if ph == "f" else {}
    return _table(len(ids), {"ph": ph, "cat": CATEGORY, "name": CATEGORY, "id": ids, "ts_digits": 3, **rest, **columns})


def _names(track: Columns, name: str) -> pa.Table:
    """Return metadata: the names of the process and the thread, and the sort index that puts them first."""
    process = PROCESS.strip('"')
    metadata = {
        "process_name": f'{{"name": "{process}"}}',
        "process_sort_index": '{"sort_index": -1}',
        "thread_name": f'{{"name": "{name}"}}',
    }
    return _table(
        len(metadata),
        {**track, "ph": "M", "name": pa.array([*metadata]).dictionary_encode(), "args": pa.array([*metadata.values()])},
    )


def _point_columns(scope: Scope, edges: PathEdges, points: Ints) -> Columns:
    """Return the track of each point and a time within its slice; for an end, the slice's last nanosecond."""
    kinds, index = points & 3, points >> 2
    on_work = kinds >= WORK_START
    host_index, work_index = np.where(on_work, 0, index), np.where(on_work, index, 0)
    host, work = edges.host, edges.work
    starts = np.where(on_work, work.starts[work_index], host.starts[host_index])
    ends = np.where(on_work, work.ends[work_index], host.ends[host_index])
    at_start = (kinds == HOST_START) | (kinds == WORK_START)
    times = np.where(at_start, starts, np.maximum(starts, ends - 1))
    work_positions = edges.work_columns["positions"]
    positions = distinct(work_positions[work_index[on_work]])
    tracks = pa.concat_tables([_threads(scope, edges), _streams(scope, positions)])
    rows = len(host.thread_keys) + np.searchsorted(positions, work_positions[work_index])
    chosen = tracks.take(pa.array(np.where(on_work, rows, host.threads[host_index])))
    return {"ts_ns": times, **{name: chosen[name] for name in TRACK}}


def _threads(scope: Scope, edges: PathEdges) -> pa.Table:
    """Return the track of each thread of the host, by thread number."""
    scope.db.register("threads", scope.slices().threads)
    table = scope.table(f"SELECT {THREAD} AS key, {', '.join(map(_first, TRACK))} FROM threads GROUP BY key")
    scope.db.unregister("threads")
    keys = table["key"].to_numpy().view(np.int64)
    order = np.argsort(keys)
    return table.select(TRACK).take(pa.array(order[np.searchsorted(keys[order], edges.host.thread_keys)]))


def _streams(scope: Scope, positions: Ints) -> pa.Table:
    """Return the track of the work at each position; positions are sorted."""
    scope.db.register("wanted", pa.table({"position": positions}))
    table = scope.table(
        f"SELECT {', '.join(f'{name}::{_type(name)} AS {name}' for name in TRACK)} FROM events"
        " JOIN wanted USING (position) ORDER BY position"
    )
    scope.db.unregister("wanted")
    return table


def _first(column: str) -> str:
    return f"any_value({column})::{_type(column)} AS {column}"


def _type(column: str) -> str:
    return "VARCHAR" if column.endswith("_text") else "BIGINT"


def _table(rows: int, columns: Columns) -> pa.Table:
    """Build events from columns, each an array or one value for all events; missing columns are null."""
    filled: Sequence[Any] = [
        _column(rows, field.type, columns.get(field.name, False if field.name == "verbatim" else None))
        for field in SCHEMA
        if field.name != "position"
    ]
    position = pa.array(np.zeros(rows, np.int64))
    return pa.table([position, *filled], schema=SCHEMA)


def _column(rows: int, type_: pa.DataType, values: Any) -> Any:
    if values is None:
        return pa.nulls(rows, type_)
    if isinstance(values, str) and pa.types.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([values]))
    if isinstance(values, str | int):
        return pa.repeat(pa.scalar(values, type_), rows)
    if isinstance(values, np.ndarray):
        return pa.array(values, type_)
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(type_) and not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return array.cast(type_)

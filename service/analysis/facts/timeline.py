"""What runs when on each stream and thread: merged intervals, from which a window of any length is answered at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.facts.intervals import Ints, group_rows, merge_intervals
from service.analysis.facts.memory_changes import device_type_name, memory_changes_of
from service.analysis.facts.scope import Scope
from service.analysis.parameters import WorkParameters
from service.analysis.table import codes

STREAM, THREAD, LAUNCHES, MEMORY = "stream", "thread", "launches", "memory"
"""Kinds of tracks. `LAUNCHES` has the starts of calls, and `MEMORY` the allocated bytes of a device over time."""
BUSY, COMPUTE, COMM, MEM = range(4)
"""What the intervals of a row are: any slice; or, of a stream, work of one type."""
_TYPES = {COMPUTE: "COMP", COMM: "COMM", MEM: "MEM"}


class Track(NamedTuple):
    """What a track shows. Streams have ``device`` and ``stream``; threads have ``process`` and ``thread``.

    The memory of a device has ``device`` and, in ``process``, its type as torch names it.
    """

    kind: str
    device: int | None = None
    stream: int | None = None
    process: str | None = None
    thread: str | None = None


@dataclass(frozen=True)
class Timeline:
    """Rows of intervals or points, by track.

    A stream has a row for each of the types of its work and, only if these overlap, one for all of its work. Its busy
    time is otherwise the sum over the types.

    Attributes:
        tracks: the tracks of streams, by device and stream, and of threads, the busiest first; then all others.
        track_of: the track of each row.
        contents: what each row has: `BUSY`, `COMPUTE`, `COMM` or `MEM`.
        offsets: the place of each row's first value in `starts`, and the end of the last row.
        starts: the starts of disjoint intervals in ascending order, or points in time.
        values: of intervals, the length of those before in the row, and the row's whole length at its end, so that a
            row has one value more than starts. Of memory, the allocated bytes from a point in time on. Otherwise 0.
    """

    tracks: Sequence[Track]
    track_of: Ints
    contents: Ints
    offsets: Ints
    starts: Ints
    values: Ints

    def of_kind(self, *kinds: str) -> list[int]:
        """Return the numbers of the tracks of some kinds."""
        return [number for number, track in enumerate(self.tracks) if track.kind in kinds]

    def rows_of(self, track: int) -> slice:
        """Return the rows of a track."""
        return slice(*np.searchsorted(self.track_of, [track, track + 1]).tolist())

    def points(self, track: int) -> tuple[Ints, Ints]:
        """Return the starts and the values of a track of one row."""
        row = self.rows_of(track).start
        first, last = self.offsets[row : row + 2].tolist()
        return self.starts[first:last], self.values[first + row : last + row]

    def bounds(self, tracks: int) -> tuple[int, int] | None:
        """Return the first start and the last end of intervals of the first tracks; None if there is none."""
        rows = int(np.searchsorted(self.track_of, tracks))
        if not rows:
            return None
        firsts, lasts = self.offsets[:rows], self.offsets[1 : rows + 1] - 1
        places = lasts + np.arange(rows)
        ends = self.starts[lasts] + self.values[places + 1] - self.values[places]
        return int(self.starts[firsts].min()), int(ends.max())

    def lengths(self, tracks: Ints, edges: Ints) -> Ints:
        """Return the time that each track and type covers between each two edges.

        Args:
            tracks: numbers of streams and threads, in ascending order.
            edges: points in time, in ascending order.

        Returns:
            An array by track, by `BUSY`, `COMPUTE`, `COMM` and `MEM`, and by place between edges.
        """
        from service.analysis.facts.covered import lengths_between  # noqa: PLC0415 - loads numba, which the server does without

        firsts, ends = np.searchsorted(self.track_of, tracks), np.searchsorted(self.track_of, tracks, side="right")
        lengths = np.zeros((len(tracks), 4, len(edges) - 1), np.int64)
        intervals = (self.offsets, self.starts, self.values)
        lengths_between((firsts, ends), self.contents, intervals, edges, lengths)
        if len(tracks):
            of_types = self.contents[firsts] != BUSY
            lengths[of_types, BUSY] = lengths[of_types, COMPUTE:].sum(axis=1)
        return lengths


class _Row(NamedTuple):
    track: Track
    content: int
    starts: Ints
    values: Ints


def measure(scope: Scope, parameters: WorkParameters) -> Timeline:
    """Read the slices of a rank into a timeline.

    Args:
        scope: scope of the rank.
        parameters: rules by which work counts.
    """
    threads = sorted(_threads(scope), key=lambda row: -int(row.values[-1]))
    return assemble([*_streams(scope, parameters), *threads, *_launches(scope), *_memory(scope)])


def assemble(rows: Sequence[_Row]) -> Timeline:
    """Make a timeline of rows, in which those of a track follow one another."""
    tracks: dict[Track, int] = {}
    track_of = [tracks.setdefault(row.track, len(tracks)) for row in rows]
    none = [np.zeros(0, np.int64)]
    columns = (
        np.array(track_of, np.int64),
        np.array([row.content for row in rows], np.int64),
        np.cumsum([0, *(len(row.starts) for row in rows)]),
        np.concatenate([row.starts for row in rows] or none),
        np.concatenate([row.values for row in rows] or none),
    )
    for column in columns:
        column.flags.writeable = False  # as in a file: compiled code is specialised by this flag
    return Timeline([*tracks], *columns)


def _streams(scope: Scope, parameters: WorkParameters) -> Iterator[_Row]:
    """Yield the work of the streams of all devices, by device and stream."""
    if not scope.has_work:
        return
    scope.define_work(parameters)
    work = scope.table("SELECT device, stream, type, start_ns, end_ns FROM work")
    types = codes(work["type"], [*_TYPES.values()])
    starts, ends = work["start_ns"].to_numpy(), work["end_ns"].to_numpy()
    for (device, stream), chosen in group_rows(work["device"], work["stream"]):
        track = Track(STREAM, device, stream)
        first, last, type_ = starts[chosen], ends[chosen], types[chosen]
        merged = [
            _intervals(track, content, first[type_ == code], last[type_ == code])
            for code, content in enumerate(_TYPES)
            if (type_ == code).any()
        ]
        if len(merged) == 1 and (type_ == type_[0]).all():
            yield merged[0]
            continue
        busy = _intervals(track, BUSY, first, last)
        if not merged or busy.values[-1] != sum(row.values[-1] for row in merged):
            yield busy
        yield from merged


def _threads(scope: Scope) -> Iterator[_Row]:
    """Yield the slices of the host's threads."""
    slices = scope.slices()
    host, threads = slices.host, slices.threads.to_pylist()
    order = np.argsort(host.threads, kind="stable")
    edges = [0, *np.cumsum(np.bincount(host.threads, minlength=len(threads))).tolist()]
    for thread, (start, end) in zip(threads, pairwise(edges), strict=True):
        if start < end:
            track = Track(THREAD, process=_id(thread, "pid"), thread=_id(thread, "tid"))
            chosen = order[start:end]
            yield _intervals(track, BUSY, host.starts[chosen], host.ends[chosen])


def _intervals(track: Track, content: int, starts: Ints, ends: Ints) -> _Row:
    starts, ends = merge_intervals(starts, ends)
    return _Row(track, content, starts, np.concatenate([np.zeros(1, np.int64), np.cumsum(ends - starts)]))


def _id(thread: dict[str, Any], name: str) -> str | None:
    """Return the id of a process or thread as the trace has it; None if it has none."""
    number, text = thread[name], thread[f"{name}_text"]
    return text if number is None else str(number)


def _launches(scope: Scope) -> Iterator[_Row]:
    """Yield the starts of the calls that launch work."""
    if not scope.has_work:
        return
    from service.analysis.facts.device_events import device_events  # noqa: PLC0415 - loads numba, which the server does without

    work = device_events(scope, ("launch", "launch_ts_ns"))
    launched = work.has("launch")
    values = (work.ints(name)[launched] for name in ("launch", "launch_ts_ns"))  # rows are in the order of their starts
    rows, starts = (np.sort(column, kind="stable") for column in values)  # merges the streams, which are sorted already
    starts = starts[np.diff(rows, prepend=-1) > 0]  # each call once
    if len(starts):
        yield _Row(Track(LAUNCHES), BUSY, starts, np.zeros(len(starts) + 1, np.int64))


def _memory(scope: Scope) -> Iterator[_Row]:
    """Yield the allocated bytes of each device, from each change on; not of devices without recorded totals."""
    changes = memory_changes_of(scope, ("at", "allocated", "device_type", "device_id"))
    changes = changes.filter(pc.is_valid(changes["allocated"]))
    at, allocated = changes["at"].to_numpy(), changes["allocated"].to_numpy()
    for (type_, device), rows in group_rows(changes["device_type"], changes["device_id"]):
        track = Track(MEMORY, device, process=device_type_name(type_ or 0))
        last_of_time = np.flatnonzero(np.append(np.diff(at[rows]) > 0, True))
        values = allocated[rows][last_of_time]
        yield _Row(track, BUSY, at[rows][last_of_time], np.append(values, values[-1]))


SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("device", pa.int64()),
        pa.field("stream", pa.int64()),
        pa.field("process", pa.string()),
        pa.field("thread", pa.string()),
        pa.field("track", pa.int64()),
        pa.field("content", pa.int64()),
        pa.field("starts", pa.large_list(pa.int64())),
        pa.field("values", pa.large_list(pa.int64())),
    ]
)
"""Columns of a timeline as a table: a row for each of its rows."""


def as_batch(timeline: Timeline) -> pa.RecordBatch:
    """Return a timeline as a record batch of `SCHEMA`."""
    keys = zip(*(timeline.tracks[track] for track in timeline.track_of.tolist()), strict=True)
    columns = list(keys) or [()] * len(Track._fields)
    offsets = pa.array(timeline.offsets)
    values = pa.array(timeline.offsets + np.arange(len(timeline.offsets)))
    return pa.record_batch(
        [
            *(pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=False)),
            pa.array(timeline.track_of),
            pa.array(timeline.contents),
            pa.LargeListArray.from_arrays(offsets, pa.array(timeline.starts)),
            pa.LargeListArray.from_arrays(values, pa.array(timeline.values)),
        ],
        schema=SCHEMA,
    )


def from_batch(batch: pa.RecordBatch) -> Timeline:
    """Return the timeline of a record batch, without a copy of its intervals."""
    track_of = batch["track"].to_numpy()
    firsts = np.flatnonzero(np.diff(track_of, prepend=-1))
    keys = batch.select([*Track._fields]).take(pa.array(firsts)).to_pylist()
    starts = batch["starts"]
    return Timeline(
        [Track(**key) for key in keys],
        track_of,
        batch["content"].to_numpy(),
        starts.offsets.to_numpy(),
        starts.values.to_numpy(),
        batch["values"].values.to_numpy(),
    )

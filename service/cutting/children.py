"""Traces made of pieces of a trace: columns like those of any other, written in one pass."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from service.attribution.file import make_links
from service.attribution.links import external_ids_in_summary
from service.cutting.cut import Cuts, part_envelope
from service.cutting.pieces import Piece
from service.cutting.rows import AT_ONCE, nothing_selected
from service.cutting.source import Source
from service.store.census import take_census
from service.store.columns import ROW_GROUP, parquet_writer
from service.store.folder import ENVELOPE, EVENTS, disk_errors, size_of, write_whole
from service.store.lists import with_limited_lists
from service.store.parts import Parts
from service.streaming.scan.nesting import Nesting
from service.trace.health import Health
from service.trace.piece import child_name

BUFFERED_ROWS = 1 << 18
"""Rows that wait to be written, of all pieces that are written at a time."""


@dataclass(frozen=True)
class Child:
    """A trace that was made: the folder of its columns has its `id` as name; `size` is their bytes."""

    id: str
    name: str
    selection: dict[str, Any] | None
    size: int
    summary: dict[str, Any]


def write_children(
    source: Source,
    folder: Path,
    pieces: Sequence[Piece],
    *,
    new_id: Callable[[], str],
    on_written: Callable[[int, int], object],
) -> list[Child]:
    """Make a trace of each piece that has any event.

    Args:
        source: what they are pieces of.
        folder: where to make their columns, each in a folder that has its id as name.
        pieces: what to make.
        new_id: makes an id.
        on_written: is told now and then how many events are written, and how many there will be, as far as it is known.

    Raises:
        SelectionError: no piece has any event, or the trace has nothing of one.
        DiskFull: there was no room.
    """
    made: list[Child] = []
    done = 0
    source = source.with_whole_lists()
    with closing(Parts(source.columns / EVENTS)) as parts:
        for first in range(0, len(pieces), AT_ONCE):
            some = pieces[first : first + AT_ONCE]
            cuts = Cuts(parts, [piece.selection for piece in some], source.summary)
            total = (done + sum(cuts.counts)) * len(pieces) // (first + len(some))  # as far as it can be known
            if sum(cuts.counts):
                on_written(done, total)
            with ExitStack() as stack, ThreadPoolExecutor(2, "children") as threads:
                writing = {
                    place: stack.enter_context(Writing(folder / new_id(), parts.schema, threads))
                    for place, count in enumerate(cuts.counts)
                    if count
                }
                for place, table in cuts.tables():
                    writing[place].add(table)
                    while sum(one.waiting for one in writing.values()) > BUFFERED_ROWS:
                        max(writing.values(), key=lambda one: one.waiting).flush()
                    done += len(table)
                    on_written(done, total)
                for one in writing.values():
                    one.finish()
            for place, one in writing.items():
                piece = some[place]
                text = part_envelope(source.envelope, piece.selection, source.source, source.summary)
                write_whole(one.folder / ENVELOPE, text)
                name = child_name(source.name, piece.suffix)
                made.append(described(one, name, source.summary, selection=piece.selection.as_dict()))
    if not made:
        raise nothing_selected(source.summary)
    return made


class Writing:
    """The columns of a trace on their way into `folder`, which is made."""

    def __init__(self, folder: Path, schema: pa.Schema, threads: ThreadPoolExecutor) -> None:
        self.folder = folder
        self.rows = self.waiting = 0
        self.nesting = Nesting()
        self._threads = threads
        self._tables: list[pa.Table] = []
        self._writing: Future[None] | None = None
        with disk_errors():
            folder.mkdir(parents=True)
            self._file = parquet_writer(folder, schema)

    def __enter__(self) -> "Writing":
        return self

    def __exit__(self, *_: object) -> None:
        with disk_errors():
            self._file.close()

    def add(self, table: pa.Table) -> None:
        """Take more events, in order of time."""
        self._tables.append(table)
        self.waiting += len(table)
        self.rows += len(table)
        if self.waiting >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Begin to write what waits."""
        self._settle()
        table = pa.concat_tables(self._tables).unify_dictionaries().combine_chunks()
        self._tables, self.waiting = [], 0
        self._writing = self._threads.submit(self._write, table)

    def finish(self) -> None:
        """Write all of it."""
        if self._tables:
            self.flush()
        self._settle()

    def _settle(self) -> None:
        if self._writing:
            self._writing.result()
            self._writing = None

    def _write(self, table: pa.Table) -> None:
        with disk_errors():
            self._file.write_table(table, row_group_size=ROW_GROUP)
        self.nesting.add(table)


def described(written: Writing, name: str, summary: Mapping[str, Any], *, selection: dict[str, Any] | None) -> Child:
    """A trace whose columns and envelope are written; what its document tells is what that of `summary` told."""
    health = Health()
    for code, count in (("overlaps", written.nesting.overlaps), ("ties", written.nesting.ties)):
        if count:
            health.add(code, count=count)
    found = take_census(written.folder, _told(summary), health, file_name=name, packed=None)
    found.events = {"in": written.rows, "kept": written.rows, "refused": 0}
    found.rank = summary["rank"]
    found.health = health.as_dict(refused=0)
    found.attribution = make_links(written.folder, asdict(found), external_ids_in_summary(summary)).summary()
    found = with_limited_lists(found, written.folder)
    with (written.folder / EVENTS).open("rb") as file:
        os.fsync(file.fileno())
    return Child(written.folder.name, name, selection, size_of(written.folder), asdict(found))


def _told(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a summary knows from the envelope, as an envelope says it."""
    info = {"rank": summary["rank"], "world_size": summary["world_size"], "backend": summary["backend"]}
    return {
        "deviceProperties": [
            {"id": one["id"], "name": one["name"], "totalGlobalMem": one["memory_bytes"]} for one in summary["devices"]
        ],
        "distributedInfo": {key: value for key, value in info.items() if value is not None},
        "host_name": summary["host"],
        "baseTimeNanoseconds": summary["base_ns"],
        "tracedock": {"merged": summary.get("ranks", [])},
    }

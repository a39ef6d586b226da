"""Writing of the columns of derived traces. A split reads its source once for every `AT_ONCE` pieces."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from service.attribution.links import external_ids_in_summary
from service.attribution.summary_builder import SummaryBuilder
from service.cutting.cut import Cuts, part_envelope
from service.cutting.part_steps import PartSteps
from service.cutting.pieces import Piece
from service.cutting.rows import AT_ONCE, nothing_selected
from service.cutting.source import Source
from service.formats.names import child_name
from service.store.columns import ROW_GROUP, EventsFile
from service.store.event_notes import EventNotes
from service.store.folder import ENVELOPE, EVENTS, disk_errors, size_of, syncing, write_whole
from service.store.lists import with_limited_lists
from service.store.parts import Parts
from service.trace.health import Health
from service.trace.selection import Selection
from service.trace.summary import MergedRank, Summary

BUFFERED_ROWS = 1 << 18
"""Maximum number of buffered rows, in total over the pieces that are written at the same time."""


@dataclass(frozen=True)
class Child:
    """A derived trace. Its `id` is also the name of the folder of its columns; `size` is the folder's size in bytes."""

    id: str
    name: str
    selection: Selection | None
    size: int
    summary: Summary


def write_children(
    source: Source,
    folder: Path,
    pieces: Sequence[Piece],
    *,
    new_id: Callable[[], str],
    on_written: Callable[[int, int], object],
) -> list[Child]:
    """Write a trace for each piece that has any event.

    Args:
        source: the trace to split.
        folder: the parent folder of the new traces' columns; the folder of each trace is named by its id.
        pieces: the pieces to write.
        new_id: returns a fresh trace id.
        on_written: receives the number of events written so far, and an estimate of their total.

    Raises:
        SelectionError: no piece has any event, or a piece selects a value that the trace does not have.
        DiskFull: the disk is full.
    """
    children: list[Child] = []
    done = 0
    source = source.with_whole_lists()
    steps = PartSteps.of_trace(source.columns, source.summary)
    with closing(Parts(source.columns / EVENTS)) as parts:
        for first in range(0, len(pieces), AT_ONCE):
            batch = pieces[first : first + AT_ONCE]
            cuts = Cuts(parts, [piece.selection for piece in batch], source.summary)
            total = (done + sum(cuts.counts)) * len(pieces) // (first + len(batch))  # an estimate until the last batch
            if sum(cuts.counts):
                on_written(done, total)
            with ExitStack() as stack, ThreadPoolExecutor(2, "children") as threads:
                writers = {
                    place: stack.enter_context(ColumnWriter(folder / new_id(), parts.schema, threads))
                    for place, count in enumerate(cuts.counts)
                    if count
                }
                for place, table in cuts.tables():
                    writers[place].add(table)
                    while sum(writer.buffered for writer in writers.values()) > BUFFERED_ROWS:
                        max(writers.values(), key=lambda writer: writer.buffered).flush()
                    done += len(table)
                    on_written(done, total)
                for place, writer in writers.items():
                    writer.flush()  # threads write the last events while this one writes the envelope
                    of_piece = steps.of_selection(batch[place].selection, cuts.time(place))
                    text = part_envelope(
                        source.envelope, batch[place].selection, source.source, source.summary, of_piece
                    )
                    write_whole(writer.folder / ENVELOPE, text)
                for writer in writers.values():
                    writer.finish()
            for place, writer in writers.items():
                name = child_name(source.name, batch[place].suffix)
                children.append(summarised(writer, name, source.summary, selection=batch[place].selection))
    if not children:
        raise nothing_selected(source.summary)
    return children


class ColumnWriter:
    """Writes the columns of a trace into a new folder, in the background."""

    def __init__(self, folder: Path, schema: pa.Schema, threads: ThreadPoolExecutor) -> None:
        self.folder = folder
        self.rows = self.buffered = 0
        self._notes = EventNotes()
        self.builder = SummaryBuilder(folder, self._notes.classes)
        self._threads = threads
        self._tables: list[pa.Table] = []
        self._writing: list[Future[None]] = []
        with disk_errors():
            folder.mkdir(parents=True)
            self._file = EventsFile(folder, schema)

    def __enter__(self) -> "ColumnWriter":
        return self

    def __exit__(self, *_: object) -> None:
        with disk_errors():
            self._file.close()

    def add(self, table: pa.Table) -> None:
        """Add events, in order of time."""
        self._tables.append(table)
        self.buffered += len(table)
        self.rows += len(table)
        if self.buffered >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Wait until earlier events are written, then start to write the buffered ones."""
        self._settle()
        if self._tables:
            joined = self._threads.submit(_joined, self._tables)
            self._writing = [self._threads.submit(work, joined) for work in (self._write, self._note)]
            self._tables, self.buffered = [], 0

    def finish(self) -> None:
        """Write the remaining events, and wait until all are written."""
        self.flush()
        self._settle()
        with disk_errors():
            self._file.describe(self._notes.texts())

    def _settle(self) -> None:
        for work in self._writing:
            work.result()
        self._writing = []

    # Both wait only for work that the threads took before them.

    def _write(self, joined: Future[pa.Table]) -> None:
        with disk_errors():
            self._file.write(joined.result())

    def _note(self, joined: Future[pa.Table]) -> None:
        with disk_errors():
            self.builder.add(self._notes.add(joined.result()))


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the events of some tables, whose columns have one chunk each."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def summarised(written: ColumnWriter, name: str, summary: Summary, *, selection: Selection | None) -> Child:
    """Summarise a trace whose columns and envelope are written.

    Args:
        written: the finished writer of the trace's columns.
        name: the trace's name.
        summary: the source's summary, for the facts that come from its envelope.
        selection: the selection of the source that the trace keeps; None for a merged trace.
    """
    health = Health()
    with syncing(written.folder / EVENTS):
        census = written.builder.summary(
            _envelope_facts(summary), health, file_name=name, packed=None,
            external_ids=external_ids_in_summary(summary),
        )  # fmt: skip
    census.events = {"in": written.rows, "kept": written.rows, "refused": 0}
    census.rank = summary.rank
    if selection is not None and census.ranks:
        census.ranks = _with_events(census)
        census.rank = census.ranks[0]["rank"] if len(census.ranks) == 1 else None
    census.health = health.as_dict(refused=0)
    census = with_limited_lists(census, written.folder)
    return Child(written.folder.name, name, selection, size_of(written.folder), census)


def _with_events(summary: Summary) -> list[MergedRank]:
    """Return the merged ranks that have events in a piece; all if none has, as in a piece of metadata."""
    pids = {process["pid"] for process in summary.processes if process["events"]}
    return [rank for rank in summary.ranks if any(pid in pids for pid, *_ in rank["pids"])] or summary.ranks


def _envelope_facts(summary: Summary) -> dict[str, Any]:
    """Return the facts of a summary that come from the envelope, under the envelope's keys."""
    info = {"rank": summary.rank, "world_size": summary.world_size, "backend": summary.backend}
    return {
        "deviceProperties": [
            {"id": device["id"], "name": device["name"], "totalGlobalMem": device["memory_bytes"]}
            for device in summary.devices
        ],
        "distributedInfo": {key: value for key, value in info.items() if value is not None},
        "host_name": summary.host,
        "baseTimeNanoseconds": summary.base_ns,
        "tracedock": {"merged": summary.ranks},
    }

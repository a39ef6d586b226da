"""Ingest: reads a trace into columns, and leaves either the whole result or nothing."""

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import Any

from service.analysis.facts.collective_args import CollectiveArgsWriter
from service.analysis.facts.memory_writer import MemoryChangesWriter
from service.attribution.links import external_ids_in_envelope
from service.attribution.summary_builder import SummaryBuilder
from service.formats.registry import open_trace
from service.store.columns_writer import ColumnsWriter
from service.store.folder import ENVELOPE, EVENTS, disk_errors, partial_of, sync_folder, syncing, write_whole
from service.store.lists import with_limited_lists
from service.store.parts import Part
from service.streaming.source import Progress
from service.trace.rank import merged_ranks, ranks_by_pid
from service.trace.summary import Summary


def ingest(original: BufferedReader, columns: Path, file_name: str, on_progress: Callable[[Progress], Any]) -> Summary:
    """Read a trace in one pass: write its events as columns, and the rest of the document as its envelope.

    Args:
        original: the bytes of the trace. They may still be arriving: a read waits for them, and the file ends only
            once all of them are safe on disk.
        columns: the folder to create; a folder that a killed process left there is replaced.
        file_name: the file name of the trace.
        on_progress: called with the progress of the pass.

    Returns:
        The summary of the trace.

    Raises:
        IngestError: the file can't be read as a trace.
        DiskFull: the disk has no room for the columns.
    """
    partial = partial_of(columns)
    for leftover in (partial, columns):
        if leftover.exists():
            shutil.rmtree(leftover)
    with disk_errors():
        partial.mkdir()
        try:
            summary = _read(original, partial, file_name, on_progress)
            partial.replace(columns)
            sync_folder(columns.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return summary


def _read(original: BufferedReader, folder: Path, file_name: str, on_progress: Callable[[Progress], Any]) -> Summary:
    progress = Progress()

    def on_read(size: int) -> None:
        progress.bytes = size
        on_progress(progress)

    scratch = folder / "scratch"
    scratch.mkdir()
    reader, packed = open_trace(original, scratch, on_read)
    with ColumnsWriter(folder) as writer, ExitStack() as files:
        memory_changes, collective_args = MemoryChangesWriter(folder, files), CollectiveArgsWriter(folder, files)
        for batch in reader.batches():
            progress.events = reader.kept
            writer.add(batch)
        on_progress(progress)
        envelope, members = reader.envelope()
        ranks = ranks_by_pid(merged_ranks(members))
        builder = SummaryBuilder(folder, writer.classes)

        def on_slab(part: Part) -> None:
            builder.add(part)
            if not ranks:  # those of a merged trace are analysed one by one
                memory_changes.add(part.table)
                collective_args.add(part)

        written_count = writer.finish(on_slab, ranks, builder.match_launches)
    shutil.rmtree(scratch)
    if written_count != reader.kept:
        raise RuntimeError(f"{reader.kept} events came in and {written_count} were written")
    with syncing(folder / EVENTS):
        summary = builder.summary(
            members, reader.health, file_name=file_name, packed=packed,
            external_ids=external_ids_in_envelope(members),
        )  # fmt: skip
    summary.events = {"in": reader.kept + reader.refused, "kept": reader.kept, "refused": reader.refused}
    summary.health = reader.health.as_dict(refused=reader.refused)
    write_whole(folder / ENVELOPE, envelope)
    return with_limited_lists(summary, folder)

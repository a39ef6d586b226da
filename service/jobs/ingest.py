"""The ingest of one trace, as a worker runs it: a call on paths, which leaves its result whole or not at all."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.store.folder import disk_errors, sync_folder, write_whole
from service.streaming.ingest import Progress, survey
from service.trace.census import Summary


def ingest(original: Path, columns: Path, file_name: str, on_progress: Callable[[Progress], Any]) -> Summary:
    """Read a trace and keep what stands around its events in `columns`.

    Args:
        original: the trace's bytes.
        columns: the folder to make; one that a killed worker left there is replaced.
        file_name: the name the trace was given.
        on_progress: hears how far the pass has come.

    Raises:
        IngestError: the file can't be read as a trace.
        DiskFull: there was no room for the result.
    """
    summary, envelope = survey(original, file_name=file_name, on_progress=on_progress)
    partial = columns.with_name(f"{columns.name}.partial")
    for leftover in (partial, columns):
        if leftover.exists():
            shutil.rmtree(leftover)
    with disk_errors():
        partial.mkdir()
        write_whole(partial / "envelope.json", envelope)
        partial.replace(columns)
        sync_folder(columns.parent)
    return summary

"""The file of a trace's timeline: written once, and mapped into memory for each window that the overview shows."""

import logging
import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from service.analysis.facts.rank_database import RankDatabase
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.facts.timeline import Timeline, as_batch, from_batch, measure
from service.analysis.parameters import WorkParameters
from service.store.folder import TIMELINE, new_file, unreadable
from service.trace.errors import AnalysisError, DiskFull, ExportFailed
from service.trace.summary import Summary

log = logging.getLogger(__name__)

THREADS = 2


def make_timeline(columns: Path, summary: Summary) -> None:
    """Write the timeline of a trace next to its events and the file of its allocations and frees.

    There is none of a merged trace, whose ranks are analysed one by one, nor of events that cannot be analysed.

    Args:
        columns: folder of the trace's columns.
        summary: summary of the trace, as in the catalog.

    Raises:
        DiskFull: the disk has no room for the file, or for data that does not fit into memory.
    """
    if summary.ranks:
        return
    spill = columns / "timeline.spill"
    database = RankDatabase(columns, summary, None, spill=spill, threads=THREADS)
    try:
        with scope_of(database) as scope:
            batch = as_batch(measure(scope, WorkParameters()))
    except (AnalysisError, ExportFailed, MemoryError) as error:
        log.warning("the overview is computed for each question, for its file can't be made: %s", error)
        return
    finally:
        database.close()
        shutil.rmtree(spill, ignore_errors=True)
    _write(batch, columns / TIMELINE)


def _write(batch: pa.RecordBatch, path: Path) -> None:
    """Write a file atomically; raises `DiskFull`."""
    with new_file(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def timeline_of(scope: Scope, parameters: WorkParameters) -> Timeline:
    """Return the timeline of a rank: from its file or, for a selection or other rules, from the events.

    The first question to a trace without a file, such as one that was cut from another, writes it.

    Raises:
        ExportFailed: the file or the events cannot be read.
    """
    rules = WorkParameters(**parameters.model_dump(include={*WorkParameters.model_fields}))
    has_file = not scope.is_selection and rules == WorkParameters()
    return scope.cached(("timeline", rules), lambda: _kept(scope) if has_file else measure(scope, rules))


def _kept(scope: Scope) -> Timeline:
    """Return the timeline from its file, or measure it and write the file if the disk has room."""
    path = scope.columns / TIMELINE
    if not path.exists():
        timeline = measure(scope, WorkParameters())
        with suppress(DiskFull, OSError):  # such as a trace that was deleted meanwhile
            _write(as_batch(timeline), path)
        return timeline
    try:
        with pa.memory_map(str(path)) as file:
            return from_batch(pa.ipc.open_file(file).get_batch(0))
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error

"""Overlays: a trace, or a selection of it, with its critical path as an additional track."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from service.analysis.answers import ranks_of
from service.analysis.catalogue import question_of
from service.analysis.facts.rank_database import RankDatabase
from service.analysis.facts.scope import scope_of
from service.analysis.reading_cache import AnalysisInput
from service.cutting.children import Child
from service.cutting.overlay import write_overlay
from service.cutting.source import Source
from service.formats.names import child_name
from service.store.columns import by_time
from service.trace.errors import NotApplicable
from service.trace.selection import Selection

QUESTION = "critical_path"
THREADS = 2


def write_critical_path(
    source: Source, folder: Path, selection: Selection, *, spill: Path, on_written: Callable[[int, int], object]
) -> Child:
    """Write a trace with its critical path.

    Args:
        source: the trace.
        folder: the folder to create for the columns; its name is the id of the new trace.
        selection: the part of the trace to keep; an empty selection keeps all.
        spill: the folder for data that does not fit into memory.
        on_written: called from time to time with the number of events written so far, and their total.

    Raises:
        NotApplicable: the trace has no critical path.
        SelectionError: the selection is invalid or matches no event.
    """
    source = source.with_whole_lists()
    chosen = selection if selection.as_dict() else None
    rank_inputs = ranks_of(AnalysisInput(source.columns, source.summary, chosen, source.name))
    path_tables = [_path_events(rank_input, spill, tid) for tid, rank_input in enumerate(rank_inputs, 1)]
    events, _ = by_time(pa.concat_tables(path_tables))
    name = child_name(source.name, "critical-path")
    return write_overlay(source, folder, selection, events, name=name, kind=QUESTION, on_written=on_written)


def _path_events(rank_input: AnalysisInput, spill: Path, tid: int) -> pa.Table:
    """Return the events of the critical path of one rank, on the thread `tid`."""
    from service.analysis.facts.path_edges import PathEdges  # noqa: PLC0415 - loads numba, which the server does without
    from service.analysis.facts.path_events import path_events  # noqa: PLC0415 - loads numba, too

    database = RankDatabase(rank_input.columns, rank_input.summary, rank_input.selection, spill=spill, threads=THREADS)
    try:
        with scope_of(database) as scope:
            if reason := question_of(QUESTION).reason_against(scope):
                raise NotApplicable(reason)
            return path_events(scope, PathEdges(scope), tid=tid)
    finally:
        database.close()

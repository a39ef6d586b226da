"""Overlay: a new trace with the events of a source, or a selection of them, and with additional events."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from service.cutting.children import Child, ColumnWriter, summarised
from service.cutting.cut import Cuts
from service.cutting.envelope import with_facts
from service.cutting.merge import interleave
from service.cutting.rows import nothing_selected
from service.cutting.source import Source
from service.store.columns import by_time
from service.store.folder import ENVELOPE, EVENTS, write_whole
from service.store.parts import Parts
from service.trace.selection import Selection


def write_overlay(
    source: Source,
    folder: Path,
    selection: Selection,
    events: pa.Table,
    *,
    name: str,
    kind: str,
    on_written: Callable[[int, int], object],
) -> Child:
    """Write a trace with the events of a source that a selection keeps, and with additional events.

    Args:
        source: the source.
        folder: the folder to create for the columns; its name is the new trace's id.
        selection: selection of the events to keep; an empty one keeps all.
        events: the events to add, in order of time, with the columns of a trace; they get positions after the source's.
        name: the name of the new trace.
        kind: kind of the added events, recorded in the new trace's provenance.
        on_written: receives the number of events written so far, and their total.

    Raises:
        SelectionError: the selection is invalid or matches no event.
        DiskFull: the disk is full.
    """
    source = source.with_whole_lists()
    with closing(Parts(source.columns / EVENTS)) as parts:
        cuts = Cuts(parts, [selection], source.summary)
        if not cuts.counts[0]:
            raise nothing_selected(source.summary)
        total = cuts.counts[0] + len(events)
        on_written(0, total)
        further = _appended(events, parts)
        with ThreadPoolExecutor(2, "overlay") as threads, ColumnWriter(folder, parts.schema, threads) as writer:
            for tables in interleave([(table for _, table in cuts.tables()), iter([further])], keep_ties=False):
                writer.add(by_time(pa.concat_tables(tables))[0])
                on_written(min(writer.rows, total), total)
            writer.finish()
    facts = {"overlay": {"kind": kind, "of": source.source, "selection": selection.as_dict()}}
    write_whole(folder / ENVELOPE, with_facts(source.envelope, facts))
    return summarised(writer, name, source.summary, selection=selection)


def _appended(events: pa.Table, parts: Parts) -> pa.Table:
    """Return the events with positions after those of the parts; columns that only the parts have become null."""
    spans = (parts.span(index, "position") for index in range(len(parts)))
    first = 1 + max((span[1] for span in spans if span), default=-1)
    positions = pa.array(np.arange(first, first + len(events)))
    further = events.set_column(0, parts.schema.field("position"), positions)
    for field in parts.schema:
        if field.name not in further.schema.names:
            further = further.append_column(field, pa.nulls(len(further), field.type))
    return further.cast(parts.schema)

"""A trace, or what is selected of it, with further events: a trace of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from service.cutting.children import Child, Writing, described
from service.cutting.cut import Cuts
from service.cutting.envelope import with_facts
from service.cutting.merge import side_by_side
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
    """Make a trace of what a selection keeps of another and of further events.

    Args:
        source: the trace.
        folder: where to make the columns; its name is the new trace's id.
        selection: what to keep; of nothing given, all.
        events: the further ones, in order of time, with the columns of a trace; they get positions behind all others.
        name: of the new trace.
        kind: what the events are, which the new trace tells of itself.
        on_written: is told now and then how many events are written, and of how many.

    Raises:
        SelectionError: the trace has nothing of the selection.
        DiskFull: there was no room.
    """
    source = source.with_whole_lists()
    with closing(Parts(source.columns / EVENTS)) as parts:
        cuts = Cuts(parts, [selection], source.summary)
        if not cuts.counts[0]:
            raise nothing_selected(source.summary)
        total = cuts.counts[0] + len(events)
        on_written(0, total)
        further = _behind(events, parts)
        with ThreadPoolExecutor(2, "overlay") as threads, Writing(folder, parts.schema, threads) as writing:
            for tables in side_by_side([(table for _, table in cuts.tables()), iter([further])], whole=False):
                writing.add(by_time(pa.concat_tables(tables))[0])
                on_written(min(writing.rows, total), total)
            writing.finish()
    told = {"overlay": {"kind": kind, "of": source.source, "selection": selection.as_dict()}}
    write_whole(folder / ENVELOPE, with_facts(source.envelope, told))
    return described(writing, name, source.summary, selection=selection.as_dict())


def _behind(events: pa.Table, parts: Parts) -> pa.Table:
    """The events with positions behind all others, and all columns of these."""
    spans = (parts.span(index, "position") for index in range(len(parts)))
    first = 1 + max((span[1] for span in spans if span), default=-1)
    positions = pa.array(np.arange(first, first + len(events)))
    further = events.set_column(0, parts.schema.field("position"), positions)
    for field in parts.schema:
        if field.name not in further.schema.names:
            further = further.append_column(field, pa.nulls(len(further), field.type))
    return further.cast(parts.schema)

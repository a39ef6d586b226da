"""The document that an engine loads: a trace, or a selection of it, without losses and without harmful values.

Times count from the trace's first event, so that the engine's doubles hold them exactly. Different tracks have
different ids. Slices that overlap without nesting are on separate lanes. The engine itself sorts the events.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from service.attribution.links import external_ids_in_summary
from service.cutting.cut import cut_tables
from service.rendering.events import EventWriter
from service.rendering.lines import texts_of
from service.rendering.render_report import RankGroup, RenderReport
from service.rendering.time_base import time_base
from service.rendering.tracks import TrackAssigner
from service.store.export import parsed_envelope
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.parts import Parts
from service.streaming.schema import SCHEMA
from service.trace.process_groups import ProcessGroups
from service.trace.selection import Selection
from service.trace.selection_fields import Args
from service.trace.summary import Summary

SAME_TIME_MAX = 1 << 20
"""Number of events from which a table is no longer extended with the next one, even if both share a time."""


def render(
    columns: Path,
    summary: Summary,
    report: RenderReport,
    *,
    selection: Selection | None = None,
    args: Args = "all",
) -> Iterator[bytes]:
    """Yield the document, in pieces of a few MB.

    Args:
        columns: the folder of the trace's columns.
        summary: the trace's summary from the catalog.
        report: output: counts of the document's events, its tracks and its groups; complete after the last piece.
        selection: the part of the trace to render; the whole trace by default.
        args: which arguments of events to keep.

    Raises:
        SelectionError: the selection is empty; raised before the first piece.
        ExportFailed: the columns can't be read.
    """
    summary = whole_summary(summary, columns)
    tracks = TrackAssigner(summary)
    report.external_ids = external_ids_in_summary(summary)
    with closing(Parts(columns / EVENTS)) as parts:
        report.base_ns = time_base(parts)
        events = EventWriter(tracks, report, args)
        tables = by_whole_times(_tables(parts, selection, summary))
        started = False
        for piece in chain(texts_of(map(events.lines, tables)), map(_line, tracks.metadata())):
            if piece:
                yield piece if started else b'{"traceEvents":[' + piece[1:]
                started = True
        yield b"]}\n" if started else b'{"traceEvents":[]}\n'
    report.tracks = tracks.tracks
    report.groups = _groups(columns, summary)


def _groups(columns: Path, summary: Summary) -> list[RankGroup]:
    """Return the process groups of each rank: those that it lists, and the group of communications without a name."""
    envelope = parsed_envelope(columns)
    groups = []
    ranks: list[int | None] = [merged["rank"] for merged in summary.ranks]
    for rank in ranks or [summary.rank]:
        listed = ProcessGroups.listed(envelope, rank, summary.world_size)
        groups += [RankGroup(rank, name, group) for name, group in listed.by_name.items()]
        groups.append(RankGroup(rank, None, listed.unnamed))
    return groups


def _line(event: dict[str, Any]) -> bytes:
    return b",\n" + orjson.dumps(event)


def _tables(parts: Parts, selection: Selection | None, summary: Summary) -> Iterator[pa.Table]:
    """Return the events in order of time."""
    if selection is None:
        return (part.table for part in parts.read(SCHEMA.names))
    return (table.select(SCHEMA.names) for table in cut_tables(parts, selection, summary))


def by_whole_times(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the tables, concatenated so that events with the same time are in one table; see `SAME_TIME_MAX`."""
    pending: pa.Table | None = None
    for table in tables:
        if pending is None:
            pending = table
        elif len(pending) < SAME_TIME_MAX and pending["ts_ns"][-1] == table["ts_ns"][0]:
            pending = pa.concat_tables([pending, table])
        else:
            yield pending
            pending = table
    if pending is not None:
        yield pending


def prepare() -> None:
    """Compile the machine code, or load it from the cache, before the first document needs it."""
    EventWriter(TrackAssigner(Summary()), RenderReport(), "essential").lines(small_table()).text()


def small_table() -> pa.Table:
    """Return events that need all compiled code."""
    event = dict.fromkeys(SCHEMA.names) | {"position": 0, "ph": "s", "ts_ns": 0, "id": 1, "verbatim": False}
    return pa.Table.from_pylist([event, event | {"ph": "X", "args": '{"a": 1}'}], SCHEMA)

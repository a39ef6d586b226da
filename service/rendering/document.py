"""The document that an engine loads: a trace, or a selection of it, without losses and without harmful values.

Times count from the trace's first event, so that the engine's doubles hold them exactly. Different tracks have
different ids. Slices that overlap without nesting are on separate lanes. The engine itself sorts the events.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from service.attribution.links import external_ids_in_summary
from service.cutting.cut import cut_tables
from service.rendering.arrow_order import with_slices_before_ends
from service.rendering.arrows import SCANNED, ArrowKeys, ArrowScan
from service.rendering.events import EventPlacer, columns_of
from service.rendering.fuchsia.arrow_numbers import ArrowNumbers
from service.rendering.fuchsia.records import PHASES_KEPT, TEXTS_MAX, head, names_of, records_of
from service.rendering.lines import lines_of
from service.rendering.phases import CODES, PHASES
from service.rendering.placed import PlacedEvents
from service.rendering.render_report import RankGroup, RenderReport
from service.rendering.time_base import time_base
from service.rendering.tracks import TrackAssigner
from service.store.export import parsed_envelope
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.parts import Parts
from service.store.text_sizes import TextSizes
from service.streaming.processors import processor_count
from service.streaming.schema import SCHEMA
from service.trace.process_groups import ProcessGroups
from service.trace.selection import Selection
from service.trace.selection_fields import Args
from service.trace.summary import Summary

SAME_TIME_MAX = 1 << 20
"""Number of events from which a table is no longer extended with the next one, even if both share a time."""
_PARTS_AT_ONCE = 2  # per table of events: 1 takes a tenth more time in all, and 4 take more processor time


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
    report.external_ids = external_ids_in_summary(summary)
    with closing(Parts(columns / EVENTS)) as parts:
        tracks = TrackAssigner(summary, parts.work_tracks or ())
        report.base_ns = time_base(parts)
        keys = ArrowKeys()
        placer = EventPlacer(tracks, report, args, keys)
        events = map(placer.place, by_whole_times(_tables(parts, selection, summary, columns_of(args))))
        scan = _scan(parts, summary, keys) if selection is None and _fit(parts.text_sizes, summary) else None
        yield from _in_records(events, tracks, scan) if scan else _in_json(events, tracks)
    report.tracks = tracks.tracks
    report.groups = _groups(columns, summary)


def _fit(sizes: TextSizes | None, summary: Summary) -> bool:
    """Return whether the texts of each event, and each name of a track, fit into a record of Fuchsia's format.

    Sanitizing at most doubles the size of arguments, by escaping quotes, and triples that of names that are all NUL.
    """
    tracks = [*summary.processes, *summary.threads]
    names = max((sum(len(str(value).encode()) for value in track.values()) for track in tracks), default=0)
    return sizes is not None and max(3 * (sizes.categories + sizes.names) + 2 * sizes.args, 3 * names) <= TEXTS_MAX


def _scan(parts: Parts, summary: Summary, keys: ArrowKeys) -> ArrowScan | None:
    """Return what a document in Fuchsia's format needs to know of arrows; None if only JSON shows all of the trace.

    Selections are small enough for JSON, which needs no scan.
    """
    if summary.phases & {*PHASES} - PHASES_KEPT:
        return None
    scan = ArrowScan(parts.tables(SCANNED), keys)
    return scan if scan.are_plain and scan.are_bound and scan.are_short else None


def _in_records(events: Iterator[PlacedEvents], tracks: TrackAssigner, scan: ArrowScan) -> Iterator[bytes]:
    """Yield the document in Fuchsia's format."""
    numbers = ArrowNumbers(scan.ended)

    def prepared(block: PlacedEvents) -> Callable[[], bytes]:
        rows, arrows = scan.split(block.arrows, block.phases == CODES["s"])
        return partial(records_of, block, rows, *numbers.of(block, rows, arrows))

    yield head()
    yield from _called(map(prepared, events))
    yield from names_of(tracks.tracks)


def _in_json(events: Iterator[PlacedEvents], tracks: TrackAssigner) -> Iterator[bytes]:
    """Yield the document as JSON."""
    started = False
    for piece in chain(_called(partial(lines_of, block) for block in events), map(_line, tracks.metadata())):
        if piece:
            yield piece if started else b'{"traceEvents":[' + piece[1:]
            started = True
    yield b"]}\n" if started else b'{"traceEvents":[]}\n'


def _called(functions: Iterator[Callable[[], bytes]]) -> Iterator[bytes]:
    """Yield what functions return, in order; threads call the next ones meanwhile."""
    count = processor_count()
    with ThreadPoolExecutor(count, "document") as threads:
        results = deque[Future[bytes]]()
        for function in functions:
            results.append(threads.submit(function))
            if len(results) > count:
                yield results.popleft().result()
        for result in results:
            yield result.result()


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


def _tables(parts: Parts, selection: Selection | None, summary: Summary, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Return some columns of the events in order of time."""
    if selection is None:
        return parts.tables(columns, _PARTS_AT_ONCE)
    return (table.select(columns) for table in cut_tables(parts, selection, summary))


def by_whole_times(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the tables, concatenated so that events with the same time are in one table; see `SAME_TIME_MAX`.

    Slices without duration come before the ends of arrows that belong to them.
    """
    pending: pa.Table | None = None
    for table in tables:
        if pending is None:
            pending = table
        elif len(pending) < SAME_TIME_MAX and pending["ts_ns"][-1] == table["ts_ns"][0]:
            pending = pa.concat_tables([pending, table])
        else:
            yield with_slices_before_ends(pending)
            pending = table
    if pending is not None:
        yield with_slices_before_ends(pending)


def prepare() -> None:
    """Compile the machine code, or load it from the cache, before the first document needs it."""
    [table] = by_whole_times(iter([small_table()]))
    events = EventPlacer(TrackAssigner(Summary()), RenderReport(), "all", ArrowKeys()).place(table)
    lines_of(events)
    rows = np.arange(len(events))
    records_of(events, rows, *ArrowNumbers(np.unique(events.arrows)).of(events, rows, events.arrows))


def small_table() -> pa.Table:
    """Return events that need all compiled code."""
    event = dict.fromkeys(SCHEMA.names) | {"position": 0, "ph": "s", "ts_ns": 0, "id": 1, "verbatim": False}
    return pa.Table.from_pylist([event, event | {"ph": "X", "args": '{"a": 1}'}], SCHEMA)

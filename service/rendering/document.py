"""The document that an engine is fed: a trace, or a selection of it, in which nothing is lost or does harm.

Times count from the trace's first event, so that the engine's doubles hold them; ids differ where tracks do; slices
that overlap without nesting lie on lanes of their own. The engine itself puts events in order, the longest first.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from service.attribution.links import external_ids_shown
from service.cutting.cut import cut_tables
from service.rendering.account import GroupOfRank, Rendered
from service.rendering.base import base_of
from service.rendering.events import SafeEvents
from service.rendering.tracks import ShownTracks
from service.store.export import envelope_of
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.parts import Parts
from service.streaming.schema import SCHEMA
from service.trace.process_groups import ProcessGroups
from service.trace.selection import Selection
from service.trace.selection_fields import Args

ONE_TIME_MAX = 1 << 20
"""Events of one time that are looked at together."""


def rendering(
    columns: Path,
    summary: Mapping[str, Any],
    rendered: Rendered,
    *,
    selection: Selection | None = None,
    args: Args = "all",
) -> Iterator[bytes]:
    """Yield the document, in pieces of a few MB.

    Args:
        columns: the folder that ingest made of the trace.
        summary: of the trace, as the catalog has it.
        rendered: gets the account of what the document holds, which is whole once all is yielded.
        selection: what of the trace; all by default.
        args: which arguments of events.

    Raises:
        SelectionError: the trace has nothing of the selection; before anything is yielded.
        ExportFailed: the columns can't be read.
    """
    summary = whole_summary(summary, columns)
    shown = ShownTracks(summary)
    rendered.external_ids = external_ids_shown(summary)
    with closing(Parts(columns / EVENTS)) as parts:
        rendered.base_ns = base_of(parts)
        events = SafeEvents(shown, rendered, args)
        tables = _whole_times(_tables(parts, selection, summary))
        begun = False
        for piece in chain(map(events.text, tables), map(_line, shown.metadata())):
            if piece:
                yield piece if begun else b'{"traceEvents":[' + piece[1:]
                begun = True
        yield b"]}\n" if begun else b'{"traceEvents":[]}\n'
    rendered.tracks = shown.shown
    rendered.groups = _groups(columns, summary)


def _groups(columns: Path, summary: Mapping[str, Any]) -> list[GroupOfRank]:
    """The process groups that each rank lists."""
    told = envelope_of(columns)
    found = []
    for rank in [one["rank"] for one in summary.get("ranks", [])] or [summary.get("rank")]:
        listed = ProcessGroups.listed(told, rank, summary.get("world_size"))
        found += [GroupOfRank(rank, name, group) for name, group in listed.by_name.items()]
        found.append(GroupOfRank(rank, None, listed.unnamed))
    return found


def _line(event: dict[str, Any]) -> bytes:
    return b",\n" + orjson.dumps(event)


def _tables(parts: Parts, selection: Selection | None, summary: Mapping[str, Any]) -> Iterator[pa.Table]:
    """The events, in order of time."""
    if selection is None:
        return (part.table for part in parts.read(SCHEMA.names))
    return (table.select(SCHEMA.names) for table in cut_tables(parts, selection, summary))


def _whole_times(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The tables, with the events of one time in one of them, unless these are more than `ONE_TIME_MAX`."""
    held: pa.Table | None = None
    for table in tables:
        if held is None:
            held = table
        elif len(held) < ONE_TIME_MAX and held["ts_ns"][-1] == table["ts_ns"][0]:
            held = pa.concat_tables([held, table])
        else:
            yield held
            held = table
    if held is not None:
        yield held


def prepare() -> None:
    """Load the machine code, so that the first document need not wait for it."""
    event = dict.fromkeys(SCHEMA.names) | {"position": 0, "ph": "s", "ts_ns": 0, "id": 1, "verbatim": False}
    table = pa.Table.from_pylist([event, event | {"ph": "X", "args": "{}"}], SCHEMA)
    summary: dict[str, Any] = {"rank": None, "processes": [], "threads": []}
    SafeEvents(ShownTracks(summary), Rendered(), "essential").text(table)

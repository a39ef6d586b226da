"""What selections keep of a trace, read in one pass: as tables, or as a document."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from service.attribution.links import external_ids_in_summary
from service.cutting.clip import Clip
from service.cutting.envelope import whole_of, with_facts
from service.cutting.rows import Rows, nothing_selected, rows_at
from service.store.export import document_from, envelope
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.parts import Parts
from service.trace.selection import Selection


class Cuts:
    """What some selections keep of a trace.

    Args:
        parts: the trace's columns.
        selections: what to keep, at most `service.cutting.rows.AT_ONCE`.
        summary: of the trace, as the catalog has it.

    Raises:
        SelectionError: the trace has nothing of one, or one can't be understood.
    """

    def __init__(self, parts: Parts, selections: Sequence[Selection], summary: Mapping[str, Any]) -> None:
        summary = whole_summary(summary, parts.folder)
        self._parts = parts
        self._rows = Rows(parts, selections, summary)
        self._clips = [
            Clip(self._rows.time(place)) if selection.straddle == "clip" else None
            for place, selection in enumerate(selections)
        ]
        self._bits = self._rows.kept()
        self.counts = [len(rows_at(self._bits, place)) for place in range(len(selections))]
        """How many events each keeps."""

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield the events, of each selection in order of time, with the place of their selection."""
        for place, table in self.uncut(self._parts.schema.names):
            clip = self._clips[place]
            if len(passed := clip.passed(table) if clip else table):
                yield place, passed
        for place, clip in enumerate(self._clips):
            if clip and (rest := clip.rest()):
                yield place, rest

    def uncut(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield some columns of the events likewise, but with their slices as they are."""
        for part in self._parts.read(columns, self._parts.holding(self._bits != 0)):
            for place in range(len(self._clips)):
                mine = rows_at(self._bits[part.rows], place)
                if len(mine):
                    yield place, part.table if len(mine) == len(part) else part.table.take(pa.array(mine))


def cut_document(
    columns: Path, selection: Selection, summary: Mapping[str, Any], *, source: str, redact: bool = False
) -> Iterator[bytes]:
    """Yield the document of what a selection keeps, by time, in pieces of a few MB.

    Args:
        columns: the folder that ingest made of the trace.
        selection: what to keep.
        summary: of the trace, as the catalog has it.
        source: what tells the trace from all others.
        redact: hide secrets, in the envelope and in events.

    Raises:
        SelectionError: the trace has nothing of it, or it can't be understood; before anything is yielded.
        ExportFailed: the columns can't be read.
    """
    text = part_envelope(envelope(columns, redact=redact), selection, source, summary)
    with closing(Parts(columns / EVENTS)) as parts:
        yield from document_from(cut_tables(parts, selection, summary), text, columns, redact=redact)


def cut_tables(parts: Parts, selection: Selection, summary: Mapping[str, Any]) -> Iterator[pa.Table]:
    """The events that a selection keeps, by time.

    Args:
        parts: the trace's columns.
        selection: what to keep.
        summary: of the trace, as the catalog has it.

    Raises:
        SelectionError: the trace has nothing of it, or it can't be understood; at once.
    """
    cuts = Cuts(parts, [selection], summary)
    if not cuts.counts[0]:
        raise nothing_selected(summary)
    return (table for _, table in cuts.tables())


def part_envelope(text: bytes, selection: Selection, source: str, summary: Mapping[str, Any]) -> bytes:
    """The envelope of a part of a trace; a part of a part is one of the whole.

    It tells what External ids are: a part may have too little to show that.
    """
    part = {
        "of": whole_of(text) or source,
        "selection": selection.as_dict(),
        "external_ids": external_ids_in_summary(summary),
    }
    return with_facts(text, {"part": part})

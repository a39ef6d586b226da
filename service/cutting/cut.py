"""Events of a trace that selections keep, read in one pass, as tables or as a document."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from service.attribution.links import external_ids_in_summary
from service.cutting.clip import SliceClipper
from service.cutting.criteria import IntervalSet
from service.cutting.envelope import whole_id, with_facts
from service.cutting.part_steps import FACT, PartSteps
from service.cutting.rows import RowSelector, nothing_selected, rows_at
from service.store.column_files import ColumnFolder
from service.store.export import document_from, envelope
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.parts import Parts
from service.trace.selection import Selection
from service.trace.summary import Summary


class Cuts:
    """Events of a trace that selections keep.

    Args:
        parts: the trace's columns.
        selections: at most `service.cutting.rows.AT_ONCE`.
        summary: the trace's summary, as in the catalog.

    Attributes:
        counts: number of events that each selection keeps.

    Raises:
        SelectionError: a selection is invalid, or has a value that the trace does not have.
    """

    def __init__(self, parts: Parts, selections: Sequence[Selection], summary: Summary) -> None:
        summary = whole_summary(summary, parts.folder)
        self._parts = parts
        self._rows = RowSelector(parts, selections, summary)
        self._clippers = [
            SliceClipper(self.time(place)) if selection.straddle == "clip" else None
            for place, selection in enumerate(selections)
        ]
        self._bits = self._rows.kept()
        self.counts = [len(rows_at(self._bits, place)) for place in range(len(selections))]

    def time(self, place: int) -> IntervalSet:
        """Return the time of the selection at an index, to which ``straddle: clip`` cuts slices."""
        return self._rows.time(place)

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield pairs of a selection's index and a table of its events; the tables of a selection are in time order."""
        for place, table in self.uncut(self._parts.schema.names):
            clipper = self._clippers[place]
            if len(ready := clipper.clip(table) if clipper else table):
                yield place, ready
        for place, clipper in enumerate(self._clippers):
            if clipper and (rest := clipper.flush()):
                yield place, rest

    def uncut(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the same pairs as `tables`, but with the given columns only, and without clipping slices."""
        for part in self._parts.read(columns, self._parts.holding(self._bits != 0)):
            for place in range(len(self._clippers)):
                rows = rows_at(self._bits[part.rows], place)
                if len(rows) == len(part):
                    yield place, part.table
                elif len(rows):
                    yield place, pc.take(part.table, pa.array(rows), boundscheck=False)


def cut_document(
    columns: ColumnFolder, selection: Selection, summary: Summary, *, source: str, redact: bool = False
) -> Iterator[bytes]:
    """Yield the document of the events that a selection keeps, by time, in chunks of a few MB.

    Args:
        columns: folder of the trace's columns.
        selection: selection of the events to keep.
        summary: the trace's summary, as in the catalog.
        source: identity of the trace; see `Trace.identity`.
        redact: whether to hide secrets in the envelope and in the events.

    Raises:
        SelectionError: the selection is invalid or matches no event; raised before the first chunk.
        ExportFailed: the columns can't be read.
        LocationError: their location can't be used.
    """
    summary = whole_summary(summary, columns)
    with closing(Parts(columns / EVENTS)) as parts:
        cuts = cut_of(parts, selection, summary)
        steps = PartSteps.of_trace(columns, summary).of_selection(selection, cuts.time(0))
        text = part_envelope(envelope(columns, redact=redact), selection, source, summary, steps)
        yield from document_from((table for _, table in cuts.tables()), text, columns, redact=redact)


def cut_tables(parts: Parts, selection: Selection, summary: Summary) -> Iterator[pa.Table]:
    """Return the events that a selection keeps, by time; see `cut_of`."""
    return (table for _, table in cut_of(parts, selection, summary).tables())


def cut_of(parts: Parts, selection: Selection, summary: Summary) -> Cuts:
    """Return the events that one selection keeps.

    Args:
        parts: the trace's columns.
        selection: selection of the events to keep.
        summary: the trace's summary, as in the catalog.

    Raises:
        SelectionError: the selection is invalid or matches no event.
    """
    cuts = Cuts(parts, [selection], summary)
    if not cuts.counts[0]:
        raise nothing_selected(summary)
    return cuts


def part_envelope(text: bytes, selection: Selection, source: str, summary: Summary, steps: PartSteps) -> bytes:
    """Return the envelope of a part of a trace. It refers to the whole trace, even if the trace is itself a part.

    The envelope records what a part may have too few events to infer: the meaning of External ids, and the bounds of
    the steps.

    Args:
        text: envelope of the trace.
        selection: selection of the events that the part has.
        source: identity of the trace; see `Trace.identity`.
        summary: the trace's summary, as in the catalog.
        steps: the steps that the selection is about.
    """
    part = {
        "of": whole_id(text) or source,
        "selection": selection.as_dict(),
        "external_ids": external_ids_in_summary(summary),
        FACT: steps.as_record(),
    }
    return with_facts(text, {"part": part})

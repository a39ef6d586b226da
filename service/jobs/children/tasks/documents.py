"""The tasks that write documents."""

# ruff: noqa: PLC0415 - the server loads no numba, and each child loads only the code of its own tasks

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from service.store.export import Order
from service.trace.selection import Selection
from service.trace.selection_fields import Args
from service.trace.summary import Summary

if TYPE_CHECKING:
    from service.rendering.render_report import RenderReport


@dataclass(frozen=True)
class Cut:
    """A part of a trace to write.

    Attributes:
        selection: selection of the events to keep.
        summary: the trace's summary.
        source: the trace's identity.
    """

    selection: Selection
    summary: Summary
    source: str


@dataclass(frozen=True)
class ExportTask:
    """Write the document of a trace; see `service.store.export.document` and `service.cutting.cut.cut_document`.

    Attributes:
        columns: the folder of the trace's columns.
        pack: whether to compress the document with gzip.
        order: order of the events; a cut is always in order of time.
        redact: whether to hide secrets.
        cut: the part of the trace to write; None for the whole trace.
    """

    columns: Path
    pack: bool = False
    order: Order = "time"
    redact: bool = False
    cut: Cut | None = None

    def run(self) -> Generator[bytes, None, None]:
        """Yield the document in pieces.

        Raises:
            SelectionError: the cut's selection is invalid or matches no event.
            ExportFailed: the columns can't be read.
            DiskFull: the disk has no room for sorting.
        """
        from service.cutting.cut import cut_document
        from service.store.export import document, packed

        if self.cut is None:
            pieces = document(self.columns, order=self.order, redact=self.redact)
        else:
            pieces = cut_document(
                self.columns, self.cut.selection, self.cut.summary, source=self.cut.source, redact=self.redact
            )
        yield from packed(pieces) if self.pack else pieces


@dataclass(frozen=True)
class RenderTask:
    """Write the document that an engine loads; see `service.rendering.document.render`.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary, as in the catalog.
        selection: the part of the trace to write; None for the whole trace.
        args: the arguments that events keep.
    """

    columns: Path
    summary: Summary
    selection: Selection | None = None
    args: Args = "all"

    def run(self) -> "Generator[bytes, None, RenderReport]":
        """Yield the document in pieces, and return the report on it.

        Raises:
            SelectionError: the selection is invalid or matches no event.
            ExportFailed: the columns can't be read.
        """
        from service.rendering.document import render
        from service.rendering.render_report import RenderReport

        rendered = RenderReport()
        yield from render(self.columns, self.summary, rendered, selection=self.selection, args=self.args)
        return rendered

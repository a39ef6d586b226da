"""The tasks that write documents."""

# ruff: noqa: PLC0415 - the server loads no numba, and each child loads the code of its own tasks alone

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
        selection: what to keep.
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
        pack: whether to compress it as gzip.
        order: order of the events; a cut is always by time.
        redact: whether to hide secrets.
        cut: the part to write; None for all.
    """

    columns: Path
    pack: bool = False
    order: Order = "time"
    redact: bool = False
    cut: Cut | None = None

    def run(self) -> Generator[bytes, None, None]:
        """Yield the document in pieces.

        Raises:
            SelectionError: the trace has nothing of the cut.
            ExportFailed: the columns can't be read.
            DiskFull: there was no room to sort.
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
        summary: the trace's summary, as the catalog has it.
        selection: what of the trace; None for all.
        args: which arguments events keep.
    """

    columns: Path
    summary: Summary
    selection: Selection | None = None
    args: Args = "all"

    def run(self) -> "Generator[bytes, None, RenderReport]":
        """Yield the document in pieces, and return the account of what it holds.

        Raises:
            SelectionError: the trace has nothing of the selection.
            ExportFailed: the columns can't be read.
        """
        from service.rendering.document import render
        from service.rendering.render_report import RenderReport

        rendered = RenderReport()
        yield from render(self.columns, self.summary, rendered, selection=self.selection, args=self.args)
        return rendered

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
class PerfettoTask:
    """Write a trace as Perfetto's protobuf; see `service.rendering.pftrace.document.pftrace`.

    Attributes:
        columns: the folder of the trace's columns.
        summary: the trace's summary, as in the catalog.
        pack: whether to compress the packets with gzip.
        redact: whether to hide secrets.
        cut: the part of the trace to write; None for the whole trace.
    """

    columns: Path
    summary: Summary
    pack: bool = False
    redact: bool = False
    cut: Cut | None = None

    def run(self) -> Generator[bytes, None, None]:
        """Yield the packets in pieces.

        Raises:
            SelectionError: the cut's selection is invalid or matches no event.
            FormatUnavailable: the trace does not fit the format.
            ExportFailed: the columns can't be read.
            DiskFull: the disk has no room.
        """
        from service.rendering.pftrace.document import pftrace
        from service.store.export import packed

        selection, source = (None, "") if self.cut is None else (self.cut.selection, self.cut.source)
        pieces = pftrace(self.columns, self.summary, selection=selection, source=source, redact=self.redact)
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


@dataclass(frozen=True)
class OriginalTask:
    """Decompress the original of a trace, which an engine loads as it is.

    Attributes:
        path: its path, or the URL of an object.
        mark: the mark of an original that other programs can change; see `service.store.original_files`.
    """

    path: str
    mark: str | None = None

    def run(self) -> Generator[bytes, None, None]:
        """Yield the decompressed bytes.

        Raises:
            SourceUnavailable: the original is missing.
            OriginalChanged: it was changed since it became a trace.
            BadCompression, Truncated: it is damaged or cut.
            LocationError: the bucket can't be used.
        """
        from service.store.original_files import check_original, open_original
        from service.streaming.codec import decompressed
        from service.trace.errors import SourceUnavailable

        try:
            file = open_original(self.path, self.mark)
        except FileNotFoundError as error:
            raise SourceUnavailable("The original is gone from the data folder.") from error
        with file:
            last = b""  # kept until the checksum holds: the engine would fail on wrong bytes, and hide the cause
            for piece in decompressed(file):
                if last:
                    yield last
                last = piece
            yield last
            check_original(file, self.path, self.mark)

"""Originals that are not kept: exports of Nsight Systems hold the whole environment of the profiled process."""

from contextlib import suppress
from pathlib import Path

from service.formats.names import is_original_kept
from service.formats.nsys.spooled import starts_database
from service.store.catalog import Catalog, State, Trace
from service.store.external_objects import ExternalObject, is_object
from service.store.folder import Folder
from service.streaming.codec import decompressed
from service.trace.errors import BadCompression, FormatUnavailable, Truncated

OTHER_FORMATS = ("json", "json.gz", "pftrace", "pftrace.gz", "parquet")
"""Formats in which a trace can be downloaded without its original."""
_HEAD_SIZE = 1 << 20
"""Bytes of an object that are read to recognise its format."""


class Originals:
    """Decides which originals are kept and served, and removes the others.

    Only the data folder's own name of a file is removed: a file that was imported by link or in place stays.

    Args:
        catalog: the catalog of traces.
        folder: the data folder.
        keep_nsys: whether to keep the originals of Nsight Systems.
    """

    def __init__(self, catalog: Catalog, folder: Folder, *, keep_nsys: bool = False) -> None:
        self._catalog = catalog
        self._folder = folder
        self._keep_nsys = keep_nsys

    def keeps(self, file_format: str | None) -> bool:
        """Return whether the original of a trace in this format is kept once the trace is ready."""
        return self._keep_nsys or is_original_kept(file_format)

    def remove(self, trace_id: str) -> None:
        """Remove the original of a trace; a missing one is ignored."""
        with suppress(FileNotFoundError):
            self._folder.original(trace_id).unlink()

    def remove_leftovers(self) -> None:
        """Remove the originals of ready traces that a killed server could not remove any more."""
        for trace_id in self._catalog.ids_without_original():
            self.remove(trace_id)

    def path_of(self, trace: Trace) -> Path:
        """Return the path of the original of a trace, which is a file."""
        return Path(trace.path) if trace.path else self._folder.original(trace.id)

    def object_of(self, trace: Trace) -> ExternalObject | None:
        """Return the original of a trace if it is an object of a bucket.

        Raises:
            OriginalChanged: it was replaced or removed.
            LocationError: the bucket can't be used.
        """
        return ExternalObject(trace.path, trace.path_mark or "") if trace.path and is_object(trace.path) else None

    def check_served(self, trace: Trace) -> None:
        """Raise `FormatUnavailable` if the original of a trace is not kept, or must not leave the server.

        An original that is an object is opened; raises as `object_of` does.
        """
        is_checked = not self._keep_nsys and trace.state is not State.READY
        if trace.original_removed or (is_checked and self._is_database(trace)):
            raise FormatUnavailable(
                "The original is not kept: an export of Nsight Systems holds the whole environment of the profiled"
                f" process. Download {', '.join(OTHER_FORMATS[:-1])} or {OTHER_FORMATS[-1]} instead; the server keeps"
                " the originals of later exports with TRACEDOCK_KEEP_NSYS_ORIGINALS.",
                formats=OTHER_FORMATS,
            )

    def _is_database(self, trace: Trace) -> bool:
        """Return whether the original of a trace, after decompression, starts like an SQLite database."""
        stored = self.object_of(trace)
        try:
            with stored.open(0, min(_HEAD_SIZE, stored.size)) if stored else self.path_of(trace).open("rb") as file:
                return starts_database(next(decompressed(file), b""))
        except (FileNotFoundError, BadCompression, Truncated):  # nothing of it can be read
            return False

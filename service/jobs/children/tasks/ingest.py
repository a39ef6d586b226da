"""The task that reads a trace into columns."""

# ruff: noqa: PLC0415 - the server loads no numba, and each child loads only the code of its own tasks

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from service.jobs.children.tasks.base import OnProgress, Task, ignore
from service.streaming.source import GrowingFile
from service.trace.summary import Summary


@dataclass(frozen=True)
class IngestTask(Task[Summary]):
    """Read a trace into columns; see `service.jobs.ingest.ingest`.

    Attributes:
        received: path of the file while it is being received.
        original: path of the file once it is kept, or URL of an object.
        columns: the folder to create.
        name: file name of the trace.
        mark: mark of an original that other programs can change; see `service.store.external_files` and
            `service.store.external_objects`.
    """

    received: Path
    original: str
    columns: Path
    name: str
    mark: str | None = None

    @classmethod
    def result_type(cls) -> type[Summary]:
        """Return the type of the summary."""
        return Summary

    def run(
        self, on_progress: OnProgress = ignore, on_opened: Callable[[GrowingFile], object] = GrowingFile.finish
    ) -> Summary:
        """Read the trace and return its summary.

        Args:
            on_progress: called with the progress from time to time.
            on_opened: called with the opened file, so that the caller can report the number of received bytes to it. By
                default the whole file counts as received.

        Raises:
            IngestError: the file can't be read as a trace, or has changed.
            LocationError: the bucket of the original can't be used.
            DiskFull: the disk has no room for the columns.
        """
        from service.jobs.ingest import ingest
        from service.store.original_files import check_original
        from service.streaming.codec import READ_SIZE

        source = self._open()
        on_opened(source)
        file: BufferedReader = BufferedReader(source, READ_SIZE)
        with file:
            summary = ingest(file, self.columns, self.name, on_progress)
            check_original(source, self.original, self.mark)
        return summary

    def _open(self) -> GrowingFile:
        """Open the file while it is received or, if it is no longer there, the original; raises `OriginalChanged`."""
        from service.store.original_files import open_original

        if self.mark is None:
            with suppress(FileNotFoundError):
                return GrowingFile(self.received)
        return GrowingFile(open_original(self.original, self.mark))

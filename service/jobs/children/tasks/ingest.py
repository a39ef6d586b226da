"""The task that reads a trace into columns."""

# ruff: noqa: PLC0415 - the server loads no numba, and each child loads only the code of its own tasks

from collections.abc import Callable
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
        original: path of the file once it is kept.
        columns: the folder to create.
        name: file name of the trace.
        mark: mark of an original that other programs can change; see `service.store.external_files`.
    """

    received: Path
    original: Path
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
            DiskFull: the disk has no room for the columns.
        """
        from service.jobs.ingest import ingest
        from service.store.external_files import check_unchanged
        from service.streaming.codec import READ_SIZE

        source = self._open()
        on_opened(source)
        file: BufferedReader = BufferedReader(source, READ_SIZE)
        with file:
            summary = ingest(file, self.columns, self.name, on_progress)
            if self.mark:
                check_unchanged(source.fileno(), self.mark)
        return summary

    def _open(self) -> GrowingFile:
        """Open the file while it is received or, if it is no longer there, the original; raises `OriginalChanged`."""
        from service.store.external_files import open_unchanged

        if self.mark:
            return GrowingFile(open_unchanged(self.original, self.mark))
        try:
            return GrowingFile(self.received)
        except FileNotFoundError:
            return GrowingFile(self.original)

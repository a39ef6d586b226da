"""The interface between ingest and the input formats."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from service.trace.health import Health


class Head(NamedTuple):
    """First bytes of a file, by which a format is recognised.

    Attributes:
        file: bytes of the file itself, at most `service.streaming.source.HEAD_SIZE`.
        plain: the first piece of the decompressed content; it may be short while the file is still growing.
    """

    file: bytes
    plain: bytes


class TraceReader(Protocol):
    """A reader of one file, from its start to its end.

    Ingest first reads all `batches`; meanwhile, `kept` shows the progress. It then calls `envelope` once, and reads
    `refused` and `health` last.
    """

    @property
    def kept(self) -> int:
        """The number of events yielded so far."""

    @property
    def refused(self) -> int:
        """The number of elements of the file that were left out so far because they are not readable events."""

    @property
    def health(self) -> Health:
        """Notes on refused elements and repaired damage, by the codes of `service.trace.health.CASES`."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events in the order of the file, in batches of `service.streaming.schema.SCHEMA`.

        Each batch numbers its `position` from 0. Its texts are valid UTF-8, and its JSON columns are valid JSON.

        Raises:
            IngestError: the file can't be read as a trace.
        """

    def envelope(self) -> tuple[bytes, dict[str, Any]]:
        """Return the Chrome JSON document around the events: its text, and its parsed members.

        The text has an empty array ``traceEvents``, into which an export puts the events. The parsed members lack it.
        The service understands ``baseTimeNanoseconds``, ``deviceProperties``, ``distributedInfo``, ``host_name`` and
        other members that PyTorch's profiler writes.
        """


class TraceFormat(Protocol):
    """An input format.

    Attributes:
        name: its key in `service.formats.names.FOLDERS`. `open_trace` appends the suffix of the compression.
    """

    name: str

    def recognises(self, head: Head) -> bool:
        """Return whether a file that starts with these bytes has this format."""

    def reader(self, chunks: Iterable[bytes], scratch: Path) -> TraceReader:
        """Return the reader of a file of this format.

        Args:
            chunks: the decompressed content, in order, which may still be arriving. The iterable raises
                `BadCompression` or `Truncated` where the compressed file is damaged or cut.
            scratch: an empty folder for temporary files, which the caller removes.
        """

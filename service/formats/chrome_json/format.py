"""Recognition of Chrome JSON traces."""

from collections.abc import Iterable
from pathlib import Path

from service.formats.chrome_json.document import Document
from service.formats.reader import Head
from service.streaming.codec import is_foreign


class ChromeJson:
    """The format of JSON documents that have an array ``traceEvents`` or are such an array."""

    name = "json"

    def recognises(self, head: Head) -> bool:
        """Return whether a file may be JSON: its first bytes are of no other known format."""
        return not is_foreign(head.file)

    def reader(self, chunks: Iterable[bytes], scratch: Path) -> Document:  # noqa: ARG002 - it needs no files
        """Return the reader of a document."""
        return Document(chunks)


FORMAT = ChromeJson()

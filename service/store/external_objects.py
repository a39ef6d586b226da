"""External objects: originals that stay in a bucket, where other programs may replace or remove them.

The path of such a trace is a URL, and its mark is the version of the object.
"""

import io
from io import BufferedReader
from typing import Any

from service.store.locations.location import BUCKETS
from service.trace.errors import OriginalChanged, SourceChanged


def is_object(path: str | None) -> bool:
    """Return whether the path of an original is the URL of an object; paths of files are absolute."""
    return path is not None and path.partition("://")[0] in BUCKETS


def split_url(url: str) -> tuple[str, str]:
    """Return the URL of the bucket, and the key of the object in it, which is not percent-encoded."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


class ExternalObject:
    """An object that is the original of a trace.

    Args:
        url: its URL.
        mark: the version that it must have.

    Raises:
        OriginalChanged: it has another version, or is missing.
        LocationError: the bucket can't be used.
    """

    def __init__(self, url: str, mark: str) -> None:
        from service.store.locations.bucket import Bucket  # noqa: PLC0415 - loads a library that is optional

        root, key = split_url(url)
        self._bucket = Bucket(root)
        entry = self._bucket.entry(key)
        if entry is None:
            raise OriginalChanged(f"{url} can't be read any more: there is no such object.")
        if entry.version != mark:
            raise OriginalChanged(f"{url} was replaced after it became a trace.")
        self._entry = entry

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._entry.size

    def open(self, start: int = 0, end: int | None = None) -> BufferedReader:
        """Open the bytes from `start` to `end`; reading raises as the constructor does."""
        part = self._bucket.open_part(self._entry, start, self.size if end is None else end)
        return BufferedReader(_Original(part))


class _Original(io.RawIOBase):
    """A stream of an object whose reads raise `OriginalChanged` instead of `SourceChanged`."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._stream.readinto1(buffer)
        except SourceChanged as error:
            raise OriginalChanged(error.detail) from error

    def close(self) -> None:
        self._stream.close()
        super().close()

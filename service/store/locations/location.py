"""The interface of a folder or a bucket, and the choice between them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol

from service.trace.errors import BadLocation

BUCKETS = ("s3", "gs", "az")
"""Schemes of the URLs of buckets: Amazon S3 and servers that speak its protocol, Google Cloud Storage, and Azure."""


class Entry(NamedTuple):
    """A file of a folder, or an object of a bucket.

    Attributes:
        name: path below the location, with `/` between its parts.
        size: number of bytes.
        version: text that changes whenever the content does.
    """

    name: str
    size: int
    version: str


class ReadMeter:
    """Counts the bytes that were read, in any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.size = 0

    def counted(self, content: bytes) -> bytes:
        """Count the bytes of some content, and return it."""
        with self._lock:
            self.size += len(content)
        return content


class Location(Protocol):
    """A folder, or the part of a bucket below a prefix. Names are paths below it, with `/` between their parts.

    All methods raise a `LocationError` if the location refuses or can't be reached.
    """

    url: str
    """The absolute path or the URL, without credentials; `location_of` makes an equal location of it."""
    meter: ReadMeter
    """Count of the bytes that `read` and `read_range` have returned."""

    def entries(self, below: str = "") -> Iterator[Entry]:
        """List all entries, or those whose names are or start with the parts of `below`, in order of their names.

        Files and folders whose names start with a dot are left out.
        """

    def open(self, entry: Entry) -> BufferedReader:
        """Open an entry, to be read once from its start to its end.

        Reading raises `SourceChanged` if the entry has another version by now.
        """

    def read(self, name: str) -> bytes | None:
        """Return the content of an entry; None if there is none of this name."""

    def read_range(self, entry: Entry, start: int, end: int) -> bytes:
        """Return the bytes of an entry from a start to an end, which it has.

        Raises `SourceChanged` if the entry has another version by now, and `UnknownLocation` if it is gone.
        """

    def write(self, name: str, content: bytes) -> None:
        """Write or replace an entry, at once as a whole."""

    def create(self, name: str, content: bytes) -> bool:
        """Write an entry at once as a whole, unless there is one of this name; return whether it was written."""

    def remove(self, name: str) -> None:
        """Remove an entry, if it exists."""

    def making(self) -> AbstractContextManager[Path]:
        """Return a context manager of a new local folder, for `publish`, which is removed at its end."""

    def sweep(self) -> None:
        """Remove what killed processes have left unfinished, once it is a day old."""

    def publish(self, made: Path, name: str, last: str) -> bool:
        """Publish the files of a folder below a name, unless that is there; return whether this call did it.

        They are there once the file `last` is, which appears after all others. Concurrent calls leave one result.

        Args:
            made: a folder from `making`, or below one.
            name: where the files go.
            last: name of one of the files.
        """

    def fetch(self, name: str, into: Path, files: list[str]) -> Path:
        """Return a local folder with these files of what was published below a name; missing ones are left out.

        Args:
            name: where the files are.
            into: an empty folder for copies, if the files are not local.
            files: names of the files.
        """


def location_of(text: str) -> Location:
    """Return the location of a path or a URL.

    Raises:
        BadLocation: the URL is malformed, or of an unknown kind.
        FleetUnavailable: the library for buckets is not installed.
    """
    scheme, separator, _ = text.partition("://")
    if not separator:
        from service.store.locations.folder_location import FolderLocation  # noqa: PLC0415 - imports this module

        if not text or "\0" in text:
            raise BadLocation("A location may not be empty.")
        return FolderLocation(Path(text))
    if scheme not in BUCKETS:
        known = ", ".join(f"{name}://" for name in BUCKETS)
        raise BadLocation(f"{scheme}:// is no known kind of location. Known are paths of folders, and {known}.")
    from service.store.locations.bucket import Bucket  # noqa: PLC0415 - loads a library that is optional

    return Bucket(text)

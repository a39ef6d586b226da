"""Import roots in buckets, and the search for objects below them."""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from service.store.external_objects import split_url
from service.store.locations.location import Entry
from service.store.patterns import CHARACTERS, matches
from service.store.trace_names import reason_to_skip
from service.trace.errors import BadLocation, ImportRefused

if TYPE_CHECKING:
    from service.store.locations.bucket import Bucket


@dataclass(frozen=True)
class ObjectCandidate:
    """An object below an import root.

    Attributes:
        bucket: its bucket.
        entry: its key, size and version.
        reason: the reason if it can't be imported.
    """

    bucket: "Bucket"
    entry: Entry
    reason: str | None = None

    @property
    def key(self) -> str:
        """Its URL."""
        return f"{self.bucket.url}/{self.entry.name}"

    @property
    def name(self) -> str:
        """The last part of its key."""
        return self.entry.name.rpartition("/")[2]

    def mark(self) -> str:
        """Return its version."""
        return self.entry.version

    def size(self) -> int:
        """Return its size in bytes."""
        return self.entry.size

    def open(self) -> BufferedReader:
        """Open it; reading raises `SourceChanged` if it has another version by now."""
        return self.bucket.open(self.entry)


class BucketRoot:
    """A bucket, or the part of one below a prefix, from which objects may be imported.

    Args:
        url: its URL.
        excluding: the URL below which nothing may be imported, since it holds the service's own objects; or empty.

    Raises:
        BadLocation: the URL is malformed.
        FleetUnavailable: the library for buckets is not installed.
    """

    def __init__(self, url: str, *, excluding: str = "") -> None:
        from service.store.locations.bucket import Bucket  # noqa: PLC0415 - loads a library that is optional

        self.url = url.rstrip("/")
        root, self._prefix = split_url(self.url)
        if not all(map(_is_plain, self._prefix.split("/") if self._prefix else ())):
            raise BadLocation(f"{url} is no import root: the parts of its prefix may not be empty, `.` or `..`.")
        self._bucket = Bucket(root)
        self._excluded = excluding.rstrip("/")

    def contains(self, requested: str) -> bool:
        """Return whether a URL is this root or below it; a prefix that only starts alike is not."""
        return requested.rstrip("/") == self.url or requested.startswith(f"{self.url}/")

    def find(self, requested: str) -> Iterator[ObjectCandidate]:
        """Yield the objects of a URL below the root, or of a path relative to it; see `service.store.roots.Roots`.

        Objects with a part of their key that starts with a dot are left out.

        Raises:
            ImportRefused: a part of the path is empty, `.` or `..`.
            LocationError: the bucket can't be used.
        """
        fixed, pattern = self._split(requested)
        base = "/".join(fixed)
        for entry in self._bucket.entries(base):
            if self._excluded and f"{self._bucket.url}/{entry.name}".startswith(f"{self._excluded}/"):
                continue
            if pattern and not matches(PurePosixPath(entry.name).parts[len(fixed) :], pattern):
                continue
            is_named = entry.name == base
            name = entry.name.rpartition("/")[2]
            yield ObjectCandidate(self._bucket, entry, None if is_named else reason_to_skip(name, chosen=bool(pattern)))

    def _split(self, requested: str) -> tuple[list[str], list[str]]:
        """Return the parts of the key before the pattern, and the parts of the pattern."""
        relative = requested.rstrip("/").removeprefix(self.url).removeprefix("/")
        parts = relative.split("/") if relative and relative != "." else []
        if not all(map(_is_plain, parts)):
            raise ImportRefused(f"{requested[:200]!r} has a part that is empty, `.` or `..`.")
        prefix = self._prefix.split("/") if self._prefix else []
        at = next((at for at, part in enumerate(parts) if CHARACTERS & set(part)), len(parts))
        if at < len(parts) and self._bucket.entry("/".join([*prefix, *parts])):  # its name looks like a pattern
            at = len(parts)
        return prefix + parts[:at], parts[at:]


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..")

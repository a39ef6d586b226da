"""Sources: the files of traces in folders and buckets that become a dataset."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from service.formats.names import SUFFIXES, listed
from service.store.locations.location import Entry, location_of
from service.store.patterns import CHARACTERS, matches
from service.store.trace_names import is_trace
from service.trace.errors import UnknownLocation


@dataclass(frozen=True)
class Source:
    """A file of a trace.

    Attributes:
        base: URL of the folder or bucket that it was found in.
        entry: its name below `base`, its size and its version.
        run: name of the run that it belongs to.
    """

    base: str
    entry: Entry
    run: str

    @property
    def url(self) -> str:
        """The path or the URL of the file."""
        return f"{self.base}/{self.entry.name}"

    @property
    def name(self) -> str:
        """The file name."""
        return self.entry.name.rpartition("/")[2]

    @property
    def key(self) -> str:
        """A name of the file with this content in this run, for its record: 32 hexadecimal digits."""
        text = "\n".join([self.run, self.url, str(self.entry.size), self.entry.version])
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]

    def open(self) -> BufferedReader:
        """Open the file, to be read once; raises what `Location.open` raises."""
        return location_of(self.base).open(self.entry)


def find_sources(texts: Sequence[str], run: str | None, excluding: str) -> list[Source]:
    """Find files of traces, without duplicates, in order of their URLs.

    Args:
        texts: paths or URLs of files, of folders (with all traces below them), or patterns, in which `*` and `?` match
            all characters except `/`, and `**` all folders.
        run: name of the run; by default, the name of the folder that a text names.
        excluding: URL of a location whose files are no sources.

    Raises:
        UnknownLocation: there is no trace.
        LocationError: a location can't be used.
    """
    found: dict[str, Source] = {}
    for text in texts:
        any_found = False
        for source in _found(text, run):
            any_found = True
            if not source.url.startswith(f"{excluding}/"):
                found.setdefault(source.url, source)
        if not any_found:
            raise UnknownLocation(f"{text}: there is no trace here. Traces are files like *{listed(SUFFIXES)}.")
    return sorted(found.values(), key=lambda source: source.url)


def _found(text: str, run: str | None) -> Iterator[Source]:
    root, parts = _split(text)
    fixed = next((at for at, part in enumerate(parts) if CHARACTERS & set(part)), len(parts))
    pattern = parts[fixed:]
    parent, below = ("/".join([root, *parts[: fixed - 1]]), parts[fixed - 1]) if fixed else (root, "")
    place = location_of(parent or "/")
    for entry in place.entries(below):
        names = entry.name.split("/")
        is_named = entry.name == below
        if is_named or (is_trace(entry.name) and (not pattern or matches(names[bool(below) :], pattern))):
            folder = parent.rpartition("/")[2] if is_named or not below else below
            yield Source(place.url, entry, run or folder or "run")


def _split(text: str) -> tuple[str, list[str]]:
    """Split a path or a URL into its root, which is empty or a bucket's URL, and the parts below it."""
    scheme, separator, rest = text.partition("://")
    if separator:
        bucket, _, path = rest.partition("/")
        return f"{scheme}://{bucket}", [part for part in path.split("/") if part]
    return "", [part for part in os.path.abspath(Path(text).expanduser()).split("/") if part]  # noqa: PTH100 - without links

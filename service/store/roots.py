"""Import roots: the folders and buckets from which files may be imported, and the search for files below them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from service.store.bucket_roots import BucketRoot, ObjectCandidate
from service.store.external_files import mark_of
from service.store.patterns import CHARACTERS, matches
from service.store.trace_names import reason_to_skip
from service.trace.errors import ImportRefused, NothingToImport


@dataclass(frozen=True)
class FileCandidate:
    """A file below an import root.

    Attributes:
        path: its path, without symbolic links if it can be imported.
        reason: the reason if it can't be imported.
    """

    path: Path
    reason: str | None = None

    @property
    def key(self) -> str:
        """The path as text; bytes that are not UTF-8 are escaped."""
        return str(self.path).encode(errors="backslashreplace").decode()

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.name

    def mark(self) -> str:
        """Return the mark by which its changes are detected; empty if it is gone."""
        try:
            return mark_of(self.path.lstat())
        except OSError:
            return ""

    def size(self) -> int:
        """Return its size in bytes; 0 if it is gone."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0


ImportCandidate = FileCandidate | ObjectCandidate


class Roots:
    """The import roots.

    Args:
        folders: paths of the roots that are folders.
        buckets: the roots in buckets.
        excluding: the service's own data folder, from which nothing may be imported.
    """

    def __init__(self, folders: Iterable[Path], *, buckets: Sequence[BucketRoot] = (), excluding: Path) -> None:
        self._roots = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100 - links are resolved below
        self._buckets = buckets
        self._excluded = excluding.resolve()

    @classmethod
    def of(cls, text: str, *, excluding: Path, excluding_objects: str = "") -> "Roots":
        """Return the roots of a comma-separated list of paths and URLs.

        Args:
            text: the list.
            excluding: see `Roots`.
            excluding_objects: the URL below which no object may be imported, or empty.

        Raises:
            BadLocation: a URL is malformed.
            FleetUnavailable: there are URLs, but the library for buckets is not installed.
        """
        roots = [path.strip() for path in text.split(",") if path.strip()]
        urls = [root for root in roots if _is_url(root)]
        folders = [Path(root) for root in roots if not _is_url(root)]
        buckets = [BucketRoot(url, excluding=excluding_objects) for url in urls]
        return cls(folders, buckets=buckets, excluding=excluding)

    @property
    def locations(self) -> list[str]:
        """The paths and the URLs of the roots."""
        return [*map(str, self._roots), *(bucket.url for bucket in self._buckets)]

    def find(self, requested: str) -> Iterator[ImportCandidate]:
        """Yield the files of a path: a single file, all files below a folder, or all files that match a pattern.

        A URL names objects. A relative path is searched below each root. In a pattern ``*`` and ``?`` match any
        characters except ``/``, and ``**`` matches any folders.

        Raises:
            ImportRefused: the path is not below the roots.
            NothingToImport: no file matches.
            LocationError: a bucket can't be used.
        """
        files, buckets = self._places(requested)
        empty = True
        for bucket in buckets:
            for candidate in bucket.find(requested):
                empty = False
                yield candidate
        for base, pattern in files:
            for file in self._below(base, pattern):
                empty = False
                yield file
        if empty:
            raise NothingToImport(f"No file {requested[:200]!r} exists below the import roots.")

    def check(self, requested: str) -> None:
        """Raise `ImportRefused` if `find` would; files need not exist yet."""
        self._places(requested)

    def _places(self, requested: str) -> tuple[list[tuple[Path, tuple[str, ...]]], Sequence[BucketRoot]]:
        """Return where to search: resolved paths, each with the parts of a pattern below it, and roots in buckets."""
        path = self._checked(requested)
        if _is_url(requested):
            if buckets := [bucket for bucket in self._buckets if bucket.contains(requested)]:
                return [], buckets[:1]
            raise ImportRefused(f"{requested[:200]!r} is not below an import root.")
        buckets = [] if path.is_absolute() else list(self._buckets)
        if buckets and not self._roots:
            return [], buckets
        bases, pattern = self._split(path)
        return [(base, pattern) for base in bases], buckets

    def _split(self, path: PurePosixPath) -> tuple[list[Path], tuple[str, ...]]:
        """Return the resolved paths of the part before the pattern, and the parts of the pattern."""
        at = next((at for at, part in enumerate(path.parts) if CHARACTERS & set(part)), len(path.parts))
        if at < len(path.parts):
            literal = self._bases(path, refuse=False)
            if any(map(os.path.lexists, literal)):
                return literal, ()
        return self._bases(PurePosixPath(*path.parts[:at])), path.parts[at:]

    def _checked(self, requested: str) -> PurePosixPath:
        path = PurePosixPath(requested)
        if not self._roots and not self._buckets:
            raise ImportRefused("No import roots are configured; see TRACEDOCK_IMPORT_ROOTS.")
        if not requested or "\0" in requested or ".." in path.parts:
            raise ImportRefused(f"{requested[:200]!r} is not a valid path: it may not be empty or contain `..`.")
        return path

    def _bases(self, fixed: PurePosixPath, *, refuse: bool = True) -> list[Path]:
        """Return the resolved paths below the roots; with `refuse` raise `ImportRefused` if there are none."""
        candidates = [Path(fixed)] if fixed.is_absolute() else [root / fixed for root in self._roots]
        inside = [path for path in map(_resolved, candidates) if self._contains(path)]
        if refuse and not inside:
            raise ImportRefused(f"{str(fixed)[:200]!r} is not below an import root.")
        return list(dict.fromkeys(inside))

    def _contains(self, path: Path) -> bool:
        """Return whether a resolved path is below a root, and not in the excluded folder."""
        return not path.is_relative_to(self._excluded) and any(
            path.is_relative_to(root.resolve()) for root in self._roots
        )

    def _below(self, base: Path, pattern: Sequence[str]) -> Iterator[FileCandidate]:
        if not os.path.isdir(base):  # noqa: PTH112 - accepts names that are too long
            if not pattern and os.path.lexists(base):
                candidate = self._candidate(base)
                if candidate.reason:
                    raise ImportRefused(f"{base.name[:200]!r}: {candidate.reason}")
                yield candidate
            return
        for parent, folders, names in os.walk(base):
            folders[:] = sorted(name for name in folders if pattern or not name.startswith("."))
            if not self._contains(Path(parent)):
                folders.clear()
                continue
            for name in sorted(names):
                path = Path(parent, name)
                if pattern and not matches(path.relative_to(base).parts, pattern):
                    continue
                reason = reason_to_skip(name, chosen=bool(pattern))
                yield FileCandidate(path, reason) if reason else self._candidate(path)

    def _candidate(self, path: Path) -> FileCandidate:
        """Resolve a file, and check that it may be imported."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):  # a loop of links raises the latter before Python 3.13
            return FileCandidate(path, "It is a link to nowhere.")
        if not self._contains(real):
            return FileCandidate(path, "It is a link that leads out of the import roots.")
        if not real.is_file():
            return FileCandidate(path, "It is not a regular file.")
        return FileCandidate(real)


def _is_url(text: str) -> bool:
    return "://" in text


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise ImportRefused(f"{path.name[:200]!r} can't be found: {error}") from error

"""Import roots: the folders from which files may be imported, and the search for files below them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from service.formats.names import SUFFIXES, listed
from service.store.patterns import CHARACTERS, matches
from service.trace.errors import ImportRefused, NothingToImport

TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_UNFINISHED = ".tmp"


@dataclass(frozen=True)
class ImportCandidate:
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


class Roots:
    """The import roots.

    Args:
        folders: paths of the roots.
        excluding: the service's own data folder, from which nothing may be imported.
    """

    def __init__(self, folders: Iterable[Path], *, excluding: Path) -> None:
        self._roots = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100 - links are resolved below
        self._excluded = excluding.resolve()

    @classmethod
    def of(cls, text: str, *, excluding: Path) -> "Roots":
        """Return the roots of a comma-separated list of paths."""
        return cls((Path(path.strip()) for path in text.split(",") if path.strip()), excluding=excluding)

    @property
    def folders(self) -> list[str]:
        """The paths of the roots."""
        return [str(root) for root in self._roots]

    def find(self, requested: str) -> Iterator[ImportCandidate]:
        """Yield the files of a path: a single file, all files below a folder, or all files that match a pattern.

        A relative path is searched below each root. In a pattern ``*`` and ``?`` match any characters except ``/``,
        and ``**`` matches any folders.

        Raises:
            ImportRefused: the path is not below the roots.
            NothingToImport: no file matches.
        """
        bases, pattern = self._split(requested)
        empty = True
        for base in bases:
            for candidate in self._below(base, pattern):
                empty = False
                yield candidate
        if empty:
            raise NothingToImport(f"No file {requested[:200]!r} exists below the import roots.")

    def check(self, requested: str) -> None:
        """Raise `ImportRefused` if `find` would; files need not exist yet."""
        self._split(requested)

    def _split(self, requested: str) -> tuple[list[Path], tuple[str, ...]]:
        """Return the resolved paths of the part before the pattern, and the parts of the pattern."""
        path = self._checked(requested)
        at = next((at for at, part in enumerate(path.parts) if CHARACTERS & set(part)), len(path.parts))
        if at < len(path.parts):
            literal = self._bases(path, refuse=False)
            if any(map(os.path.lexists, literal)):
                return literal, ()
        return self._bases(PurePosixPath(*path.parts[:at])), path.parts[at:]

    def _checked(self, requested: str) -> PurePosixPath:
        path = PurePosixPath(requested)
        if not self._roots:
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

    def _below(self, base: Path, pattern: Sequence[str]) -> Iterator[ImportCandidate]:
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
                if not pattern and (name.startswith(".") or not name.endswith((*SUFFIXES, *TARS, _UNFINISHED))):
                    yield ImportCandidate(
                        path, f"It is not named like a trace ({listed(SUFFIXES)}) or a tar of traces."
                    )
                elif name.endswith(_UNFINISHED):
                    yield ImportCandidate(path, "It is still being written, as its name shows.")
                else:
                    yield self._candidate(path)

    def _candidate(self, path: Path) -> ImportCandidate:
        """Resolve a file, and check that it may be imported."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):  # a loop of links raises the latter before Python 3.13
            return ImportCandidate(path, "It is a link to nowhere.")
        if not self._contains(real):
            return ImportCandidate(path, "It is a link that leads out of the import roots.")
        if not real.is_file():
            return ImportCandidate(path, "It is not a regular file.")
        return ImportCandidate(real)


def is_tar(name: str) -> bool:
    """Return whether a file name is that of an archive of traces."""
    return name.lower().endswith(TARS)


def is_trace(name: str) -> bool:
    """Return whether a file name is that of a trace."""
    return name.lower().endswith(SUFFIXES)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise ImportRefused(f"{path.name[:200]!r} can't be found: {error}") from error

"""The folders out of which files may be imported, and what is found there: never anything outside of them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from service.trace.errors import ImportRefused, NothingToImport

TRACES = (".json", ".json.gz", ".json.zst")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_PATTERN = frozenset("*?[")
_UNFINISHED = ".tmp"


@dataclass(frozen=True)
class Found:
    """A file at `path`, which is free of links; or one at which nothing is to be had, and `why`."""

    path: Path
    why: str | None = None

    @property
    def key(self) -> str:
        """The path as text; file systems know names that are none."""
        return str(self.path).encode(errors="backslashreplace").decode()


class Roots:
    """Those folders, and what may be read below them.

    Args:
        folders: their paths.
        but: a folder that nothing may be read from, wherever it lies: the service's own.
    """

    def __init__(self, folders: Iterable[Path], *, but: Path) -> None:
        self._given = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100 - links are looked at below
        self._but = but.resolve()

    @classmethod
    def of(cls, text: str, *, but: Path) -> "Roots":
        """Of paths that are separated by commas."""
        return cls((Path(one.strip()) for one in text.split(",") if one.strip()), but=but)

    def find(self, asked: str) -> Iterator[Found]:
        """What a path means: a file, all traces below a folder, or all files that a pattern fits.

        A path that is not absolute counts from each root. In a pattern ``*`` and ``?`` stand for any characters but
        ``/``, and ``**`` for any folders.

        Raises:
            ImportRefused: it leads out of the roots.
            NothingToImport: it leads nowhere.
        """
        bases, pattern = self._parted(asked)
        nowhere = True
        for base in bases:
            for found in self._below(base, pattern):
                nowhere = False
                yield found
        if nowhere:
            raise NothingToImport(f"Below the import roots there is no file {asked[:200]!r}.")

    def check(self, asked: str) -> None:
        """Raise `ImportRefused` where `find` would, also if there is nothing yet."""
        self._parted(asked)

    def _parted(self, asked: str) -> tuple[list[Path], tuple[str, ...]]:
        """What the part of a path before any pattern stands for, and the pattern."""
        path = self._checked(asked)
        at = next((at for at, part in enumerate(path.parts) if _PATTERN & set(part)), len(path.parts))
        if at < len(path.parts):
            literal = self._bases(path, refuse=False)
            if any(map(os.path.lexists, literal)):
                return literal, ()
        return self._bases(PurePosixPath(*path.parts[:at])), path.parts[at:]

    def _checked(self, asked: str) -> PurePosixPath:
        path = PurePosixPath(asked)
        if not self._given:
            raise ImportRefused("No folder is set from which files may be imported; see TRACEDOCK_IMPORT_ROOTS.")
        if not asked or "\0" in asked or ".." in path.parts:
            raise ImportRefused(f"{asked[:200]!r} is no plain path: it may not be empty, nor go up by `..`.")
        return path

    def _bases(self, fixed: PurePosixPath, *, refuse: bool = True) -> list[Path]:
        """What a path may stand for below the roots, free of links; raises `ImportRefused` if nothing, and told to."""
        candidates = [Path(fixed)] if fixed.is_absolute() else [root / fixed for root in self._given]
        resolved = [_resolved(one) for one in candidates]
        inside = [one for one in resolved if self._holds(one)]
        if refuse and not inside:
            raise ImportRefused(f"{str(fixed)[:200]!r} does not lie below an import root.")
        return list(dict.fromkeys(inside))

    def _holds(self, path: Path) -> bool:
        """Whether a path without links lies below a root, and not in the service's own folder."""
        return not path.is_relative_to(self._but) and any(path.is_relative_to(root.resolve()) for root in self._given)

    def _below(self, base: Path, pattern: Sequence[str]) -> Iterator[Found]:
        if not os.path.isdir(base):  # noqa: PTH112 - which is not upset by names that are too long
            if not pattern and os.path.lexists(base):
                found = self._looked_at(base)
                if found.why:
                    raise ImportRefused(f"{base.name[:200]!r}: {found.why}")
                yield found
            return
        for parent, folders, names in os.walk(base):
            folders[:] = sorted(one for one in folders if pattern or not one.startswith("."))
            if not self._holds(Path(parent)):
                folders.clear()
                continue
            for name in sorted(names):
                path = Path(parent, name)
                if pattern and not _fits(path.relative_to(base).parts, pattern):
                    continue
                if not pattern and (name.startswith(".") or not name.endswith((*TRACES, *TARS, _UNFINISHED))):
                    yield Found(path, "It is not named like a trace (.json, .json.gz, .json.zst) or a tar of traces.")
                elif name.endswith(_UNFINISHED):
                    yield Found(path, "It is still being written, as its name tells.")
                else:
                    yield self._looked_at(path)

    def _looked_at(self, path: Path) -> Found:
        """A file, or what its links lead to, if that may be had."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):  # a loop of links is the latter before Python 3.13
            return Found(path, "It is a link to nowhere.")
        if not self._holds(real):
            return Found(path, "It is a link that leads out of the import roots.")
        if not real.is_file():
            return Found(path, "It is no plain file.")
        return Found(real)


def is_tar(name: str) -> bool:
    """Whether a file of that name is an archive of traces."""
    return name.lower().endswith(TARS)


def is_trace(name: str) -> bool:
    """Whether a file of that name is a trace."""
    return name.lower().endswith(TRACES)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise ImportRefused(f"{path.name[:200]!r} can't be found: {error}") from error


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a pattern, part by part."""
    reached = {0}  # how many parts of the pattern are used up
    for part in parts:
        reached = _skipped(reached, pattern)
        reached = {
            at if pattern[at] == "**" else at + 1
            for at in reached
            if at < len(pattern) and (pattern[at] == "**" or fnmatchcase(part, pattern[at]))
        }
    return len(pattern) in _skipped(reached, pattern)


def _skipped(reached: set[int], pattern: Sequence[str]) -> set[int]:
    """The same, with each ``**`` passed over, too, for it stands for no folder as well."""
    every = set(reached)
    for at in range(len(pattern)):
        if at in every and pattern[at] == "**":
            every.add(at + 1)
    return every

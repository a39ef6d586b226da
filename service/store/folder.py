"""The data folder: where everything lies, who works on it, and how a file gets there whole or not at all.

catalog.sqlite      the catalog
tokens.sqlite       digests of the tokens
audit.log           what was changed, and by whom; audit.log.1 and so on before
lock                held by the one server that works here
incoming/           uploads and large results on their way; emptied at each start of all but resumable uploads
originals/{id}      the bytes as they came
columns/{id}/       what ingest made of them; {id}.partial while it does
making/{job}/       traces that are cut out or merged, until they are whole; emptied at each start
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.trace.errors import CatalogInUse, DiskFull, ExportFailed

EVENTS, ENVELOPE, ATTRIBUTION = "events.parquet", "envelope.json", "attribution.parquet"
"""The files that ingest makes of a trace."""
LISTS = "lists.json"
"""Likewise, where the summary has lists that are too long for the catalog; see `service.store.lists`."""
UPLOAD, DONE, CHUNK = ".upload", ".done", ".chunk"
"""How the names of notes on resumable uploads end; see `service.store.resumable`."""
COLUMNS_VERSION = "1"
"""Of their format: the value of ``tracedock.columns`` in the key-value metadata of `EVENTS`."""


class Folder:
    """The data folder at `root`, made if it is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()  # else what lies there could not be told from what a link leads to
        self.catalog = self.root / "catalog.sqlite"
        self.tokens = self.root / "tokens.sqlite"
        self.audit = self.root / "audit.log"
        self.incoming = self.root / "incoming"
        self.originals = self.root / "originals"
        self.columns = self.root / "columns"
        self.making = self.root / "making"
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder and take its lock, which ends with this process however it ends.

        Raises:
            CatalogInUse: another server has it.
        """
        for part in (self.incoming, self.originals, self.columns, self.making):
            part.mkdir(parents=True, exist_ok=True)
        self._close_to_others()
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise CatalogInUse(f"Another server works on {self.root}.") from None
        self._lock = lock

    def _close_to_others(self) -> None:
        """Take from other users of the machine what an earlier version let them have.

        The mode of an original is left alone where the file has another name or owner: an import by link shares it
        with somebody. The folder around it lets nobody in anyway. What else lies in the data folder is not ours.
        """
        for file in (self.catalog, self.tokens, self.audit):
            for path in self.root.glob(f"{file.name}*"):
                _make_private(path, 0o600)
        for part in (self.incoming, self.originals, self.columns, self.making):
            for folder, _, names in os.walk(part):
                _make_private(Path(folder), 0o700)
                for name in names:
                    _make_private(Path(folder, name), 0o600)

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def received(self, trace_id: str) -> Path:
        """The path of a trace's bytes while they are received."""
        return self.incoming / trace_id

    def original(self, trace_id: str) -> Path:
        """The path of a trace's original bytes."""
        return self.originals / trace_id

    def columns_of(self, trace_id: str) -> Path:
        """The folder of what ingest made of a trace."""
        return self.columns / trace_id

    def size_of(self, trace_id: str) -> int:
        """Bytes of what ingest made of a trace; 0 if nothing."""
        with suppress(FileNotFoundError):
            return size_of(self.columns_of(trace_id))
        return 0

    def remove(self, trace_id: str) -> None:
        """Remove all files of a trace; what is gone already is fine."""
        with suppress(FileNotFoundError):
            self.original(trace_id).unlink()
        self.remove_columns(trace_id)

    def remove_columns(self, trace_id: str) -> None:
        """Remove what ingest made of a trace, whole or not; what is gone already is fine."""
        columns = self.columns_of(trace_id)
        for made in (columns, partial_of(columns)):
            with suppress(FileNotFoundError):
                shutil.rmtree(made)

    def names_of(self, status: os.stat_result) -> int:
        """How many originals are names of a file."""
        count = 0
        with os.scandir(self.originals) as entries:
            for entry in entries:
                if entry.inode() == status.st_ino:
                    count += entry.stat(follow_symlinks=False).st_dev == status.st_dev
        return count

    def share(self, trace_id: str, twin: str) -> bool:
        """Let the original of a trace be that of another, which has the same bytes; False where it can't be."""
        second = self.incoming / f"{trace_id}.twin"
        try:
            second.hardlink_to(self.original(twin))
            second.replace(self.original(trace_id))
            sync_folder(self.originals)
        except OSError:  # the other is deleted meanwhile, or has as many names as the file system knows
            return False
        finally:
            second.unlink(missing_ok=True)  # two names of one file are not replaced by each other
        return True

    def share_columns(self, trace_id: str, twin: str) -> bool:
        """Let the columns of a trace be those of another; False where it can't be."""
        columns = self.columns_of(trace_id)
        partial = partial_of(columns)
        try:
            partial.mkdir()
            for part in _parts_of(self.columns_of(twin)):
                (partial / part.name).hardlink_to(part)
            sync_folder(partial)
            partial.replace(columns)
            sync_folder(self.columns)
        except OSError:  # as above
            shutil.rmtree(partial, ignore_errors=True)
            return False
        return True

    def sweep(self, known: Iterable[str]) -> None:
        """Remove what no trace in the catalog owns: the remains of uploads, ingests and analyses that were killed."""
        keep = set(known)
        for unfinished in (*self.making.iterdir(), *self.root.glob(f"{self.incoming.name}.spill-*")):
            shutil.rmtree(unfinished)
        resumable = {note.stem for note in self.incoming.glob(f"*{UPLOAD}")}
        for leftover in self.incoming.iterdir():
            if leftover.suffix == UPLOAD and leftover.stem in keep:
                leftover.rename(leftover.with_suffix(DONE))
            elif leftover.suffix not in (UPLOAD, DONE) and leftover.stem not in resumable:
                leftover.unlink()
        for original in self.originals.iterdir():
            if original.name in resumable - keep:  # killed before it was recorded
                original.rename(self.received(original.name))
            elif original.name not in keep:
                original.unlink()
        for columns in self.columns.iterdir():
            if columns.name not in keep:
                shutil.rmtree(columns)


def _make_private(path: Path, mode: int) -> None:
    """Give a file or folder of our own that mode, unless it has another name."""
    with suppress(FileNotFoundError):
        told = path.lstat()
        shared = stat.S_ISREG(told.st_mode) and told.st_nlink > 1
        ours = stat.S_ISREG(told.st_mode) or stat.S_ISDIR(told.st_mode)
        if ours and not shared and told.st_uid == os.geteuid() and stat.S_IMODE(told.st_mode) & 0o077:
            path.chmod(mode)


def size_of(columns: Path) -> int:
    """Bytes of what ingest made of a trace."""
    return sum(part.stat().st_size for part in _parts_of(columns))


def _parts_of(columns: Path) -> list[Path]:
    """The files that ingest made of a trace; an earlier version made no `ATTRIBUTION`, and few have `LISTS`."""
    more = (columns / ATTRIBUTION, columns / LISTS)
    return [columns / EVENTS, columns / ENVELOPE, *(part for part in more if part.exists())]


def partial_of(columns: Path) -> Path:
    """The folder that becomes `columns` once it is whole."""
    return columns.with_name(f"{columns.name}.partial")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds all of it or none, also after a power cut."""
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors(), partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


@contextmanager
def disk_errors() -> Iterator[None]:
    """Tell "no room" apart from other errors of the disk: raises `DiskFull` for it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(f"The disk of the data folder has no room: {error.strerror}.") from error
        raise


def unreadable(file: Path, error: Exception) -> ExportFailed:
    """The error of a file of a trace that can't be read; it names the file, and not the folder of the server."""
    reason = str(error).split("\n", 1)[0].replace(str(file), file.name)
    return ExportFailed(f"The trace's {file.name} can't be read: {reason}")

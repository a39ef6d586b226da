"""The data folder: its layout, its lock, and atomic writes into it.

catalog.sqlite      the catalog
tokens.sqlite       digests of the tokens
audit.log           the audit log; older parts in audit.log.1 and so on
lock                locked by the server that uses the folder
incoming/           unfinished uploads and large results; at each start all but resumable uploads are removed
originals/{id}      the original bytes of a trace
attachments/{id}    the bytes of a file that is kept beside a trace or a run
columns/{id}/       the files that the ingest makes of a trace, and answers; {id}.partial/ until they are complete
making/{attempt}/   unfinished traces of an attempt at a job; removed at each start
"""

import errno
import fcntl
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from service.trace.errors import CatalogInUse, DiskFull, ExportFailed

EVENTS, ENVELOPE, ATTRIBUTION = "events.parquet", "envelope.json", "attribution.parquet"
"""Names of the files that ingest makes of a trace."""
TIMELINE = "timeline.arrow"
"""Name of a further file, for the overview; see `service.analysis.timeline_file`."""
LISTS, PLAIN_LISTS = "lists.json.zst", "lists.json"
"""Name of a further file, for lists of the summary that are too long for the catalog; see `service.store.lists`.

Earlier versions did not compress it.
"""
MEMORY = "memory.parquet"
"""Name of a further file, for allocations and frees; see `service.analysis.facts.memory_changes`."""
COLLECTIVES = "collectives.parquet"
"""Name of a further file, for arguments of process groups' annotations; see `service.analysis.facts.collective_args`.
"""
ANSWERS = "answers"
"""Name of the folder of answers that are kept; see `service.analysis.kept_answers`."""
_REMADE = (TIMELINE, MEMORY, COLLECTIVES)
"""Files that are made anew, or done without, if they are missing."""
UPLOAD, DONE, CHUNK = ".upload", ".done", ".chunk"
"""Suffixes of the notes on resumable uploads; see `service.store.resumable`."""
COLUMNS_VERSION = "1"
"""Version of the columns' format: the value of ``tracedock.columns`` in the key-value metadata of `EVENTS`."""


class Folder:
    """The data folder at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()  # so that paths in the folder compare equal to resolved ones
        self.catalog = self.root / "catalog.sqlite"
        self.tokens = self.root / "tokens.sqlite"
        self.audit = self.root / "audit.log"
        self.incoming = self.root / "incoming"
        self.originals = self.root / "originals"
        self.attachments = self.root / "attachments"
        self.columns = self.root / "columns"
        self.staging = self.root / "making"
        self._lock: int | None = None

    @property
    def _parts(self) -> tuple[Path, ...]:
        return self.incoming, self.originals, self.attachments, self.columns, self.staging

    def open(self) -> None:
        """Create the folder if it is missing, and lock it until `close` or the end of this process.

        Raises:
            CatalogInUse: another server has locked it.
        """
        for part in self._parts:
            part.mkdir(parents=True, exist_ok=True)
        self._restrict_access()
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise CatalogInUse(f"Another server works on {self.root}.") from None
        self._lock = lock

    def _restrict_access(self) -> None:
        """Remove other users' access to files that an earlier version created.

        An original with another name or owner keeps its mode, since an import by link shares the file; its folder
        denies access anyway. Other files in the data folder are not the service's.
        """
        for file in (self.catalog, self.tokens, self.audit):
            for path in self.root.glob(f"{file.name}*"):
                _make_private(path, 0o600)
        for part in self._parts:
            for folder, _, names in os.walk(part):
                _make_private(Path(folder), 0o700)
                for name in names:
                    _make_private(Path(folder, name), 0o600)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def received(self, trace_id: str) -> Path:
        """Return the path of a trace's bytes while the server receives them."""
        return self.incoming / trace_id

    def original(self, trace_id: str) -> Path:
        """Return the path of a trace's original bytes."""
        return self.originals / trace_id

    def attachment(self, attachment_id: str) -> Path:
        """Return the path of an attachment's bytes."""
        return self.attachments / attachment_id

    def columns_of(self, trace_id: str) -> Path:
        """Return the folder of a trace's columns."""
        return self.columns / trace_id

    def new_attempt(self, job_id: int) -> Path:
        """Return the path of a new folder for the traces of an attempt at a job.

        An earlier attempt on another machine may still write to its own.
        """
        return self.staging / f"{job_id}-{secrets.token_hex(4)}"

    def keep_columns(self, made: Path, trace_id: str) -> None:
        """Make complete columns those of a trace, in place of any others."""
        self.remove_columns(trace_id)
        made.rename(self.columns_of(trace_id))
        sync_folder(self.columns)

    def size_of(self, trace_id: str) -> int:
        """Return the size in bytes of a trace's columns; 0 if there are none."""
        with suppress(FileNotFoundError):
            return size_of(self.columns_of(trace_id))
        return 0

    def remove(self, trace_id: str) -> None:
        """Remove all files of a trace; missing ones are ignored."""
        with suppress(FileNotFoundError):
            self.original(trace_id).unlink()
        self.remove_columns(trace_id)

    def remove_columns(self, trace_id: str) -> None:
        """Remove a trace's columns, complete or partial; missing ones are ignored."""
        columns = self.columns_of(trace_id)
        with suppress(FileNotFoundError):
            shutil.rmtree(partial_of(columns))
        with suppress(FileNotFoundError):
            columns.rename(partial_of(columns))  # an analysis that still runs writes no more files there
            shutil.rmtree(partial_of(columns))

    def names_of(self, status: os.stat_result) -> int:
        """Return the number of originals that are hard links to a file."""
        count = 0
        with os.scandir(self.originals) as entries:
            for entry in entries:
                if entry.inode() == status.st_ino:
                    count += entry.stat(follow_symlinks=False).st_dev == status.st_dev
        return count

    def share(self, trace_id: str, twin: str) -> bool:
        """Make a trace's original a hard link to that of a twin with the same bytes; return False if that fails."""
        second = self.incoming / f"{trace_id}.twin"
        try:
            second.hardlink_to(self.original(twin))
            second.replace(self.original(trace_id))
            sync_folder(self.originals)
        except OSError:  # the twin was deleted meanwhile, or has the maximum number of links
            return False
        finally:
            second.unlink(missing_ok=True)  # renaming a link over another link to the same file does nothing
        return True

    def share_columns(self, trace_id: str, twin: str) -> bool:
        """Make the columns of a trace hard links to those of a twin; return False if that fails."""
        columns = self.columns_of(trace_id)
        partial = partial_of(columns)
        try:
            partial.mkdir()
            for part in _parts_of(self.columns_of(twin)):
                (partial / part.name).hardlink_to(part)
            sync_folder(partial)
            partial.replace(columns)
            sync_folder(self.columns)
        except OSError:  # as in `share`
            shutil.rmtree(partial, ignore_errors=True)
            return False
        return True

    def sweep(self, known: Iterable[str]) -> None:
        """Remove files that no trace in the catalog owns: leftovers of killed uploads, jobs and analyses."""
        keep = set(known)
        for leftover in (*self.staging.iterdir(), *self.root.glob(f"{self.incoming.name}.spill-*")):
            shutil.rmtree(leftover)
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
                continue
            for unfinished in columns.rglob(".*.partial"):
                unfinished.unlink()


def _make_private(path: Path, mode: int) -> None:
    """Set the mode of a file or folder that belongs to this user, unless the file has further hard links."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        shared = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
        is_file_or_folder = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if is_file_or_folder and not shared and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            path.chmod(mode)


def size_of(columns: Path) -> int:
    """Return the size in bytes of a folder of columns, without those of `_REMADE`."""
    return sum(part.stat().st_size for part in _parts_of(columns) if part.name not in _REMADE)


def _parts_of(columns: Path) -> list[Path]:
    """Return the files of a folder of columns; only the first two are in each folder."""
    optional = (columns / name for name in (ATTRIBUTION, LISTS, PLAIN_LISTS, *_REMADE))
    return [columns / EVENTS, columns / ENVELOPE, *(part for part in optional if part.exists())]


def partial_of(columns: Path) -> Path:
    """Return the folder that is renamed to `columns` once it is complete."""
    return columns.with_name(f"{columns.name}.partial")


def sync_folder(folder: Path) -> None:
    """Make the directory entries of a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def syncing(path: Path) -> Iterator[None]:
    """Make the content of a complete file durable while the ``with`` block does other work."""
    with path.open("rb") as file, ThreadPoolExecutor(1, "sync") as thread:
        synced = thread.submit(os.fsync, file.fileno())
        yield
        synced.result()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically and durably."""
    with new_file(path) as file:
        file.write(content)
    sync_folder(path.parent)


@contextmanager
def new_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that replaces the one at a path once it is complete; after an error, nothing is left of it.

    What a killed process leaves, the next start of the server removes.

    Args:
        path: the path.
        durable: whether the file must be complete even after a crash of the machine.

    Raises:
        DiskFull: the disk has no room for the file.
    """
    partial = path.with_name(f".{path.name}.{threading.get_native_id()}.partial")
    try:
        with disk_errors(), partial.open("wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn OS errors for a full disk into `DiskFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(f"The disk of the data folder has no room: {error.strerror}.") from error
        raise


class _Named(Protocol):
    """A path, here or elsewhere, whose text may contain that of its folder."""

    @property
    def name(self) -> str: ...


def unreadable(file: _Named, error: Exception) -> ExportFailed:
    """Return the error for a trace's file that can't be read; its message hides the path of the folder."""
    reason = str(error).split("\n", 1)[0].replace(str(file), file.name)
    return ExportFailed(f"The trace's {file.name} can't be read: {reason}")

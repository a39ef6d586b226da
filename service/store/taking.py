"""Files of the server's disk become originals: linked, copied, or left where they lie."""

import fcntl
import hashlib
import os
import tarfile
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, BinaryIO, Literal, cast

from service.store.folder import Folder, disk_errors, sync_folder
from service.store.outside import check_unchanged, mark_of, opened
from service.store.room import Room
from service.store.uploads import Received, Upload
from service.streaming.codec import plain_chunks
from service.trace.errors import EmptyBody, ImportRefused, TooLarge

BLOCK = 1 << 20
HEADER_MAX = 1 << 20
"""Bytes that the extended header of a member of an archive may have: it is read into memory."""
_FICLONE = 0x40049409

Mode = Literal["auto", "link", "copy", "reference"]


@dataclass(frozen=True)
class Member:
    """A file of an archive, which is to be read before the next; or one that is none, and `why`."""

    name: str
    size: int
    stream: IO[bytes] | None
    why: str | None = None


class Taking:
    """Takes files over.

    Args:
        folder: the data folder.
        room: what there is for them.
        limit: the largest size in bytes.
        on_bytes: hears how many bytes were read, again and again; what it raises ends the taking.
        linked: whether a file may have names beside its own and those in the data folder.
    """

    def __init__(
        self, folder: Folder, room: Room, *, limit: int, on_bytes: Callable[[int], object], linked: bool = False
    ) -> None:
        self._folder = folder
        self._room = room
        self._limit = limit
        self._on_bytes = on_bytes
        self._may_be_linked = linked

    def take(self, path: Path, trace_id: str, mode: Mode) -> Received:
        """Make a file at a path without links the original of a trace.

        Args:
            path: of the file.
            trace_id: the id of the trace.
            mode: ``link`` gives it a second name, or copies it where that can't be; ``reference`` leaves it where it
                lies; ``auto`` is the one or else the other.

        Raises:
            ImportRefused: it can't be opened, is no plain file, or has names that nobody knows.
            OriginalChanged: somebody writes into it.
            EmptyBody, TooLarge: it has no bytes, or too many.
            DiskFull: there is no room.
        """
        with FileIO(_opened(path)) as source:
            status = os.fstat(source.fileno())
            mark = mark_of(status)
            self._check_names(status)
            self._check_size(status.st_size)
            self._room.check(status.st_size, linked=True)
            if mode in ("auto", "link") and self._linked(source, trace_id):
                return self._kept(source, trace_id, mark, keeps_mark=True)
            if mode in ("auto", "reference"):
                _check_text(path)
                digest = self._digest(source)
                check_unchanged(source.fileno(), mark)
                return Received(status.st_size, digest, str(path), mark)
            self._room.check(status.st_size)
            if self._cloned(source, trace_id):
                return self._kept(source, trace_id, mark, keeps_mark=False)
            received = self.copy(source, trace_id)
            try:
                check_unchanged(source.fileno(), mark)
            except BaseException:
                self._folder.remove(trace_id)
                raise
            return received

    def copy(self, source: BinaryIO | IO[bytes] | FileIO, trace_id: str) -> Received:
        """Make what is read the original of a trace; raises as `take` does."""
        with Upload(self._folder, trace_id, limit=self._limit) as upload:
            while block := _block(source):
                self._on_bytes(len(block))
                self._room.check(len(block))
                upload.write(block)
                self._room.grew(len(block))
            return upload.keep()

    def members(self, path: Path) -> Generator[Member]:
        """The files of an archive, packed or not, each to be read before the next.

        Raises:
            ImportRefused: it is none, or damaged from here on.
            IngestError: its compression is.
        """
        with BufferedReader(FileIO(_opened(path))) as file:
            chunks = plain_chunks(cast("BufferedReader", file))
            try:
                self._check_names(os.fstat(file.fileno()))
                with tarfile.open(fileobj=cast("IO[bytes]", _Chunks(chunks)), mode="r|", tarinfo=_Info) as archive:
                    while info := archive.next():
                        name = info.name.rpartition("/")[2]
                        if info.isreg():
                            yield Member(name, info.size, archive.extractfile(info))
                        elif not info.isdir():
                            yield Member(name, 0, None, "It is no plain file.")
                        archive.members = []  # type: ignore[attr-defined] # else it would note each
            except tarfile.TarError as error:
                raise ImportRefused(f"The archive is damaged: {error}.") from error

    def _check_names(self, status: os.stat_result) -> None:
        """Raise `ImportRefused` if a file has names beside its own and ours: one may lie outside of the roots."""
        if self._may_be_linked or status.st_nlink == 1:
            return
        ours = self._folder.names_of(status)
        if status.st_nlink > 1 + ours:
            raise ImportRefused(
                f"It has {status.st_nlink} names (hard links), one of which may lie outside of the import roots."
                " A copy of it can be imported, or it itself where TRACEDOCK_IMPORT_HARD_LINKS is set."
            )

    def _check_size(self, size: int) -> None:
        if not size:
            raise EmptyBody("A trace has at least one byte.")
        if size > self._limit:
            raise TooLarge(f"The file is larger than the limit of {self._limit} bytes.", limit=self._limit)

    def _linked(self, source: FileIO, trace_id: str) -> bool:
        """Give an open file a second name among what arrives; False where that can't be."""
        incoming = os.open(self._folder.incoming, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # by its descriptor, whatever lies at its path by now; only with `dst_dir_fd` is that one followed
            os.link(f"/proc/self/fd/{source.fileno()}", trace_id, dst_dir_fd=incoming)
        except OSError:  # another file system, or somebody else's file
            return False
        finally:
            os.close(incoming)
        return True

    def _cloned(self, source: FileIO, trace_id: str) -> bool:
        """Copy an open file without its bytes, as some file systems can."""
        target = self._folder.received(trace_id)
        with target.open("xb") as file:
            try:
                fcntl.ioctl(file.fileno(), _FICLONE, source.fileno())
            except OSError:
                target.unlink()
                return False
            os.fsync(file.fileno())
        return True

    def _kept(self, source: FileIO, trace_id: str, mark: str, *, keeps_mark: bool) -> Received:
        """Make what arrived at once the original of a trace."""
        arrived = self._folder.received(trace_id)
        try:
            with FileIO(arrived) as file:
                size, digest = os.fstat(file.fileno()).st_size, self._digest(file)
            check_unchanged(source.fileno(), mark)
            with disk_errors():
                arrived.replace(self._folder.original(trace_id))
                sync_folder(self._folder.originals)
        except BaseException:
            with suppress(FileNotFoundError):
                arrived.unlink()
            raise
        return Received(size, digest, mark=mark if keeps_mark else None)

    def _digest(self, file: FileIO) -> str:
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            self._on_bytes(len(block))
            digest.update(block)
        return digest.hexdigest()


class _Chunks:
    """What a stream of an archive is read from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, _: int) -> bytes:
        """Some bytes, or none at the end."""
        return next(self._chunks, b"")


class _Info(tarfile.TarInfo):
    """A member whose headers are small: they are read into memory before anyone sees how large they are."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        headers = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
                   tarfile.GNUTYPE_LONGLINK)  # fmt: skip
        if self.type in headers and self.size > HEADER_MAX:
            raise tarfile.HeaderError("a header is larger than any name")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return] # as the class says to


def _check_text(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ImportRefused("Its path is no text, and can't be noted: it may be copied or linked.") from error


def _block(source: BinaryIO | IO[bytes] | FileIO) -> bytes | None:
    try:
        return source.read(BLOCK)
    except tarfile.TarError as error:
        raise ImportRefused(f"The archive is damaged: {error}.") from error


def _opened(path: Path) -> int:
    try:
        return opened(path)
    except OSError as error:
        raise ImportRefused(f"It can't be opened: {error.strerror}.") from error

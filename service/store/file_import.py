"""Import of files and objects as originals: linked, copied, or referenced in place."""

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

from service.store.bucket_roots import ObjectCandidate
from service.store.external_files import check_unchanged, mark_of, open_external
from service.store.folder import Folder, disk_errors, sync_folder
from service.store.room import Room
from service.store.uploads import Received, Upload
from service.streaming.codec import plain_chunks
from service.trace.errors import EmptyBody, ImportRefused, TooLarge

BLOCK = 1 << 20
HEADER_MAX = 1 << 20
"""Largest size in bytes of an archive member's extended header, which is read into memory."""
_FICLONE = 0x40049409

Mode = Literal["auto", "link", "copy", "reference"]


@dataclass(frozen=True)
class ArchiveMember:
    """A member of an archive.

    Attributes:
        stream: its content, which must be read before the next member; None if it can't be imported.
        reason: the reason if it can't be imported.
    """

    name: str
    size: int
    stream: IO[bytes] | None
    reason: str | None = None


class FileImporter:
    """An importer of files and archives.

    Args:
        folder: the data folder.
        room: the disk space of the data folder.
        limit: largest size of a file in bytes.
        on_bytes: called with the number of bytes of each read; an exception from it ends the import.
        linked: whether a file may have other hard links than its own name and those in the data folder.
    """

    def __init__(
        self, folder: Folder, room: Room, *, limit: int, on_bytes: Callable[[int], object], linked: bool = False
    ) -> None:
        self._folder = folder
        self._room = room
        self._limit = limit
        self._on_bytes = on_bytes
        self._allow_links = linked

    def import_file(self, path: Path, trace_id: str, mode: Mode) -> Received:
        """Make a file the original of a trace.

        Args:
            path: path of the file, without symbolic links.
            trace_id: id of the trace.
            mode: ``link`` makes a hard link, or a copy where that fails; ``reference`` leaves the file in place;
                ``auto`` makes a hard link, or leaves the file in place where that fails; ``copy`` copies it.

        Raises:
            ImportRefused: the file can't be opened, is not a regular file, or has unknown hard links.
            OriginalChanged: another program changes the file.
            EmptyBody, TooLarge: the file is empty, or larger than the limit.
            InsufficientStorage, DiskFull: there is no space for the file.
        """
        with FileIO(_open(path)) as source:
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

    def import_object(self, candidate: ObjectCandidate, trace_id: str, mode: Mode) -> Received:
        """Make an object the original of a trace: ``auto`` and ``reference`` leave it in place, other modes copy it.

        It is read once for its digest, so that traces with the same bytes are recognised.

        Raises:
            SourceChanged: another program has replaced or removed it.
            LocationError: the bucket can't be used.
            EmptyBody, TooLarge: it is empty, or larger than the limit.
            InsufficientStorage, DiskFull: there is no space for it, or none for the columns of further traces.
        """
        self._check_size(candidate.size())
        stays = mode in ("auto", "reference")
        self._room.check(0 if stays else candidate.size())
        with candidate.open() as source:
            if not stays:
                return self.copy(source, trace_id)
            digest = self._digest(source)
        return Received(candidate.size(), digest, candidate.key, candidate.mark())

    def copy(self, source: BinaryIO | IO[bytes] | FileIO, trace_id: str) -> Received:
        """Make the content of a stream the original of a trace; raises as `import_file` does."""
        with Upload(self._folder, trace_id, limit=self._limit) as upload:
            while block := _block(source):
                self._on_bytes(len(block))
                self._room.check(len(block))
                upload.write(block)
                self._room.grew(len(block))
            return upload.keep()

    def members(self, path: Path) -> Generator[ArchiveMember]:
        """Yield the members of an archive, compressed or not; each member must be read before the next.

        Raises:
            ImportRefused: the file is not an archive, or the archive is damaged.
            IngestError: the compressed data are damaged.
        """
        with BufferedReader(FileIO(_open(path))) as file:
            self._check_names(os.fstat(file.fileno()))
            yield from _members(cast("BufferedReader", file))

    def object_members(self, archive: ObjectCandidate) -> Generator[ArchiveMember]:
        """Yield the members of an archive in a bucket, as `members` does; raises a `LocationError`, too."""
        with archive.open() as file:
            yield from _members(file)

    def _check_names(self, status: os.stat_result) -> None:
        """Raise `ImportRefused` if a file has hard links other than its own name and those in the data folder."""
        if self._allow_links or status.st_nlink == 1:
            return
        own_links = self._folder.names_of(status)
        if status.st_nlink > 1 + own_links:
            raise ImportRefused(
                f"It has {status.st_nlink} hard links, one of which may be outside the import roots."
                " Import a copy of it, or set TRACEDOCK_IMPORT_HARD_LINKS."
            )

    def _check_size(self, size: int) -> None:
        if not size:
            raise EmptyBody("A trace has at least one byte.")
        if size > self._limit:
            raise TooLarge(f"The file is larger than the limit of {self._limit} bytes.", limit=self._limit)

    def _linked(self, source: FileIO, trace_id: str) -> bool:
        """Hard-link an open file into the incoming folder; return False if that fails."""
        incoming = os.open(self._folder.incoming, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # link the descriptor, since the path may have changed; Python follows that link only with `dst_dir_fd`
            os.link(f"/proc/self/fd/{source.fileno()}", trace_id, dst_dir_fd=incoming)
        except OSError:  # another file system, or another user's file
            return False
        finally:
            os.close(incoming)
        return True

    def _cloned(self, source: FileIO, trace_id: str) -> bool:
        """Clone an open file without copying its bytes; return False if the file system can't."""
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
        """Make a linked or cloned file in the incoming folder the original of a trace."""
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

    def _digest(self, file: FileIO | BufferedReader) -> str:
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            self._on_bytes(len(block))
            digest.update(block)
        return digest.hexdigest()


def _members(archive_file: BufferedReader) -> Generator[ArchiveMember]:
    """Yield the members of an open archive; see `FileImporter.members`."""
    chunks = plain_chunks(archive_file)
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", _Chunks(chunks)), mode="r|", tarinfo=_Info) as archive:
            while info := archive.next():
                name = info.name.rpartition("/")[2]
                if info.isreg():
                    yield ArchiveMember(name, info.size, archive.extractfile(info))
                elif not info.isdir():
                    yield ArchiveMember(name, 0, None, "It is not a regular file.")
                archive.members = []  # type: ignore[attr-defined] # else tarfile collects all members
    except tarfile.TarError as error:
        raise ImportRefused(f"The archive is damaged: {error}.") from error


class _Chunks:
    """A readable stream of chunks for tarfile."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, _: int) -> bytes:
        """Return the next chunk, of any size; empty at the end."""
        return next(self._chunks, b"")


class _Info(tarfile.TarInfo):
    """A member whose header size is limited, since tarfile reads headers into memory unchecked."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        headers = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
                   tarfile.GNUTYPE_LONGLINK)  # fmt: skip
        if self.type in headers and self.size > HEADER_MAX:
            raise tarfile.HeaderError("a header is too large")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return] # as the class documents


def _check_text(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ImportRefused("Its path is not valid text and can't be recorded: copy or link it instead.") from error


def _block(source: BinaryIO | IO[bytes] | FileIO) -> bytes | None:
    try:
        return source.read(BLOCK)
    except tarfile.TarError as error:
        raise ImportRefused(f"The archive is damaged: {error}.") from error


def _open(path: Path) -> int:
    try:
        return open_external(path)
    except OSError as error:
        raise ImportRefused(f"It can't be opened: {error.strerror}.") from error

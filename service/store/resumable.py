"""Resumable uploads, which arrive in chunks and survive interruptions and restarts.

Files in `Folder.incoming`:

{id}          the bytes received so far; their number is the upload's offset
{id}.upload   the announcement of the upload
{id}.done     the announcement, once the upload has become a trace
{id}.chunk    the offset of the current chunk, if its checksum must be verified first
"""

import hashlib
import os
import re
import threading
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import orjson

from service.store.folder import CHUNK, DONE, UPLOAD, Folder, disk_errors, sync_folder, write_whole
from service.store.uploads import Received
from service.trace.errors import ChecksumMismatch, EmptyBody, TooLarge, UnknownUpload, UploadGone

READ_SIZE = 1 << 20
CHECKSUMS = ("sha256", "sha1", "md5")
"""Algorithms of chunk checksums, by their hashlib names; the last two detect only accidental changes."""


@dataclass(frozen=True)
class Announced:
    """Announcement of an upload: `length` is None until it is known, `metadata` is unchanged from the request."""

    id: str
    name: str
    length: int | None = None
    metadata: str = ""
    group: str | None = None
    priority: int = 0
    client: str = ""
    """Name of the client's token, or its address; the upload counts towards the limits of this client."""


class Resumable:
    """An unfinished upload. Only one `Chunk` at a time may add to it; other methods may be called from any thread.

    Args:
        folder: the data folder.
        announced: the announcement of the upload.
    """

    def __init__(self, folder: Folder, announced: Announced) -> None:
        self._folder = folder
        self._path = folder.received(announced.id)
        self.announced = announced
        self.offset = self._path.stat().st_size
        self._digest = hashlib.sha256()
        self._digested = 0  # number of bytes
        self._hashing = threading.Lock()
        self._given_up = False

    @classmethod
    def create(cls, folder: Folder, announced: Announced) -> "Resumable":
        """Create a new, empty upload; raises `DiskFull`."""
        path = folder.received(announced.id)
        with disk_errors():
            path.open("xb").close()
        try:
            write_whole(_note(folder, announced.id, UPLOAD), orjson.dumps(asdict(announced)))
        except BaseException:
            path.unlink()
            raise
        return cls(folder, announced)

    @classmethod
    def reopen(cls, folder: Folder, upload_id: str) -> "Resumable":
        """Reopen an upload from before the server restarted; raises `UnknownUpload` or `UploadGone`."""
        announced = _announced(folder, upload_id, UPLOAD)
        marker = _note(folder, upload_id, CHUNK)
        try:
            with suppress(FileNotFoundError):  # drop a chunk that was unverified when the server was killed
                os.truncate(folder.received(upload_id), int(marker.read_bytes() or 0))
                marker.unlink()
            return cls(folder, announced)
        except FileNotFoundError:
            raise UploadGone(f"The upload {upload_id} has expired.") from None

    @property
    def id(self) -> str:
        """Id of the upload, and of the trace that it becomes."""
        return self.announced.id

    @property
    def whole(self) -> bool:
        """True if all bytes were received."""
        return self.offset == self.announced.length

    def ends_at(self, after_s: float) -> float:
        """Return the time in seconds since 1970 at which the upload expires, `after_s` seconds after its last byte."""
        return self._path.stat().st_mtime + after_s

    def announce(self, length: int) -> None:
        """Record the length of the upload once it is known; raises `DiskFull`."""
        self.announced = replace(self.announced, length=length)
        write_whole(_note(self._folder, self.id, UPLOAD), orjson.dumps(asdict(self.announced)))

    def catch_up(self) -> None:
        """Digest the bytes received before this process opened the upload; more may arrive meanwhile."""
        with self._path.open("rb", buffering=0) as file:
            while not self._given_up:
                with self._hashing:
                    if self._digested >= self.offset:
                        return
                    file.seek(self._digested)
                    piece = file.read(min(READ_SIZE, self.offset - self._digested))
                    self._digest.update(piece)
                    self._digested += len(piece)

    def keep(self) -> Received:
        """Make the bytes the trace's original, durably; raises `EmptyBody` or `DiskFull`."""
        if not self.offset:
            raise EmptyBody("A trace has at least one byte.")
        self.catch_up()
        with disk_errors(), self._path.open("rb") as file:
            os.fsync(file.fileno())
            self._path.replace(self._folder.original(self.id))
            sync_folder(self._folder.originals)
        return Received(self.offset, self._digest.hexdigest())

    def undo_keep(self) -> None:
        """Undo `keep`; called when the trace could not be recorded."""
        self._folder.original(self.id).replace(self._path)

    def done(self) -> None:
        """Record that the upload has become a trace."""
        note = _note(self._folder, self.id, UPLOAD)
        os.utime(note)
        note.replace(_note(self._folder, self.id, DONE))

    def give_up(self) -> None:
        """Stop `catch_up`."""
        self._given_up = True

    def expire(self) -> None:
        """Remove the bytes, but keep the announcement; `forget_old` removes it later."""
        self.give_up()
        os.utime(_note(self._folder, self.id, UPLOAD))
        self._path.unlink()

    def remove(self) -> None:
        """Remove the bytes and the announcement."""
        self.give_up()
        self._path.unlink()
        _note(self._folder, self.id, UPLOAD).unlink()

    # -- used by `Chunk` -----------------------------------------------------------------------------------------------

    def digest_so_far(self) -> tuple[int, "hashlib._Hash"]:
        """Return the number of digested bytes, and a copy of their digest."""
        with self._hashing:
            return self._digested, self._digest.copy()

    def grow(self, piece: memoryview) -> None:
        """Count and digest a piece that was just written."""
        with self._hashing:
            if self._digested == self.offset:
                self._digest.update(piece)
                self._digested += len(piece)
            self.offset += len(piece)

    def shrink(self, to: int, digested: tuple[int, "hashlib._Hash"]) -> None:
        """Truncate the upload to an earlier size, with the digest of that time."""
        os.truncate(self._path, to)
        with self._hashing:
            self.offset = to
            if self._digested > to:
                self._digested, self._digest = digested[0], digested[1].copy()


class Chunk:
    """A chunk of bytes for an upload: `write` each piece, then `keep` or `drop` them all.

    Args:
        folder: the data folder.
        upload: the upload to add to.
        limit: largest size of the upload in bytes.
        checksum: algorithm and expected digest of the chunk.
    """

    def __init__(self, folder: Folder, upload: Resumable, *, limit: int, checksum: tuple[str, bytes] | None) -> None:
        self._upload = upload
        self._limit = limit
        self._checksum = checksum
        self._hash = hashlib.new(checksum[0], usedforsecurity=False) if checksum else None
        self._begin = upload.offset
        self._digested = upload.digest_so_far()
        self._marker = _note(folder, upload.id, CHUNK) if checksum else None
        if self._marker:
            with disk_errors():
                self._marker.write_bytes(b"%d" % self._begin)
        self._file = folder.received(upload.id).open("r+b", buffering=0)
        self._file.seek(self._begin)

    @property
    def verified(self) -> bool:
        """True if the bytes count only once the whole chunk is verified."""
        return self._hash is not None

    def check_size(self, size: int) -> None:
        """Raise `TooLarge` if a chunk of that size exceeds the limit of the upload."""
        length = self._upload.announced.length
        most = self._limit if length is None else length
        if self._begin + size > most:
            raise TooLarge(f"With {size} bytes at {self._begin} the upload would exceed {most} bytes.", limit=most)

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Add a piece; earlier pieces are kept if this raises `TooLarge` or `DiskFull`."""
        self.check_size(self._upload.offset - self._begin + len(piece))
        if self._hash:
            self._hash.update(piece)
        rest = memoryview(piece)
        with disk_errors():
            while rest:
                written = self._file.write(rest) or 0
                self._upload.grow(rest[:written])
                rest = rest[written:]

    def keep(self) -> None:
        """Make the bytes durable.

        Raises:
            ChecksumMismatch: the bytes have another digest; they are dropped.
            DiskFull: the bytes could not be made durable; they are dropped.
        """
        if self._checksum and self._hash and self._hash.digest() != self._checksum[1]:
            actual, expected = self._hash.hexdigest(), self._checksum[1].hex()
            self.drop()
            raise ChecksumMismatch(
                f"The bytes from {self._begin} on have the {self._checksum[0]} {actual}, not {expected}.",
                expected=expected, found=actual, offset=self._begin,
            )  # fmt: skip
        try:
            with disk_errors():
                os.fdatasync(self._file.fileno())
        except BaseException:
            self.drop()
            raise
        self._close()

    def drop(self) -> None:
        """Remove the bytes."""
        self._upload.shrink(self._begin, self._digested)
        self._close()

    def leave(self) -> None:
        """End the chunk early: keep its bytes, but drop them if the whole chunk had to be verified."""
        if self._checksum:
            self.drop()
        else:
            self.keep()

    def _close(self) -> None:
        self._file.close()
        if self._marker:
            self._marker.unlink(missing_ok=True)


def unfinished(folder: Folder) -> list[str]:
    """Return the ids of the uploads that are not traces yet."""
    return [path.stem for path in folder.incoming.glob(f"*{UPLOAD}") if path.with_suffix("").exists()]


def finished(folder: Folder, upload_id: str) -> Announced:
    """Return the announcement of an upload that became a trace; raises `UnknownUpload`."""
    return _announced(folder, upload_id, DONE)


def forget_old(folder: Folder, after_s: float, *, excluding: Container[str] = ()) -> None:
    """Remove the announcements of uploads that finished or expired more than `after_s` seconds ago, except for some."""
    for note in (*folder.incoming.glob(f"*{UPLOAD}"), *folder.incoming.glob(f"*{DONE}")):
        with suppress(FileNotFoundError):
            needed = note.stem in excluding or note.with_suffix("").exists()
            if not needed and note.stat().st_mtime + after_s < time.time():
                note.unlink()


def _note(folder: Folder, upload_id: str, kind: str) -> Path:
    return folder.incoming / f"{upload_id}{kind}"


def _announced(folder: Folder, upload_id: str, kind: str) -> Announced:
    try:
        if re.fullmatch("[0-9a-f]{12}", upload_id):
            return Announced(**orjson.loads(_note(folder, upload_id, kind).read_bytes()))
    except FileNotFoundError:
        pass
    raise UnknownUpload(f"No upload has the id {upload_id[:64]!r}.")

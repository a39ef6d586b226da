"""Uploads that come in chunks and outlive what interrupts them, a restart too.

In `Folder.incoming` lie

{id}          the bytes that came; how many they are is the upload's offset
{id}.upload   what was announced of it
{id}.done     the same, once it is a trace
{id}.chunk    where a chunk begins that is to be verified before it counts
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
"""What a chunk may be verified by, as hashlib calls it; the latter two tell of accidents alone."""


@dataclass(frozen=True)
class Announced:
    """What is known of an upload beside its bytes; `length` is None until it is told, `metadata` is as it was sent."""

    id: str
    name: str
    length: int | None = None
    metadata: str = ""
    group: str | None = None
    priority: int = 0
    client: str = ""
    """The name of the token, or the address, that it is counted by."""


class Resumable:
    """An upload on its way. One `Chunk` at a time adds to it; all else may be called from any thread.

    Args:
        folder: the data folder.
        announced: what is known of it.
    """

    def __init__(self, folder: Folder, announced: Announced) -> None:
        self._folder = folder
        self._path = folder.received(announced.id)
        self.announced = announced
        self.offset = self._path.stat().st_size
        self._digest = hashlib.sha256()
        self._digested = 0  # bytes of the file
        self._hashing = threading.Lock()
        self._given_up = False

    @classmethod
    def begun(cls, folder: Folder, announced: Announced) -> "Resumable":
        """A new upload, of which there are no bytes; raises `DiskFull`."""
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
    def found(cls, folder: Folder, upload_id: str) -> "Resumable":
        """An upload that an earlier server began; raises `UnknownUpload` or `UploadGone`."""
        announced = _announced(folder, upload_id, UPLOAD)
        marker = _note(folder, upload_id, CHUNK)
        try:
            with suppress(FileNotFoundError):  # a chunk that was not verified when the server was killed
                os.truncate(folder.received(upload_id), int(marker.read_bytes() or 0))
                marker.unlink()
            return cls(folder, announced)
        except FileNotFoundError:
            raise UploadGone(f"The upload {upload_id} has expired.") from None

    @property
    def id(self) -> str:
        """Its id, and that of the trace it becomes."""
        return self.announced.id

    @property
    def whole(self) -> bool:
        """Whether all bytes are there."""
        return self.offset == self.announced.length

    def ends_at(self, after_s: float) -> float:
        """When it expires, in seconds since the epoch, if nothing more comes: so long after the last byte."""
        return self._path.stat().st_mtime + after_s

    def announce(self, length: int) -> None:
        """Take note of the length, which was not known; raises `DiskFull`."""
        self.announced = replace(self.announced, length=length)
        write_whole(_note(self._folder, self.id, UPLOAD), orjson.dumps(asdict(self.announced)))

    def catch_up(self) -> None:
        """Digest what came before this process knew of it, while more may come."""
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
        """Make the bytes the trace's original, safe against a power cut; raises `EmptyBody` or `DiskFull`."""
        if not self.offset:
            raise EmptyBody("A trace has at least one byte.")
        self.catch_up()
        with disk_errors(), self._path.open("rb") as file:
            os.fsync(file.fileno())
            self._path.replace(self._folder.original(self.id))
            sync_folder(self._folder.originals)
        return Received(self.offset, self._digest.hexdigest())

    def take_back(self) -> None:
        """Undo `keep`: the trace could not be recorded, but may be later."""
        self._folder.original(self.id).replace(self._path)

    def done(self) -> None:
        """Take note that it is a trace, which is recorded."""
        note = _note(self._folder, self.id, UPLOAD)
        os.utime(note)
        note.replace(_note(self._folder, self.id, DONE))

    def give_up(self) -> None:
        """Stop to `catch_up`."""
        self._given_up = True

    def expire(self) -> None:
        """Remove the bytes; that it was there is known for a while."""
        self.give_up()
        os.utime(_note(self._folder, self.id, UPLOAD))
        self._path.unlink()

    def remove(self) -> None:
        """Remove it, and all that is known of it."""
        self.give_up()
        self._path.unlink()
        _note(self._folder, self.id, UPLOAD).unlink()

    # -- for the chunk ------------------------------------------------------------------------------------------------

    def digest_so_far(self) -> tuple[int, "hashlib._Hash"]:
        """Of how many bytes there is a digest, and that."""
        with self._hashing:
            return self._digested, self._digest.copy()

    def grow(self, piece: memoryview) -> None:
        """Take into account a piece that was just written."""
        with self._hashing:
            if self._digested == self.offset:
                self._digest.update(piece)
                self._digested += len(piece)
            self.offset += len(piece)

    def shrink(self, to: int, digested: tuple[int, "hashlib._Hash"]) -> None:
        """Be as it was."""
        os.truncate(self._path, to)
        with self._hashing:
            self.offset = to
            if self._digested > to:
                self._digested, self._digest = digested[0], digested[1].copy()


class Chunk:
    """Bytes that are added to an upload: `write` each piece, then `keep` them, or `drop` those that don't count.

    Args:
        upload: what they are added to.
        limit: the size that the upload may grow to.
        checksum: what they must hash to: the algorithm and the digest.
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
        """Whether its bytes count only once they all are there."""
        return self._hash is not None

    def check_size(self, size: int) -> None:
        """Raise `TooLarge` if that many bytes are more than the upload may still grow."""
        length = self._upload.announced.length
        most = self._limit if length is None else length
        if self._begin + size > most:
            raise TooLarge(f"With {size} bytes at {self._begin} it were larger than {most} bytes.", limit=most)

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Add a piece; raises `TooLarge` or `DiskFull`, at which what was written before stays."""
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
        """Make the bytes safe against a power cut.

        Raises:
            ChecksumMismatch: they are not those that were promised, and don't count.
            DiskFull: nor do they, for they could not be made safe.
        """
        if self._checksum and self._hash and self._hash.digest() != self._checksum[1]:
            found, promised = self._hash.hexdigest(), self._checksum[1].hex()
            self.drop()
            raise ChecksumMismatch(
                f"The bytes from {self._begin} on have the {self._checksum[0]} {found}, not {promised}.",
                expected=promised, found=found, offset=self._begin,
            )  # fmt: skip
        try:
            with disk_errors():
                os.fdatasync(self._file.fileno())
        except BaseException:
            self.drop()
            raise
        self._close()

    def drop(self) -> None:
        """Remove the bytes again."""
        self._upload.shrink(self._begin, self._digested)
        self._close()

    def leave(self) -> None:
        """End early: what came counts, unless it was to be verified."""
        if self._checksum:
            self.drop()
        else:
            self.keep()

    def _close(self) -> None:
        self._file.close()
        if self._marker:
            self._marker.unlink(missing_ok=True)


def unfinished(folder: Folder) -> list[str]:
    """The ids of the uploads that are no traces yet."""
    return [path.stem for path in folder.incoming.glob(f"*{UPLOAD}") if path.with_suffix("").exists()]


def finished(folder: Folder, upload_id: str) -> Announced:
    """What was announced of an upload that became a trace; raises `UnknownUpload`."""
    return _announced(folder, upload_id, DONE)


def forget_old(folder: Folder, after_s: float, *, but: Container[str] = ()) -> None:
    """Remove what is known of uploads that were done, or had expired, so long ago; of some it is needed yet."""
    for note in (*folder.incoming.glob(f"*{UPLOAD}"), *folder.incoming.glob(f"*{DONE}")):
        with suppress(FileNotFoundError):
            there = note.stem in but or note.with_suffix("").exists()
            if not there and note.stat().st_mtime + after_s < time.time():
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

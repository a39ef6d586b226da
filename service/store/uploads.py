"""Uploads in one request: written to a temporary file, digested, and made an original once complete."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from service.formats.names import NAME_MAX_BYTES
from service.store.folder import Folder, disk_errors, sync_folder
from service.trace.errors import BadName, DigestMismatch, EmptyBody, TooLarge


@dataclass(frozen=True)
class Received:
    """A complete original that is durable on disk.

    Attributes:
        path: path of the file, or URL of the object, if it is outside of the data folder.
        mark: mark of an external file or object, by which changes are detected; see `service.store.external_files`.
    """

    size: int
    sha256: str
    path: str | None = None
    mark: str | None = None


def plain_name(name: str) -> str:
    """Return the name if it is a plain, printable file name; raises `BadName` otherwise."""
    too_long = len(name.encode("utf-8", "surrogatepass")) > NAME_MAX_BYTES
    if not name.strip() or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable() or too_long:
        raise BadName(f"{name[:100]!r} is not a plain file name: no path, no control characters, 1 to 255 bytes.")
    return name


class Upload:
    """An upload: `write` each piece, then `keep` the upload.

    Leaving the ``with`` block without `keep`, or with an error, removes the bytes.

    Args:
        folder: the data folder.
        file_id: id of the trace or the attachment that the upload becomes.
        limit: largest size of the upload in bytes.
        digests: expected digests by the hashlib names of their algorithms.
        target: path of the complete file; by default that of the trace's original.
    """

    def __init__(
        self,
        folder: Folder,
        file_id: str,
        *,
        limit: int,
        digests: Mapping[str, bytes] | None = None,
        target: Path | None = None,
    ) -> None:
        self._target = target or folder.original(file_id)
        self._limit = limit
        self._expected = dict(digests or {})
        self._hashes = {name: hashlib.new(name) for name in {"sha256", *self._expected}}
        self._partial = folder.received(file_id)
        self._file: BinaryIO | None = None
        self.size = 0

    def __enter__(self) -> "Upload":
        with disk_errors():
            self._file = self._partial.open("xb", buffering=0)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._file:
            self._file.close()
        self._partial.unlink(missing_ok=True)
        # after an error the file may be kept without a record; after an interrupt it may still be recorded
        if isinstance(error, Exception):
            self._target.unlink(missing_ok=True)

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Add a piece; raises `TooLarge` or `DiskFull`."""
        self.check_size(self.size + len(piece))
        for digest in self._hashes.values():
            digest.update(piece)
        rest = memoryview(piece)
        with disk_errors():
            while rest and self._file:
                rest = rest[self._file.write(rest) :]
        self.size += len(piece)

    def check_size(self, size: int) -> None:
        """Raise `TooLarge` if a size exceeds the limit."""
        if size > self._limit:
            raise TooLarge(f"The body is larger than the limit of {self._limit} bytes.", limit=self._limit)

    def head(self, size: int) -> bytes:
        """Return the first `size` bytes that were received, or all if there are fewer."""
        with self._partial.open("rb") as file:
            return file.read(size)

    def keep(self) -> Received:
        """Verify the digests, and move the bytes to their target, durably.

        Raises:
            EmptyBody: no bytes were received.
            DigestMismatch: the bytes do not have the expected digest.
        DiskFull: the bytes could not be made durable.
        """
        if not self.size or not self._file:
            raise EmptyBody("The file has no bytes.")
        for name, expected in self._expected.items():
            if (actual := self._hashes[name].digest()) != expected:
                raise DigestMismatch(
                    f"The {self.size} bytes received have the {name} {actual.hex()}, not {expected.hex()}.",
                    expected=expected.hex(),
                    found=actual.hex(),
                )
        with disk_errors():
            os.fsync(self._file.fileno())
            self._partial.replace(self._target)
            sync_folder(self._target.parent)
        return Received(self.size, self._hashes["sha256"].hexdigest())

"""Uploads in one request: written to a temporary file, digested, and made an original once complete."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from service.store.folder import Folder, disk_errors, sync_folder
from service.trace.errors import BadName, DigestMismatch, EmptyBody, TooLarge

NAME_MAX_BYTES = 255


@dataclass(frozen=True)
class Received:
    """A complete original that is durable on disk.

    Attributes:
        path: path of the file, if it is outside of the data folder.
        mark: mark of an external file, by which changes are detected; see `service.store.external_files`.
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
        trace_id: id of the trace that the upload becomes.
        limit: largest size of the upload in bytes.
        digests: expected digests by the hashlib names of their algorithms.
    """

    def __init__(
        self, folder: Folder, trace_id: str, *, limit: int, digests: Mapping[str, bytes] | None = None
    ) -> None:
        self._folder = folder
        self._trace_id = trace_id
        self._limit = limit
        self._expected = dict(digests or {})
        self._hashes = {name: hashlib.new(name) for name in {"sha256", *self._expected}}
        self._partial = folder.received(trace_id)
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
        # after an error the original may be kept without a trace; after an interrupt the trace may still be recorded
        if isinstance(error, Exception):
            self._folder.original(self._trace_id).unlink(missing_ok=True)

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

    def keep(self) -> Received:
        """Verify the digests, and make the bytes the trace's original, durably.

        Raises:
            EmptyBody: no bytes were received.
            DigestMismatch: the bytes do not have the expected digest.
        DiskFull: the bytes could not be made durable.
        """
        if not self.size or not self._file:
            raise EmptyBody("A trace has at least one byte.")
        for name, expected in self._expected.items():
            if (actual := self._hashes[name].digest()) != expected:
                raise DigestMismatch(
                    f"The {self.size} bytes received have the {name} {actual.hex()}, not {expected.hex()}.",
                    expected=expected.hex(),
                    found=actual.hex(),
                )
        with disk_errors():
            os.fsync(self._file.fileno())
            self._partial.replace(self._folder.original(self._trace_id))
            sync_folder(self._folder.originals)
        return Received(self.size, self._hashes["sha256"].hexdigest())

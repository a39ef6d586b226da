"""Bytes on their way in: written beside the originals, digested as they come, and one of them only when whole."""

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
    """An upload that is complete and safe on disk.

    Of a file of somebody else `mark` tells whether he changed it, and `path` where it lies if not in the data folder
    too; see `service.store.outside`.
    """

    size: int
    sha256: str
    path: str | None = None
    mark: str | None = None


def plain_name(name: str) -> str:
    """The name, if it is a plain one that any file system and any listing can show; raises `BadName`."""
    too_long = len(name.encode("utf-8", "surrogatepass")) > NAME_MAX_BYTES
    if not name.strip() or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable() or too_long:
        raise BadName(f"{name[:100]!r} is not a plain file name: no path, no control characters, 1 to 255 bytes.")
    return name


class Upload:
    """One upload: `write` each piece, then `keep` it; leaving the ``with`` block otherwise, or by an error, removes it.

    Args:
        folder: the data folder.
        trace_id: the id of the trace it becomes.
        limit: the largest size in bytes.
        digests: what the bytes must hash to, by the algorithm's hashlib name.
    """

    def __init__(
        self, folder: Folder, trace_id: str, *, limit: int, digests: Mapping[str, bytes] | None = None
    ) -> None:
        self._folder = folder
        self._trace_id = trace_id
        self._limit = limit
        self._promised = dict(digests or {})
        self._hashes = {name: hashlib.new(name) for name in {"sha256", *self._promised}}
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
        if isinstance(error, Exception):  # kept, but not recorded; one that is merely interrupted may yet be
            self._folder.original(self._trace_id).unlink(missing_ok=True)

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Add a piece; raises `TooLarge` or `DiskFull`."""
        self.check_size(self.size + len(piece))
        for one in self._hashes.values():
            one.update(piece)
        rest = memoryview(piece)
        with disk_errors():
            while rest and self._file:
                rest = rest[self._file.write(rest) :]
        self.size += len(piece)

    def check_size(self, size: int) -> None:
        """Raise `TooLarge` if that many bytes are more than the limit."""
        if size > self._limit:
            raise TooLarge(f"The body is larger than the limit of {self._limit} bytes.", limit=self._limit)

    def keep(self) -> Received:
        """Verify the digests and make the bytes the trace's original, safe against a power cut.

        Raises:
            EmptyBody: there were none.
            DigestMismatch: they are not those that were promised.
        """
        if not self.size or not self._file:
            raise EmptyBody("A trace has at least one byte.")
        for name, promised in self._promised.items():
            if (found := self._hashes[name].digest()) != promised:
                raise DigestMismatch(
                    f"The {self.size} bytes that came have the {name} {found.hex()}, not {promised.hex()}.",
                    expected=promised.hex(),
                    found=found.hex(),
                )
        with disk_errors():
            os.fsync(self._file.fileno())
            self._partial.replace(self._folder.original(self._trace_id))
            sync_folder(self._folder.originals)
        return Received(self.size, self._hashes["sha256"].hexdigest())

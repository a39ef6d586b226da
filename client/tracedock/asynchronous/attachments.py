"""Attachments: files that are kept beside a trace or a run."""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Optional, Union
from urllib.parse import quote

from tracedock.asynchronous.resource import AsyncResource
from tracedock.asynchronous.runtime import in_thread
from tracedock.messages import SYNC_S, Json, Ref, Target, attachment_path, kind_of, patience, target_path
from tracedock.sources import PIECE, opened


class AsyncAttachments(AsyncResource):
    """The methods of attachments."""

    async def attach(
        self,
        target: Ref,
        path: Union[str, os.PathLike[str]],
        *,
        of: Optional[Target] = None,
        name: Optional[str] = None,
    ) -> Json:
        """Attach a file to a trace or a group, and return the attachment.

        The same file is attached once: a repetition returns the first attachment.

        Args:
            target: the trace or the group.
            path: path of the file.
            of: kind of the target; by default that of the object, or `trace` for an id.
            name: name of the attachment; by default the name of the file.

        Raises:
            ApiError: the file is a trace, or neither a known report nor text (``bad_attachment``); or it was changed
                while it was sent (``digest_mismatch``).
            OSError: the file can't be read, or was truncated meanwhile.
        """
        with opened(path) as source:
            label = os.fsencode(name or Path(path).name)
            size = source.size or 0

            async def pieces() -> AsyncIterator[bytes]:
                start = 0
                while start < size:
                    piece = await in_thread(source.read, start, min(PIECE, size - start))
                    start += len(piece)
                    yield piece

            digest = hashlib.sha256()
            async for piece in pieces():
                digest.update(piece)
            return await self._connection.json(
                "PUT",
                f"{target_path(target, kind_of(target, of))}/attachments/{quote(label, safe='')}",
                content=pieces,
                headers={
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(size),
                    "Repr-Digest": f"sha-256=:{b64encode(digest.digest()).decode()}:",
                },
                repeatable=True,
                timeout=patience(read=SYNC_S),
            )

    async def attachments(self, target: Ref, *, of: Optional[Target] = None) -> AsyncIterator[Json]:
        """Yield the attachments of a trace, or of a group and its traces, newest first."""
        async for attachment in self._pages("attachments", {}, target_path(target, kind_of(target, of))):
            yield attachment

    async def read_attachment(self, attachment: Ref) -> bytes:
        """Return the bytes of an attachment."""
        response = await self._connection.answer(
            "GET", f"{attachment_path(attachment)}/file", timeout=patience(read=SYNC_S)
        )
        return response.content

    async def attachment_tables(self, attachment: Ref) -> Json:
        """Return the tables of a report and its text: `{"tables", "text", "truncated", "reason"}`."""
        return await self._connection.json("GET", f"{attachment_path(attachment)}/tables")

    async def match_attachment(self, attachment: Ref) -> Json:
        """Return the comparison of an execution trace with the traces that it may describe: `{"matches", "reason"}`.

        Raises:
            ApiError: the attachment is no execution trace (``bad_attachment``).
        """
        path = f"{attachment_path(attachment)}/match"
        return await self._connection.json("GET", path, timeout=patience(read=SYNC_S))

    async def delete_attachment(self, attachment: Ref) -> None:
        """Delete an attachment; the trace or the group stays."""
        await self._connection.answer("DELETE", attachment_path(attachment))

"""A response with a file, if the conditions of the request hold."""

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from service.http.responses import has_current
from service.trace.errors import PreconditionFailed


class FileDownload(FileResponse):
    """A response with a file, or with 304 if the client has it.

    Args:
        path: the path of the file.
        headers: the header fields that a 304 has, too: an ETag, and others.
        options: those of `FileResponse`, with `stat_result`.
    """

    def __init__(self, path: str | Path, *, headers: Mapping[str, str], **options: Any) -> None:
        self._fields = headers
        super().__init__(path, headers=headers, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response.

        The conditions are evaluated in the order of https://www.rfc-editor.org/rfc/rfc9110#section-13.2.2.

        Raises:
            PreconditionFailed: `If-Match` or `If-Unmodified-Since` does not hold.
        """
        request = Request(scope)
        tag = self.headers["etag"]
        if listed := request.headers.getlist("if-match"):
            tags = [one.strip() for one in ",".join(listed).split(",")]
            if tags != ["*"] and tag not in tags:
                raise PreconditionFailed(f"`If-Match` does not have the ETag of the file: {tag}.")
        elif self._is_modified_since(request.headers.get("if-unmodified-since", "")):
            raise PreconditionFailed(f"The file was modified on {self.headers['last-modified']}.")
        if has_current(request, tag.strip('"')):
            await Response(status_code=304, headers=self._fields)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _is_modified_since(self, text: str) -> bool:
        """Return whether the file was modified after a date; False if the text is no date."""
        try:
            date = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return False
        return parsedate_to_datetime(self.headers["last-modified"]) > date.replace(tzinfo=date.tzinfo or UTC)

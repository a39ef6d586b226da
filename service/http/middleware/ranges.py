"""The ranges middleware: ignores malformed ``Range`` headers, and answers ranges that a file lacks with a problem.

https://www.rfc-editor.org/rfc/rfc9110#section-14.2
"""

import re

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.problems import as_problem
from service.trace.errors import BadRange

_RANGE = rb"[0-9]+-[0-9]*|-[0-9]+"
_RANGES = re.compile(rb"bytes=[ \t]*(?:%b)(?:[ \t]*,[ \t]*(?:%b))*[ \t]*" % (_RANGE, _RANGE), re.IGNORECASE)


class RangesMiddleware:
    """Handles what Starlette's responses with files would answer with errors as text.

    It takes malformed ``Range`` headers out of requests, and replaces each 416 by a problem with the size of the file.

    Args:
        app: the next app.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        values = [value for name, value in scope["headers"] if name == b"range"]
        if len(values) > 1 or not all(map(_is_valid, values)):
            scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        is_refused = False

        async def send_problem(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and message["status"] == 416:
                is_refused = True
                await _refusal(Headers(raw=message["headers"])["content-range"])(scope, receive, send)
            elif not is_refused:
                await send(message)

        await self._app(scope, receive, send_problem)


def _refusal(content_range: str) -> Response:
    """Return the response to a range that a file lacks, given the field ``Content-Range`` with the size of the file."""
    size = int(content_range.removeprefix("bytes */"))
    response = as_problem(BadRange(f"The file has {size} bytes, and a range must begin within them.", size=size))
    response.headers["Content-Range"] = content_range
    return response


def _is_valid(value: bytes) -> bool:
    """Return whether a value is a list of ranges of bytes, none of which ends before it begins."""
    if not _RANGES.fullmatch(value):
        return False
    spans = (span.split(b"-") for span in re.findall(_RANGE, value))
    return all(not (first and last) or int(first) <= int(last) for first, last in spans)

"""The ranges middleware: takes malformed ``Range`` headers out of requests, since servers must ignore them.

https://www.rfc-editor.org/rfc/rfc9110#section-14.2
"""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

_RANGE = rb"[0-9]+-[0-9]*|-[0-9]+"
_RANGES = re.compile(rb"bytes=[ \t]*(?:%b)(?:[ \t]*,[ \t]*(?:%b))*[ \t]*" % (_RANGE, _RANGE), re.IGNORECASE)


class RangesMiddleware:
    """Passes requests on without malformed ``Range`` headers, to which Starlette's responses would be errors as text.

    Args:
        app: the next app.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] == "http":
            values = [value for name, value in scope["headers"] if name == b"range"]
            if len(values) > 1 or not all(map(_is_valid, values)):
                scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        await self._app(scope, receive, send)


def _is_valid(value: bytes) -> bool:
    """Return whether a value is a list of ranges of bytes, none of which ends before it begins."""
    if not _RANGES.fullmatch(value):
        return False
    spans = (span.split(b"-") for span in re.findall(_RANGE, value))
    return all(not (first and last) or int(first) <= int(last) for first, last in spans)

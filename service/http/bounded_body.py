"""Routes whose request bodies are read into memory, and therefore bounded: all but uploads."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from service.http.deferred_route import DeferredRoute

BODY_MAX = 16 << 20
"""Maximum bytes of a body."""


class _BoundedRequest(Request):
    async def stream(self) -> AsyncGenerator[bytes]:
        size = 0
        async for chunk in super().stream():
            size += len(chunk)
            if size > BODY_MAX:  # FastAPI would turn an error of another type into 400
                raise HTTPException(413, f"The body is larger than the limit of {BODY_MAX} bytes.")
            yield chunk


class SmallBodyRoute(DeferredRoute):
    """A route that refuses bodies of more than `BODY_MAX` bytes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which counts the bytes that it reads."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(_BoundedRequest(request.scope, request.receive))

        return bounded

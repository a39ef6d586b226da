"""Bodies that are read whole into memory, and so must be small: all but uploads."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

BODY_MAX = 16 << 20


class _Bounded(Request):
    async def stream(self) -> AsyncGenerator[bytes]:
        size = 0
        async for chunk in super().stream():
            size += len(chunk)
            if size > BODY_MAX:  # FastAPI lets no other kind of error pass from here
                raise HTTPException(413, f"The body is larger than the limit of {BODY_MAX} bytes.")
            yield chunk


class SmallBody(APIRoute):
    """A route that refuses bodies of more than `BODY_MAX` bytes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, on a request that counts what it reads."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(_Bounded(request.scope, request.receive))

        return bounded

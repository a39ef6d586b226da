"""Requests from inside the process, on behalf of a client."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.in_process import InProcessTransport

CLIENT: Scope = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "scheme": "http",
    "root_path": "",
    "client": ("192.0.2.7", 4711),
    "server": ("192.0.2.1", 8700),
    "headers": [(b"host", b"traces.example"), (b"authorization", b"Bearer secret"), (b"content-length", b"3")],
}


def during(app: Any, act: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    async def acting() -> Any:
        transport = InProcessTransport(app, CLIENT)
        async with httpx.AsyncClient(transport=transport, base_url="http://inside/api") as client:
            return await act(client)

    return asyncio.run(acting())


def answering(*pieces: bytes, status: int = 200) -> ASGIApp:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-answer", b"yes")]})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def test_response_has_the_status_headers_and_body_of_the_app() -> None:
    answer = during(answering(b"a", b"b", status=418), lambda client: client.get("x"))
    assert (answer.status_code, answer.headers["x-answer"], answer.content) == (418, "yes", b"ab")


def test_request_has_the_address_and_the_credentials_of_the_client() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append({**scope, "body": (await receive())["body"]})
        await answering()(scope, receive, send)

    during(app, lambda client: client.post("traces/x y/query?wait=1", content=b"sql"))
    (scope,) = seen
    headers = dict(scope["headers"])
    assert scope["client"] == ("192.0.2.7", 4711)
    assert (headers[b"host"], headers[b"authorization"]) == (b"traces.example", b"Bearer secret")
    assert (scope["method"], scope["path"], scope["query_string"]) == ("POST", "/api/traces/x y/query", b"wait=1")
    assert (scope["body"], headers[b"content-length"]) == (b"sql", b"3")
    assert [name for name, _ in scope["headers"]].count(b"host") == 1


def test_closing_a_response_early_ends_the_work() -> None:
    ended = asyncio.Event()

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"more", "more_body": True})
        finally:
            ended.set()

    async def read_a_little(client: httpx.AsyncClient) -> None:
        async with client.stream("GET", "x") as response:
            async for piece in response.aiter_raw():
                assert piece == b"more"
                break

    during(app, read_a_little)
    assert ended.is_set()


def test_cancelling_a_request_ends_the_work() -> None:
    ended = asyncio.Event()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        await receive()
        try:
            await receive()
        finally:
            ended.set()

    async def give_up(client: httpx.AsyncClient) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.get("x"), 0.01)

    during(app, give_up)
    assert ended.is_set()


def test_error_of_the_app_is_raised() -> None:
    async def app(_: Scope, __: Receive, ___: Send) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        during(app, lambda client: client.get("x"))


def test_response_that_ends_early_is_an_error() -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    with pytest.raises(httpx.ReadError):
        during(app, lambda client: client.get("x"))

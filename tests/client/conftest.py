"""Fixtures of the client's tests: a double of the server, a real server, and both clients behind one interface."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tracedock import AsyncClient, Client, Retries

from tests.cli.conftest import client, server
from tests.server import Server

__all__ = ["client", "server"]


class Driven:
    """A client whose methods return their results, whether it is synchronous or not.

    Args:
        client: the client.
        runner: runs coroutines; None for a synchronous client.
    """

    def __init__(self, client: Any, runner: asyncio.Runner | None) -> None:
        self.client, self._runner = client, runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.client, name)
        return (lambda *args, **options: self._result(value(*args, **options))) if callable(value) else value

    def _result(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            assert self._runner
            return self._runner.run(value)
        if inspect.isasyncgen(value):
            assert self._runner
            return self._runner.run(_listed(value))
        return list(value) if inspect.isgenerator(value) else value


async def _listed(items: Any) -> list[Any]:
    return [item async for item in items]


Connect = Callable[..., Driven]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Return a function that makes a driven client of either kind; it takes a client's arguments."""
    opened: list[Driven] = []
    with asyncio.Runner() as runner:

        def make(*args: Any, **options: Any) -> Driven:
            is_async = request.param == "async"
            driven = Driven((AsyncClient if is_async else Client)(*args, **options), runner if is_async else None)
            opened.append(driven)
            return driven

        yield make
        for driven in opened:
            driven.close()


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server that all tests of the client share."""
    real = Server(tmp_path_factory.mktemp("client") / "data", max_engines=6).start()
    yield real
    assert real.stop() == 0


@pytest.fixture
def dock(connect: Connect, real_server: Server) -> Driven:
    """A client of either kind, of the real server."""
    return connect(real_server.url)


@pytest.fixture
def quick() -> Retries:
    """Retries whose pauses a test does not notice."""
    return Retries(first_pause_s=0.001)

"""Queued WebSocket messages are bounded in bytes, for each client and in total."""

import asyncio
import socket
import struct
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from service.engine.trace_processor import wire
from service.http.server.inbox import (
    CONNECTION_MAX_BYTES,
    MESSAGE_MAX_BYTES,
    QUEUED_MESSAGES_MAX,
    UNCOUNTED_BYTES,
    ByteBudget,
    Inbox,
)
from tests.http.conftest import ENDLESS
from tests.server import Server


async def waits(awaited: Awaitable[Any]) -> bool:
    """Return whether an awaitable is still pending after 50 ms, and cancel it."""
    task = asyncio.ensure_future(awaited)
    await asyncio.wait([task], timeout=0.05)
    waiting = not task.done()
    task.cancel()
    await asyncio.wait([task])
    return waiting


def test_put_waits_beyond_the_bytes_and_messages_of_a_client() -> None:
    async def main() -> None:
        inbox = Inbox(ByteBudget(1 << 40))
        await inbox.put(b"x" * CONNECTION_MAX_BYTES)
        assert await waits(inbox.put(b"x"))
        assert len(await inbox.get()) == CONNECTION_MAX_BYTES
        assert await waits(inbox.put(b"x"))  # the first message is still being answered
        inbox.done(unfinished=0)
        for _ in range(QUEUED_MESSAGES_MAX):
            await inbox.put(b"x")
        assert await waits(inbox.put(b"x"))

    asyncio.run(main())


def test_total_budget_delays_large_messages_and_no_small_ones() -> None:
    async def main() -> None:
        total = ByteBudget(1 << 20)
        first, second, small = (Inbox(total) for _ in range(3))
        await first.put(b"x" * (1 << 20))
        assert await waits(second.put(b"x" * (1 << 20)))
        await small.put(b"x" * UNCOUNTED_BYTES)
        putting = asyncio.create_task(second.put(b"x" * (1 << 20)))
        await asyncio.sleep(0)
        assert not putting.done()
        first.close()
        await putting
        await second.get()
        second.done(unfinished=UNCOUNTED_BYTES + 7)  # the beginning of a request
        assert total.held == 7
        second.close()
        assert total.held == 0

    asyncio.run(main())


def tab_on(server: Server, trace: str) -> ClientConnection:
    return connect(
        f"{server.url.replace('http', 'ws')}/perfetto/{trace}/rpc/websocket", max_size=None, compression=None
    )


def query(sql: str) -> bytes:
    return wire.frame(wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql)))


def send_many(tab: ClientConnection, message: bytes) -> None:
    with suppress(ConnectionClosed, OSError):
        for _ in range(20):
            tab.send(message)


def test_flood_of_large_messages_is_bounded_in_memory_and_blocks_no_other_client(server: Server, trace: str) -> None:
    assert server.rows(trace, "SELECT 1") == [[1]]
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    large = query("SELECT 1 /*" + "x" * (4 << 20) + "*/")
    with ThreadPoolExecutor(8) as pool, ExitStack() as tabs:
        floods = []
        for _ in range(8):
            flooding = tabs.enter_context(tab_on(server, trace))
            tabs.callback(flooding.socket.shutdown, socket.SHUT_RDWR)
            flooding.send(query(ENDLESS))
            floods.append(pool.submit(send_many, flooding, large))
        small = tabs.enter_context(tab_on(server, trace))
        for _ in range(20):
            assert server.api.get("/traces").status_code == 200
            small.send(wire.frame(wire.request(wire.GET_STATUS)))
            (answer,) = wire.Deframer().feed(small.recv(30, decode=False))
            assert wire.Rpc.FromString(answer).status.version_code
        assert not any(flood.done() for flood in floods)  # the server has stopped reading
        assert process.memory_info().rss - before < 400 << 20
    server.api.delete(f"/traces/{trace}/session")


def test_a_message_that_is_too_large_ends_the_connection_with_the_reason(server: Server, trace: str) -> None:
    announced = struct.pack(
        "!BBQI", 0x82, 0xFF, MESSAGE_MAX_BYTES + 1, 0
    )  # the head of a binary frame, with a mask of zeros
    with tab_on(server, trace) as tab:
        tab.socket.sendall(announced)
        with pytest.raises(ConnectionClosed) as closed:
            tab.recv(30)
    assert closed.value.rcvd
    assert closed.value.rcvd.code == 1009
    assert str(MESSAGE_MAX_BYTES) in closed.value.rcvd.reason

"""Sessions, pool and relay work with any engine that implements the protocol; here, with SQLite."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from service.engine.pool import EnginePool
from service.engine.relay import Relay
from service.engine.session import Session, SessionState
from service.trace.errors import EngineFailed, QueryTimeout, RequestRefused, SqlError, SqlRefused
from tests.engine.conftest import ENDLESS, ENDLESS_ROWS, all_rows, in_time, limits, query_rows
from tests.engine.sqlite_engine import SqliteDriver, SqliteEngine

EVENTS = [{"name": name, "ts": ts, "dur": 1} for ts, name in enumerate(["add", "mul", "add"])]


async def document(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces or (b'{"traceEvents":', json.dumps(EVENTS).encode(), b"}"):
        yield piece


@asynccontextmanager
async def pool_of(**settings: Any) -> AsyncIterator[EnginePool]:
    """Run a pool of databases."""
    pool = EnginePool(SqliteDriver(), limits(), **{"max_engines": 2, "idle_s": 900.0} | settings)  # the line of wiring
    pool.start()
    try:
        yield pool
    finally:
        await pool.close()


async def test_session_answers_queries() -> None:
    async with pool_of() as pool:
        session = pool.open("a", "a", document)
        assert await session.settled(5)
        assert session.version.name.startswith("SQLite 3")
        assert session.loaded_bytes > 100
        assert await query_rows(session, "SELECT name, count(*) FROM slice GROUP BY name") == [("add", 2), ("mul", 1)]
        values = (None, -(2**63), 0.5, "ü", b"\0\xff")
        assert await query_rows(session, "SELECT NULL, -9223372036854775808, 0.5, 'ü', x'00ff'") == [values]


async def test_session_limits_queries_and_reports_their_errors() -> None:
    async with pool_of() as pool:
        session = pool.open("a", "a", document)
        result = session.query(ENDLESS_ROWS, limit=150, timeout_s=30)
        assert await in_time(all_rows(result)) == [(number,) for number in range(1, 151)]
        assert result.truncated
        with pytest.raises(SqlError, match="no such column: nope"):
            await query_rows(session, "SELECT nope")
        with pytest.raises(SqlRefused, match="ATTACH"):
            await query_rows(session, "ATTACH '/x' AS y")
        with pytest.raises(QueryTimeout):
            await in_time(query_rows(session, ENDLESS, timeout_s=0.2))
        assert await query_rows(session, "SELECT 1") == [(1,)]


async def test_session_runs_sql_of_the_service_after_the_load() -> None:
    async def add_view(session: Session) -> None:
        (await session.run("CREATE VIEW longest AS SELECT max(dur) AS dur FROM slice")).close()

    async with pool_of() as pool:
        session = pool.open("a", "a", document, after_load=add_view)
        assert await query_rows(session, "SELECT dur FROM longest") == [(1,)]


async def test_clients_have_separate_names() -> None:
    async with pool_of() as pool:
        session = pool.open("a", "a", document)
        for client in ("first", "second"):
            sql = f"CREATE TABLE own AS SELECT '{client}' AS client"
            assert await all_rows(session.query(sql, limit=None, timeout_s=5, client=client)) == []
        result = session.query("SELECT client FROM own", limit=None, timeout_s=5, client="second")
        assert await all_rows(result) == [("second",)]


async def test_failed_load_is_reported() -> None:
    async with pool_of() as pool:
        session = pool.open("a", "a", partial(document, b"no trace"))
        with pytest.raises(EngineFailed, match="can't load the trace"):
            await session.settled()


async def test_pool_replaces_ended_engines_and_evicts_idle_ones() -> None:
    async with pool_of(max_engines=1) as pool:
        first = pool.open("a", "a", document)
        running = first.query(ENDLESS, limit=None, timeout_s=30)
        await first.settled()
        assert isinstance(first._engine, SqliteEngine)
        first._engine.kill()
        with pytest.raises(EngineFailed, match="was ended"):
            await in_time(all_rows(running))
        assert first.state is SessionState.FAILED
        second = pool.open("a", "a", document)
        assert await query_rows(second, "SELECT 1") == [(1,)]
        third = pool.open("b", "b", document)
        assert await query_rows(third, "SELECT 2") == [(2,)]
        assert second.state is SessionState.CLOSED
        assert pool.sessions() == [third]


async def test_relay_serves_a_client_in_the_engines_own_protocol() -> None:
    async with pool_of() as pool:
        session = pool.open("a", "a", document)
        await session.settled()
        relay = Relay(session, trace_name="training")
        lines = [line async for line in relay.answers(b"VERSION\nSELECT name FROM slice\nDROP TABLE slice\nSEL")]
        assert lines[0].startswith(b"training: SQLite 3")
        assert json.loads(lines[1]) == ["add", "mul", "add"]
        assert "built in" in json.loads(lines[2])["error"]
        assert relay.unfinished_bytes == len("SEL")
        assert [json.loads(line) async for line in relay.answers(b"ECT 7\n")] == [[7]]


async def test_client_that_leaves_stops_its_request() -> None:
    async with pool_of() as pool:
        session = pool.open("a", "a", document)
        await session.settled()
        answers = Relay(session).answers(f"{ENDLESS}\n".encode())
        leaving = asyncio.create_task(anext(answers))
        await asyncio.wait([leaving], timeout=0.1)
        leaving.cancel()
        assert await in_time(query_rows(session, "SELECT 1")) == [(1,)]


async def test_relay_refuses_an_engine_without_a_protocol_for_uis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteDriver, "rpc", None)
    async with pool_of() as pool:
        session = pool.open("a", "a", document)
        with pytest.raises(RequestRefused, match="No UI can attach"):
            Relay(session)


def test_sessions_pool_and_relay_import_no_engine() -> None:
    program = (
        "import sys, service.engine.pool, service.engine.relay\n"
        "print([name for name in sys.modules if name.startswith('service.engine.trace_processor')])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"

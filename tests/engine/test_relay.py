"""The stream of a UI tab on a shared engine."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from service.engine import response_buffers as buffers_module
from service.engine.engine import BadFrame
from service.engine.relay import Relay, ask
from service.engine.trace_processor import wire
from service.engine.trace_processor.rpc import PerfettoRequest
from service.engine.trace_processor.wire import Deframer
from service.trace.errors import EngineFailed, RequestRefused
from tests.engine.conftest import ENDLESS, ENDLESS_ROWS, OpenSession, in_time, query_rows
from tests.waiting import PATIENCE_S

LISTED_TABLES = "SELECT name FROM sqlite_master"
FUNCTION = "CREATE PERFETTO FUNCTION twice(x LONG) RETURNS LONG AS SELECT $x * 2"


async def exchange(relay: Relay, *requests: Any) -> list[Any]:
    """Send the requests in one piece and return the responses."""
    data = b"".join(wire.frame(request) for request in requests)
    frames = b"".join([piece async for piece in relay.answers(data)])
    return [wire.Rpc.FromString(payload) for payload in Deframer().feed(frames)]


def query(sql: str) -> Any:
    return wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql))


def cells(message: Any) -> list[int]:
    return [cell for batch in message.query_result.batch for cell in batch.varint_cells]


async def test_requests_are_answered_in_order(open_session: OpenSession) -> None:
    async with open_session() as session:
        requests = [query("SELECT 1"), wire.request(wire.GET_STATUS), query("SELECT 2"), query("SELECT 3")]
        messages = await exchange(Relay(session), *requests)
        assert [message.response for message in messages] == [wire.QUERY_STREAMING, wire.GET_STATUS, *[3] * 2]
        assert [cells(message) for message in messages] == [[1], [], [2], [3]]
        assert not any(message.HasField("seq") for message in messages)
        assert not any(message.query_result.HasField("elapsed_time_ms") for message in messages)  # the UI warns of it


async def test_request_may_arrive_in_pieces(open_session: OpenSession) -> None:
    async with open_session() as session:
        relay, data = Relay(session), wire.frame(query("SELECT 1"))
        assert [piece async for piece in relay.answers(data[:5])] == []
        assert len([piece async for piece in relay.answers(data[5:])]) == 1


@pytest.mark.parametrize("method", [wire.APPEND_TRACE_DATA, wire.FINALIZE_TRACE_DATA, wire.RESET_TRACE_PROCESSOR])
async def test_requests_that_change_the_shared_trace_are_refused(method: int, open_session: OpenSession) -> None:
    async with open_session() as session:
        refused, after = await exchange(Relay(session), wire.request(method), query("SELECT count(*) FROM slice"))
        assert refused.response == method
        reason = refused.fatal_error or refused.append_result.error or refused.finalize_data_result.error
        assert "it loads no other file" in reason
        assert reason.endswith("(ERR:ws)")  # with this mark, the UI does not report a bug of its own
        assert cells(after) == [487]


async def test_restoring_tables_keeps_the_tables_of_other_clients(open_session: OpenSession) -> None:
    async with open_session() as session:
        await query_rows(session, "CREATE TABLE mine AS SELECT 42 AS x")
        (restored,) = await exchange(Relay(session), wire.request(wire.RESTORE_INITIAL_TABLES))
        assert restored.response == wire.RESTORE_INITIAL_TABLES
        assert not restored.fatal_error
        assert await query_rows(session, "SELECT x FROM mine") == [(42,)]


async def test_status_has_the_version_and_no_trace(open_session: OpenSession) -> None:
    async with open_session() as session:
        await session.settled()
        (message,) = await exchange(Relay(session), wire.request(wire.GET_STATUS))
        assert message.status.human_readable_version.startswith("Perfetto v54.0")
        assert message.status.api_version == wire.API_VERSION
        assert message.status.loaded_trace_name == ""


async def test_status_does_not_wait_for_a_running_query(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS, limit=None, timeout_s=30)
        assert await in_time(exchange(Relay(session), wire.request(wire.GET_STATUS)))
        running.close()


async def test_second_tab_may_create_the_names_of_the_first(open_session: OpenSession) -> None:
    async with open_session() as session:
        for sql in (FUNCTION, "CREATE PERFETTO TABLE cooked AS SELECT 1 AS x", "CREATE VIEW seen AS SELECT 1 AS x"):
            for tab in (Relay(session), Relay(session)):
                (message,) = await exchange(tab, query(sql))
                assert message.query_result.error == ""
                assert wire.is_last(message)
        assert await query_rows(session, "SELECT twice(x) FROM cooked, seen USING (x)") == [(2,)]


async def test_tabs_that_create_the_same_name_have_separate_objects(open_session: OpenSession) -> None:
    create = "DROP TABLE IF EXISTS mine; CREATE TABLE mine AS SELECT {0} AS x"
    function = "CREATE PERFETTO FUNCTION twice(x LONG) RETURNS LONG AS SELECT $x * {0}"
    older = "SELECT CREATE_FUNCTION('THRICE(x LONG)', 'LONG', 'SELECT $x * {0} + 1')"
    async with open_session() as session:
        await session.settled()
        tabs = [Relay(session) for _ in range(3)]
        for number, tab in enumerate(tabs, start=1):
            for sql in (create, function, older, 'CREATE VIEW seen AS SELECT x, twice(x) AS y FROM "mine"'):
                (message,) = await exchange(tab, query(sql.format(number)))
                assert message.query_result.error == ""
        for number, tab in enumerate(tabs, start=1):
            (message,) = await exchange(tab, query("SELECT x, y, thrice(seen.x) FROM main.seen"))
            assert cells(message) == [number, number * number, number * number + 1]
        await exchange(tabs[1], query("UPDATE mine SET x = 7"), query("DROP VIEW seen"))
        assert await query_rows(session, "SELECT x, y FROM mine, seen USING (x)") == [(1, 1)]


async def test_objects_of_a_tab_are_dropped_when_it_leaves(open_session: OpenSession) -> None:
    async with open_session() as session:
        await session.settled()
        before = await query_rows(session, LISTED_TABLES)
        first, second = Relay(session), Relay(session)
        for tab in (first, second):
            await exchange(tab, query("CREATE TABLE mine AS SELECT 1 AS x; CREATE VIEW seen AS SELECT x FROM mine"))
        assert len(await query_rows(session, LISTED_TABLES)) == len(before) + 4
        session.forget(first.client)
        async with asyncio.timeout(60):
            while len(await query_rows(session, LISTED_TABLES)) > len(before) + 2:
                pass
        (message,) = await exchange(second, query("SELECT x FROM seen"))
        assert cells(message) == [1]
        await query_rows(session, "CREATE TABLE mine AS SELECT 3 AS x")
        assert await query_rows(session, "SELECT x FROM mine") == [(3,)]


async def test_tab_continues_its_stream_only_with_permission(open_session: OpenSession) -> None:
    async with open_session() as session:
        first, later = (wire.Rpc(seq=seq, request=wire.GET_STATUS) for seq in (0, 1))
        data = [b"\x0a" + wire.varint(len(body)) + body for body in (m.SerializeToString() for m in (first, later))]
        fresh = Relay(session, resumable=False)
        assert len([answer for piece in data async for answer in fresh.answers(piece)]) == 2
        assert [answer async for answer in Relay(session, resumable=True).answers(data[1])]
        with pytest.raises(RequestRefused, match="Reload this tab"):
            [answer async for answer in Relay(session, resumable=False).answers(data[1])]


async def test_tab_receives_the_error_of_a_statement(open_session: OpenSession) -> None:
    async with open_session() as session:
        bad, good = await exchange(Relay(session), query("SELECT nope"), query("SELECT 1"))
        assert "no such column: nope" in bad.query_result.error
        assert cells(good) == [1]


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\x0a\x03\xff\xff\xff", b"\x0a" + wire.varint(1 << 26)])
async def test_bytes_that_are_no_rpc_are_refused(data: bytes, open_session: OpenSession) -> None:
    async with open_session() as session:
        with pytest.raises(BadFrame):
            [piece async for piece in Relay(session).answers(data)]


async def test_tab_that_leaves_stops_its_query(open_session: OpenSession) -> None:
    async with open_session() as session:
        leaving = asyncio.create_task(exchange(Relay(session), query(ENDLESS)))
        await session.settled()
        waiting = asyncio.create_task(query_rows(session, "SELECT 1"))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        leaving.cancel()
        assert await in_time(waiting) == [(1,)]


@pytest.mark.parametrize("bound", ["BUFFER_MAX", "BUFFERS_MAX"])
async def test_slow_reader_is_disconnected(
    bound: str, open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffers_module, bound, 1_000_000)
    async with open_session() as session:
        answers = ask(session, PerfettoRequest(query(ENDLESS_ROWS)))
        await anext(answers)
        assert await in_time(query_rows(session, "SELECT 1")) == [(1,)]  # although the answer is not read
        with pytest.raises(EngineFailed, match="does not read"):
            [_ async for _ in answers]
        assert session.limits.response_buffers.total == 0


async def test_tab_receives_a_timeout_and_stays_connected(open_session: OpenSession) -> None:
    async with open_session(ui_timeout_s=0.3) as session:
        relay = Relay(session)
        (late,) = await in_time(exchange(relay, query(ENDLESS)))
        assert late.query_result.error == "The query was stopped after 0.3 s."
        assert wire.is_last(late)
        session.limits = replace(session.limits, ui_timeout_s=PATIENCE_S)  # for a slow machine
        (after,) = await in_time(exchange(relay, query("SELECT 1")))
        assert cells(after) == [1]


async def test_tab_is_answered_before_bulk_sql(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        bulk = [session.query("SELECT 1", limit=None, timeout_s=30) for _ in range(3)]
        tab = asyncio.create_task(exchange(Relay(session), query("SELECT 2")))
        await asyncio.sleep(0)
        running.close()
        assert cells((await tab)[0]) == [2]
        assert not bulk[-1].done
        for result in bulk:
            await result.complete()
            result.close()


async def test_tab_receives_the_error_of_a_full_queue(open_session: OpenSession) -> None:
    async with open_session(queue=1) as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        waiting = session.query("SELECT 1", limit=None, timeout_s=30)
        (message,) = await exchange(Relay(session), query("SELECT 2"))
        assert "wait for this trace's engine already" in message.query_result.error
        metric = wire.request(wire.COMPUTE_METRIC)
        (message,) = await exchange(Relay(session), metric)
        assert "wait for this trace's engine already" in message.metric_result.error
        for result in (running, waiting):
            result.close()


@pytest.mark.parametrize("method", [0, 13, 20, 21])
async def test_unknown_method_never_reaches_the_engine(method: int, open_session: OpenSession) -> None:
    async with open_session() as session:
        unknown, after = await exchange(Relay(session), wire.request(method), query("SELECT 1"))
        assert unknown.invalid_request == method
        assert cells(after) == [1]


async def test_closed_engine_raises_to_the_tab(open_session: OpenSession) -> None:
    async with open_session() as session:
        await session.settled()
        await session.close()
        with pytest.raises(EngineFailed, match="closed"):
            await exchange(Relay(session), query("SELECT 1"))

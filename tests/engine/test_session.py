"""One engine on one trace, shared by all clients."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.engine import session as session_module
from service.engine.session import Session, SessionState
from service.engine.trace_processor.process import TraceProcessor, sql_error
from service.trace.errors import (
    EngineBusy,
    EngineFailed,
    EngineOutOfMemory,
    EngineStalled,
    QueryTimeout,
    ResultTooLarge,
    SqlError,
    Truncated,
)
from tests.conftest import DATA
from tests.engine.conftest import (
    DOUBLES,
    ENDLESS,
    ENDLESS_ROWS,
    OpenSession,
    all_rows,
    gone,
    in_time,
    query_rows,
    session_of,
    within,
)
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S

STEP_TRACE = DATA / "cpu_train_steps.pt.trace.json.gz"


# -- loading -------------------------------------------------------------------------------------------------------


async def test_session_loads_its_trace(open_session: OpenSession) -> None:
    async with open_session() as session:
        assert str(session.state) == "loading"
        assert session.busy
        assert await session.settled(30)
        assert str(session.state) == "ready"
        assert session.version.code.startswith("v54.0")
        assert session.load_s
        assert not session.busy
        assert await query_rows(session, "SELECT count(*) FROM slice") == [(487,)]


async def test_settled_waits_no_longer_than_its_limit(open_session: OpenSession, one_event: Path) -> None:
    async with open_session(one_event, DOUBLES / "mute") as session:
        assert not await session.settled(0)
        assert not await session.settled(0.05)
        assert session.state is SessionState.LOADING


async def test_progress_is_reported_during_the_load(open_session: OpenSession, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "big.json", sized(TraceShape(), 20_000_000))
    async with open_session(trace) as session:
        progress = set()
        while not await session.settled(0.01):
            progress.add(session.loaded_bytes)
        assert len(progress) > 1
        assert session.loaded_bytes == trace.stat().st_size


async def test_truncated_file_fails_the_session_with_its_error(open_session: OpenSession, tmp_path: Path) -> None:
    cut = tmp_path / "trace"
    cut.write_bytes(STEP_TRACE.read_bytes()[:-100])
    async with open_session(cut) as session:
        with pytest.raises(Truncated):
            await session.settled()


async def test_failed_load_reports_the_output_of_the_engine(open_session: OpenSession, one_event: Path) -> None:
    async with open_session(one_event, DOUBLES / "failing") as session:
        with pytest.raises(EngineFailed, match="the moon is in the way"):
            await session.settled()
        assert session.state is SessionState.FAILED
        with pytest.raises(EngineFailed, match="the moon is in the way"):
            await query_rows(session, "SELECT 1")


async def test_real_engine_reports_why_it_can_not_load(open_session: OpenSession, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"traceEvents":[{"ph":')
    async with open_session(broken) as session:
        with pytest.raises(EngineFailed, match="can't load the trace"):
            await session.settled()


async def test_load_has_a_deadline(open_session: OpenSession, one_event: Path) -> None:
    async with open_session(one_event, DOUBLES / "mute", load_timeout_s=0.3) as session:
        with pytest.raises(EngineFailed, match=r"not loaded in 0\.3 s"):
            await in_time(session.settled())
        assert session.pid
        assert await gone(session)


async def test_missing_trace_file_fails_the_session(open_session: OpenSession, tmp_path: Path) -> None:
    async with open_session(tmp_path / "nowhere") as session:
        with pytest.raises(EngineFailed, match="can't be read: No such file"):
            await session.settled()


async def test_closing_a_loading_session_fails_its_requests(engine: Path) -> None:
    session = session_of(STEP_TRACE, engine)
    waiting = asyncio.create_task(session.settled())
    result = session.query("SELECT 1", limit=None, timeout_s=30)
    await session.close()
    with pytest.raises(EngineFailed, match="was closed"):
        await in_time(waiting)
    with pytest.raises(EngineFailed, match="was closed"):
        await in_time(all_rows(result))


# -- answers -------------------------------------------------------------------------------------------------------


async def test_values_are_exact(open_session: OpenSession) -> None:
    async with open_session() as session:
        sql = (
            "SELECT 9223372036854775807, -9223372036854775808, 9007199254740993, NULL, x'00ff', x'', 9e999, -9e999,"
            " 5e-324, 0.1, '', 'ü😀', 'a' || char(10) || 'b'"
        )
        assert await query_rows(session, sql) == [
            (2**63 - 1, -(2**63), 2**53 + 1, None, b"\0\xff", b"", float("inf"), float("-inf"),
             5e-324, 0.1, "", "ü😀", "a\nb"),
        ]  # fmt: skip


async def test_invalid_utf8_and_nul_do_not_affect_other_cells(open_session: OpenSession) -> None:
    async with open_session() as session:
        sql = "SELECT CAST(x'ff41' AS TEXT), 'b', 'a' || char(0) || 'c', 'd', CAST(x'e4' AS TEXT), 'e'"
        assert await query_rows(session, sql) == [("\ufffdA", "b", "a", "d", "\ufffd", "e")]


async def test_result_is_that_of_the_last_statement(open_session: OpenSession) -> None:
    async with open_session() as session:
        assert await query_rows(session, "SELECT 1; SELECT 2, 3") == [(2, 3)]
        assert await query_rows(session, "INCLUDE PERFETTO MODULE slices.with_context; SELECT 5") == [(5,)]
        included = session.query("INCLUDE PERFETTO MODULE slices.with_context", limit=None, timeout_s=30)
        assert await all_rows(included) == []
        assert included.names == []


async def test_sql_error_has_its_position(open_session: OpenSession) -> None:
    async with open_session() as session:
        with pytest.raises(SqlError, match="no such column: nope") as raised:
            await query_rows(session, "SELECT 1;\nSELECT\n  nope FROM slice")
        assert (raised.value.extra["line"], raised.value.extra["column"]) == (3, 3)
        with pytest.raises(SqlError, match="No valid SQL"):
            await query_rows(session, "-- nothing")


def test_engine_error_without_a_position_has_only_its_message() -> None:
    assert sql_error("out of memory").extra == {"message": "out of memory"}


async def test_limit_stops_the_engine_and_truncates_the_result(open_session: OpenSession) -> None:
    async with open_session() as session:
        result = session.query(ENDLESS_ROWS, limit=10, timeout_s=30)
        assert await in_time(all_rows(result)) == [(number,) for number in range(1, 11)]
        assert result.truncated
        assert await query_rows(session, "SELECT 1") == [(1,)]


async def test_result_as_long_as_the_limit_is_not_truncated(open_session: OpenSession) -> None:
    async with open_session() as session:
        for rows in (10, 100_000):  # a result of one batch, and one of many batches
            sql = ENDLESS_ROWS.replace("FROM c)", f"FROM c LIMIT {rows})")
            results = [session.query(sql, limit=limit, timeout_s=30) for limit in (rows - 1, rows, rows + 1)]
            counts = [len(await all_rows(result)) for result in results]
            assert counts == [rows - 1, rows, rows]
            assert [result.truncated for result in results] == [True, False, False]


async def test_result_beyond_its_size_limit_is_refused(open_session: OpenSession) -> None:
    async with open_session(max_result_bytes=100_000) as session:
        with pytest.raises(ResultTooLarge, match="100000 bytes"):
            await in_time(query_rows(session, ENDLESS_ROWS))
        assert await query_rows(session, "SELECT 1") == [(1,)]


# -- abandoned queries and deadlines -------------------------------------------------------------------------------


async def test_query_is_stopped_at_its_deadline_and_the_next_is_answered(open_session: OpenSession) -> None:
    async with open_session() as session:
        for sql in (ENDLESS, ENDLESS_ROWS):
            with pytest.raises(QueryTimeout, match=r"after 0\.2 s"):
                await in_time(query_rows(session, sql, timeout_s=0.2))
            assert await in_time(query_rows(session, "SELECT 1")) == [(1,)]


async def test_deadline_includes_the_time_in_the_queue(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS, limit=None, timeout_s=30)
        with pytest.raises(QueryTimeout):
            await in_time(query_rows(session, "SELECT 1", timeout_s=0.2))
        assert not running.done
        running.close()
        assert await in_time(query_rows(session, "SELECT 1")) == [(1,)]


async def test_query_abandoned_in_the_queue_never_runs(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS, limit=None, timeout_s=30)
        dropped = session.query("CREATE TABLE never(x)", limit=None, timeout_s=30)
        dropped.close()
        assert dropped.done
        running.close()
        assert await in_time(query_rows(session, "SELECT count(*) FROM sqlite_master WHERE name = 'never'")) == [(0,)]


async def test_running_query_is_stopped_when_abandoned(open_session: OpenSession) -> None:
    async with open_session() as session:
        result = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await result.first()
        result.close()
        assert await in_time(query_rows(session, "SELECT 1")) == [(1,)]


async def test_query_abandoned_during_the_load_never_runs(open_session: OpenSession) -> None:
    async with open_session() as session:
        session.query(ENDLESS, limit=None, timeout_s=30).close()
        assert await in_time(query_rows(session, "SELECT 1")) == [(1,)]


async def test_late_response_is_not_taken_for_that_of_the_next_query(
    open_session: OpenSession, one_event: Path
) -> None:
    async with open_session(one_event, DOUBLES / "late") as session:
        with pytest.raises(QueryTimeout):
            await query_rows(session, "SELECT 1", timeout_s=0.2)
        next_result = session.query("SELECT 1", limit=None, timeout_s=0.2)
        with pytest.raises(QueryTimeout):
            await all_rows(next_result)
        assert next_result.rows == 0


async def test_engine_that_ignores_interrupts_is_killed(
    open_session: OpenSession, one_event: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "INTERRUPT_TIMEOUT_S", 0.3)
    async with open_session(one_event, DOUBLES / "deaf") as session:
        await session.settled()
        with pytest.raises(QueryTimeout):
            await in_time(query_rows(session, "SELECT 1", timeout_s=0.1))
        assert session.state is SessionState.FAILED
        assert await gone(session)


# -- engines that fail ---------------------------------------------------------------------------------------------


async def test_killed_engine_fails_running_and_waiting_requests(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        waiting = session.query("SELECT 1", limit=None, timeout_s=30)
        await running.first()
        psutil.Process(session.pid).kill()
        for result in (running, waiting):
            with pytest.raises(EngineFailed, match="SIGKILL"):
                await in_time(all_rows(result))
        assert session.over
        with pytest.raises(EngineFailed, match="SIGKILL"):
            await query_rows(session, "SELECT 1")


@pytest.mark.parametrize(
    ("double", "reason"),
    [
        ("dying", "out of ideas"),
        ("garbled", "can't be read"),
        ("gibberish", "can't be read"),
        ("silenced", "SIGKILL"),
    ],
)
async def test_misbehaving_engine_fails_its_session_with_the_reason(
    double: str, reason: str, open_session: OpenSession, one_event: Path
) -> None:
    async with open_session(one_event, DOUBLES / double) as session:
        with pytest.raises(EngineFailed, match=reason):
            await in_time(query_rows(session, "SELECT 1"))
        assert session.state is SessionState.FAILED


async def test_requests_end_before_a_slow_engine_has_stopped(open_session: OpenSession, one_event: Path) -> None:
    async with open_session(one_event, DOUBLES / "deaf", stop_s=1.0) as session:
        await session.settled()
        result = session.query("SELECT 1", limit=None, timeout_s=30)
        closing = asyncio.create_task(session.close())
        with pytest.raises(EngineFailed, match="closed"):
            await within(0.5, all_rows(result))
        assert not closing.done()
        await asyncio.gather(closing, session.close())  # a second close() waits for the first
        assert await gone(session)
        assert isinstance(session._engine, TraceProcessor)
        assert session._engine.stopped_by == "SIGKILL"


async def test_crash_of_an_idle_engine_is_noticed(open_session: OpenSession, caplog: pytest.LogCaptureFixture) -> None:
    async with open_session() as session:
        await session.settled()
        psutil.Process(session.pid).kill()
        await in_time(session.ended())
        assert session.state is SessionState.FAILED
        assert "was killed by SIGKILL" in caplog.text
        with pytest.raises(EngineFailed, match="SIGKILL"):
            await session.settled()


async def test_error_of_a_crash_allows_a_retry_only_after_a_load(open_session: OpenSession, one_event: Path) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        psutil.Process(session.pid).kill()
        with pytest.raises(EngineFailed) as raised:
            await in_time(all_rows(running))
        assert raised.value.extra["retry_after_s"] == 1
    async with open_session(one_event, DOUBLES / "failing") as session:
        with pytest.raises(EngineFailed) as raised:
            await session.settled()
        assert "retry_after_s" not in raised.value.extra  # a new load would fail again


# -- limits of memory and time -------------------------------------------------------------------------------------


async def test_engine_beyond_its_memory_limit_is_ended(
    open_session: OpenSession, one_event: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "WATCH_EVERY_S", 0.02)
    async with open_session(one_event, DOUBLES / "greedy", memory_limit_bytes=200_000_000) as session:
        with pytest.raises(EngineOutOfMemory, match="exceeded the 190 MiB") as raised:
            await in_time(query_rows(session, "SELECT 1"))
        assert raised.value.extra["limit_bytes"] == 200_000_000
        assert raised.value.extra["memory_bytes"] > 200_000_000
        assert (session.peak_bytes or 0) > 200_000_000
        assert await gone(session)


async def test_failed_allocation_fails_the_statement_and_not_the_engine(
    open_session: OpenSession,
) -> None:
    async with open_session() as session:
        await session.settled()
        assert session._engine
        session._engine.limit_memory(200_000_000)
        with pytest.raises(SqlError, match="out of memory"):
            await query_rows(session, "SELECT zeroblob(900000000)")
        assert await query_rows(session, "SELECT 1") == [(1,)]


async def test_crash_for_lack_of_memory_is_reported_as_such(open_session: OpenSession) -> None:
    async with open_session(memory_limit_bytes=100_000_000) as session:
        await session.settled()
        assert session._engine
        session._engine.limit_memory(100_000_000)
        rows = ENDLESS_ROWS.replace("FROM c)", "FROM c LIMIT 20000000)")
        with pytest.raises(EngineOutOfMemory, match="exceeded the 95 MiB"):
            await in_time(query_rows(session, f"CREATE PERFETTO TABLE much AS {rows}"))


STALL_S = 1.5
"""Enough processor time of the engine for a busy machine to feed it one event."""


async def test_stalled_load_is_ended_with_an_error(
    open_session: OpenSession, one_event: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "WATCH_EVERY_S", 0.02)
    async with open_session(one_event, DOUBLES / "spinning", stall_s=STALL_S) as session:
        with pytest.raises(EngineStalled, match=rf"no progress for {STALL_S} s") as raised:
            await in_time(session.settled())
        assert raised.value.extra == {"loaded_bytes": session.loaded_bytes, "stall_s": STALL_S, "fed": True}
        assert await gone(session)


async def test_document_that_stalls_the_real_engine_is_ended_with_an_error(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "WATCH_EVERY_S", 0.02)
    trace = tmp_path / "hostile.json"
    trace.write_text('{"traceEvents":[{"ph":"M","name":"thread_name","pid":1,"tid":1,"ts":0,"args":{"name":NaN}}]}')
    async with open_session(trace, stall_s=0.3) as session:
        with pytest.raises(EngineStalled):
            await in_time(session.settled())
        assert await gone(session)


async def test_session_reports_its_memory(open_session: OpenSession) -> None:
    async with open_session() as session:
        assert session.memory_bytes is None
        await session.settled()
        assert session.memory_bytes == pytest.approx(psutil.Process(session.pid).memory_info().rss, rel=0.1)
        assert (session.peak_bytes or 0) >= (session.memory_bytes or 0)
        assert session.held_bytes == pytest.approx(session.memory_bytes, rel=0.1)
        assert session.waiting == 0
    assert session.memory_bytes is None
    assert session.held_bytes == 0


# -- queries of the service after a load ---------------------------------------------------------------------------


async def test_after_load_runs_before_queries_of_clients(open_session: OpenSession) -> None:
    async def count_slices(session: Session) -> None:
        (await session.run("CREATE TABLE ours AS SELECT count(*) AS slices FROM slice")).close()
        result = await session.run("SELECT slices FROM ours")
        counts.extend(await all_rows(result))
        assert session.state is SessionState.LOADING

    counts: list[tuple[Any, ...]] = []
    async with open_session(after_load=count_slices) as session:
        early = session.query("SELECT slices + 1 FROM ours", limit=None, timeout_s=30)
        assert await all_rows(early) == [(488,)]
        assert counts == [(487,)]
        assert await all_rows(await session.run("SELECT slices + 2 FROM ours")) == [(489,)]
        assert session.queries == 1


async def test_error_in_after_load_fails_the_session(open_session: OpenSession) -> None:
    async def query_unknown_column(session: Session) -> None:
        await session.run("SELECT nope")

    async with open_session(after_load=query_unknown_column) as session:
        with pytest.raises(SqlError, match="no such column: nope"):
            await session.settled()
        assert session.state is SessionState.FAILED


# -- scheduling of clients -----------------------------------------------------------------------------------------


async def test_query_beyond_the_queue_raises_engine_busy(open_session: OpenSession) -> None:
    async with open_session(queue=2) as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        waiting = [session.query("SELECT 1", limit=None, timeout_s=30) for _ in range(2)]
        assert session.waiting == 2
        with pytest.raises(EngineBusy):
            await in_time(query_rows(session, "SELECT 1"))
        running.close()
        assert [await all_rows(result) for result in waiting] == [[(1,)]] * 2


async def test_clients_take_turns(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        results = [session.query("SELECT 1", limit=None, timeout_s=30, client="busy") for _ in range(5)]
        other_result = session.query("SELECT 2", limit=None, timeout_s=30, client="other")
        running.close()
        assert await all_rows(other_result) == [(2,)]
        assert [result.done for result in results][1:] == [False] * 4
        for result in results:
            await all_rows(result)


# -- a parent that is killed ---------------------------------------------------------------------------------------

PARENT = """
import asyncio, sys
from pathlib import Path
from tests.engine.conftest import session_of

async def main(trace, engine, sql):
    session = session_of(Path(trace), Path(engine))
    while session.pid is None:
        await asyncio.sleep(0)
    if sql:
        await session.settled()
        result = session.query(sql, limit=None, timeout_s=60)
        await result.first()
    print(session.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("when", ["loading", "in an endless query"])
def test_engine_ends_when_its_server_is_killed(when: str, engine: Path, tmp_path: Path) -> None:
    big = write_trace(tmp_path / "big.json", sized(TraceShape(), 60_000_000)) if when == "loading" else STEP_TRACE
    sql = ENDLESS_ROWS if when != "loading" else ""
    command = [sys.executable, "-c", PARENT, str(big), str(engine), sql]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.send_signal(signal.SIGKILL)
        gone_in_time, alive = psutil.wait_procs([child], timeout=PATIENCE_S)
    assert gone_in_time
    assert not alive

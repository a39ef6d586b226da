"""One engine, shared by all who ask."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.engine import session as session_module
from service.engine.session import Session, SessionState, sql_error
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
from tests.engine.conftest import DOUBLES, ENDLESS, ENDLESS_ROWS, OpenSession, all_rows, asked, gone, session_of, within
from tests.traces import TraceShape, sized, write_trace

STEP_TRACE = DATA / "cpu_train_steps.pt.trace.json.gz"


# -- loading -------------------------------------------------------------------------------------------------------


async def test_a_session_loads_its_trace(open_session: OpenSession) -> None:
    async with open_session() as session:
        assert str(session.state) == "loading"
        assert session.busy
        assert await session.settled(30)
        assert str(session.state) == "ready"
        assert session.version_code.startswith("v54.0")
        assert session.load_s
        assert not session.busy
        assert await asked(session, "SELECT count(*) FROM slice") == [(487,)]


async def test_a_load_is_waited_for_no_longer_than_told(open_session: OpenSession, one_event: Path) -> None:
    async with open_session(one_event, DOUBLES / "mute") as session:
        assert not await session.settled(0)
        assert not await session.settled(0.05)
        assert session.state is SessionState.LOADING


async def test_progress_is_told_while_loading(open_session: OpenSession, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "big.json", sized(TraceShape(), 20_000_000))
    async with open_session(trace) as session:
        seen = set()
        while not await session.settled(0.01):
            seen.add(session.loaded_bytes)
        assert len(seen) > 1
        assert session.loaded_bytes == trace.stat().st_size


async def test_a_source_that_fails_fails_the_session_with_the_reason(open_session: OpenSession, tmp_path: Path) -> None:
    cut = tmp_path / "trace"
    cut.write_bytes(STEP_TRACE.read_bytes()[:-100])
    async with open_session(cut) as session:
        with pytest.raises(Truncated):
            await session.settled()


async def test_a_failed_load_tells_what_the_engine_said(open_session: OpenSession, one_event: Path) -> None:
    async with open_session(one_event, DOUBLES / "failing") as session:
        with pytest.raises(EngineFailed, match="the moon is in the way"):
            await session.settled()
        assert session.state is SessionState.FAILED
        with pytest.raises(EngineFailed, match="the moon is in the way"):
            await asked(session, "SELECT 1")


async def test_the_real_engine_says_why_it_cannot_load(open_session: OpenSession, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"traceEvents":[{"ph":')
    async with open_session(broken) as session:
        with pytest.raises(EngineFailed, match="can't load the trace"):
            await session.settled()


async def test_a_load_has_a_deadline(open_session: OpenSession, one_event: Path) -> None:
    async with open_session(one_event, DOUBLES / "mute", load_timeout_s=0.3) as session:
        with pytest.raises(EngineFailed, match=r"not loaded in 0\.3 s"):
            await within(5, session.settled())
        assert session.pid
        assert await gone(session)


async def test_a_trace_whose_bytes_are_gone_fails(open_session: OpenSession, tmp_path: Path) -> None:
    async with open_session(tmp_path / "nowhere") as session:
        with pytest.raises(EngineFailed, match="can't be read: No such file"):
            await session.settled()


async def test_a_session_closed_before_it_began_releases_who_waits(engine: Path) -> None:
    session = session_of(STEP_TRACE, engine)
    waiting = asyncio.create_task(session.settled())
    result = session.query("SELECT 1", limit=None, timeout_s=30)
    await session.close()
    with pytest.raises(EngineFailed, match="was closed"):
        await within(1, waiting)
    with pytest.raises(EngineFailed, match="was closed"):
        await within(1, all_rows(result))


# -- answers -------------------------------------------------------------------------------------------------------


async def test_values_arrive_exactly(open_session: OpenSession) -> None:
    async with open_session() as session:
        sql = (
            "SELECT 9223372036854775807, -9223372036854775808, 9007199254740993, NULL, x'00ff', x'', 9e999, -9e999,"
            " 5e-324, 0.1, '', 'ü😀', 'a' || char(10) || 'b'"
        )
        assert await asked(session, sql) == [
            (2**63 - 1, -(2**63), 2**53 + 1, None, b"\0\xff", b"", float("inf"), float("-inf"),
             5e-324, 0.1, "", "ü😀", "a\nb"),
        ]  # fmt: skip


async def test_text_that_is_no_utf8_or_holds_nul_does_not_shift_its_neighbours(open_session: OpenSession) -> None:
    async with open_session() as session:
        sql = "SELECT CAST(x'ff41' AS TEXT), 'b', 'a' || char(0) || 'c', 'd', CAST(x'e4' AS TEXT), 'e'"
        assert await asked(session, sql) == [("\ufffdA", "b", "a", "d", "\ufffd", "e")]


async def test_the_last_statement_answers(open_session: OpenSession) -> None:
    async with open_session() as session:
        assert await asked(session, "SELECT 1; SELECT 2, 3") == [(2, 3)]
        assert await asked(session, "INCLUDE PERFETTO MODULE slices.with_context; SELECT 5") == [(5,)]
        included = session.query("INCLUDE PERFETTO MODULE slices.with_context", limit=None, timeout_s=30)
        assert await all_rows(included) == []
        assert included.names == []


async def test_a_statement_that_is_refused_is_told_with_its_position(open_session: OpenSession) -> None:
    async with open_session() as session:
        with pytest.raises(SqlError, match="no such column: nope") as refused:
            await asked(session, "SELECT 1;\nSELECT\n  nope FROM slice")
        assert (refused.value.extra["line"], refused.value.extra["column"]) == (3, 3)
        with pytest.raises(SqlError, match="No valid SQL"):
            await asked(session, "-- nothing")


def test_an_error_without_a_position_has_none() -> None:
    assert sql_error("out of memory").extra == {"message": "out of memory"}


async def test_a_limit_stops_the_engine_and_says_truncated(open_session: OpenSession) -> None:
    async with open_session() as session:
        result = session.query(ENDLESS_ROWS, limit=10, timeout_s=30)
        assert await within(5, all_rows(result)) == [(number,) for number in range(1, 11)]
        assert result.truncated
        assert await asked(session, "SELECT 1") == [(1,)]


async def test_a_result_that_is_just_as_long_as_the_limit_is_whole(open_session: OpenSession) -> None:
    async with open_session() as session:
        for rows in (10, 100_000):  # of one batch, and of many
            sql = ENDLESS_ROWS.replace("FROM c)", f"FROM c LIMIT {rows})")
            results = [session.query(sql, limit=limit, timeout_s=30) for limit in (rows - 1, rows, rows + 1)]
            counts = [len(await all_rows(result)) for result in results]
            assert counts == [rows - 1, rows, rows]
            assert [result.truncated for result in results] == [True, False, False]


async def test_a_result_that_outgrows_its_bound_is_refused(open_session: OpenSession) -> None:
    async with open_session(max_result_bytes=100_000) as session:
        with pytest.raises(ResultTooLarge, match="100000 bytes"):
            await within(10, asked(session, ENDLESS_ROWS))
        assert await asked(session, "SELECT 1") == [(1,)]


# -- leaving and running out of time -------------------------------------------------------------------------------


async def test_a_query_is_stopped_at_its_deadline_and_the_next_is_answered(open_session: OpenSession) -> None:
    async with open_session() as session:
        for sql in (ENDLESS, ENDLESS_ROWS):
            with pytest.raises(QueryTimeout, match=r"after 0\.2 s"):
                await within(3, asked(session, sql, timeout_s=0.2))
            assert await within(1, asked(session, "SELECT 1")) == [(1,)]


async def test_the_deadline_holds_also_for_a_query_that_waits_for_its_turn(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS, limit=None, timeout_s=30)
        with pytest.raises(QueryTimeout):
            await within(2, asked(session, "SELECT 1", timeout_s=0.2))
        assert not running.done
        running.close()
        assert await within(2, asked(session, "SELECT 1")) == [(1,)]


async def test_a_query_that_is_left_while_it_waits_never_runs(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS, limit=None, timeout_s=30)
        left = session.query("CREATE TABLE never(x)", limit=None, timeout_s=30)
        left.close()
        assert left.done
        running.close()
        assert await within(2, asked(session, "SELECT count(*) FROM sqlite_master WHERE name = 'never'")) == [(0,)]


async def test_a_query_that_is_left_while_it_runs_is_stopped(open_session: OpenSession) -> None:
    async with open_session() as session:
        result = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await result.first()
        result.close()
        assert await within(2, asked(session, "SELECT 1")) == [(1,)]


async def test_a_query_that_is_left_before_the_trace_is_loaded_never_runs(open_session: OpenSession) -> None:
    async with open_session() as session:
        session.query(ENDLESS, limit=None, timeout_s=30).close()
        assert await within(10, asked(session, "SELECT 1")) == [(1,)]


async def test_an_answer_that_comes_after_the_deadline_is_not_taken_for_the_next(
    open_session: OpenSession, one_event: Path
) -> None:
    async with open_session(one_event, DOUBLES / "late") as session:
        with pytest.raises(QueryTimeout):
            await asked(session, "SELECT 1", timeout_s=0.2)
        next_one = session.query("SELECT 1", limit=None, timeout_s=0.2)
        with pytest.raises(QueryTimeout):
            await all_rows(next_one)
        assert next_one.rows == 0


async def test_an_engine_that_heeds_no_interrupt_is_killed(
    open_session: OpenSession, one_event: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "STUCK_AFTER_S", 0.3)
    async with open_session(one_event, DOUBLES / "deaf") as session:
        await session.settled()
        with pytest.raises(QueryTimeout):
            await within(3, asked(session, "SELECT 1", timeout_s=0.1))
        assert session.state is SessionState.FAILED
        assert await gone(session)


# -- engines that fail ---------------------------------------------------------------------------------------------


async def test_a_killed_engine_fails_its_client_and_those_who_wait(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        waiting = session.query("SELECT 1", limit=None, timeout_s=30)
        await running.first()
        psutil.Process(session.pid).kill()
        for result in (running, waiting):
            with pytest.raises(EngineFailed, match="SIGKILL"):
                await within(3, all_rows(result))
        assert session.over
        with pytest.raises(EngineFailed, match="SIGKILL"):
            await asked(session, "SELECT 1")


@pytest.mark.parametrize(
    ("double", "said"),
    [
        ("dying", "out of ideas"),
        ("garbled", "can't be read"),
        ("gibberish", "can't be read"),
        ("silenced", "SIGKILL"),
    ],
)
async def test_an_engine_that_misbehaves_ends_its_session_with_the_reason(
    double: str, said: str, open_session: OpenSession, one_event: Path
) -> None:
    async with open_session(one_event, DOUBLES / double) as session:
        with pytest.raises(EngineFailed, match=said):
            await within(5, asked(session, "SELECT 1"))
        assert session.state is SessionState.FAILED


async def test_who_waits_is_told_at_once_though_the_engine_is_slow_to_stop(
    open_session: OpenSession, one_event: Path
) -> None:
    async with open_session(one_event, DOUBLES / "deaf", stop_s=1.0) as session:
        await session.settled()
        result = session.query("SELECT 1", limit=None, timeout_s=30)
        closing = asyncio.create_task(session.close())
        with pytest.raises(EngineFailed, match="closed"):
            await within(0.5, all_rows(result))
        assert not closing.done()
        await asyncio.gather(closing, session.close())  # a second one waits for the first
        assert await gone(session)
        assert session._engine
        assert session._engine.stopped_by == "SIGKILL"


async def test_an_engine_that_dies_while_nobody_asks_is_noticed(
    open_session: OpenSession, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_session() as session:
        await session.settled()
        psutil.Process(session.pid).kill()
        await within(3, session.ended())
        assert session.state is SessionState.FAILED
        assert "was killed by SIGKILL" in caplog.text
        with pytest.raises(EngineFailed, match="SIGKILL"):
            await session.settled()


async def test_who_is_left_without_an_answer_may_try_again(open_session: OpenSession, one_event: Path) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        psutil.Process(session.pid).kill()
        with pytest.raises(EngineFailed) as failed:
            await within(3, all_rows(running))
        assert failed.value.extra["retry_after_s"] == 1
    async with open_session(one_event, DOUBLES / "failing") as session:
        with pytest.raises(EngineFailed) as failed:
            await session.settled()
        assert "retry_after_s" not in failed.value.extra  # it would fail again


# -- what an engine may take ---------------------------------------------------------------------------------------


async def test_an_engine_that_takes_too_much_memory_is_ended(
    open_session: OpenSession, one_event: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "WATCH_EVERY_S", 0.02)
    async with open_session(one_event, DOUBLES / "greedy", most_bytes=200_000_000) as session:
        with pytest.raises(EngineOutOfMemory, match="outgrew the 190 MiB") as outgrew:
            await within(5, asked(session, "SELECT 1"))
        assert outgrew.value.extra["limit_bytes"] == 200_000_000
        assert outgrew.value.extra["memory_bytes"] > 200_000_000
        assert (session.peak_bytes or 0) > 200_000_000
        assert await gone(session)


async def test_a_statement_that_the_system_gives_no_memory_fails_and_the_engine_lives_on(
    open_session: OpenSession,
) -> None:
    async with open_session() as session:
        await session.settled()
        assert session._engine
        session._engine.limit_memory(200_000_000)
        with pytest.raises(SqlError, match="out of memory"):
            await asked(session, "SELECT zeroblob(900000000)")
        assert await asked(session, "SELECT 1") == [(1,)]


async def test_an_engine_that_dies_for_want_of_memory_is_told_as_such(open_session: OpenSession) -> None:
    async with open_session(most_bytes=100_000_000) as session:
        await session.settled()
        assert session._engine
        session._engine.limit_memory(100_000_000)
        rows = ENDLESS_ROWS.replace("FROM c)", "FROM c LIMIT 20000000)")
        with pytest.raises(EngineOutOfMemory, match="outgrew the 95 MiB"):
            await within(10, asked(session, f"CREATE PERFETTO TABLE much AS {rows}"))


async def test_a_load_that_stands_still_is_ended_and_told(
    open_session: OpenSession, one_event: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "WATCH_EVERY_S", 0.02)
    async with open_session(one_event, DOUBLES / "spinning", stall_s=0.3) as session:
        with pytest.raises(EngineStalled, match=r"no further for 0\.3 s") as stuck:
            await within(10, session.settled())
        assert stuck.value.extra == {"loaded_bytes": session.loaded_bytes, "stall_s": 0.3, "fed": True}
        assert await gone(session)


async def test_a_name_that_never_ends_in_the_real_engine_is_told(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "WATCH_EVERY_S", 0.02)
    trace = tmp_path / "hostile.json"
    trace.write_text('{"traceEvents":[{"ph":"M","name":"thread_name","pid":1,"tid":1,"ts":0,"args":{"name":NaN}}]}')
    async with open_session(trace, stall_s=0.3) as session:
        with pytest.raises(EngineStalled):
            await within(10, session.settled())
        assert await gone(session)


async def test_a_session_says_what_it_takes(open_session: OpenSession) -> None:
    async with open_session() as session:
        assert session.memory_bytes is None
        await session.settled()
        assert session.memory_bytes == pytest.approx(psutil.Process(session.pid).memory_info().rss, rel=0.1)
        assert (session.peak_bytes or 0) >= (session.memory_bytes or 0)
        assert session.held_bytes == pytest.approx(session.memory_bytes, rel=0.1)
        assert session.waiting == 0
    assert session.memory_bytes is None
    assert session.held_bytes == 0


# -- what the service itself asks ----------------------------------------------------------------------------------


async def test_the_service_asks_before_anyone_else_may(open_session: OpenSession) -> None:
    async def number(session: Session) -> None:
        (await session.run("CREATE TABLE ours AS SELECT count(*) AS slices FROM slice")).close()
        result = await session.run("SELECT slices FROM ours")
        seen.extend(await all_rows(result))
        assert session.state is SessionState.LOADING

    seen: list[tuple[Any, ...]] = []
    async with open_session(after_load=number) as session:
        early = session.query("SELECT slices + 1 FROM ours", limit=None, timeout_s=30)
        assert await all_rows(early) == [(488,)]
        assert seen == [(487,)]
        assert await all_rows(await session.run("SELECT slices + 2 FROM ours")) == [(489,)]
        assert session.queries == 1


async def test_what_the_service_asks_in_vain_fails_the_load(open_session: OpenSession) -> None:
    async def wrong(session: Session) -> None:
        await session.run("SELECT nope")

    async with open_session(after_load=wrong) as session:
        with pytest.raises(SqlError, match="no such column: nope"):
            await session.settled()
        assert session.state is SessionState.FAILED


# -- turns ---------------------------------------------------------------------------------------------------------


async def test_a_queue_that_is_full_is_told_at_once(open_session: OpenSession) -> None:
    async with open_session(queue=2) as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        waiting = [session.query("SELECT 1", limit=None, timeout_s=30) for _ in range(2)]
        assert session.waiting == 2
        with pytest.raises(EngineBusy):
            await within(1, asked(session, "SELECT 1"))
        running.close()
        assert [await all_rows(result) for result in waiting] == [[(1,)]] * 2


async def test_clients_take_turns(open_session: OpenSession) -> None:
    async with open_session() as session:
        running = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        many = [session.query("SELECT 1", limit=None, timeout_s=30, client="busy") for _ in range(5)]
        one = session.query("SELECT 2", limit=None, timeout_s=30, client="other")
        running.close()
        assert await all_rows(one) == [(2,)]
        assert [result.done for result in many][1:] == [False] * 4
        for result in many:
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
def test_no_engine_outlives_a_server_that_is_killed(when: str, engine: Path, tmp_path: Path) -> None:
    big = write_trace(tmp_path / "big.json", sized(TraceShape(), 60_000_000)) if when == "loading" else STEP_TRACE
    sql = ENDLESS_ROWS if when != "loading" else ""
    command = [sys.executable, "-c", PARENT, str(big), str(engine), sql]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.send_signal(signal.SIGKILL)
        gone_in_time, alive = psutil.wait_procs([child], timeout=5)
    assert gone_in_time
    assert not alive

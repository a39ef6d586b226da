"""A pool runs one engine for each trace, within its limits, and closes idle engines."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.engine import pool as pool_module
from service.engine.memory import BASE_BYTES, MemoryModel
from service.engine.pool import EnginePool
from service.engine.session import Session, SessionState
from service.trace.errors import (
    EngineFailed,
    EngineOutOfMemory,
    EngineStalled,
    EngineUnavailable,
    NothingSelected,
    TooLargeForEngine,
)
from tests.conftest import DATA
from tests.engine.conftest import (
    DOUBLES,
    ENDLESS,
    ENDLESS_ROWS,
    Driver,
    all_rows,
    fed,
    gone,
    in_time,
    limits,
    query_rows,
    within,
)

TRACE = partial(fed, DATA / "cpu_train_steps.pt.trace.json.gz")


def trace_of(name: str) -> str:
    """Return a trace of one slice with that name."""
    return f'{{"traceEvents":[{{"ph":"X","name":"{name}","pid":1,"tid":1,"ts":1,"dur":1}}]}}'


def table(rows: int) -> str:
    """Return a statement that creates a large table."""
    counted = ENDLESS_ROWS.replace("FROM c)", f"FROM c LIMIT {rows})")
    return f"CREATE TABLE much AS SELECT x, x || 'and a rather long text' AS y FROM ({counted})"


@asynccontextmanager
async def pool_of(engine: Path, **settings: Any) -> AsyncIterator[EnginePool]:
    bounds: dict[str, Any] = {
        "driver": Driver(lambda: engine),
        "limits": limits(),
        "max_engines": 2,
        "idle_s": 900.0,
    }
    pool = EnginePool(**bounds | settings)
    pool.start()
    try:
        yield pool
    finally:
        await pool.close()


async def test_clients_of_a_trace_share_its_engine(engine: Path) -> None:
    async with pool_of(engine) as pool:
        assert pool.open("a", "a", TRACE) is pool.open("a", "a", TRACE)
        assert pool.sessions() == [pool.find("a")]
        assert pool.find("b") is None


async def test_engine_idle_longest_is_evicted(engine: Path) -> None:
    async with pool_of(engine) as pool:
        first, second = pool.open("a", "a", TRACE), pool.open("b", "b", TRACE)
        for session in (first, second, first):
            await query_rows(session, "SELECT 1")
        pool.open("c", "c", TRACE)
        assert [session.trace_id for session in pool.sessions()] == ["a", "c"]
        assert await gone(second)
        assert second.state is SessionState.CLOSED


async def test_engines_in_use_are_not_evicted(engine: Path) -> None:
    async with pool_of(engine) as pool:
        queried, attached = pool.open("a", "a", TRACE), pool.open("b", "b", TRACE)
        with pytest.raises(EngineUnavailable, match="All 2 engines are in use") as refused:
            pool.open("c", "c", TRACE)  # both engines still load
        assert [session["trace"] for session in refused.value.extra["in_use"]] == ["a", "b"]
        assert refused.value.extra["retry_after_s"] == 10

        await asyncio.gather(queried.settled(), attached.settled())
        attached.clients += 1
        running = queried.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        with pytest.raises(EngineUnavailable):
            pool.open("c", "c", TRACE)
        running.close()
        await query_rows(queried, "SELECT 1")
        assert await query_rows(pool.open("c", "c", TRACE), "SELECT 1") == [(1,)]


async def test_stalled_load_is_evicted(one_event: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "STALL_TOLERANCE_S", 3600)
    async with pool_of(DOUBLES / "mute", max_engines=1) as pool:
        stalled = pool.open("a", "a", partial(fed, one_event), client="first")
        waiting = asyncio.create_task(stalled.settled())
        while stalled.stalled_s <= 0.2:
            assert not waiting.done()
            with pytest.raises(EngineUnavailable):
                pool.open("b", "b", partial(fed, one_event), client="second")
            await asyncio.sleep(0.02)
        monkeypatch.setattr(pool_module, "STALL_TOLERANCE_S", 0.2)
        pool.open("b", "b", partial(fed, one_event), client="second")
        with pytest.raises(EngineStalled, match=r"made no progress for .* while others waited"):
            await waiting
        assert pool._load_breaker.count("a") == 1
        assert await gone(stalled)


async def test_loads_of_one_client_are_evicted_for_another_client(one_event: Path) -> None:
    async with pool_of(DOUBLES / "mute", max_engines=4) as pool:
        loads = [pool.open(name, name, partial(fed, one_event), client="hog") for name in "abcd"]
        with pytest.raises(EngineUnavailable):
            pool.open("e", "e", partial(fed, one_event), client="hog")
        first = pool.open("x", "x", partial(fed, one_event), client="other")
        second = pool.open("y", "y", partial(fed, one_event), client="other")
        with pytest.raises(EngineUnavailable):  # each client has two loads
            pool.open("z", "z", partial(fed, one_event), client="other")
        assert [session.trace_id for session in pool.sessions()] == ["a", "b", "x", "y"]
        for evicted in loads[2:]:
            with pytest.raises(EngineUnavailable, match="made room for another client"):
                await evicted.settled()
        assert not first.over
        assert not second.over


async def test_killed_engine_is_replaced(engine: Path) -> None:
    async with pool_of(engine) as pool:
        session = pool.open("a", "a", TRACE)
        result = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await result.first()
        psutil.Process(session.pid).kill()
        with pytest.raises(EngineFailed, match="SIGKILL"):
            await in_time(all_rows(result))
        again = pool.open("a", "a", TRACE)
        assert again is not session
        assert await query_rows(again, "SELECT count(*) FROM slice") == [(487,)]


async def test_failed_engines_do_not_count_as_running(one_event: Path) -> None:
    async with pool_of(DOUBLES / "failing", max_engines=1) as pool:
        for trace in "abc":
            with pytest.raises(EngineFailed):
                await pool.open(trace, trace, partial(fed, one_event)).settled()
        assert len(pool.sessions()) == 3


async def test_engine_is_closed_after_its_idle_time(engine: Path) -> None:
    async with pool_of(engine, idle_s=0.4) as pool:
        session = pool.open("a", "a", TRACE)
        await session.settled()
        session.clients += 1
        assert not await gone(session, within_s=0.8)  # a UI has the session open
        session.clients -= 1
        assert await gone(session)
        assert pool.sessions() == []


async def test_closing_a_session_waits_for_the_end_of_its_engine(engine: Path) -> None:
    async with pool_of(engine) as pool:
        session = pool.open("a", "a", TRACE)
        await session.settled()
        await pool.close_session("a")
        assert not psutil.pid_exists(session.pid or 0)
        assert pool.find("a") is None
        await pool.close_session("a")  # closing it again does nothing


async def test_closed_fleet_leaves_no_engine(engine: Path, one_event: Path) -> None:
    binaries = iter([engine, engine, DOUBLES / "deaf", *[engine] * 9])  # for the warm engine and for sessions
    pool = EnginePool(Driver(lambda: next(binaries)), limits(stop_s=0.2), max_engines=3, idle_s=900)
    pool.start()
    sessions = [pool.open(name, name, partial(fed, one_event)) for name in "abc"]
    await asyncio.gather(sessions[0].settled(), sessions[1].settled())  # the third engine still starts
    await in_time(pool.close())
    assert not any(psutil.pid_exists(session.pid) for session in sessions if session.pid)


# -- memory --------------------------------------------------------------------------------------------------------

MIB = 1 << 20
EVENTS = 500_000  # the number that the pool expects; the trace itself is small


def expected() -> int:
    """Return the memory that the pool expects a load of `EVENTS` to take."""
    return MemoryModel().predict("all", EVENTS)


def open_session_of(pool: EnginePool, name: str, **more: Any) -> Session:
    return pool.open(name, name, TRACE, **{"events": EVENTS} | more)


async def test_load_larger_than_the_whole_budget_is_refused_with_advice(engine: Path) -> None:
    async with pool_of(engine, memory_bytes=expected() - 1) as pool:
        with pytest.raises(TooLargeForEngine, match="args=essential") as refused:
            open_session_of(pool, "a")
        assert refused.value.extra["predicted_bytes"] == expected() == refused.value.extra["budget_bytes"] + 1
        assert pool.sessions() == []
        assert await query_rows(open_session_of(pool, "a", args="essential"), "SELECT 1") == [(1,)]


async def test_original_larger_than_the_whole_budget_is_refused_with_its_size(engine: Path) -> None:
    async with pool_of(engine, memory_bytes=expected()) as pool:
        with pytest.raises(TooLargeForEngine, match="953 MiB that the original is expected to have") as refused:
            pool.open("a", "a", TRACE, original_bytes=1_000_000_000)
        assert refused.value.extra["original_bytes"] == 1_000_000_000


async def test_original_has_the_memory_of_its_bytes_and_teaches_nothing(engine: Path) -> None:
    async with pool_of(engine, memory_bytes=2 * expected()) as pool:
        session = pool.open("a", "a", TRACE, original_bytes=10 * MIB)
        assert session.predicted_bytes == MemoryModel().predict_original(10 * MIB)[0]
        await session.settled()
        assert session.load.is_original
        assert open_session_of(pool, "b").predicted_bytes == expected()


async def test_predicted_memory_of_loads_counts_toward_the_budget(engine: Path) -> None:
    async with pool_of(engine, max_engines=9, memory_bytes=2 * expected()) as pool:
        first, _ = open_session_of(pool, "a"), open_session_of(pool, "b")
        with pytest.raises(EngineUnavailable, match="leave less than the 175 MiB") as refused:
            open_session_of(pool, "c")
        facts = refused.value.extra
        assert (facts["budget_bytes"], facts["needed_bytes"]) == (2 * expected(), expected())
        assert [(session["trace"], session["predicted_bytes"]) for session in facts["in_use"]] == [
            ("a", expected()),
            ("b", expected()),
        ]
        await first.settled()
        assert await query_rows(open_session_of(pool, "c"), "SELECT 1") == [(1,)]  # its real memory counts now


async def test_several_idle_engines_are_evicted_for_a_large_load(engine: Path) -> None:
    async with pool_of(engine, max_engines=9, memory_bytes=expected()) as pool:
        for name in "abc":
            await query_rows(open_session_of(pool, name, events=0), "SELECT 1")
        assert len(pool.sessions()) == 3
        assert await query_rows(open_session_of(pool, "d"), "SELECT 1") == [(1,)]
        assert [session.trace_id for session in pool.sessions()] == ["d"]


async def test_refused_load_evicts_no_engine(engine: Path) -> None:
    async with pool_of(engine, max_engines=9, memory_bytes=expected() + 100 * MIB) as pool:
        idle = open_session_of(pool, "idle", events=0)
        await query_rows(idle, "SELECT 1")
        open_session_of(pool, "loading", events=EVENTS // 2).clients += 1
        with pytest.raises(EngineUnavailable):
            open_session_of(pool, "c")
        assert idle in pool.sessions()


async def test_load_waits_until_the_evicted_engine_has_ended(engine: Path, one_event: Path) -> None:
    binaries = iter([DOUBLES / "deaf", DOUBLES / "deaf", *[engine] * 9])  # a double that ends slowly
    driver = Driver(lambda: next(binaries))
    async with pool_of(engine, driver=driver, max_engines=1, limits=limits(stop_s=0.3)) as pool:
        first = pool.open("a", "a", partial(fed, one_event))
        await first.settled()
        second = open_session_of(pool, "b", events=0)
        assert not await second.settled(0.2)
        assert second.state is SessionState.WAITING
        assert psutil.pid_exists(first.pid or 0)
        assert second.pid is None
        assert await query_rows(second, "SELECT 1") == [(1,)]
        assert first.gone


async def test_session_that_waits_for_room_can_be_closed(engine: Path, one_event: Path) -> None:
    binaries = iter([DOUBLES / "deaf", DOUBLES / "deaf", *[engine] * 9])
    driver = Driver(lambda: next(binaries))
    async with pool_of(engine, driver=driver, max_engines=1, limits=limits(stop_s=0.3)) as pool:
        await pool.open("a", "a", partial(fed, one_event)).settled()
        second = open_session_of(pool, "b", events=0)
        assert not await second.settled(0.1)
        await within(0.2, pool.close_session("b"))
        assert second.state is SessionState.CLOSED
        assert second.pid is None


async def test_twenty_loads_never_exceed_a_budget_for_three(engine: Path, tmp_path: Path) -> None:
    budget, alive, over = 3 * expected(), set[int](), 0
    async with pool_of(engine, max_engines=9, memory_bytes=budget) as pool:

        async def watch() -> None:
            nonlocal over
            while True:
                over = max(over, pool.held_bytes - budget)
                alive.add(sum(session.pid is not None and not session.gone for session in pool._all()))
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        for number in range(20):
            trace = tmp_path / f"{number}.json"
            trace.write_text(trace_of(f"trace {number}"))
            session = pool.open(trace.name, trace.name, partial(fed, trace), events=EVENTS)
            assert await query_rows(session, "SELECT name FROM slice") == [(f"trace {number}",)]
        watching.cancel()
        assert over <= 0
        assert max(alive) >= 3


async def test_prediction_learns_from_a_load(engine: Path) -> None:
    async with pool_of(engine) as pool:
        first = open_session_of(pool, "a")
        await first.settled()
        second = open_session_of(pool, "b")
        assert second.predicted_bytes < first.predicted_bytes  # the trace has fewer events than the pool expects
        assert first.memory_limit_bytes == 512 * MIB


async def test_engines_that_grow_beyond_the_budget_are_ended(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAINTENANCE_EVERY_S", 0.05)
    async with pool_of(engine, max_engines=9, memory_bytes=200 * MIB) as pool:
        idle, grown, growing = (open_session_of(pool, name, events=0) for name in "abc")
        growing.clients += 1
        await query_rows(idle, "SELECT 1")
        await query_rows(grown, table(3_000_000))  # the engine takes 150 MiB with this table
        working = grown.query(ENDLESS, limit=None, timeout_s=60)
        await query_rows(growing, table(2_500_000))  # 127 MiB with this table
        with pytest.raises(EngineOutOfMemory):
            await in_time(all_rows(working))
        assert idle not in pool.sessions()
        assert pool.held_bytes <= 200 * MIB
        assert await query_rows(growing, "SELECT count(*) FROM much") == [(2_500_000,)]


async def test_only_one_engine_is_ended_at_a_time(engine: Path) -> None:
    async with pool_of(engine, max_engines=9) as pool:
        sessions = [open_session_of(pool, name, events=0) for name in "abc"]
        for session in sessions:
            session.clients += 1
            await query_rows(session, "SELECT 1")
        await pool._warm.close()
        pool.budget_bytes = 1
        for _ in sessions:
            await pool._keep_within_budget()
        (ending,) = (session for session in sessions if session.ending)
        assert await gone(ending)
        assert isinstance(ending.error, EngineOutOfMemory)
        await pool._keep_within_budget()
        assert [session.ending for session in sessions].count(True) == 1


async def test_leaking_engine_is_closed_once_idle(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAINTENANCE_EVERY_S", 0.05)
    monkeypatch.setattr(pool_module, "LEAK_IDLE_S", 0.2)
    async with pool_of(engine) as pool:
        session = open_session_of(pool, "a", events=0)
        await query_rows(session, "SELECT 1")
        session.memory_limit_bytes = 60 * MIB
        await query_rows(session, table(700_000))
        assert await gone(session)
        assert pool.sessions() == []


# -- engines that die ----------------------------------------------------------------------------------------------


async def test_load_that_crashes_engines_is_refused_until_its_session_is_closed(one_event: Path) -> None:
    async with pool_of(DOUBLES / "failing", crashes_max=2) as pool:
        for restarts in range(2):
            session = pool.open("a", "a", partial(fed, one_event))
            assert session.restarts == restarts
            with pytest.raises(EngineFailed, match="the moon"):
                await session.settled()
        with pytest.raises(EngineFailed, match=r"ended 2 times.*the moon is in the way") as refused:
            pool.open("a", "a", partial(fed, one_event))
        assert 500 < refused.value.extra["retry_after_s"] <= 600
        assert pool.find("a") is session  # the failed session stays and reports its error
        pool.open("b", "b", partial(fed, one_event))
        await pool.close_session("a")
        pool.open("a", "a", partial(fed, one_event))


async def empty_document(trace: str) -> AsyncGenerator[bytes]:
    raise NothingSelected(f"No event of {trace} is selected.")
    yield b""


async def test_empty_selection_does_not_count_as_a_crash(engine: Path) -> None:
    async with pool_of(engine, crashes_max=1) as pool:
        for _ in range(2):
            with pytest.raises(NothingSelected):
                await pool.open("a", "a", partial(empty_document, "a")).settled()


async def test_crash_of_an_idle_engine_is_noticed_and_counted(engine: Path) -> None:
    async with pool_of(engine) as pool:
        session = open_session_of(pool, "a")
        await query_rows(session, "SELECT 1")
        psutil.Process(session.pid).kill()
        await in_time(session.ended())
        assert session.state is SessionState.FAILED
        again = open_session_of(pool, "a")
        assert again.restarts == 1
        assert await query_rows(again, "SELECT 1") == [(1,)]


# -- the warm engine -----------------------------------------------------------------------------------------------


async def warm_engine_of(pool: EnginePool) -> int:
    """Return the process id of the pool's warm engine once it has started."""
    async with asyncio.timeout(60):
        while not (process := pool._warm._started()):  # noqa: ASYNC110 - no event reports the start
            await asyncio.sleep(0)
    return process.pid or 0


async def test_session_gets_the_warm_engine(engine: Path) -> None:
    async with pool_of(engine) as pool:
        waiting = await warm_engine_of(pool)
        session = open_session_of(pool, "a")
        await session.settled()
        assert session.pid == waiting
        assert await warm_engine_of(pool) != waiting
        assert pool.held_bytes > session.held_bytes
        assert len(pool.sessions()) == 1


async def test_crashed_warm_engine_is_replaced(engine: Path) -> None:
    async with pool_of(engine) as pool:
        dead = await warm_engine_of(pool)
        psutil.Process(dead).kill()
        process = pool._warm._started()
        assert process
        await process.ended()
        assert await query_rows(open_session_of(pool, "a"), "SELECT 1") == [(1,)]


async def test_no_warm_engine_is_started_beyond_the_budget(engine: Path) -> None:
    async with pool_of(engine, memory_bytes=BASE_BYTES + 10 * MIB) as pool:
        session = open_session_of(pool, "a", events=0)
        await session.settled()
        assert pool._warm._started() is None
        assert pool._warm._starting is None


async def test_missing_program_is_reported_with_the_driver_error() -> None:
    def none() -> Path:
        raise EngineUnavailable("There is none.")

    pool = EnginePool(Driver(none), limits(), max_engines=1, idle_s=900)
    with pytest.raises(EngineUnavailable, match="There is none"):
        pool.open("a", "a", TRACE)
    await pool.close()

"""A fleet runs one engine for each trace, within its limits, and closes idle engines."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.engine import fleet as fleet_module
from service.engine.fleet import Fleet
from service.engine.memory import BASE_BYTES, MemoryModel
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
async def fleet_of(engine: Path, **settings: Any) -> AsyncIterator[Fleet]:
    bounds: dict[str, Any] = {
        "driver": Driver(lambda: engine),
        "limits": limits(),
        "max_engines": 2,
        "idle_s": 900.0,
    }
    fleet = Fleet(**bounds | settings)
    fleet.start()
    try:
        yield fleet
    finally:
        await fleet.close()


async def test_clients_of_a_trace_share_its_engine(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        assert fleet.open("a", "a", TRACE) is fleet.open("a", "a", TRACE)
        assert fleet.sessions() == [fleet.find("a")]
        assert fleet.find("b") is None


async def test_engine_idle_longest_is_evicted(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        first, second = fleet.open("a", "a", TRACE), fleet.open("b", "b", TRACE)
        for session in (first, second, first):
            await query_rows(session, "SELECT 1")
        fleet.open("c", "c", TRACE)
        assert [session.trace_id for session in fleet.sessions()] == ["a", "c"]
        assert await gone(second)
        assert second.state is SessionState.CLOSED


async def test_engines_in_use_are_not_evicted(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        queried, attached = fleet.open("a", "a", TRACE), fleet.open("b", "b", TRACE)
        with pytest.raises(EngineUnavailable, match="All 2 engines are in use") as refused:
            fleet.open("c", "c", TRACE)  # both engines still load
        assert [session["trace"] for session in refused.value.extra["in_use"]] == ["a", "b"]
        assert refused.value.extra["retry_after_s"] == 10

        await asyncio.gather(queried.settled(), attached.settled())
        attached.clients += 1
        running = queried.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        with pytest.raises(EngineUnavailable):
            fleet.open("c", "c", TRACE)
        running.close()
        await query_rows(queried, "SELECT 1")
        assert await query_rows(fleet.open("c", "c", TRACE), "SELECT 1") == [(1,)]


async def test_stalled_load_is_evicted(one_event: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "STALL_TOLERANCE_S", 0.2)
    async with fleet_of(DOUBLES / "mute", max_engines=1) as fleet:
        stalled = fleet.open("a", "a", partial(fed, one_event), client="first")
        waiting = asyncio.create_task(stalled.settled())
        while stalled.stalled_s <= 0.2:
            assert not waiting.done()
            with pytest.raises(EngineUnavailable):
                fleet.open("b", "b", partial(fed, one_event), client="second")
            await asyncio.sleep(0.02)
        fleet.open("b", "b", partial(fed, one_event), client="second")
        with pytest.raises(EngineStalled, match=r"made no progress for .* while others waited"):
            await waiting
        assert fleet._load_breaker.count("a") == 1
        assert await gone(stalled)


async def test_loads_of_one_client_are_evicted_for_another_client(one_event: Path) -> None:
    async with fleet_of(DOUBLES / "mute", max_engines=4) as fleet:
        loads = [fleet.open(name, name, partial(fed, one_event), client="hog") for name in "abcd"]
        with pytest.raises(EngineUnavailable):
            fleet.open("e", "e", partial(fed, one_event), client="hog")
        first = fleet.open("x", "x", partial(fed, one_event), client="other")
        second = fleet.open("y", "y", partial(fed, one_event), client="other")
        with pytest.raises(EngineUnavailable):  # each client has two loads
            fleet.open("z", "z", partial(fed, one_event), client="other")
        assert [session.trace_id for session in fleet.sessions()] == ["a", "b", "x", "y"]
        for evicted in loads[2:]:
            with pytest.raises(EngineUnavailable, match="made room for another client"):
                await evicted.settled()
        assert not first.over
        assert not second.over


async def test_killed_engine_is_replaced(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        session = fleet.open("a", "a", TRACE)
        result = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await result.first()
        psutil.Process(session.pid).kill()
        with pytest.raises(EngineFailed, match="SIGKILL"):
            await in_time(all_rows(result))
        again = fleet.open("a", "a", TRACE)
        assert again is not session
        assert await query_rows(again, "SELECT count(*) FROM slice") == [(487,)]


async def test_failed_engines_do_not_count_as_running(one_event: Path) -> None:
    async with fleet_of(DOUBLES / "failing", max_engines=1) as fleet:
        for trace in "abc":
            with pytest.raises(EngineFailed):
                await fleet.open(trace, trace, partial(fed, one_event)).settled()
        assert len(fleet.sessions()) == 3


async def test_engine_is_closed_after_its_idle_time(engine: Path) -> None:
    async with fleet_of(engine, idle_s=0.4) as fleet:
        session = fleet.open("a", "a", TRACE)
        await session.settled()
        session.clients += 1
        assert not await gone(session, within_s=0.8)  # a UI has the session open
        session.clients -= 1
        assert await gone(session)
        assert fleet.sessions() == []


async def test_closing_a_session_waits_for_the_end_of_its_engine(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        session = fleet.open("a", "a", TRACE)
        await session.settled()
        await fleet.close_session("a")
        assert not psutil.pid_exists(session.pid or 0)
        assert fleet.find("a") is None
        await fleet.close_session("a")  # closing it again does nothing


async def test_closed_fleet_leaves_no_engine(engine: Path, one_event: Path) -> None:
    binaries = iter([engine, engine, DOUBLES / "deaf", *[engine] * 9])  # for the warm engine and for sessions
    fleet = Fleet(Driver(lambda: next(binaries)), limits(stop_s=0.2), max_engines=3, idle_s=900)
    fleet.start()
    sessions = [fleet.open(name, name, partial(fed, one_event)) for name in "abc"]
    await asyncio.gather(sessions[0].settled(), sessions[1].settled())  # the third engine still starts
    await in_time(fleet.close())
    assert not any(psutil.pid_exists(session.pid) for session in sessions if session.pid)


# -- memory --------------------------------------------------------------------------------------------------------

MIB = 1 << 20
EVENTS = 500_000  # the number that the fleet expects; the trace itself is small


def expected() -> int:
    """Return the memory that the fleet expects a load of `EVENTS` to take."""
    return MemoryModel().predict("all", EVENTS)


def open_session_of(fleet: Fleet, name: str, **more: Any) -> Session:
    return fleet.open(name, name, TRACE, **{"events": EVENTS} | more)


async def test_load_larger_than_the_whole_budget_is_refused_with_advice(engine: Path) -> None:
    async with fleet_of(engine, memory_bytes=expected() - 1) as fleet:
        with pytest.raises(TooLargeForEngine, match="args=essential") as refused:
            open_session_of(fleet, "a")
        assert refused.value.extra["predicted_bytes"] == expected() == refused.value.extra["budget_bytes"] + 1
        assert fleet.sessions() == []
        assert await query_rows(open_session_of(fleet, "a", args="essential"), "SELECT 1") == [(1,)]


async def test_predicted_memory_of_loads_counts_toward_the_budget(engine: Path) -> None:
    async with fleet_of(engine, max_engines=9, memory_bytes=2 * expected()) as fleet:
        first, _ = open_session_of(fleet, "a"), open_session_of(fleet, "b")
        with pytest.raises(EngineUnavailable, match="leave less than the 222 MiB") as refused:
            open_session_of(fleet, "c")
        facts = refused.value.extra
        assert (facts["budget_bytes"], facts["needed_bytes"]) == (2 * expected(), expected())
        assert [(session["trace"], session["predicted_bytes"]) for session in facts["in_use"]] == [
            ("a", expected()),
            ("b", expected()),
        ]
        await first.settled()
        assert await query_rows(open_session_of(fleet, "c"), "SELECT 1") == [(1,)]  # its real memory counts now


async def test_several_idle_engines_are_evicted_for_a_large_load(engine: Path) -> None:
    async with fleet_of(engine, max_engines=9, memory_bytes=expected()) as fleet:
        for name in "abc":
            await query_rows(open_session_of(fleet, name, events=0), "SELECT 1")
        assert len(fleet.sessions()) == 3
        assert await query_rows(open_session_of(fleet, "d"), "SELECT 1") == [(1,)]
        assert [session.trace_id for session in fleet.sessions()] == ["d"]


async def test_refused_load_evicts_no_engine(engine: Path) -> None:
    async with fleet_of(engine, max_engines=9, memory_bytes=expected() + 100 * MIB) as fleet:
        idle = open_session_of(fleet, "idle", events=0)
        await query_rows(idle, "SELECT 1")
        open_session_of(fleet, "loading", events=EVENTS // 2).clients += 1
        with pytest.raises(EngineUnavailable):
            open_session_of(fleet, "c")
        assert idle in fleet.sessions()


async def test_load_waits_until_the_evicted_engine_has_ended(engine: Path, one_event: Path) -> None:
    binaries = iter([DOUBLES / "deaf", DOUBLES / "deaf", *[engine] * 9])  # a double that ends slowly
    driver = Driver(lambda: next(binaries))
    async with fleet_of(engine, driver=driver, max_engines=1, limits=limits(stop_s=0.3)) as fleet:
        first = fleet.open("a", "a", partial(fed, one_event))
        await first.settled()
        second = open_session_of(fleet, "b", events=0)
        assert not await second.settled(0.2)
        assert second.state is SessionState.WAITING
        assert psutil.pid_exists(first.pid or 0)
        assert second.pid is None
        assert await query_rows(second, "SELECT 1") == [(1,)]
        assert first.gone


async def test_session_that_waits_for_room_can_be_closed(engine: Path, one_event: Path) -> None:
    binaries = iter([DOUBLES / "deaf", DOUBLES / "deaf", *[engine] * 9])
    driver = Driver(lambda: next(binaries))
    async with fleet_of(engine, driver=driver, max_engines=1, limits=limits(stop_s=0.3)) as fleet:
        await fleet.open("a", "a", partial(fed, one_event)).settled()
        second = open_session_of(fleet, "b", events=0)
        assert not await second.settled(0.1)
        await within(0.2, fleet.close_session("b"))
        assert second.state is SessionState.CLOSED
        assert second.pid is None


async def test_twenty_loads_never_exceed_a_budget_for_three(engine: Path, tmp_path: Path) -> None:
    budget, alive, over = 3 * expected(), set[int](), 0
    async with fleet_of(engine, max_engines=9, memory_bytes=budget) as fleet:

        async def watch() -> None:
            nonlocal over
            while True:
                over = max(over, fleet.held_bytes - budget)
                alive.add(sum(session.pid is not None and not session.gone for session in fleet._all()))
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        for number in range(20):
            trace = tmp_path / f"{number}.json"
            trace.write_text(trace_of(f"trace {number}"))
            session = fleet.open(trace.name, trace.name, partial(fed, trace), events=EVENTS)
            assert await query_rows(session, "SELECT name FROM slice") == [(f"trace {number}",)]
        watching.cancel()
        assert over <= 0
        assert max(alive) >= 3


async def test_prediction_learns_from_a_load(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        first = open_session_of(fleet, "a")
        await first.settled()
        second = open_session_of(fleet, "b")
        assert second.predicted_bytes < first.predicted_bytes  # the trace has fewer events than the fleet expects
        assert first.memory_limit_bytes == 512 * MIB


async def test_engines_that_grow_beyond_the_budget_are_ended(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "MAINTENANCE_EVERY_S", 0.05)
    async with fleet_of(engine, max_engines=9, memory_bytes=200 * MIB) as fleet:
        idle, grown, growing = (open_session_of(fleet, name, events=0) for name in "abc")
        growing.clients += 1
        await query_rows(idle, "SELECT 1")
        await query_rows(grown, table(3_000_000))  # the engine takes 150 MiB with this table
        working = grown.query(ENDLESS, limit=None, timeout_s=60)
        await query_rows(growing, table(2_500_000))  # 127 MiB with this table
        with pytest.raises(EngineOutOfMemory):
            await in_time(all_rows(working))
        assert idle not in fleet.sessions()
        assert fleet.held_bytes <= 200 * MIB
        assert await query_rows(growing, "SELECT count(*) FROM much") == [(2_500_000,)]


async def test_only_one_engine_is_ended_at_a_time(engine: Path) -> None:
    async with fleet_of(engine, max_engines=9) as fleet:
        sessions = [open_session_of(fleet, name, events=0) for name in "abc"]
        for session in sessions:
            session.clients += 1
            await query_rows(session, "SELECT 1")
        await fleet._warm.close()
        fleet.budget_bytes = 1
        for _ in sessions:
            await fleet._keep_within_budget()
        (ending,) = (session for session in sessions if session.ending)
        assert await gone(ending)
        assert isinstance(ending.error, EngineOutOfMemory)
        await fleet._keep_within_budget()
        assert [session.ending for session in sessions].count(True) == 1


async def test_leaking_engine_is_closed_once_idle(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "MAINTENANCE_EVERY_S", 0.05)
    monkeypatch.setattr(fleet_module, "LEAK_IDLE_S", 0.2)
    async with fleet_of(engine) as fleet:
        session = open_session_of(fleet, "a", events=0)
        await query_rows(session, "SELECT 1")
        session.memory_limit_bytes = 60 * MIB
        await query_rows(session, table(700_000))
        assert await gone(session)
        assert fleet.sessions() == []


# -- engines that die ----------------------------------------------------------------------------------------------


async def test_load_that_crashes_engines_is_refused_until_its_session_is_closed(one_event: Path) -> None:
    async with fleet_of(DOUBLES / "failing", crashes_max=2) as fleet:
        for restarts in range(2):
            session = fleet.open("a", "a", partial(fed, one_event))
            assert session.restarts == restarts
            with pytest.raises(EngineFailed, match="the moon"):
                await session.settled()
        with pytest.raises(EngineFailed, match=r"ended 2 times.*the moon is in the way") as refused:
            fleet.open("a", "a", partial(fed, one_event))
        assert 500 < refused.value.extra["retry_after_s"] <= 600
        assert fleet.find("a") is session  # the failed session stays and reports its error
        fleet.open("b", "b", partial(fed, one_event))
        await fleet.close_session("a")
        fleet.open("a", "a", partial(fed, one_event))


async def empty_document(trace: str) -> AsyncGenerator[bytes]:
    raise NothingSelected(f"No event of {trace} is selected.")
    yield b""


async def test_empty_selection_does_not_count_as_a_crash(engine: Path) -> None:
    async with fleet_of(engine, crashes_max=1) as fleet:
        for _ in range(2):
            with pytest.raises(NothingSelected):
                await fleet.open("a", "a", partial(empty_document, "a")).settled()


async def test_crash_of_an_idle_engine_is_noticed_and_counted(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        session = open_session_of(fleet, "a")
        await query_rows(session, "SELECT 1")
        psutil.Process(session.pid).kill()
        await in_time(session.ended())
        assert session.state is SessionState.FAILED
        again = open_session_of(fleet, "a")
        assert again.restarts == 1
        assert await query_rows(again, "SELECT 1") == [(1,)]


# -- the warm engine -----------------------------------------------------------------------------------------------


async def warm_engine_of(fleet: Fleet) -> int:
    """Return the process id of the fleet's warm engine once it has started."""
    async with asyncio.timeout(60):
        while not (process := fleet._warm._started()):  # noqa: ASYNC110 - no event reports the start
            await asyncio.sleep(0)
    return process.pid or 0


async def test_session_gets_the_warm_engine(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        waiting = await warm_engine_of(fleet)
        session = open_session_of(fleet, "a")
        await session.settled()
        assert session.pid == waiting
        assert await warm_engine_of(fleet) != waiting
        assert fleet.held_bytes > session.held_bytes
        assert len(fleet.sessions()) == 1


async def test_crashed_warm_engine_is_replaced(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        dead = await warm_engine_of(fleet)
        psutil.Process(dead).kill()
        process = fleet._warm._started()
        assert process
        await process.ended()
        assert await query_rows(open_session_of(fleet, "a"), "SELECT 1") == [(1,)]


async def test_no_warm_engine_is_started_beyond_the_budget(engine: Path) -> None:
    async with fleet_of(engine, memory_bytes=BASE_BYTES + 10 * MIB) as fleet:
        session = open_session_of(fleet, "a", events=0)
        await session.settled()
        assert fleet._warm._started() is None
        assert fleet._warm._starting is None


async def test_missing_program_is_reported_with_the_driver_error() -> None:
    def none() -> Path:
        raise EngineUnavailable("There is none.")

    fleet = Fleet(Driver(none), limits(), max_engines=1, idle_s=900)
    with pytest.raises(EngineUnavailable, match="There is none"):
        fleet.open("a", "a", TRACE)
    await fleet.close()

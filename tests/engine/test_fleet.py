"""All engines: one a trace, no more than allowed, none that nobody needs."""

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
from tests.engine.conftest import DOUBLES, ENDLESS, ENDLESS_ROWS, all_rows, asked, fed, gone, launch, limits, within

TRACE = partial(fed, DATA / "cpu_train_steps.pt.trace.json.gz")


def trace_of(name: str) -> str:
    """A trace of one slice of that name."""
    return f'{{"traceEvents":[{{"ph":"X","name":"{name}","pid":1,"tid":1,"ts":1,"dur":1}}]}}'


def table(rows: int) -> str:
    """A statement that makes a large table."""
    counted = ENDLESS_ROWS.replace("FROM c)", f"FROM c LIMIT {rows})")
    return f"CREATE TABLE much AS SELECT x, x || 'and a rather long text' AS y FROM ({counted})"


@asynccontextmanager
async def fleet_of(engine: Path, **settings: Any) -> AsyncIterator[Fleet]:
    bounds: dict[str, Any] = {
        "binary": lambda: engine,
        "limits": limits(),
        "max_engines": 2,
        "idle_s": 900.0,
        "launch": launch,
    }
    fleet = Fleet(**bounds | settings)
    fleet.start()
    try:
        yield fleet
    finally:
        await fleet.close()


async def test_all_who_ask_for_a_trace_share_its_engine(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        assert fleet.open("a", "a", TRACE) is fleet.open("a", "a", TRACE)
        assert fleet.sessions() == [fleet.find("a")]
        assert fleet.find("b") is None


async def test_the_longest_idle_engine_makes_room(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        first, second = fleet.open("a", "a", TRACE), fleet.open("b", "b", TRACE)
        for session in (first, second, first):
            await asked(session, "SELECT 1")
        fleet.open("c", "c", TRACE)
        assert [session.trace_id for session in fleet.sessions()] == ["a", "c"]
        assert await gone(second)
        assert second.state is SessionState.CLOSED


async def test_no_engine_in_use_is_taken_away(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        asked_of, attached = fleet.open("a", "a", TRACE), fleet.open("b", "b", TRACE)
        with pytest.raises(EngineUnavailable, match="All 2 engines are in use") as refused:
            fleet.open("c", "c", TRACE)  # both still load
        assert [one["trace"] for one in refused.value.extra["in_use"]] == ["a", "b"]
        assert refused.value.extra["retry_after_s"] == 10

        await asyncio.gather(asked_of.settled(), attached.settled())
        attached.clients += 1
        running = asked_of.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        with pytest.raises(EngineUnavailable):
            fleet.open("c", "c", TRACE)
        running.close()
        await asked(asked_of, "SELECT 1")
        assert await asked(fleet.open("c", "c", TRACE), "SELECT 1") == [(1,)]


async def test_a_load_that_stands_still_makes_room_for_others(one_event: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "IMPATIENT_S", 0.2)
    async with fleet_of(DOUBLES / "mute", max_engines=1) as fleet:
        stalled = fleet.open("a", "a", partial(fed, one_event), client="one")
        waiting = asyncio.create_task(stalled.settled())
        while stalled.stalled_s <= 0.2:
            assert not waiting.done()
            with pytest.raises(EngineUnavailable):
                fleet.open("b", "b", partial(fed, one_event), client="another")
            await asyncio.sleep(0.02)
        fleet.open("b", "b", partial(fed, one_event), client="another")
        with pytest.raises(EngineStalled, match=r"came no further for .* while others waited"):
            await waiting
        assert fleet._deaths.count("a") == 1
        assert await gone(stalled)


async def test_one_clients_loads_leave_room_for_another(one_event: Path) -> None:
    async with fleet_of(DOUBLES / "mute", max_engines=4) as fleet:
        loads = [fleet.open(name, name, partial(fed, one_event), client="hog") for name in "abcd"]
        with pytest.raises(EngineUnavailable):
            fleet.open("e", "e", partial(fed, one_event), client="hog")
        first = fleet.open("x", "x", partial(fed, one_event), client="other")
        second = fleet.open("y", "y", partial(fed, one_event), client="other")
        with pytest.raises(EngineUnavailable):  # each has two
            fleet.open("z", "z", partial(fed, one_event), client="other")
        assert [session.trace_id for session in fleet.sessions()] == ["a", "b", "x", "y"]
        for made_room in loads[2:]:
            with pytest.raises(EngineUnavailable, match="made room for another client"):
                await made_room.settled()
        assert not first.over
        assert not second.over


async def test_a_trace_whose_engine_was_killed_gets_a_new_one(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        session = fleet.open("a", "a", TRACE)
        result = session.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await result.first()
        psutil.Process(session.pid).kill()
        with pytest.raises(EngineFailed, match="SIGKILL"):
            await within(3, all_rows(result))
        again = fleet.open("a", "a", TRACE)
        assert again is not session
        assert await asked(again, "SELECT count(*) FROM slice") == [(487,)]


async def test_a_failed_engine_takes_no_ones_place(one_event: Path) -> None:
    async with fleet_of(DOUBLES / "failing", max_engines=1) as fleet:
        for trace in "abc":
            with pytest.raises(EngineFailed):
                await fleet.open(trace, trace, partial(fed, one_event)).settled()
        assert len(fleet.sessions()) == 3


async def test_an_engine_is_closed_once_it_was_idle_for_long(engine: Path) -> None:
    async with fleet_of(engine, idle_s=0.4) as fleet:
        session = fleet.open("a", "a", TRACE)
        await session.settled()
        session.clients += 1
        assert not await gone(session, within_s=0.8)  # a UI has it open
        session.clients -= 1
        assert await gone(session)
        assert fleet.sessions() == []


async def test_shutting_waits_for_the_end_of_the_engine(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        session = fleet.open("a", "a", TRACE)
        await session.settled()
        await fleet.shut("a")
        assert not psutil.pid_exists(session.pid or 0)
        assert fleet.find("a") is None
        await fleet.shut("a")  # nothing to do


async def test_a_fleet_leaves_no_engine(engine: Path, one_event: Path) -> None:
    binaries = iter([engine, engine, DOUBLES / "deaf", *[engine] * 9])  # for the spare one and for sessions
    fleet = Fleet(lambda: next(binaries), limits(stop_s=0.2), max_engines=3, idle_s=900, launch=launch)
    fleet.start()
    sessions = [fleet.open(name, name, partial(fed, one_event)) for name in "abc"]
    await asyncio.gather(sessions[0].settled(), sessions[1].settled())  # the third still starts
    await within(5, fleet.close())
    assert not any(psutil.pid_exists(session.pid) for session in sessions if session.pid)


# -- memory --------------------------------------------------------------------------------------------------------

MIB = 1 << 20
EVENTS = 500_000  # as the fleet is told, of a trace that is small: what counts here is what it expects


def expected() -> int:
    """Memory that the fleet expects a load of `EVENTS` to take."""
    return MemoryModel().predicted("all", EVENTS)


def open_one(fleet: Fleet, name: str, **more: Any) -> Session:
    return fleet.open(name, name, TRACE, **{"events": EVENTS} | more)


async def test_an_engine_that_would_outgrow_the_budget_alone_is_refused_with_advice(engine: Path) -> None:
    async with fleet_of(engine, memory_bytes=expected() - 1) as fleet:
        with pytest.raises(TooLargeForEngine, match="args=essential") as refused:
            open_one(fleet, "a")
        assert refused.value.extra["predicted_bytes"] == expected() == refused.value.extra["budget_bytes"] + 1
        assert fleet.sessions() == []
        assert await asked(open_one(fleet, "a", args="essential"), "SELECT 1") == [(1,)]


async def test_engines_that_load_leave_no_room_for_more_than_the_budget(engine: Path) -> None:
    async with fleet_of(engine, max_engines=9, memory_bytes=2 * expected()) as fleet:
        first, _ = open_one(fleet, "a"), open_one(fleet, "b")
        with pytest.raises(EngineUnavailable, match="leave less than the 222 MiB") as refused:
            open_one(fleet, "c")
        facts = refused.value.extra
        assert (facts["budget_bytes"], facts["needed_bytes"]) == (2 * expected(), expected())
        assert [(one["trace"], one["predicted_bytes"]) for one in facts["in_use"]] == [
            ("a", expected()),
            ("b", expected()),
        ]
        await first.settled()
        assert await asked(open_one(fleet, "c"), "SELECT 1") == [(1,)]  # what it takes counts, and it can go


async def test_as_many_idle_engines_go_as_stand_in_the_way(engine: Path) -> None:
    async with fleet_of(engine, max_engines=9, memory_bytes=expected()) as fleet:
        for name in "abc":
            await asked(open_one(fleet, name, events=0), "SELECT 1")
        assert len(fleet.sessions()) == 3
        assert await asked(open_one(fleet, "d"), "SELECT 1") == [(1,)]
        assert [session.trace_id for session in fleet.sessions()] == ["d"]


async def test_nobody_has_to_go_for_one_who_can_not_come(engine: Path) -> None:
    async with fleet_of(engine, max_engines=9, memory_bytes=expected() + 100 * MIB) as fleet:
        idle = open_one(fleet, "idle", events=0)
        await asked(idle, "SELECT 1")
        open_one(fleet, "loading", events=EVENTS // 2).clients += 1
        with pytest.raises(EngineUnavailable):
            open_one(fleet, "c")
        assert idle in fleet.sessions()


async def test_a_newcomer_waits_until_the_one_that_makes_room_is_gone(engine: Path, one_event: Path) -> None:
    binaries = iter([DOUBLES / "deaf", DOUBLES / "deaf", *[engine] * 9])  # one that takes its time to end
    async with fleet_of(engine, binary=lambda: next(binaries), max_engines=1, limits=limits(stop_s=0.3)) as fleet:
        first = fleet.open("a", "a", partial(fed, one_event))
        await first.settled()
        second = open_one(fleet, "b", events=0)
        assert not await second.settled(0.2)
        assert second.state is SessionState.WAITING
        assert psutil.pid_exists(first.pid or 0)
        assert second.pid is None
        assert await asked(second, "SELECT 1") == [(1,)]
        assert first.gone


async def test_one_who_waits_for_room_can_be_closed(engine: Path, one_event: Path) -> None:
    binaries = iter([DOUBLES / "deaf", DOUBLES / "deaf", *[engine] * 9])
    async with fleet_of(engine, binary=lambda: next(binaries), max_engines=1, limits=limits(stop_s=0.3)) as fleet:
        await fleet.open("a", "a", partial(fed, one_event)).settled()
        second = open_one(fleet, "b", events=0)
        assert not await second.settled(0.1)
        await within(0.2, fleet.shut("b"))
        assert second.state is SessionState.CLOSED
        assert second.pid is None


async def test_twenty_traces_in_turn_never_take_more_than_the_budget_for_three(engine: Path, tmp_path: Path) -> None:
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
            assert await asked(session, "SELECT name FROM slice") == [(f"trace {number}",)]
        watching.cancel()
        assert over <= 0
        assert max(alive) >= 3


async def test_a_load_teaches_what_to_expect_of_the_next(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        first = open_one(fleet, "a")
        await first.settled()
        second = open_one(fleet, "b")
        assert second.predicted_bytes < first.predicted_bytes  # the trace is smaller than the fleet was told
        assert first.most_bytes == 512 * MIB


async def test_engines_that_have_grown_beyond_the_budget_go(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "TEND_EVERY_S", 0.05)
    async with fleet_of(engine, max_engines=9, memory_bytes=200 * MIB) as fleet:
        idle, grown, growing = (open_one(fleet, name, events=0) for name in "abc")
        growing.clients += 1
        await asked(idle, "SELECT 1")
        await asked(grown, table(3_000_000))  # 150 MiB with it
        working = grown.query(ENDLESS, limit=None, timeout_s=60)
        await asked(growing, table(2_500_000))  # 127 MiB
        with pytest.raises(EngineOutOfMemory):
            await within(20, all_rows(working))
        assert idle not in fleet.sessions()
        assert fleet.held_bytes <= 200 * MIB
        assert await asked(growing, "SELECT count(*) FROM much") == [(2_500_000,)]


async def test_no_other_engine_has_to_go_while_one_gives_its_memory_back(engine: Path) -> None:
    async with fleet_of(engine, max_engines=9) as fleet:
        sessions = [open_one(fleet, name, events=0) for name in "abc"]
        for session in sessions:
            session.clients += 1
            await asked(session, "SELECT 1")
        await fleet._spare.close()
        fleet.budget_bytes = 1
        for _ in sessions:
            await fleet._keep_within_budget()
        (ending,) = (session for session in sessions if session.ending)
        assert await gone(ending)
        assert isinstance(ending.error, EngineOutOfMemory)
        await fleet._keep_within_budget()
        assert [session.ending for session in sessions].count(True) == 1


async def test_an_engine_that_leaks_is_closed_once_idle(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "TEND_EVERY_S", 0.05)
    monkeypatch.setattr(fleet_module, "LEAK_IDLE_S", 0.2)
    async with fleet_of(engine) as fleet:
        session = open_one(fleet, "a", events=0)
        await asked(session, "SELECT 1")
        session.most_bytes = 60 * MIB
        await asked(session, table(700_000))
        assert await gone(session)
        assert fleet.sessions() == []


# -- engines that die ----------------------------------------------------------------------------------------------


async def test_what_kills_its_engine_again_and_again_is_left_alone_until_it_is_closed(one_event: Path) -> None:
    async with fleet_of(DOUBLES / "failing", deaths=2) as fleet:
        for restarts in range(2):
            session = fleet.open("a", "a", partial(fed, one_event))
            assert session.restarts == restarts
            with pytest.raises(EngineFailed, match="the moon"):
                await session.settled()
        with pytest.raises(EngineFailed, match=r"ended 2 times.*the moon is in the way") as refused:
            fleet.open("a", "a", partial(fed, one_event))
        assert 500 < refused.value.extra["retry_after_s"] <= 600
        assert fleet.find("a") is session  # and tells what became of it
        fleet.open("b", "b", partial(fed, one_event))
        await fleet.shut("a")
        fleet.open("a", "a", partial(fed, one_event))


async def nothing_of(trace: str) -> AsyncGenerator[bytes]:
    raise NothingSelected(f"No event of {trace} is selected.")
    yield b""


async def test_an_engine_that_got_nothing_to_load_did_not_die_of_it(engine: Path) -> None:
    async with fleet_of(engine, deaths=1) as fleet:
        for _ in range(2):
            with pytest.raises(NothingSelected):
                await fleet.open("a", "a", partial(nothing_of, "a")).settled()


async def test_an_idle_engine_that_was_killed_is_noticed_and_replaced(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        session = open_one(fleet, "a")
        await asked(session, "SELECT 1")
        psutil.Process(session.pid).kill()
        await within(3, session.ended())
        assert session.state is SessionState.FAILED
        again = open_one(fleet, "a")
        assert again.restarts == 1
        assert await asked(again, "SELECT 1") == [(1,)]


# -- the spare one -------------------------------------------------------------------------------------------------


async def spare_of(fleet: Fleet) -> int:
    """The process id of the fleet's spare engine, once there is one."""
    async with asyncio.timeout(5):
        while not (process := fleet._spare._process()):  # noqa: ASYNC110 - no one is told
            await asyncio.sleep(0)
    return process.pid


async def test_an_engine_waits_for_its_trace(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        waiting = await spare_of(fleet)
        session = open_one(fleet, "a")
        await session.settled()
        assert session.pid == waiting
        assert await spare_of(fleet) != waiting
        assert fleet.held_bytes > session.held_bytes
        assert len(fleet.sessions()) == 1


async def test_a_spare_engine_that_has_died_is_not_used(engine: Path) -> None:
    async with fleet_of(engine) as fleet:
        dead = await spare_of(fleet)
        psutil.Process(dead).kill()
        process = fleet._spare._process()
        assert process
        await process.ended()
        assert await asked(open_one(fleet, "a"), "SELECT 1") == [(1,)]


async def test_there_is_no_spare_engine_where_the_budget_has_no_room(engine: Path) -> None:
    async with fleet_of(engine, memory_bytes=BASE_BYTES + 10 * MIB) as fleet:
        session = open_one(fleet, "a", events=0)
        await session.settled()
        assert fleet._spare._process() is None
        assert fleet._spare._starting is None


async def test_no_engine_to_be_had_is_said_by_whoever_looks_for_it() -> None:
    def none() -> Path:
        raise EngineUnavailable("There is none.")

    fleet = Fleet(none, limits(), max_engines=1, idle_s=900)
    with pytest.raises(EngineUnavailable, match="There is none"):
        fleet.open("a", "a", TRACE)
    await fleet.close()

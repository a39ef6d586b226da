"""All engines: one a trace, no more than allowed, none that nobody needs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.engine.fleet import Fleet
from service.engine.session import SessionState
from service.trace.errors import EngineFailed, EngineUnavailable
from tests.conftest import DATA
from tests.engine.conftest import DOUBLES, ENDLESS_ROWS, all_rows, asked, gone, limits, within

TRACE = DATA / "cpu_train_steps.pt.trace.json.gz"


@asynccontextmanager
async def fleet_of(binary: Path, **settings: Any) -> AsyncIterator[Fleet]:
    fleet = Fleet(lambda: binary, limits(), **{"max_engines": 2, "idle_s": 900.0} | settings)
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
        assert refused.value.extra == {"in_use": ["a", "b"], "retry_after_s": 10}

        await asyncio.gather(asked_of.settled(), attached.settled())
        attached.clients += 1
        running = asked_of.query(ENDLESS_ROWS, limit=None, timeout_s=30)
        await running.first()
        with pytest.raises(EngineUnavailable):
            fleet.open("c", "c", TRACE)
        running.close()
        await asked(asked_of, "SELECT 1")
        assert await asked(fleet.open("c", "c", TRACE), "SELECT 1") == [(1,)]


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
                await fleet.open(trace, trace, one_event).settled()
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
    binaries = iter([engine, DOUBLES / "deaf", engine])
    fleet = Fleet(lambda: next(binaries), limits(stop_s=0.2), max_engines=3, idle_s=900)
    fleet.start()
    sessions = [fleet.open(name, name, one_event) for name in "abc"]
    await asyncio.gather(sessions[0].settled(), sessions[1].settled())  # the third still starts
    await within(5, fleet.close())
    assert not any(psutil.pid_exists(session.pid) for session in sessions if session.pid)


async def test_no_engine_to_be_had_is_said_by_whoever_looks_for_it() -> None:
    def none() -> Path:
        raise EngineUnavailable("There is none.")

    fleet = Fleet(none, limits(), max_engines=1, idle_s=900)
    with pytest.raises(EngineUnavailable, match="There is none"):
        fleet.open("a", "a", TRACE)
    await fleet.close()

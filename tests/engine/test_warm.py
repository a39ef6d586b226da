"""The warm engine is started ahead of its first use."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from service.engine.trace_processor.process import TraceProcessor
from service.engine.warm import WarmEngine
from service.trace.errors import EngineUnavailable
from tests.engine.conftest import DOUBLES, Driver, in_time

Started = Callable[[], set[int]]


@pytest.fixture
def started() -> Started:
    """Return a function that returns the processes that the test has started."""
    before = set(psutil.Process().children())
    return lambda: {child.pid for child in set(psutil.Process().children()) - before}


async def test_each_caller_gets_an_engine_of_its_own(engine: Path) -> None:
    warm = WarmEngine(Driver(lambda: engine), 1.0)
    warm.prepare(engine)
    engines = await in_time(asyncio.gather(*(warm.take(engine) for _ in range(3))))
    assert len({process.pid for process in engines}) == 3
    assert warm.memory_bytes == 0
    for process in engines:
        await process.stop(1.0)


async def test_cancelled_caller_leaves_the_engine_to_the_next_caller(engine: Path, started: Started) -> None:
    warm = WarmEngine(Driver(lambda: engine), 1.0)
    giving_up = asyncio.create_task(warm.take(engine))
    await asyncio.sleep(0)
    giving_up.cancel()
    await asyncio.wait([giving_up])
    process = await warm.take(engine)
    assert started() == {process.pid}
    await process.stop(1.0)


async def test_warm_engine_of_another_program_is_replaced(engine: Path, started: Started) -> None:
    warm = WarmEngine(Driver(lambda: engine), 1.0)
    warm.prepare(DOUBLES / "mute")
    process = await warm.take(engine)
    assert started() == {process.pid}
    await process.stop(1.0)


async def test_unused_engine_is_stopped(engine: Path, started: Started) -> None:
    warm = WarmEngine(Driver(lambda: engine), 1.0)
    await warm.close()  # there is no engine yet
    warm.prepare(engine)
    await in_time(warm.close())
    assert started() == set()


async def test_failure_to_start_is_raised_to_each_caller(engine: Path) -> None:
    class FailingDriver(Driver):
        async def start(self, binary: Path) -> TraceProcessor:
            raise EngineUnavailable("There is no room for a process.")

    warm = WarmEngine(FailingDriver(lambda: engine), 1.0)
    for _ in range(2):
        warm.prepare(engine)
        with pytest.raises(EngineUnavailable, match="no room"):
            await warm.take(engine)
    warm.prepare(engine)
    await warm.close()

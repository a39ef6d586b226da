"""An engine that is started before anyone asks for it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from service.engine.spare import Spare
from service.trace.errors import EngineUnavailable
from tests.engine.conftest import DOUBLES, launch, within

Started = Callable[[], set[int]]


@pytest.fixture
def started() -> Started:
    """The processes that were started since."""
    before = set(psutil.Process().children())
    return lambda: {child.pid for child in set(psutil.Process().children()) - before}


async def test_each_who_takes_one_gets_one_of_its_own(engine: Path) -> None:
    spare = Spare(launch, 1.0)
    spare.prepare(engine)
    taken = await within(10, asyncio.gather(*(spare.take(engine) for _ in range(3))))
    assert len({process.pid for process in taken}) == 3
    assert spare.memory_bytes == 0
    for process in taken:
        await process.stop(1.0)


async def test_who_gives_up_leaves_it_to_the_next(engine: Path, started: Started) -> None:
    spare = Spare(launch, 1.0)
    giving_up = asyncio.create_task(spare.take(engine))
    await asyncio.sleep(0)
    giving_up.cancel()
    await asyncio.wait([giving_up])
    process = await spare.take(engine)
    assert started() == {process.pid}
    await process.stop(1.0)


async def test_one_of_another_program_is_of_no_use(engine: Path, started: Started) -> None:
    spare = Spare(launch, 1.0)
    spare.prepare(DOUBLES / "mute")
    process = await spare.take(engine)
    assert started() == {process.pid}
    await process.stop(1.0)


async def test_one_that_nobody_takes_is_stopped(engine: Path, started: Started) -> None:
    spare = Spare(launch, 1.0)
    await spare.close()  # there is none
    spare.prepare(engine)
    await within(5, spare.close())
    assert started() == set()


async def test_one_that_can_not_be_started_is_told_to_who_takes_it(engine: Path) -> None:
    async def fails(binary: Path) -> None:
        raise EngineUnavailable("There is no room for a process.")

    spare = Spare(fails, 1.0)  # type: ignore[arg-type] # it returns nothing, for it always raises
    for _ in range(2):
        spare.prepare(engine)
        with pytest.raises(EngineUnavailable, match="no room"):
            await spare.take(engine)
    spare.prepare(engine)
    await spare.close()

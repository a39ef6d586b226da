"""Shielded work runs to its end."""

import asyncio
from asyncio import CancelledError, Event

import pytest

from service.jobs.shielded import shielded


def test_cancellations_do_not_end_the_work_and_are_raised_after_it() -> None:
    async def cancel_repeatedly() -> None:
        begun, may_end, ended = Event(), Event(), Event()

        async def work() -> None:
            begun.set()
            await may_end.wait()
            ended.set()

        caller = asyncio.create_task(shielded(work()))
        await begun.wait()
        for _ in range(3):
            caller.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not caller.done()
        may_end.set()
        with pytest.raises(CancelledError):
            await caller
        assert ended.is_set()

    asyncio.run(cancel_repeatedly())


def test_result_and_error_of_the_work_reach_the_caller() -> None:
    async def result() -> int:
        return 42

    async def failure() -> int:
        raise ValueError("no")

    assert asyncio.run(shielded(result())) == 42
    with pytest.raises(ValueError, match="no"):
        asyncio.run(shielded(failure()))

"""Whose request an engine works on next."""

import asyncio
from typing import Any

import pytest

from service.engine import wire
from service.engine.turns import BULK_AFTER, Exchange, Turns
from service.trace.errors import EngineBusy, EngineFailed, EngineUnavailable, QueryTimeout
from tests.engine.conftest import within


def asked(name: str = "", client: str = "", bulk: bool = True) -> Exchange:
    return Exchange(name, lambda _: None, lambda _: None, client=client, bulk=bulk)


async def order(turns: Turns) -> str:
    """The requests, one letter each, as they are taken."""
    return "".join([(await turns.next()).request for _ in range(len(turns))])


async def test_requests_of_a_client_are_taken_as_they_came() -> None:
    turns = Turns(9)
    for name in "abc":
        turns.put(asked(name))
    assert await order(turns) == "abc"


async def test_what_someone_looks_at_goes_before_bulk() -> None:
    turns = Turns(9)
    for name in "abAB":
        turns.put(asked(name, bulk=name.islower()))
    assert await order(turns) == "ABab"


async def test_bulk_does_not_wait_for_ever() -> None:
    turns = Turns(99)
    for name in "abc":
        turns.put(asked(name))
    for _ in range(3 * BULK_AFTER):
        turns.put(asked("U", bulk=False))
    u = "U" * BULK_AFTER
    assert await order(turns) == f"{u}a{u}b{u}c"


async def test_a_busy_client_does_not_hold_up_the_others() -> None:
    turns = Turns(99)
    for number in range(6):
        turns.put(asked(str(number), client="busy"))
    turns.put(asked("a", client="one"))
    turns.put(asked("b", client="another"))
    turns.put(asked("c", client="one"))
    assert await order(turns) == "0ab1c2345"


async def test_no_more_wait_than_agreed() -> None:
    turns = Turns(2)
    first, second = asked("a"), asked("b")
    turns.put(first)
    turns.put(second)
    with pytest.raises(EngineBusy) as busy:
        turns.put(asked("c"))
    assert busy.value.extra == {"waiting": 2, "retry_after_s": 1}
    first.abandon()
    turns.put(asked("d"))  # in the place of the one that left
    assert await order(turns) == "bd"


async def test_those_who_left_are_not_kept() -> None:
    turns = Turns(2)
    for client in "abc":
        for _ in range(100):
            left = asked(client=client)
            turns.put(left)
            left.abandon()
    assert len(turns.drain()) == 1


async def test_who_waits_for_a_request_gets_the_next_one() -> None:
    turns = Turns(2)
    waiting = asyncio.create_task(turns.next())
    await asyncio.sleep(0)
    left, stays = asked("left"), asked("stays")
    left.abandon()
    turns.put(left)
    turns.put(stays)
    assert await within(1, waiting) is stays


async def test_who_waits_hears_that_there_is_nothing_to_wait_for() -> None:
    turns = Turns(2)
    waiting = asyncio.create_task(turns.next())
    await asyncio.sleep(0)
    turns.fail(EngineFailed("It died."))
    with pytest.raises(EngineFailed, match="It died"):
        await within(1, waiting)


async def test_a_drained_queue_is_empty() -> None:
    turns = Turns(9)
    turns.put(asked("a"))
    turns.put(asked("A", bulk=False))
    assert [one.request for one in turns.drain()] == ["A", "a"]
    assert len(turns) == 0


async def test_a_request_ends_exactly_once() -> None:
    ends: list[Any] = []
    exchange = Exchange(wire.request(wire.GET_STATUS), deliver=ends.append, on_end=ends.append)
    exchange.abandon()
    exchange.end(EngineUnavailable("late"))
    exchange.abandon()
    assert ends == [None]


async def test_a_request_that_runs_out_of_time_while_it_waits_ends_with_that() -> None:
    ended = asyncio.get_running_loop().create_future()
    Exchange(wire.request(wire.GET_STATUS), ended.set_result, ended.set_result).stop_after(0.01)
    assert isinstance(await within(1, ended), QueryTimeout)


async def test_a_request_that_ends_in_time_runs_out_of_none() -> None:
    ends: list[Any] = []
    exchange = Exchange(wire.request(wire.GET_STATUS), ends.append, ends.append)
    exchange.stop_after(0.01)
    exchange.end()
    await asyncio.sleep(0.02)
    assert ends == [None]
    assert not exchange.abandoned.is_set()

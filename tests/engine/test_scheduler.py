"""The scheduler decides which request an engine processes next; a request ends exactly once."""

import asyncio
from typing import Any

import pytest

from service.engine.scheduler import BULK_AFTER, AnyExchange, Exchange, RequestScheduler
from service.engine.session import Query
from service.trace.errors import EngineBusy, EngineFailed, EngineUnavailable, QueryTimeout
from tests.engine.conftest import in_time


def exchange(name: str = "", client: str = "", bulk: bool = True) -> AnyExchange:
    """Return a request whose SQL is `name`."""
    return Exchange(Query(name), lambda _: None, lambda _: None, client=client, bulk=bulk)


async def order(scheduler: RequestScheduler) -> str:
    """Return the names of the waiting requests in the order in which the scheduler returns them."""
    return "".join([(await scheduler.next()).request.statement for _ in range(len(scheduler))])


async def test_requests_of_a_client_keep_their_order() -> None:
    scheduler = RequestScheduler(9)
    for name in "abc":
        scheduler.put(exchange(name))
    assert await order(scheduler) == "abc"


async def test_requests_of_uis_go_before_bulk_requests() -> None:
    scheduler = RequestScheduler(9)
    for name in "abAB":
        scheduler.put(exchange(name, bulk=name.islower()))
    assert await order(scheduler) == "ABab"


async def test_bulk_requests_do_not_starve() -> None:
    scheduler = RequestScheduler(99)
    for name in "abc":
        scheduler.put(exchange(name))
    for _ in range(3 * BULK_AFTER):
        scheduler.put(exchange("U", bulk=False))
    ui_requests = "U" * BULK_AFTER
    assert await order(scheduler) == f"{ui_requests}a{ui_requests}b{ui_requests}c"


async def test_busy_client_does_not_delay_other_clients() -> None:
    scheduler = RequestScheduler(99)
    for number in range(6):
        scheduler.put(exchange(str(number), client="busy"))
    scheduler.put(exchange("a", client="one"))
    scheduler.put(exchange("b", client="another"))
    scheduler.put(exchange("c", client="one"))
    assert await order(scheduler) == "0ab1c2345"


async def test_full_queue_refuses_requests() -> None:
    scheduler = RequestScheduler(2)
    first, second = exchange("a"), exchange("b")
    scheduler.put(first)
    scheduler.put(second)
    with pytest.raises(EngineBusy) as busy:
        scheduler.put(exchange("c"))
    assert busy.value.extra == {"waiting": 2, "retry_after_s": 1}
    first.abandon()
    scheduler.put(exchange("d"))  # takes the place of the abandoned request
    assert await order(scheduler) == "bd"


async def test_abandoned_requests_are_removed_from_the_queue() -> None:
    scheduler = RequestScheduler(2)
    for client in "abc":
        for _ in range(100):
            abandoned = exchange(client=client)
            scheduler.put(abandoned)
            abandoned.abandon()
    assert len(scheduler.drain()) == 1  # each new request removes those that were abandoned before


async def test_waiting_engine_gets_the_next_request_that_is_not_abandoned() -> None:
    scheduler = RequestScheduler(2)
    waiting = asyncio.create_task(scheduler.next())
    await asyncio.sleep(0)
    abandoned, queued = exchange("left"), exchange("stays")
    abandoned.abandon()
    scheduler.put(abandoned)
    scheduler.put(queued)
    assert await in_time(waiting) is queued


async def test_failure_is_raised_while_waiting_for_a_request() -> None:
    scheduler = RequestScheduler(2)
    waiting = asyncio.create_task(scheduler.next())
    await asyncio.sleep(0)
    scheduler.fail(EngineFailed("It died."))
    with pytest.raises(EngineFailed, match="It died"):
        await in_time(waiting)


async def test_drained_queue_is_empty() -> None:
    scheduler = RequestScheduler(9)
    scheduler.put(exchange("a"))
    scheduler.put(exchange("A", bulk=False))
    assert [waiting.request.statement for waiting in scheduler.drain()] == ["A", "a"]
    assert len(scheduler) == 0


async def test_request_ends_exactly_once() -> None:
    ends: list[Any] = []
    request = Exchange(Query("SELECT 1"), deliver=ends.append, on_end=ends.append)
    request.abandon()
    request.end(EngineUnavailable("late"))
    request.abandon()
    assert ends == [None]


async def test_request_ends_at_its_deadline_while_it_waits() -> None:
    ended = asyncio.get_running_loop().create_future()
    Exchange(Query("SELECT 1"), ended.set_result, ended.set_result).set_deadline(0.01)
    assert isinstance(await in_time(ended), QueryTimeout)


async def test_request_that_has_ended_has_no_deadline() -> None:
    ends: list[Any] = []
    request = Exchange(Query("SELECT 1"), ends.append, ends.append)
    request.set_deadline(0.01)
    request.end()
    await asyncio.sleep(0.02)
    assert ends == [None]
    assert not request.abandoned.is_set()

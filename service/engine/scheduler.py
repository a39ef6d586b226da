"""The order in which an engine works on requests: UIs before bulk SQL, clients in turn, in a bounded queue.

The scheduler does not preempt: a UI's request waits until running bulk SQL ends, at the latest at its deadline.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any, Generic, TypeVar

from service.engine.engine import Engine, Request
from service.trace.errors import EngineBusy, QueryTimeout, TracedockError

BULK_AFTER = 8  # requests of UIs in a row, after which one bulk request is served
RETRY_AFTER_S = 1

ResponseT = TypeVar("ResponseT")


class Exchange(Generic[ResponseT]):
    """A request and the callbacks for its responses.

    Args:
        request: the request.
        deliver: called with each response.
        on_end: called exactly once after the last response, with the error if there is one.
        client: the connection that sends the request; connections take turns.
        bulk: whether requests of UIs take precedence over this one.
        owner: the identity of the client, which is the same on all its connections.
    """

    def __init__(
        self,
        request: Request[ResponseT],
        deliver: Callable[[ResponseT], None],
        on_end: Callable[[TracedockError | None], None],
        *,
        client: Hashable = None,
        bulk: bool = True,
        owner: Hashable = None,
    ) -> None:
        self.request = request
        self.client = client
        self.bulk = bulk
        self.owner = owner
        self.started = False
        self.ended = False
        self.abandoned = asyncio.Event()
        self._deliver = deliver
        self._on_end = on_end
        self._reason: TracedockError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set_deadline(self, timeout_s: float) -> None:
        """Abandon the request after `timeout_s` seconds, including the time in the queue."""
        error = QueryTimeout(f"The query was stopped after {timeout_s:g} s.", timeout_s=timeout_s)
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self.abandon, error)

    def abandon(self, reason: TracedockError | None = None) -> None:
        """Drop the request if it waits; if it runs, the session interrupts the engine."""
        self._reason = self._reason or reason
        self.abandoned.set()
        if not self.started:
            self.end()

    async def run(self, engine: Engine) -> None:
        """Send the request to the engine and deliver its responses. Responses to an abandoned request are dropped."""
        responses: AsyncIterator[ResponseT] = self.request.send(engine)
        async for response in responses:
            if not self.abandoned.is_set():
                self._deliver(response)

    def end(self, error: TracedockError | None = None) -> None:
        """Report the end of the responses; later calls do nothing."""
        if not self.ended:
            self.ended = True
            if self._timer:
                self._timer.cancel()
            self._on_end(self._reason or error)


AnyExchange = Exchange[Any]
"""An exchange with any type of responses."""


class RequestScheduler:
    """The requests that wait for one engine.

    Args:
        capacity: largest number of waiting requests.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._urgent: OrderedDict[Hashable, deque[AnyExchange]] = OrderedDict()
        self._bulk: OrderedDict[Hashable, deque[AnyExchange]] = OrderedDict()
        self._urgent_in_a_row = 0
        self._changed = asyncio.Event()
        self._error: TracedockError | None = None

    def __len__(self) -> int:
        return sum(not exchange.ended for queue in self._queues() for exchange in queue)

    def put(self, exchange: AnyExchange) -> None:
        """Add a request to the queue; raises `EngineBusy` if the queue is full."""
        self._remove_ended()
        if len(self) >= self._capacity:
            raise EngineBusy(
                f"{self._capacity} requests wait for this trace's engine already.",
                waiting=self._capacity, retry_after_s=RETRY_AFTER_S,
            )  # fmt: skip
        queues = self._bulk if exchange.bulk else self._urgent
        queues.setdefault(exchange.client, deque()).append(exchange)
        self._changed.set()

    def fail(self, error: TracedockError) -> None:
        """Let `next` raise this error from now on."""
        self._error = error
        self._changed.set()

    async def next(self) -> AnyExchange:
        """Wait for a request, remove the next one from the queue and return it; raises the error of `fail`."""
        while True:
            if self._error:
                raise self._error
            if exchange := self._pop():
                return exchange
            self._changed.clear()
            await self._changed.wait()

    def drain(self) -> list[AnyExchange]:
        """Empty the queue, and return the requests that it held."""
        waiting = [exchange for queue in self._queues() for exchange in queue]
        self._urgent.clear()
        self._bulk.clear()
        return waiting

    def _remove_ended(self) -> None:
        """Remove requests that ended while they waited, so that they do not accumulate."""
        for queues in (self._urgent, self._bulk):
            for client, queue in list(queues.items()):
                queues[client] = deque(exchange for exchange in queue if not exchange.ended)
                if not queues[client]:
                    del queues[client]

    def _queues(self) -> list[deque[AnyExchange]]:
        return [*self._urgent.values(), *self._bulk.values()]

    def _pop(self) -> AnyExchange | None:
        bulk_is_due = self._urgent_in_a_row >= BULK_AFTER
        for queues in (self._bulk, self._urgent) if bulk_is_due else (self._urgent, self._bulk):
            if exchange := _pop_first(queues):
                self._urgent_in_a_row = 0 if queues is self._bulk else self._urgent_in_a_row + 1
                return exchange
        return None


def _pop_first(queues: OrderedDict[Hashable, deque[AnyExchange]]) -> AnyExchange | None:
    """Return the first request of the client whose turn it is, and move that client behind the others."""
    while queues:
        client, queue = queues.popitem(last=False)
        while queue:
            exchange = queue.popleft()
            if not exchange.ended:
                if queue:
                    queues[client] = queue
                return exchange
    return None

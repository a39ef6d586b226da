"""Whose request an engine works on next: the UI's before bulk SQL, clients in turn, no more waiting than agreed.

A statement that runs is not stopped for those that wait: a UI waits for a long one of bulk SQL, at most to its
deadline.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any

from service.trace.errors import EngineBusy, QueryTimeout, TracedockError

BULK_AFTER = 8  # requests of UIs are answered before one of bulk SQL has its turn all the same
RETRY_AFTER_S = 1


class Exchange:
    """One request on its way: `deliver` gets each response, `on_end` the error or None, exactly once.

    Args:
        request: what the engine is asked.
        deliver: takes a response.
        on_end: is told that no more comes, and why where that is an error.
        client: who asks; clients take turns.
        bulk: whether it can wait for those that someone looks at.
        owner: the identity of the client, which it keeps over all its connections.
    """

    def __init__(
        self,
        request: Any,
        deliver: Callable[[Any], None],
        on_end: Callable[[TracedockError | None], None],
        *,
        client: Hashable = None,
        bulk: bool = True,
        owner: Hashable = None,
    ) -> None:
        self.request = request
        self.deliver = deliver
        self.client = client
        self.bulk = bulk
        self.owner = owner
        self.begun = False
        self.ended = False
        self.abandoned = asyncio.Event()
        self._on_end = on_end
        self._why: TracedockError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def stop_after(self, timeout_s: float) -> None:
        """Give it so many seconds, waiting for its turn included."""
        error = QueryTimeout(f"The query was stopped after {timeout_s:g} s.", timeout_s=timeout_s)
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self.abandon, error)

    def abandon(self, why: TracedockError | None = None) -> None:
        """Nobody wants the answer any more: drop the request, or stop the engine's work on it."""
        self._why = self._why or why
        self.abandoned.set()
        if not self.begun:  # whoever waits need not wait for its turn
            self.end()

    def end(self, error: TracedockError | None = None) -> None:
        """No response comes any more."""
        if not self.ended:
            self.ended = True
            if self._timer:
                self._timer.cancel()
            self._on_end(self._why or error)


class Turns:
    """The requests that wait for one engine.

    Args:
        most: how many may wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._urgent: OrderedDict[Hashable, deque[Exchange]] = OrderedDict()
        self._bulk: OrderedDict[Hashable, deque[Exchange]] = OrderedDict()
        self._urgent_in_a_row = 0
        self._news = asyncio.Event()
        self._error: TracedockError | None = None

    def __len__(self) -> int:
        return sum(not one.ended for line in self._lines() for one in line)

    def put(self, exchange: Exchange) -> None:
        """Line up; raises `EngineBusy`."""
        self._forget_ended()
        if len(self) >= self._most:
            raise EngineBusy(
                f"{self._most} requests wait for this trace's engine already.",
                waiting=self._most, retry_after_s=RETRY_AFTER_S,
            )  # fmt: skip
        lines = self._bulk if exchange.bulk else self._urgent
        lines.setdefault(exchange.client, deque()).append(exchange)
        self._news.set()

    def fail(self, error: TracedockError) -> None:
        """There is nothing to wait for any more: `next` raises this."""
        self._error = error
        self._news.set()

    async def next(self) -> Exchange:
        """The request whose turn it is, once there is one."""
        while True:
            if self._error:
                raise self._error
            if exchange := self._taken():
                return exchange
            self._news.clear()
            await self._news.wait()

    def drain(self) -> list[Exchange]:
        """All that wait, which then do so no more."""
        waiting = [one for line in self._lines() for one in line]
        self._urgent.clear()
        self._bulk.clear()
        return waiting

    def _forget_ended(self) -> None:
        """Who has left while others were served must not be kept for ever."""
        for lines in (self._urgent, self._bulk):
            for client, line in list(lines.items()):
                lines[client] = deque(one for one in line if not one.ended)
                if not lines[client]:
                    del lines[client]

    def _lines(self) -> list[deque[Exchange]]:
        return [*self._urgent.values(), *self._bulk.values()]

    def _taken(self) -> Exchange | None:
        bulk_is_due = self._urgent_in_a_row >= BULK_AFTER
        for lines in (self._bulk, self._urgent) if bulk_is_due else (self._urgent, self._bulk):
            if exchange := _first(lines):
                self._urgent_in_a_row = 0 if lines is self._bulk else self._urgent_in_a_row + 1
                return exchange
        return None


def _first(lines: OrderedDict[Hashable, deque[Exchange]]) -> Exchange | None:
    """The first request of the client that has waited longest for a turn, who then stands behind the others."""
    while lines:
        client, line = lines.popitem(last=False)
        while line:
            exchange = line.popleft()
            if not exchange.ended:
                if line:
                    lines[client] = line
                return exchange
    return None

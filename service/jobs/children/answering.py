"""The child's side of questions: threads that take calls from fair queues, and send the answers.

For each `Call`, the child sends `Begun` and then the answer. A `Drop` withdraws a call that has not begun; a call that
has begun can't be stopped.
"""

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from service.jobs.children.channel import ReceivedCall, ServerChannel, call_of
from service.jobs.children.messages import Begun, Crashed, Done, Drop, Failed, Message
from service.jobs.fair_queue import Entry, FairQueue
from service.store.database import limit_spill
from service.trace.errors import ExportFailed, TracedockError


@dataclass(frozen=True)
class QueueOptions:
    """Options of a queue of calls.

    Attributes:
        threads: number of threads, hence of calls in work.
        per_client: maximum number of calls of one client that are in work.
    """

    threads: int
    per_client: int


class Place(NamedTuple):
    """The place of a task.

    Attributes:
        queue: name of its queue.
        turn: its turn there: those with a low turn go first.
        is_large: whether it takes much memory: of each client, one such task is in work at a time.
    """

    queue: str
    turn: int = 0
    is_large: bool = False


class Answering:
    """Takes calls and sends their answers.

    Args:
        channel: the channel to the server.
        queues: the queues, by their names.
        place_of: returns the place of a task.
        answer: answers a task.
        after: called after each answer.
    """

    def __init__(
        self,
        channel: ServerChannel,
        queues: dict[str, QueueOptions],
        place_of: Callable[[Any], Place],
        answer: Callable[[Any], bytes],
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self._channel = channel
        self._place_of = place_of
        self._run = answer
        self._after = after
        self._dropped: set[int] = set()
        self._queues: dict[str, FairQueue[ReceivedCall]] = {}
        for name, options in queues.items():
            queue = self._queues[name] = FairQueue(options.per_client)
            for _ in range(options.threads):
                threading.Thread(target=self._work, args=(queue,), daemon=True).start()

    def serve(self) -> None:
        """Take messages until the server closes the connection."""
        while frame := self._channel.receive():
            self.take(*frame)

    def take(self, message: Message, body: bytes) -> None:
        """Queue a call, or drop one that has not begun."""
        if isinstance(message, Drop):
            self._dropped.add(message.id)
            return
        received = call_of(message, body)
        name, turn, is_large = self._place_of(received.task)
        self._queues[name].put(Entry(turn, received.call.id, received.call.client, received, is_large))

    def _work(self, queue: FairQueue[ReceivedCall]) -> None:
        while True:
            entry = queue.take()
            if entry.number not in self._dropped:
                self._answer(entry.item)
                self._after()
            self._dropped.discard(entry.number)
            queue.done(entry)

    def _answer(self, received: ReceivedCall) -> None:
        call_id = received.call.id
        self._channel.send(Begun(call_id))
        try:
            limit_spill(received.call.spill_max)
            answer = self._run(received.task)
        except TracedockError as fault:
            self._channel.send(Failed(fault.as_document(), id=call_id))
        except MemoryError:
            self._channel.send(
                Failed(ExportFailed("The analysis takes more memory than there is.").as_document(), id=call_id)
            )
        except BaseException as bug:  # noqa: BLE001 - the client learns of the crash, and the log of its cause
            self._channel.send(Crashed(repr(bug), traceback.format_exc(), id=call_id))
        else:
            self._channel.send(Done(call_id), answer)

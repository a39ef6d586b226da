"""The child that answers questions about traces, several at a time. It caches the data that it has read of traces.

For each `Call`, the child sends `Begun` and then the answer. A `Drop` withdraws a call that has not begun; a call that
has begun can't be stopped.
"""

import importlib
import os
import threading
import traceback
from pathlib import Path

import service.analysis.answers
import service.rendering.initial_view  # noqa: F401 - loaded before the first call, like the answers
from service.analysis.catalogue import QUESTIONS
from service.analysis.reading_cache import ReadingCache
from service.jobs.children.channel import ReceivedCall, ServerChannel, call_of
from service.jobs.children.messages import Begun, Crashed, Done, Drop, Failed, Message
from service.jobs.children.tasks.questions import AnswerTask, OpeningTask, Question
from service.jobs.fair_queue import Entry, FairQueue
from service.store.database import limit_spill
from service.store.export import spill_of
from service.trace.errors import ExportFailed, TracedockError

AT_ONCE, PER_CLIENT = 3, 2
"""Maximum number of concurrent calls: in total, and for one client, so that no client delays all others.

Concurrent calls share the cached data. A call waits for data that another call is reading.
"""


class Answering:
    """Takes calls and sends their answers.

    Args:
        channel: the channel to the server.
        readings: cache of the data that is read of traces.
    """

    def __init__(self, channel: ServerChannel, readings: ReadingCache) -> None:
        self._channel = channel
        self._readings = readings
        self._questions: FairQueue[ReceivedCall] = FairQueue(PER_CLIENT)
        self._openings: FairQueue[ReceivedCall] = FairQueue(PER_CLIENT)
        self._views: FairQueue[ReceivedCall] = FairQueue(PER_CLIENT)
        self._dropped: set[int] = set()
        # Openings and overviews have threads of their own, so that a click, a zoom or a pan in a page does not wait for
        # the page's questions.
        for queue in (*[self._questions] * AT_ONCE, self._openings, self._views):
            threading.Thread(target=self._work, args=(queue,), daemon=True).start()

    def take(self, message: Message, body: bytes) -> None:
        """Queue a call, or drop one that has not begun."""
        if isinstance(message, Drop):
            self._dropped.add(message.id)
            return
        received = call_of(message, body)
        call, task = received.call, received.task
        if isinstance(task, OpeningTask):
            self._openings.put(Entry(0, call.id, call.client, received))
        else:
            queue = self._views if _is_view(task) else self._questions
            queue.put(Entry(_turn_of(task), call.id, call.client, received))

    def _work(self, queue: FairQueue[ReceivedCall]) -> None:
        while True:
            entry = queue.take()
            if entry.number not in self._dropped:
                self._answer(entry.item)
            self._dropped.discard(entry.number)
            queue.done(entry)

    def _answer(self, received: ReceivedCall) -> None:
        call_id = received.call.id
        task: Question = received.task
        self._channel.send(Begun(call_id))
        try:
            limit_spill(received.call.spill_max)
            answer = task.run(self._readings)
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


def _turn_of(task: Question) -> int:
    """Return the turn of a question in the queue. Costly questions have a low turn, so that they go first."""
    question = QUESTIONS.get(task.question) if isinstance(task, AnswerTask) else None
    return -question.cost if question else 0


def _is_view(task: Question) -> bool:
    """Return whether a task answers a view of a page, which a file of the trace's columns answers at once."""
    return isinstance(task, AnswerTask) and task.question == "overview" and len(task.traces) == 1


def _preload() -> None:
    """Import the modules that most questions need, and with them numba and Parquet, whose import is slow."""
    for name in ("path_edges", "slices", "covered"):
        importlib.import_module(f"service.analysis.facts.{name}")


def main(channel: ServerChannel, spill: str) -> int:
    """Answer calls until the server closes the connection, and return the exit status.

    Args:
        channel: the channel to the server.
        spill: the path next to which the child writes data that does not fit into memory.
    """
    answering = Answering(channel, ReadingCache(spill_of(Path(spill), os.getpid())))
    threading.Thread(target=_preload).start()
    while frame := channel.receive():
        answering.take(*frame)
    return 0

"""A child that answers questions. It starts with the first question, and anew after it has ended."""

import asyncio
import itertools
import logging
import math
import shutil
from contextlib import suppress
from pathlib import Path

from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.messages import Begun, Crashed, Done, Drop, Failed
from service.jobs.children.process import ChildProcess
from service.store.export import spill_of
from service.store.room import Room
from service.trace.errors import DeadlineExceeded, ExportFailed, describe_exit, error_from_document

IDLE_S = 60.0
"""Seconds without a question after which the child is ended, which frees the data that it has cached."""
DROPPED_S = 2.0
"""Seconds for which the child still works on dropped questions: a page that is reloaded asks the same ones again."""
LONGEST_TIMER_S = 1e6
"""Longest delay of a timer: event loops accept no infinite one."""

log = logging.getLogger(__name__)


class QuestionChild:
    """Asks a child, which is ended when there is no question for long.

    Args:
        fork_server: starts the child.
        kind: kind of the child; its argument is the path next to which it spills.
        spill: the path next to which children write data that does not fit into memory.
        idle_s: seconds without a question after which the child is ended.
        dropped_s: seconds after which the child is ended if it only works on dropped questions.
        deadline_s: seconds of work after which a question fails. The child is then ended, and all other questions
            are asked again.
        room: disk space of the data folder, which bounds the spilled data.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        kind: Kind,
        spill: Path,
        *,
        idle_s: float = IDLE_S,
        dropped_s: float = DROPPED_S,
        deadline_s: float = math.inf,
        room: Room | None = None,
    ) -> None:
        self._kind = kind
        self._spill = spill
        self._room = room
        self._fork_server = fork_server
        self._idle_s = idle_s
        self._dropped_s = dropped_s
        self._deadline_s = deadline_s
        self._starting: asyncio.Task[QuestionProcess] | None = None
        self._idling: asyncio.TimerHandle | None = None
        self._listening: set[asyncio.Task[None]] = set()
        self._closed = False

    async def ask(self, question: object, client: str) -> bytes:
        """Return the answer to a question, which is asked again if the child is replaced because of another one.

        Args:
            question: a task of the child.
            client: identity of the client; clients take turns.

        Raises:
            TracedockError: what the child raises, `DeadlineExceeded`, or `ExportFailed` if the child failed.
        """
        spill_max = None if self._room is None else await asyncio.to_thread(self._room.left)
        while True:
            with suppress(_Interrupted):
                return await self._ask_once(question, client, spill_max)

    async def close(self) -> None:
        """End the child; unanswered questions fail."""
        self._closed = True
        if self._idling:
            self._idling.cancel()
        if self._starting:
            with suppress(ExportFailed):
                (await self._starting).kill()
        await asyncio.gather(*self._listening)

    async def _ask_once(self, question: object, client: str, spill_max: int | None) -> bytes:
        """Ask the child, and start one if there is none; raises `_Interrupted` if the child is replaced."""
        if self._idling:
            self._idling.cancel()
        if self._starting is None or self._is_over():
            self._starting = asyncio.create_task(self._start())
        process = await asyncio.shield(self._starting)
        call_id, answer = process.ask(question, client, spill_max)
        try:
            return await answer
        finally:
            dropped = process.leave(call_id)
            if not process.has_questions and not self._closed:
                after = self._dropped_s if dropped else self._idle_s
                self._idling = asyncio.get_running_loop().call_later(after, process.kill)

    def _is_over(self) -> bool:
        """Return whether no child is running or starting that could take a question."""
        starting = self._starting
        return not starting or (starting.done() and (bool(starting.exception()) or starting.result().is_over))

    async def _start(self) -> "QuestionProcess":
        if self._closed:
            raise ExportFailed("The server is shutting down.")
        try:
            child = await self._fork_server.fork(self._kind, str(self._spill))
        except OSError as error:
            raise ExportFailed(f"The process that answers can't be started: {error}.") from error
        process = QuestionProcess(child, self._spill, dropped_s=self._dropped_s, deadline_s=self._deadline_s)
        listening = asyncio.create_task(process.listen())
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        return process


def too_long(deadline_s: float) -> DeadlineExceeded:
    """Return the error of a question that was not answered in time."""
    return DeadlineExceeded(
        f"The analysis was not done after {deadline_s:g} s: ask about less, by steps or a window.", limit_s=deadline_s
    )


class _Interrupted(Exception):
    """The child was replaced because of another question, so this question must be asked again."""


class QuestionProcess:
    """A child that answers questions, and its unanswered questions.

    Args:
        child: the child.
        spill: the path next to which the child spills.
        dropped_s: seconds for which it may work on dropped questions only.
        deadline_s: seconds for which it may work on one question.
    """

    def __init__(self, child: ChildProcess, spill: Path, *, dropped_s: float, deadline_s: float) -> None:
        self._child = child
        self._spill = spill
        self._dropped_s = dropped_s
        self._deadline_s = deadline_s
        self._call_ids = itertools.count()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        """Answers that callers wait for, by call id."""
        self._deadlines: dict[int, asyncio.TimerHandle] = {}
        """Deadlines of the calls that the child works on, by call id."""
        self._abandoned: asyncio.TimerHandle | None = None
        self._interrupted = False
        self.is_over = False

    @property
    def has_questions(self) -> bool:
        """True while a caller waits for an answer."""
        return bool(self._answers)

    def ask(self, question: object, client: str, spill_max: int | None) -> tuple[int, asyncio.Future[bytes]]:
        """Ask a question, and return the id of the call and the future answer."""
        call_id = next(self._call_ids)
        answer = self._answers[call_id] = asyncio.get_running_loop().create_future()
        if self.is_over:
            answer.set_exception(self._failure("has just ended"))
        else:
            self._child.call(question, call_id=call_id, client=client, spill_max=spill_max)
        return call_id, answer

    def leave(self, call_id: int) -> bool:
        """Stop waiting for an answer; return True if it had not arrived, so that the question is dropped."""
        answer = self._answers.pop(call_id)
        dropped = answer.cancelled() or not answer.done()
        if dropped:
            if not self.is_over:
                self._child.send(Drop(call_id))
            self._watch_abandoned()
        return dropped

    def kill(self) -> None:
        """End the child."""
        self.is_over = True
        self._child.kill()

    async def listen(self) -> None:
        """Deliver each answer to its caller. Once the child has ended, fail all unanswered questions."""
        while message := await self._child.receive():
            match message:
                case Begun(call_id):
                    self._begin(call_id)
                case Done(call_id):
                    answer = await self._child.whole_body()
                    if answer is None:
                        break
                    self._end(call_id, answer)
                case Failed(error, _, call_id):
                    self._end(call_id, error_from_document(error))
                case Crashed(_, traceback, call_id):
                    log.error("an analysis crashed:\n%s", traceback)
                    self._end(call_id, ExportFailed("The analysis broke; the server's log says more."))
        self.is_over = True
        for timer in (*self._deadlines.values(), *([self._abandoned] if self._abandoned else [])):
            timer.cancel()
        self._deadlines.clear()
        self._fail_all(await self._child.end())
        await asyncio.to_thread(shutil.rmtree, spill_of(self._spill, self._child.pid), ignore_errors=True)

    def _begin(self, call_id: int) -> None:
        loop = asyncio.get_running_loop()
        self._deadlines[call_id] = loop.call_later(min(self._deadline_s, LONGEST_TIMER_S), self._expire, call_id)
        self._watch_abandoned()

    def _end(self, call_id: int, result: bytes | Exception) -> None:
        self._deadlines.pop(call_id).cancel()
        answer = self._answers.get(call_id)
        if answer and not answer.done():
            if isinstance(result, bytes):
                answer.set_result(result)
            else:
                answer.set_exception(result)
        self._watch_abandoned()

    def _expire(self, call_id: int) -> None:
        """Fail a question at its deadline, and end the child: nothing else stops its work."""
        answer = self._answers.get(call_id)
        if answer and not answer.done():
            answer.set_exception(too_long(self._deadline_s))
        self._interrupt()

    def _watch_abandoned(self) -> None:
        """End the child after `dropped_s` if it only works on dropped questions by now."""
        if self._abandoned:
            self._abandoned.cancel()
            self._abandoned = None
        if self._deadlines and not self._deadlines.keys() & self._answers.keys():
            self._abandoned = asyncio.get_running_loop().call_later(self._dropped_s, self._interrupt)

    def _interrupt(self) -> None:
        self._interrupted = True
        self.kill()

    def _fail_all(self, status: int) -> None:
        """Fail all unanswered questions, because the child has ended."""
        unanswered = [answer for answer in self._answers.values() if not answer.done()]
        if unanswered and not self._interrupted:
            log.error("the process that answers questions %s", describe_exit(status))
        for answer in unanswered:
            answer.set_exception(self._failure(f"{describe_exit(status)}; the server's log says more"))

    def _failure(self, how: str) -> Exception:
        """Return the error of a question to a child that has ended."""
        return _Interrupted() if self._interrupted else ExportFailed(f"The process that answers {how}.")

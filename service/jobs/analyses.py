"""Answers to questions about traces. One child answers the questions of all clients."""

import asyncio
import itertools
import logging
import math
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.jobs.children.encoding import decode
from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.messages import Begun, Crashed, Done, Drop, Failed
from service.jobs.children.process import ChildProcess
from service.jobs.children.tasks.questions import AnalysedTrace, AnswerTask, ApplicableTask, OpeningTask, Question
from service.rendering.view import InitialView
from service.store.export import spill_of
from service.store.room import Room
from service.trace.errors import DeadlineExceeded, ExportFailed, describe_exit, error_from_document
from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import Summary

IDLE_S = 60.0
"""Seconds without a question after which the child is ended, which frees the data that it has cached."""
DROPPED_S = 2.0
"""Seconds for which the child still works on dropped questions: a page that is reloaded asks the same ones again."""
_LONGEST_TIMER_S = 1e6  # event loops accept no infinite delay

log = logging.getLogger(__name__)


class Analyses:
    """Answers questions.

    Args:
        fork_server: starts the child.
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
        spill: Path,
        *,
        idle_s: float = IDLE_S,
        dropped_s: float = DROPPED_S,
        deadline_s: float = math.inf,
        room: Room | None = None,
    ) -> None:
        self._spill = spill
        self._room = room
        self._fork_server = fork_server
        self._idle_s = idle_s
        self._dropped_s = dropped_s
        self._deadline_s = deadline_s
        self._starting: asyncio.Task[AnalysisProcess] | None = None
        self._idling: asyncio.TimerHandle | None = None
        self._listening: set[asyncio.Task[None]] = set()
        self._closed = False

    def answer(  # noqa: PLR0913 - each part of the question is an argument
        self,
        question: str,
        parameters: dict[str, Any],
        traces: Sequence[AnalysedTrace],
        *,
        form: str = "json",
        tables: Sequence[str] = (),
        limit: int | None = None,
        offset: int = 0,
        client: str = "",
    ) -> AsyncGenerator[bytes]:
        """Yield the answer to a question; closing the generator drops the question.

        Args:
            question: the question's name.
            parameters: the question's parameters, as JSON values.
            traces: the traces that the question is about.
            form: format of the answer: ``json``, ``columns``, ``csv`` or ``arrow``.
            tables: the tables to return; empty for all or, as csv or arrow, for the first.
            limit: maximum number of rows of each table; None for all.
            offset: number of rows of each table to skip.
            client: identity of the client; clients take turns.

        Raises:
            AnalysisError: the question can't be answered, or none of the traces has the data for it.
            SelectionError: the selection of a trace is invalid or matches no event.
            DeadlineExceeded: the answer took longer than `deadline_s`.
            ExportFailed: the child failed.
        """
        return self._answers(AnswerTask(question, parameters, list(traces), form, [*tables], limit, offset), client)

    def applicable(self, trace: AnalysedTrace, *, client: str = "") -> AsyncGenerator[bytes]:
        """Yield the JSON of all questions, each with the reason why it does not apply to the trace, or null."""
        return self._answers(ApplicableTask(trace), client)

    async def opening(
        self, columns: Path, summary: Summary, selection: Selection | None, reference: SliceReference | None
    ) -> InitialView:
        """Find the UI's initial view of a trace; this does not wait for questions of the queue.

        Raises:
            SelectionError: the selection is invalid or matches no event, or the trace does not have the slice.
            ExportFailed: the child failed.
        """
        return decode(InitialView, await self._ask(OpeningTask(columns, summary, selection, reference), ""))

    async def close(self) -> None:
        """End the child; unanswered questions fail."""
        self._closed = True
        if self._idling:
            self._idling.cancel()
        if self._starting:
            with suppress(ExportFailed):
                (await self._starting).kill()
        await asyncio.gather(*self._listening)

    async def _answers(self, question: Question, client: str) -> AsyncGenerator[bytes]:
        yield await self._ask(question, client)

    async def _ask(self, question: Question, client: str) -> bytes:
        """Ask a question, again each time that the child was replaced because of another question."""
        spill_max = None if self._room is None else await asyncio.to_thread(self._room.left)
        while True:
            with suppress(_Interrupted):
                return await self._ask_once(question, client, spill_max)

    async def _ask_once(self, question: Question, client: str, spill_max: int | None) -> bytes:
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

    async def _start(self) -> "AnalysisProcess":
        if self._closed:
            raise ExportFailed("The server is shutting down.")
        try:
            child = await self._fork_server.fork(Kind.ANALYSIS, str(self._spill))
        except OSError as error:
            raise ExportFailed(f"The process that answers can't be started: {error}.") from error
        process = AnalysisProcess(child, self._spill, dropped_s=self._dropped_s, deadline_s=self._deadline_s)
        listening = asyncio.create_task(process.listen())
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        return process


class _Interrupted(Exception):
    """The child was replaced because of another question, so this question must be asked again."""


class AnalysisProcess:
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

    def ask(self, question: Question, client: str, spill_max: int | None) -> tuple[int, asyncio.Future[bytes]]:
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
        self._deadlines[call_id] = loop.call_later(min(self._deadline_s, _LONGEST_TIMER_S), self._expire, call_id)
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
            answer.set_exception(
                DeadlineExceeded(
                    f"The analysis was not done after {self._deadline_s:g} s: ask about less, by steps or a window.",
                    limit_s=self._deadline_s,
                )
            )
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

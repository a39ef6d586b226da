"""The process that answers questions, as the server sees it: one for all, for as long as there is something to ask."""

import asyncio
import itertools
import logging
import math
import shutil
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import orjson

from service.jobs.process import kill, started
from service.store.export import spill_of
from service.store.room import Room
from service.trace.errors import DeadlineExceeded, ExportFailed, describe_exit, error_from_dict
from service.trace.selection import Selection
from service.trace.slices import SliceReference

IDLE_S = 60.0
"""After so long without a question, what was found out for others is forgotten."""
DROPPED_S = 2.0
"""Seconds that the process goes on with questions nobody waits for any more: a page that is reloaded asks again."""
_LINE_MAX = 1 << 20
_LONGEST_TIMER_S = 1e6  # an event loop takes no infinite time

log = logging.getLogger(__name__)


class Analyses:
    """Answers questions.

    Args:
        spill: the folder for what does not fit into memory.
        keep_ready: whether a process is kept ready.
        idle_s: seconds without a question after which it ends, or another one takes its place.
        dropped_s: seconds after which it is replaced where it only works on questions that nobody waits for.
        deadline_s: seconds after which a question fails that it works on. Its process is replaced, and all other
            questions are asked again.
        room: of the data folder, which bounds what is spilled.
    """

    def __init__(
        self,
        spill: Path,
        *,
        keep_ready: bool = True,
        idle_s: float = IDLE_S,
        dropped_s: float = DROPPED_S,
        deadline_s: float = math.inf,
        room: Room | None = None,
    ) -> None:
        self._spill = spill
        self._room = room
        self._keep_ready = keep_ready
        self._idle_s = idle_s
        self._dropped_s = dropped_s
        self._deadline_s = deadline_s
        self._starting: asyncio.Task[Answering] | None = None
        self._idling: asyncio.TimerHandle | None = None
        self._hearing: set[asyncio.Task[None]] = set()
        self._closed = False

    def answer(
        self,
        question: str,
        parameters: dict[str, Any],
        traces: list[dict[str, Any]],
        *,
        form: str = "json",
        table: str | None = None,
        client: str = "",
    ) -> AsyncGenerator[bytes]:
        """Yield an answer; see `service.jobs.analysis` for what is asked. To close this drops the question.

        Clients take turns; `client` is the identity of the one that asks.

        Raises:
            AnalysisError: it can't be answered so, or none of the traces has what it takes.
            SelectionError: a trace has nothing of its selection.
            DeadlineExceeded: it took longer than the server lets an answer take.
            ExportFailed: the process failed.
        """
        return self._asked(
            question=question, parameters=parameters, traces=traces, form=form, table=table, client=client
        )

    def applicable(self, trace: dict[str, Any], *, client: str = "") -> AsyncGenerator[bytes]:
        """Yield an object of JSON: of each question null, or why it can't be asked of a trace."""
        return self._asked(question=None, traces=[trace], client=client)

    async def opening(
        self, columns: Path, summary: dict[str, Any], selection: Selection | None, reference: SliceReference | None
    ) -> dict[str, Any]:
        """Where the UI opens on a trace: the fields of `InitialView` of `service.rendering`; it waits for no question.

        Raises:
            SelectionError: the trace has nothing of the selection, or not that slice.
            ExportFailed: the process failed.
        """
        told = {
            "columns": str(columns),
            "summary": summary,
            "selection": None if selection is None else selection.as_dict(),
            "slice": None if reference is None else str(reference),
        }
        async with aclosing(self._asked(opening=told, client="")) as answers:
            opening: dict[str, Any] = orjson.loads(await anext(answers))
        return opening

    def prepare(self) -> None:
        """Start the process, if one is to be kept ready."""
        if self._keep_ready and not self._closed and self._is_over():
            self._starting = asyncio.create_task(self._start())

    async def close(self) -> None:
        """End the process; who waits for it learns that it failed."""
        self._closed = True
        if self._idling:
            self._idling.cancel()
        if self._starting:
            with suppress(ExportFailed):
                (await self._starting).kill()
        await asyncio.gather(*self._hearing)

    async def _asked(self, **request: Any) -> AsyncGenerator[bytes]:
        request["spill_max"] = None if self._room is None else await asyncio.to_thread(self._room.left)
        while True:
            try:
                answer = await self._answer(request)
                break
            except _Interrupted:  # by the deadline or the end of another question
                continue
        yield answer

    async def _answer(self, request: dict[str, Any]) -> bytes:
        """The answer of the process, which is started if there is none; raises `_Interrupted` if it is replaced."""
        if self._idling:
            self._idling.cancel()
        if self._is_over():
            self._starting = asyncio.create_task(self._start())
        if not self._starting:
            raise RuntimeError("it was started above")
        answering = await asyncio.shield(self._starting)
        number, answer = answering.ask(request)
        try:
            return await answer
        finally:
            dropped = answering.leave(number)
            if not answering.waited_for and not self._closed:
                after = self._dropped_s if dropped else self._idle_s
                self._idling = asyncio.get_running_loop().call_later(after, self._replace, answering)

    def _is_over(self) -> bool:
        """Whether there is no process that could be asked."""
        starting = self._starting
        return not starting or (starting.done() and (bool(starting.exception()) or starting.result().over))

    async def _start(self) -> "Answering":
        if self._closed:
            raise ExportFailed("The server is shutting down.")
        try:
            process = await started("service.jobs.analysis", str(self._spill), limit=_LINE_MAX)
        except OSError as error:
            raise ExportFailed(f"The process that answers can't be started: {error}.") from error
        answering = Answering(process, self._spill, dropped_s=self._dropped_s, deadline_s=self._deadline_s)
        hearing = asyncio.create_task(answering.hear())
        self._hearing.add(hearing)
        hearing.add_done_callback(self._hearing.discard)
        return answering

    def _replace(self, answering: "Answering") -> None:
        answering.kill()
        self.prepare()


class _Interrupted(Exception):
    """The process was replaced for the sake of another question: this one is to be asked again."""


class Answering:
    """A process that answers, and the questions that it was asked.

    Args:
        process: as it was started.
        spill: the folder beside which it puts what does not fit into memory.
        dropped_s: seconds that it may work on nothing but questions that nobody waits for.
        deadline_s: seconds that it may work on one question.
    """

    def __init__(self, process: Process, spill: Path, *, dropped_s: float, deadline_s: float) -> None:
        self._process = process
        self._spill = spill
        self._dropped_s = dropped_s
        self._deadline_s = deadline_s
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._deadlines: dict[int, asyncio.TimerHandle] = {}
        """Of the questions that it works on."""
        self._abandoned: asyncio.TimerHandle | None = None
        self._interrupted = False
        self.over = False

    @property
    def waited_for(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self._waiting)

    def ask(self, request: dict[str, Any]) -> tuple[int, asyncio.Future[bytes]]:
        """Ask a question: its number, and the answer as it will be."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        if self.over:
            answer.set_exception(self._failure("has just ended"))
        else:
            self._say({"id": number, **request})
        return number, answer

    def leave(self, number: int) -> bool:
        """Wait no more for an answer: whether it has not come."""
        answer = self._waiting.pop(number)
        dropped = answer.cancelled() or not answer.done()
        if dropped:
            self._say({"dropped": number})
            self._watch_abandoned()
        return dropped

    def kill(self) -> None:
        """End the process."""
        self.over = True
        kill(self._process)

    def _say(self, what: dict[str, Any]) -> None:
        if self._process.stdin and not self.over:
            self._process.stdin.write(orjson.dumps(what) + b"\n")

    async def hear(self) -> None:
        """Give each answer to its question; once the process has ended, fail those without one."""
        output = self._process.stdout
        if output is None:
            raise RuntimeError("the process is started with pipes")
        with suppress(asyncio.IncompleteReadError):  # it ended amid an answer
            while line := await output.readline():
                head = orjson.loads(line)
                if "begun" in head:
                    self._begun(head["begun"])
                else:
                    self._answered(head, await output.readexactly(head["bytes"]))
        self.over = True
        for timer in (*self._deadlines.values(), *([self._abandoned] if self._abandoned else [])):
            timer.cancel()
        self._deadlines.clear()
        self._fail(await self._process.wait())
        await asyncio.to_thread(shutil.rmtree, spill_of(self._spill, self._process.pid), ignore_errors=True)

    def _begun(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        self._deadlines[number] = loop.call_later(min(self._deadline_s, _LONGEST_TIMER_S), self._expire, number)
        self._watch_abandoned()

    def _answered(self, head: dict[str, Any], body: bytes) -> None:
        self._deadlines.pop(head["id"]).cancel()
        answer = self._waiting.get(head["id"])
        if answer and not answer.done():
            if head["error"]:
                answer.set_exception(error_from_dict(head["error"]))
            else:
                answer.set_result(body)
        self._watch_abandoned()

    def _expire(self, number: int) -> None:
        """Fail a question at its deadline, and end the process: nothing else stops its work."""
        answer = self._waiting.get(number)
        if answer and not answer.done():
            answer.set_exception(
                DeadlineExceeded(
                    f"The analysis was not done after {self._deadline_s:g} s: ask about less, by steps or a window.",
                    limit_s=self._deadline_s,
                )
            )
        self._interrupt()

    def _watch_abandoned(self) -> None:
        """Give the process a moment to live if it only works on questions that nobody waits for."""
        if self._abandoned:
            self._abandoned.cancel()
            self._abandoned = None
        if self._deadlines and not self._deadlines.keys() & self._waiting.keys():
            self._abandoned = asyncio.get_running_loop().call_later(self._dropped_s, self._interrupt)

    def _interrupt(self) -> None:
        self._interrupted = True
        self.kill()

    def _fail(self, status: int) -> None:
        """Fail all questions that have no answer, as the process has ended."""
        unanswered = [answer for answer in self._waiting.values() if not answer.done()]
        if unanswered and not self._interrupted:
            log.error("the process that answers questions %s", describe_exit(status))
        for answer in unanswered:
            answer.set_exception(self._failure(f"{describe_exit(status)}; the server's log says more"))

    def _failure(self, how: str) -> Exception:
        """Why there is no answer of a process that has ended."""
        return _Interrupted() if self._interrupted else ExportFailed(f"The process that answers {how}.")

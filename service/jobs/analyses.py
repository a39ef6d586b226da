"""The process that answers questions, as the server sees it: one for all, for as long as there is something to ask."""

import asyncio
import itertools
import logging
import shutil
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import orjson

from service.jobs.process import kill, started
from service.store.export import spill_of
from service.trace.errors import ExportFailed, again, fate
from service.trace.selection import Selection
from service.trace.slices import SliceReference

IDLE_S = 60.0
"""After so long without a question, what was found out for others is forgotten."""
DROPPED_S = 5.0
"""So long a question is worked on that nobody waits for any more: who reloads a page asks it again."""
_LINE_MAX = 1 << 20

log = logging.getLogger(__name__)


class Analyses:
    """Answers questions.

    Args:
        spill: the folder for what does not fit into memory.
        keep_ready: whether a process is kept ready.
        idle_s: seconds without a question after which it ends, or another one takes its place.
        dropped_s: seconds after which it does where it works on what nobody waits for.
    """

    def __init__(
        self, spill: Path, *, keep_ready: bool = True, idle_s: float = IDLE_S, dropped_s: float = DROPPED_S
    ) -> None:
        self._spill = spill
        self._keep_ready = keep_ready
        self._idle_s = idle_s
        self._dropped_s = dropped_s
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
    ) -> AsyncGenerator[bytes]:
        """Yield an answer; see `service.jobs.analysis` for what is asked. To close this drops the question.

        Raises:
            AnalysisError: it can't be answered so, or none of the traces has what it takes.
            SelectionError: a trace has nothing of its selection.
            ExportFailed: the process failed.
        """
        return self._asked(question=question, parameters=parameters, traces=traces, form=form, table=table)

    def applicable(self, trace: dict[str, Any]) -> AsyncGenerator[bytes]:
        """Yield an object of JSON: of each question null, or why it can't be asked of a trace."""
        return self._asked(question=None, traces=[trace])

    async def opening(
        self, columns: Path, summary: dict[str, Any], selection: Selection | None, reference: SliceReference | None
    ) -> dict[str, Any]:
        """Where the UI opens on a trace: the fields of `service.rendering.opening.Opening`; it waits for no question.

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
        async with aclosing(self._asked(opening=told)) as answers:
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
        if self._idling:
            self._idling.cancel()
        if self._is_over():
            self._starting = asyncio.create_task(self._start())
        if not self._starting:
            raise RuntimeError("it was started above")
        answering = await asyncio.shield(self._starting)
        number, answer = answering.ask(request)
        try:
            yield await answer
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
        answering = Answering(process, self._spill)
        hearing = asyncio.create_task(answering.hear())
        self._hearing.add(hearing)
        hearing.add_done_callback(self._hearing.discard)
        return answering

    def _replace(self, answering: "Answering") -> None:
        answering.kill()
        self.prepare()


class Answering:
    """A process that answers, and who waits for what from it.

    Args:
        process: as it was started.
        spill: the folder beside which it puts what does not fit into memory.
    """

    def __init__(self, process: Process, spill: Path) -> None:
        self._process = process
        self._spill = spill
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
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
            answer.set_exception(ExportFailed("The process that answers has just ended."))
        else:
            self._say({"id": number, **request})
        return number, answer

    def leave(self, number: int) -> bool:
        """Wait no more for an answer: whether it has not come."""
        answer = self._waiting.pop(number)
        dropped = answer.cancelled() or not answer.done()
        if dropped:
            self._say({"dropped": number})
        return dropped

    def kill(self) -> None:
        """End the process."""
        self.over = True
        kill(self._process)

    def _say(self, what: dict[str, Any]) -> None:
        if self._process.stdin and not self.over:
            self._process.stdin.write(orjson.dumps(what) + b"\n")

    async def hear(self) -> None:
        """Give each answer to who waits for it; and once the process has ended, tell all that it has."""
        output = self._process.stdout
        if output is None:
            raise RuntimeError("the process is started with pipes")
        with suppress(asyncio.IncompleteReadError):  # it ended amid an answer
            while head := await output.readline():
                told = orjson.loads(head)
                answer = await output.readexactly(told["bytes"])
                if (waiting := self._waiting.get(told["id"])) and not waiting.done():
                    if told["error"]:
                        waiting.set_exception(again(told["error"]))
                    else:
                        waiting.set_result(answer)
        self.over = True
        status = await self._process.wait()
        unanswered = [one for one in self._waiting.values() if not one.done()]
        if unanswered:
            log.error("the process that answers questions %s", fate(status))
        for waiting in unanswered:
            waiting.set_exception(ExportFailed(f"The process that answers {fate(status)}; the server's log says more."))
        await asyncio.to_thread(shutil.rmtree, spill_of(self._spill, self._process.pid), ignore_errors=True)

"""Answers to questions about traces. One child answers the questions of all clients."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from service.jobs.children.encoding import decode
from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.tasks.questions import (
    AnalysedTrace,
    AnswerTask,
    ApplicableTask,
    MatchTask,
    OpeningTask,
    Question,
    SliceTask,
)
from service.jobs.cluster import ChildDied, Cluster
from service.jobs.question_child import DROPPED_S, IDLE_S, LONGEST_TIMER_S, QuestionChild, too_long
from service.rendering.view import InitialView
from service.store.room import Room
from service.trace.errors import ClusterLost, ClusterUnavailable

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
        cluster: answers questions about several traces as long as it can be used; None for the child alone.
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
        cluster: Cluster | None = None,
    ) -> None:
        self._cluster = cluster
        self._deadline_s = deadline_s
        self._child = QuestionChild(
            fork_server, Kind.ANALYSIS, spill, idle_s=idle_s, dropped_s=dropped_s, deadline_s=deadline_s, room=room
        )

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

    async def match(self, trace: AnalysedTrace, *, client: str = "") -> bytes:
        """Return the JSON of the comparison of an execution trace with a trace.

        Raises:
            ExportFailed: the columns can't be read, or the child failed.
            DeadlineExceeded: the comparison took longer than `deadline_s`.
        """
        return await self._child.ask(MatchTask(trace), client)

    async def opening(self, task: OpeningTask) -> InitialView:
        """Find the UI's initial view of a trace; this does not wait for questions of the queue.

        Raises:
            SelectionError: the selection is invalid or matches no event, or the trace does not have the slice.
            ExportFailed: the child failed.
        """
        return decode(InitialView, await self._child.ask(task, ""))

    async def slice(self, task: SliceTask) -> bytes:
        """Return the JSON of the event of a slice; this does not wait for questions of the queue.

        Raises:
            SelectionError: the selection is invalid or matches no event, or the trace does not have the slice.
            ExportFailed: the child failed.
        """
        return await self._child.ask(task, "")

    async def close(self) -> None:
        """End the child; unanswered questions fail."""
        await self._child.close()

    async def _answers(self, question: Question, client: str) -> AsyncGenerator[bytes]:
        yield await self._ask_cluster(question) or await self._child.ask(question, client)

    async def _ask_cluster(self, question: Question) -> bytes | None:
        """Ask the cluster; return None if there is none, if it can't be used, or if the question is about one trace."""
        if not (self._cluster and isinstance(question, AnswerTask) and len(question.traces) > 1):
            return None
        try:
            async with asyncio.timeout(min(self._deadline_s, LONGEST_TIMER_S)):
                return await self._cluster.call(question)
        except TimeoutError as error:
            raise too_long(self._deadline_s) from error
        except (ChildDied, ClusterUnavailable, ClusterLost) as error:
            log.warning("the server answers without its cluster: %s", error)
            return None

"""Answers over several traces of the server: workers answer for single ranks, and this process joins their answers."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from service.analysis.answers import RankResult, asked_ranks, join_answers, rank_answer
from service.analysis.catalogue import question_of
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.analysis.table import Page
from service.fleet.asking import batches
from service.fleet.serving.connection import ClusterConnection
from service.fleet.serving.server_task import check_folder
from service.jobs.children.tasks.questions import AnswerTask
from service.trace.errors import TracedockError

PRIORITY = 1
"""Priority over jobs that wait: a person waits for the answer."""
PATIENCE_S = 5.0
"""Seconds that a question waits for the scheduler: the server can answer it, too."""


@dataclass(frozen=True)
class AnswerRanks:
    """Answer a question for some ranks.

    Attributes:
        ranks: the ranks.
        question: name of the question.
        parameters: values of its parameters.
        of_several: see `rank_answer`.
        folder: the server's data folder.
    """

    ranks: Sequence[AnalysisInput]
    question: str
    parameters: Mapping[str, Any]
    of_several: bool
    folder: str

    def run(self) -> list[RankResult]:
        """Return the result of each rank; see `rank_answer`."""
        check_folder(self.folder)
        question = question_of(self.question)
        parameters = parameters_of(question, self.parameters)

        def answer(scope: Scope) -> RankResult:
            return rank_answer(question, parameters, scope, of_several=self.of_several)

        with _readings() as readings:
            return [_asked(readings, rank, answer) for rank in self.ranks]


async def answer_on_cluster(task: AnswerTask, connection: ClusterConnection, folder: str) -> bytes:
    """Return the answer to a question about several traces in its form, as `AnswerTask.run` does.

    Args:
        task: the question.
        connection: the cluster.
        folder: the server's data folder.

    Raises:
        TracedockError: what `answer_question` and `ClusterConnection.run` raise.
    """
    started = time.perf_counter()
    workers = await connection.worker_count(PATIENCE_S)
    question = question_of(task.question)
    parameters = parameters_of(question, task.parameters)
    asked = await asyncio.to_thread(lambda: asked_ranks(question, [trace.asked() for trace in task.traces]))
    several = len(asked.inputs) > 1
    tasks = [
        AnswerRanks(asked.inputs[first:end], question.name, parameters.model_dump(mode="json"), several, folder)
        for first, end in batches(len(asked.inputs), workers)
    ]
    results = await _results(tasks, connection)

    def joined() -> bytes:
        with _readings() as readings:
            answer = join_answers(question, parameters, asked, results, lambda rank, ask: _asked(readings, rank, ask))
        answer.elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
        return answer.form(task.form, task.tables, Page(task.limit, task.offset))

    return await asyncio.to_thread(joined)


async def _results(tasks: Sequence[AnswerRanks], connection: ClusterConnection) -> list[RankResult]:
    """Run tasks, and return the results of all ranks in order; the first error cancels the rest."""
    running = [asyncio.ensure_future(connection.run(task, priority=PRIORITY)) for task in tasks]
    try:
        outcomes = [await answered for answered in running]
    finally:
        for answered in running:
            answered.cancel()
    for outcome in outcomes:
        if isinstance(outcome, TracedockError):
            raise outcome
    return [result for outcome in outcomes for result in outcome]


@contextmanager
def _readings() -> Iterator[ReadingCache]:
    with TemporaryDirectory(prefix="tracedock-") as spill:
        readings = ReadingCache(Path(spill))
        try:
            yield readings
        finally:
            readings.close()


def _asked(readings: ReadingCache, rank: AnalysisInput, ask: Callable[[Scope], Any]) -> Any:
    with readings.of(rank) as reading, scope_of(reading) as scope:
        return ask(scope)

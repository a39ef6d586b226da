"""Analyses over the traces of a dataset: workers answer for single ranks, and this process joins their answers."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from service.analysis.answers import Answer, RankResult, asked_ranks, join_answers, rank_answer, ranks_of
from service.analysis.catalogue import QUESTIONS, question_of
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.kept_answers import KEPT, answer_file, read_answer
from service.analysis.question import Question, Tables, parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.fleet.dataset import COLUMNS, Dataset
from service.fleet.record import Record, chosen_run, current_traces
from service.fleet.workers.task import Workers
from service.store.lists import whole_summary
from service.store.step_traces import StepTrace, may_have_steps, step_trace
from service.trace.cycles import of_cycles
from service.trace.errors import TracedockError
from service.trace.selection import Selection

_TOGETHER = 16
"""Maximum number of ranks of a task. A kept answer takes a few ms, and so does a task."""
_ROUNDS = 4
"""Number of tasks for each worker, at least: ranks differ in size."""


@dataclass(frozen=True)
class RankOfTrace:
    """A rank of a trace of a dataset.

    Attributes:
        trace: name of the trace.
        name: its file name, for messages.
        place: place of the rank among those of the trace.
        is_base: whether it belongs to the base of a comparison.
        step_traces: the traces that may have the steps of a memory snapshot, each with its file name.
    """

    trace: str
    name: str
    place: int
    is_base: bool
    step_traces: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class AskRanks:
    """Answer a question for some ranks.

    Attributes:
        dataset: URL of the dataset.
        ranks: the ranks.
        question: name of the question.
        parameters: values of its parameters.
        selection: selection of the events, as JSON values; None for all.
        of_several: see `rank_answer`.
    """

    dataset: str
    ranks: tuple[RankOfTrace, ...]
    question: str
    parameters: Mapping[str, Any]
    selection: Mapping[str, Any] | None
    of_several: bool

    def run(self) -> list[RankResult]:
        """Return the result of each rank; see `rank_answer`."""
        return [*map(self._answer, self.ranks)]

    def _answer(self, rank: RankOfTrace) -> RankResult:
        question = question_of(self.question)
        parameters = parameters_of(question, self.parameters)
        selection = None if self.selection is None else Selection.parsed(self.selection)
        dataset = Dataset.open(self.dataset)
        if selection is None and parameters == question.parameters():
            kept = _kept(dataset, rank, question, of_several=self.of_several)
            if kept is not None:
                return kept
        with (
            columns_of(dataset, rank.trace) as columns,
            tempfile.TemporaryDirectory(prefix="tracedock-") as spill,
        ):
            readings = ReadingCache(Path(spill))
            try:
                trace = AnalysisInput(
                    columns,
                    dataset.summary(rank.trace),
                    selection,
                    rank.name,
                    step_traces=tuple(_step_trace(dataset, *beside) for beside in rank.step_traces),
                )
                with readings.of(ranks_of(trace)[rank.place]) as reading, scope_of(reading) as scope:
                    return rank_answer(question, parameters, scope, of_several=self.of_several)
            finally:
                readings.close()


def _step_trace(dataset: Dataset, trace: str, name: str) -> StepTrace:
    """Return a trace of a dataset with all its steps, so that its columns are not needed."""
    return step_trace(trace, name, Path(), whole_summary(dataset.summary(trace), dataset.ranged(trace)))


def _kept(dataset: Dataset, rank: RankOfTrace, question: Question, *, of_several: bool) -> Tables | str | None:
    """Return the kept answer of a rank, which needs no other file of the trace; None if there is none."""
    exchange = None if question.exchange is None or not of_several else QUESTIONS[question.exchange]
    needed = [question, *([exchange] if exchange else [])]
    if any(each.name not in KEPT for each in needed):
        return None
    summary = dataset.summary(rank.trace)
    number = ranks_of(AnalysisInput(Path(), summary))[rank.place].summary.rank
    if summary.ranks:
        return None  # their answers are of selections, which are not kept
    with tempfile.TemporaryDirectory(prefix="tracedock-") as into:
        columns = dataset.fetch(rank.trace, Path(into), [answer_file(each) for each in needed])
        answers = [read_answer(columns, number, each) for each in needed]
    answer = answers[0]
    if answer is None or isinstance(answer, str):
        return answer
    if not any(map(len, answer.values())) or None in answers:
        return None  # the longer way knows the reason
    return {**answer, **(answers[1] if exchange and isinstance(answers[1], dict) else {})}


@contextmanager
def columns_of(dataset: Dataset, trace: str) -> Iterator[Path]:
    """Lend a local folder with the columns of a trace."""
    with tempfile.TemporaryDirectory(prefix="tracedock-") as into:
        yield dataset.fetch(trace, Path(into), [*COLUMNS])


def traces_of_run(records: Sequence[Record], run: str | None) -> list[Record]:
    """Return the newest record of each trace of a run, in order of ranks; copies of a file count once.

    Args:
        records: all records of a dataset.
        run: name of the run; None for the only one.

    Raises:
        BadFleetRequest: there are several runs or none, or none has this name.
    """
    traces = current_traces(records)
    chosen = chosen_run([*dict.fromkeys(record.run for record in traces)], run)
    return [record for record in traces if record.run == chosen]


@dataclass(frozen=True)
class AnalysisRequest:
    """Request for an analysis over the traces of a dataset.

    Attributes:
        question: name of the analysis.
        parameters: values of its parameters.
        selection: selection of the events; None for all.
        records: the records of the traces.
        base: of comparisons, the records of the other side.
        cycle: number of the only cycle of the records; None for all; see `of_cycles`.
        base_cycle: number of the only cycle of the base; None for the default.
    """

    question: str
    parameters: Mapping[str, Any]
    selection: Selection | None
    records: Sequence[Record]
    base: Sequence[Record] = ()
    cycle: int | None = None
    base_cycle: int | None = None


def analyze(
    dataset: Dataset, request: AnalysisRequest, workers: Workers, on_answered: Callable[[int, int], object]
) -> Answer:
    """Answer a question over traces of a dataset, as `answer_question` does over local ones.

    Args:
        dataset: the dataset.
        request: the request.
        workers: who answers for single ranks.
        on_answered: called with the number of ranks that are answered, and of all.

    Raises:
        TracedockError: what `answer_question` raises, and what workers and locations do.
    """
    started = time.perf_counter()
    question = question_of(request.question)
    parameters = parameters_of(question, request.parameters)
    others, bases = of_cycles(request.records, request.base, request.cycle, request.base_cycle, Record.as_summary)
    traces = [
        AnalysisInput(Path(record.trace), record.as_summary(), request.selection, record.name, is_base=is_base)
        for records, is_base in ((bases, True), (others, False))
        for record in records
    ]
    asked = asked_ranks(question, traces)
    stepped: dict[int | None, list[tuple[str, str]]] = {}
    for trace in traces:
        if not trace.is_base and may_have_steps(trace.summary):
            stepped.setdefault(trace.summary.rank, []).append((str(trace.columns), trace.name))
    places: dict[tuple[Path, bool], int] = {}
    ranks = []
    for trace in asked.inputs:
        place = places.get((trace.columns, trace.is_base), 0)
        places[trace.columns, trace.is_base] = place + 1
        beside = tuple(stepped.get(trace.summary.rank, ())) if trace.summary.is_memory_history else ()
        ranks.append(RankOfTrace(str(trace.columns), trace.name, place, trace.is_base, beside))
    tasks = {
        str(first): AskRanks(
            dataset.location.url, tuple(ranks[first:end]), question.name,
            parameters.model_dump(mode="json"), None if request.selection is None else request.selection.as_dict(),
            len(ranks) > 1,
        )
        for first, end in batches(len(ranks), workers.count)
    }  # fmt: skip
    results: list[RankResult] = [""] * len(ranks)
    answered = 0
    for name, outcome in workers.results(tasks):
        if isinstance(outcome, TracedockError):
            raise outcome
        results[int(name) : int(name) + len(outcome)] = outcome
        answered += len(outcome)
        on_answered(answered, len(ranks))
    answer = join_answers(question, parameters, asked, results, partial(_ask_again, dataset))
    answer.elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
    return answer


def batches(ranks: int, workers: int) -> list[tuple[int, int]]:
    """Return the first rank of each task, and the first of the next one.

    Args:
        ranks: number of ranks.
        workers: number of workers.
    """
    together = min(_TOGETHER, max(1, ranks // (_ROUNDS * max(1, workers))))
    return [(first, min(first + together, ranks)) for first in range(0, ranks, together)]


def _ask_again(dataset: Dataset, trace: AnalysisInput, ask: Callable[[Scope], pa.Table]) -> pa.Table:
    """Run a further query on a rank in this process."""
    name = str(trace.columns)
    with columns_of(dataset, name) as columns, tempfile.TemporaryDirectory(prefix="tracedock-") as spill:
        readings = ReadingCache(Path(spill))
        try:
            local = replace(trace, columns=columns, summary=replace(dataset.summary(name), rank=trace.summary.rank))
            with readings.of(local) as reading, scope_of(reading) as scope:
                return ask(scope)
        finally:
            readings.close()

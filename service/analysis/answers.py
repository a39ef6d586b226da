"""Answers to questions over one or more traces: computed for each rank, then combined."""

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NotRequired, TypedDict

import pyarrow as pa

from service.analysis.catalogue import QUESTIONS
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.forms import chosen_tables, serialized
from service.analysis.kept_answers import exchanged_tables, kept_answer
from service.analysis.question import Comparison, Parameters, Question, RankAnswer, Tables, concatenated
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.analysis.table import ALL, Columns, Page, table_of, with_cycle
from service.streaming.processors import processor_count
from service.trace.cycles import cycles_of
from service.trace.errors import BadAnalysisRequest, NotApplicable, SelectionError
from service.trace.selection import Selection

RANKS_AT_ONCE = 2
NAMED_MAX = 8
"""Maximum number of traces named in an error message."""

RankResult = Tables | str | SelectionError
"""The tables of a rank, the reason why there are none, or the error of a selection that selects nothing in it."""


class Skipped(TypedDict):
    """A rank without an answer, and the reason; the cycle is absent if there is only one."""

    rank: int | None
    name: str
    reason: str
    cycle: NotRequired[int]


class QuestionDescription(TypedDict):
    """A question as clients see it; `parameters` holds a JSON Schema for each parameter name."""

    name: str
    answers: str
    definition: str
    source: str
    parameters: dict[str, Any]
    tables: dict[str, Columns]


class ApplicableQuestion(QuestionDescription):
    """A question, and the reason if it does not apply to a trace."""

    applies: bool
    reason: str | None


class ApplicableQuestions(TypedDict):
    """All questions; each states whether it applies to a trace."""

    analyses: list[ApplicableQuestion]


@dataclass
class Answer:
    """The tables of an answer, and the ranks without an answer, each with the reason.

    If the traces are of several cycles, each table has a column ``cycle`` after that of the rank, unless the question
    compares two sides.
    """

    question: Question
    parameters: Parameters
    tables: Tables
    skipped: list[Skipped] = field(default_factory=list)
    elapsed_ms: float = 0.0
    notes: list[str] = field(default_factory=list)
    cycles: int = 1

    def columns(self, table: str) -> Columns:
        """Return the columns of a table."""
        columns = self.question.tables[table]
        return with_cycle(columns) if self.cycles > 1 and not self.question.compare_sides else columns

    def form(self, form: str, tables: Sequence[str] = (), page: Page = ALL) -> bytes:
        """Serialize the tables as ``json`` or ``columns``, or one table as ``csv`` or ``arrow``.

        Args:
            form: the format.
            tables: names of the tables; by default all or, in a format of one table, the first.
            page: the rows of each table.

        Raises:
            BadAnalysisRequest: see `service.analysis.forms.chosen_tables`.
        """
        about = {
            "analysis": self.question.name,
            "parameters": self.parameters.model_dump(mode="json"),
            "definition": self.question.definition,
            "source": self.question.source,
            "skipped": self.skipped,
            "notes": self.notes,
            "cycles": self.cycles,
            "elapsed_ms": self.elapsed_ms,
        }
        chosen = chosen_tables(self.question, form, tables)
        columns = {name: self.columns(name) for name in chosen}
        return serialized(form, about, {name: self.tables[name] for name in chosen}, columns, page)


def answer_question(
    question: Question,
    parameters: Parameters,
    traces: Sequence[AnalysisInput],
    readings: ReadingCache,
    tables: Collection[str] = (),
) -> Answer:
    """Answer a question over traces.

    Args:
        question: the question to answer.
        parameters: the parameters of the question.
        traces: the traces; each is of one rank, or merged from several.
        readings: cache of the readings of these and other traces.
        tables: names of the tables that are needed; empty for all. The answer may have others.

    Raises:
        BadAnalysisRequest: the question compares two sides, and the traces do not form exactly two.
        NotApplicable: the question applies to none of the traces.
        SelectionError: a selection selects nothing in any of the traces.
        ExportFailed: the columns of a trace can't be read.
        DiskFull: there is no disk space to spill.
    """
    started = time.perf_counter()
    asked = asked_ranks(question, traces)
    results = _map_traces(asked.inputs, readings, partial(asked.answer_of, question, parameters, tables=tables))
    answer = join_answers(question, parameters, asked, results, partial(_ask_again, readings))
    answer.elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
    return answer


@dataclass(frozen=True)
class AskedRanks:
    """The ranks that a question is asked of.

    Attributes:
        inputs: an input for each rank.
        numbers: the cycle of each.
        cycles: number of cycles.
    """

    inputs: Sequence[AnalysisInput]
    numbers: Sequence[int]
    cycles: int

    def answer_of(
        self, question: Question, parameters: Parameters, scope: Scope, *, tables: Collection[str] = ()
    ) -> RankResult:
        """Return the result of a rank; see `rank_answer`."""
        return rank_answer(question, parameters, scope, of_several=len(self.inputs) > 1, tables=tables)


def asked_ranks(question: Question, traces: Sequence[AnalysisInput]) -> AskedRanks:
    """Return the ranks of traces, with their cycles.

    Raises:
        BadAnalysisRequest: the question compares two sides, and the traces do not form exactly two.
    """
    sides = _sides(question, traces)
    numbers, count = _cycles(question, sides)
    ranks = [(rank, number) for trace, number in zip(sides, numbers, strict=True) for rank in ranks_of(trace)]
    return AskedRanks([rank for rank, _ in ranks], [number for _, number in ranks], count)


def join_answers(
    question: Question,
    parameters: Parameters,
    asked: AskedRanks,
    results: Sequence[RankResult],
    ask_again: Callable[[AnalysisInput, Callable[[Scope], pa.Table]], pa.Table],
) -> Answer:
    """Join the answers of all ranks to one.

    Args:
        question: the question.
        parameters: its parameters.
        asked: the ranks.
        results: the result of each rank; see `rank_answer`.
        ask_again: runs a further query on the events of a rank.

    Raises:
        NotApplicable: the question applies to none of the traces, or to none of one side.
        SelectionError: a selection selects nothing in any trace, or in any of one side.
        BadAnalysisRequest: the two sides have no rank in common.
    """
    ranks, numbers, count = asked.inputs, asked.numbers, asked.cycles
    for is_base in {trace.is_base for trace in ranks}:
        side = [result for trace, result in zip(ranks, results, strict=True) if trace.is_base == is_base]
        errors = [result for result in side if isinstance(result, SelectionError)]
        if len(errors) == len(side):
            raise errors[0]
    answers = [
        RankAnswer(trace.summary.rank, cycle, trace.name, tables, partial(ask_again, trace))
        for trace, cycle, tables in zip(ranks, numbers, results, strict=True)
        if isinstance(tables, dict)
    ]
    skipped = [
        _skipped(trace.summary.rank, trace.name, cycle if count > 1 else None, _reason_of(result))
        for trace, cycle, result in zip(ranks, numbers, results, strict=True)
        if not isinstance(result, dict)
    ]
    if not answers:
        raise NotApplicable(skipped[0]["reason"])
    answer = Answer(question, parameters, {}, skipped, cycles=count)
    if question.compare_sides:
        sides = [trace.is_base for trace, tables in zip(ranks, results, strict=True) if isinstance(tables, dict)]
        for is_base, name in ((True, "the base"), (False, "the other side")):
            if is_base not in sides:
                reasons = (
                    _reason_of(result)
                    for trace, result in zip(ranks, results, strict=True)
                    if trace.is_base == is_base and not isinstance(result, dict)
                )
                raise NotApplicable(f"No trace of {name} has what is compared. {next(reasons)}")
        comparison = _compared(question, parameters, answers, sides)
        answer.tables, answer.notes = comparison.tables, comparison.notes
        skipped += [
            _skipped(rank.rank, rank.name, rank.cycle if count > 1 else None, reason)
            for rank, reason in comparison.skipped
        ]
    else:
        answer.tables = _together(question, parameters, answers, count)
        answer.notes = question.notes_of(answer.tables) if question.notes_of else []
    return answer


def _reason_of(result: str | SelectionError) -> str:
    return result if isinstance(result, str) else result.detail


def _skipped(rank: int | None, name: str, cycle: int | None, reason: str) -> Skipped:
    """Describe a rank without an answer; `cycle` is None if there is only one cycle."""
    skipped: Skipped = {"rank": rank, "name": name, "reason": reason}
    return skipped if cycle is None else {**skipped, "cycle": cycle}


def _cycles(question: Question, traces: Sequence[AnalysisInput]) -> tuple[list[int], int]:
    """Return the cycle of each trace, and the number of cycles; two sides are numbered separately."""
    if not question.compare_sides:
        cycles = cycles_of([trace.summary for trace in traces])
        return cycles.numbers, cycles.count
    numbers, count = [0] * len(traces), 0
    for is_base in (True, False):
        places = [place for place, trace in enumerate(traces) if trace.is_base == is_base]
        cycles = cycles_of([traces[place].summary for place in places])
        count = max(count, cycles.count)
        for place, number in zip(places, cycles.numbers, strict=True):
            numbers[place] = number
    return numbers, count


def _together(question: Question, parameters: Parameters, answers: Sequence[RankAnswer], cycles: int) -> Tables:
    """Combine the answers of all ranks, separately for each cycle: collectives connect only ranks of one cycle."""
    join = question.join_ranks or (lambda tables, _: concatenated(tables))
    if cycles == 1:
        return join([answer.tables for answer in answers], parameters)
    by_cycle = []
    for cycle in sorted({answer.cycle for answer in answers}):
        tables = join([answer.tables for answer in answers if answer.cycle == cycle], parameters)
        by_cycle.append({name: _of_cycle(question.tables[name], table, cycle) for name, table in tables.items()})
    return concatenated(by_cycle)


def _of_cycle(columns: Columns, table: pa.Table, cycle: int) -> pa.Table:
    return table_of(with_cycle(columns), table.append_column("cycle", pa.array([cycle] * len(table), pa.int64())))


def _compared(
    question: Question, parameters: Parameters, answers: Sequence[RankAnswer], is_base: Sequence[bool]
) -> Comparison:
    """Compare two sides, of each of which at least one trace has an answer."""
    sides = [[answer for answer, base in zip(answers, is_base, strict=True) if base == side] for side in (True, False)]
    if question.compare_sides is None:
        raise RuntimeError("only questions that compare two sides come here")
    base, other = sides
    return question.compare_sides(base, other, parameters)


def _sides(question: Question, traces: Sequence[AnalysisInput]) -> list[AnalysisInput]:
    """Return the traces; of two traces without a base, the first becomes the base.

    Raises:
        BadAnalysisRequest: the question compares two sides, and the traces do not form exactly two.
    """
    if question.compare_sides and not any(trace.is_base for trace in traces):
        if len(traces) != 2:
            given = f"{len(traces)} traces were" if len(traces) > 1 else "1 trace was"
            raise BadAnalysisRequest(
                f"{question.name} takes exactly two sides, and {given} given without a base: {_named(traces)}. Name the"
                " base, a trace or a group, with `base`: all others are compared with it."
            )
        traces = [replace(traces[0], is_base=True), traces[1]]
    elif question.compare_sides and all(trace.is_base for trace in traces):
        raise BadAnalysisRequest(
            f"{question.name} takes exactly two sides, and only a base was given: {_named(traces)}."
        )
    return [*traces]


def _named(traces: Sequence[AnalysisInput]) -> str:
    """List the names of traces, up to `NAMED_MAX`."""
    names = [trace.name or "a trace without a name" for trace in traces]
    return ", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else "")


def _ask_again(readings: ReadingCache, trace: AnalysisInput, ask: Callable[[Scope], pa.Table]) -> pa.Table:
    with readings.of(trace) as reading, scope_of(reading) as scope:
        return ask(scope)


def applicable(trace: AnalysisInput, readings: ReadingCache) -> ApplicableQuestions:
    """Describe each question as JSON values, with the reason if it does not apply to a trace."""
    (reasons,) = _map_traces(
        [trace], readings, lambda scope: [_missing(question, scope) for question in QUESTIONS.values()]
    )
    return {
        "analyses": [
            {**described(question), "applies": reason is None, "reason": reason}
            for question, reason in zip(QUESTIONS.values(), reasons, strict=True)
        ]
    }


def described(question: Question) -> QuestionDescription:
    """Describe a question as JSON values."""
    return {
        "name": question.name,
        "answers": question.short_question,
        "definition": question.definition,
        "source": question.source,
        "parameters": question.parameters.model_json_schema().get("properties", {}),
        "tables": {**question.tables},
    }


def _missing(question: Question, scope: Scope) -> str | None:
    """Return the reason why a question does not apply to a single trace, or None."""
    if question.compare_sides:
        return "It takes two sides: name another trace with `traces`, or a trace or group to compare with as `base`."
    return question.reason_against(scope)


def rank_answer(
    question: Question,
    parameters: Parameters,
    scope: Scope,
    *,
    of_several: bool,
    tables: Collection[str] = (),
) -> RankResult:
    """Return the tables of a rank, or the reason why there are none.

    Args:
        question: the question.
        parameters: its parameters.
        scope: scope of the rank.
        of_several: whether it is one of several ranks. They also need the tables of `exchange`, and errors are reasons,
            too: others may have the selected step or stream, or what the question needs.
        tables: names of the tables that are needed; empty for all.

    Raises:
        SelectionError: a selection selects nothing in the only rank.
        NotApplicable: the question does not apply to the only rank, which only its answer could find out.
    """
    try:
        answer = kept_answer(scope, question, parameters, tables)
        if isinstance(answer, str):
            return answer
        if not any(map(len, answer.values())):
            return "Nothing that this analysis counts is left in the trace or the selection."
        return {**answer, **exchanged_tables(scope, question)} if of_several else answer
    except (SelectionError, NotApplicable) as error:
        if not of_several:
            raise
        return error if isinstance(error, SelectionError) else error.detail


def _map_traces(traces: Sequence[AnalysisInput], readings: ReadingCache, ask: Callable[[Scope], Any]) -> list[Any]:
    """Call `ask` on the scope of each trace, `RANKS_AT_ONCE` at the same time."""

    def result(trace: AnalysisInput) -> Any:
        with readings.of(trace) as reading, scope_of(reading) as scope:
            return ask(scope)

    with ThreadPoolExecutor(min(RANKS_AT_ONCE, processor_count()), "ranks") as threads:
        return list(threads.map(result, traces))


def ranks_of(trace: AnalysisInput) -> list[AnalysisInput]:
    """Return an input for each rank, or each selected rank, of a merged trace.

    A trace of one rank is one input. So is one of which ranks are selected that it does not have: the input's error
    lists those that it has.
    """
    ranks = [merged["rank"] for merged in trace.summary.ranks]
    whole = trace.selection or Selection()
    if not ranks or not {*(whole.ranks or ())} <= {*ranks}:
        return [trace]
    ranks = [rank for rank in ranks if not whole.ranks or rank in whole.ranks]
    return [
        replace(trace, summary=replace(trace.summary, rank=rank), selection=whole.model_copy(update={"ranks": [rank]}))
        for rank in ranks
    ]

"""Answers to questions, over one trace or several: each rank by itself, and the small results together."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
from pydantic import ValidationError

from service.analysis.catalogue import QUESTIONS
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.question import Comparison, Parameters, Question, RankAnswer, Tables, concatenated
from service.analysis.readings import Asked, Readings
from service.analysis.table import Columns, as_arrow, as_csv, as_json, made, with_cycle
from service.trace.cycles import cycles_of
from service.trace.errors import BadAnalysisRequest, NotApplicable, SelectionError, UnknownAnalysis
from service.trace.selection import Selection

RANKS_AT_ONCE = 2
NAMED_MAX = 8
"""Traces that an error names."""


@dataclass
class Answer:
    """Tables, and for which ranks there are none, each with the reason.

    Where the traces are of several cycles, each table has a column ``cycle`` beside that of the rank.
    """

    question: Question
    parameters: Parameters
    tables: Tables
    skipped: list[dict[str, Any]] = field(default_factory=list)
    elapsed_ms: float = 0.0
    notes: list[str] = field(default_factory=list)
    cycles: int = 1

    def columns(self, table: str) -> Columns:
        """The columns of a table."""
        columns = self.question.tables[table]
        return with_cycle(columns) if self.cycles > 1 and not self.question.compared else columns

    def as_json(self) -> bytes:
        """The answer as an object of JSON."""
        tables = b",".join(
            orjson.dumps(name) + b":" + as_json(self.columns(name), table) for name, table in self.tables.items()
        )
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
        return orjson.dumps(about)[:-1] + b',"tables":{' + tables + b"}}\n"

    def form(self, form: str, table: str | None = None) -> bytes:
        """The answer as ``json``, or one of its tables, by default the main one, as ``csv`` or ``arrow``.

        Raises:
            BadAnalysisRequest: it has no such table.
        """
        if form == "json":
            return self.as_json()
        chosen = table or next(iter(self.question.tables))
        if chosen not in self.tables:
            raise BadAnalysisRequest(
                f"{self.question.name} has the tables {', '.join(self.tables)}, and no {chosen!r}."
            )
        return as_csv(self.tables[chosen]) if form == "csv" else as_arrow(self.tables[chosen])


def question_of(name: str) -> Question:
    """The question of a name; raises `UnknownAnalysis`."""
    if name not in QUESTIONS:
        raise UnknownAnalysis(f"There is no analysis {name!r}.", known=[*QUESTIONS])
    return QUESTIONS[name]


def parameters_of(question: Question, values: Mapping[str, Any]) -> Parameters:
    """The parameters that these values mean; raises `BadAnalysisRequest`."""
    try:
        return question.parameters.model_validate(values, strict=False)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise BadAnalysisRequest(
            f"{question.name} can't be asked so: {'; '.join(faults)}.", known=[*question.parameters.model_fields]
        ) from error


def answered(question: Question, parameters: Parameters, traces: Sequence[Asked], readings: Readings) -> Answer:
    """Ask a question of some ranks.

    Args:
        question: what is asked.
        parameters: how.
        traces: each of one rank, or merged of several.
        readings: of these and other traces.

    Raises:
        BadAnalysisRequest: it is about two sides, and there are not two.
        NotApplicable: none of them has what it takes.
        SelectionError: one of them has nothing of what is selected, and all are of one cycle.
        ExportFailed: the columns of one can't be read.
        DiskFull: there was no room to spill.
    """
    started = time.perf_counter()
    ranks = _ranks_of_all(question, traces)
    numbers, count = _cycles(question, ranks)
    found = _each(ranks, readings, partial(_ask if count == 1 else _ask_of_cycle, question, parameters))
    answers = [
        RankAnswer(trace.summary["rank"], cycle, trace.name, tables, partial(_ask_again, trace, readings))
        for trace, cycle, tables in zip(ranks, numbers, found, strict=True)
        if isinstance(tables, dict)
    ]
    skipped = [
        _skipped(trace.summary["rank"], trace.name, cycle if count > 1 else None, why)
        for trace, cycle, why in zip(ranks, numbers, found, strict=True)
        if isinstance(why, str)
    ]
    if not answers:
        raise NotApplicable(skipped[0]["reason"])
    answer = Answer(question, parameters, {}, skipped, cycles=count)
    if question.compared:
        sides = [trace.is_base for trace, tables in zip(ranks, found, strict=True) if isinstance(tables, dict)]
        comparison = _compared(question, parameters, answers, sides)
        answer.tables, answer.notes = comparison.tables, comparison.notes
        skipped += [
            _skipped(one.rank, one.name, one.cycle if count > 1 else None, why) for one, why in comparison.skipped
        ]
    else:
        answer.tables = _together(question, parameters, answers, count)
    answer.elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
    return answer


def _skipped(rank: int | None, name: str, cycle: int | None, reason: str) -> dict[str, Any]:
    """A rank without an answer; the cycle is only told where there are several."""
    return {"rank": rank, "name": name, "reason": reason} | ({} if cycle is None else {"cycle": cycle})


def _cycles(question: Question, ranks: Sequence[Asked]) -> tuple[list[int], int]:
    """The cycle of each trace, and how many there are; those of two sides are told apart by themselves."""
    if not question.compared:
        cycles = cycles_of([trace.summary for trace in ranks])
        return cycles.numbers, cycles.count
    numbers, count = [0] * len(ranks), 0
    for is_base in (True, False):
        places = [place for place, trace in enumerate(ranks) if trace.is_base == is_base]
        cycles = cycles_of([ranks[place].summary for place in places])
        count = max(count, cycles.count)
        for place, number in zip(places, cycles.numbers, strict=True):
            numbers[place] = number
    return numbers, count


def _together(question: Question, parameters: Parameters, answers: Sequence[RankAnswer], cycles: int) -> Tables:
    """The answer for all ranks: of each cycle by itself, since ranks meet only in one."""
    join = question.joined or (lambda tables, _: concatenated(tables))
    if cycles == 1:
        return join([one.tables for one in answers], parameters)
    found = []
    for cycle in sorted({one.cycle for one in answers}):
        tables = join([one.tables for one in answers if one.cycle == cycle], parameters)
        found.append({name: _of_cycle(question.tables[name], table, cycle) for name, table in tables.items()})
    return concatenated(found)


def _of_cycle(columns: Columns, table: pa.Table, cycle: int) -> pa.Table:
    return made(with_cycle(columns), table.append_column("cycle", pa.array([cycle] * len(table), pa.int64())))


def _compared(
    question: Question, parameters: Parameters, answers: Sequence[RankAnswer], is_base: Sequence[bool]
) -> Comparison:
    """The answer for two sides; raises `NotApplicable` where one of them has none."""
    sides = [[one for one, base in zip(answers, is_base, strict=True) if base == side] for side in (True, False)]
    for side, name in zip(sides, ("the base", "what is compared with the base"), strict=True):
        if not side:
            raise NotApplicable(f"No trace of {name} has what is compared.")
    if question.compared is None:
        raise RuntimeError("only questions about two sides come here")
    base, other = sides
    return question.compared(base, other, parameters)


def _ranks_of_all(question: Question, traces: Sequence[Asked]) -> list[Asked]:
    """A trace for each rank; of a question about two sides, raises `BadAnalysisRequest` where there are not two."""
    if question.compared and not any(trace.is_base for trace in traces):
        if len(traces) != 2:
            given = f"{len(traces)} traces were" if len(traces) > 1 else "1 trace was"
            raise BadAnalysisRequest(
                f"{question.name} takes exactly two sides, and {given} given without a base: {_named(traces)}. Name the"
                " base, a trace or a group, with `base`: all others are compared with it."
            )
        traces = [replace(traces[0], is_base=True), traces[1]]
    elif question.compared and all(trace.is_base for trace in traces):
        raise BadAnalysisRequest(
            f"{question.name} takes exactly two sides, and only a base was given: {_named(traces)}."
        )
    return [rank for trace in traces for rank in ranks_of(trace)]


def _named(traces: Sequence[Asked]) -> str:
    """The names of traces, of many the first ones."""
    names = [trace.name or "a trace without a name" for trace in traces]
    return ", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else "")


def _ask_again(trace: Asked, readings: Readings, ask: Callable[[Scope], pa.Table]) -> pa.Table:
    with readings.of(trace) as reading, scope_of(reading) as scope:
        return ask(scope)


def applicable(trace: Asked, readings: Readings) -> dict[str, Any]:
    """Each question as JSON values, with the reason why it can't be asked of a trace where it can't."""
    (reasons,) = _each([trace], readings, lambda scope: [_missing(one, scope) for one in QUESTIONS.values()])
    return {
        "analyses": [
            {**described(one), "applies": reason is None, "reason": reason}
            for one, reason in zip(QUESTIONS.values(), reasons, strict=True)
        ]
    }


def described(question: Question) -> dict[str, Any]:
    """A question as JSON values."""
    return {
        "name": question.name,
        "answers": question.answers,
        "definition": question.definition,
        "source": question.source,
        "parameters": question.parameters.model_json_schema().get("properties", {}),
        "tables": {name: [asdict(column) for column in columns] for name, columns in question.tables.items()},
    }


def _missing(question: Question, scope: Scope) -> str | None:
    """Why it can't be asked of a trace alone."""
    if question.compared:
        return "It takes two sides: name another trace with `traces`, or a trace or group to compare with as `base`."
    return question.missing(scope)


def _ask(question: Question, parameters: Parameters, scope: Scope) -> Tables | str:
    """The tables of a rank, or why there are none."""
    if reason := question.missing(scope):
        return reason
    tables = question.answer(scope, parameters)
    return tables if any(map(len, tables.values())) else "Nothing of what this asks for is left to count."


def _ask_of_cycle(question: Question, parameters: Parameters, scope: Scope) -> Tables | str:
    """Likewise of one cycle of several: a step is only in one of them."""
    try:
        return _ask(question, parameters, scope)
    except SelectionError as error:
        return error.detail


def _each(traces: Sequence[Asked], readings: Readings, ask: Callable[[Scope], Any]) -> list[Any]:
    """What is found of each, some at once."""

    def found(trace: Asked) -> Any:
        with readings.of(trace) as reading, scope_of(reading) as scope:
            return ask(scope)

    with ThreadPoolExecutor(RANKS_AT_ONCE, "ranks") as threads:
        return list(threads.map(found, traces))


def ranks_of(trace: Asked) -> list[Asked]:
    """A trace for each rank of one that is merged of several."""
    ranks = [one["rank"] for one in trace.summary["ranks"]]
    if not ranks or (trace.selection is not None and trace.selection.ranks):
        return [trace]
    whole = trace.selection or Selection()
    return [
        replace(trace, summary={**trace.summary, "rank": rank}, selection=whole.model_copy(update={"ranks": [rank]}))
        for rank in ranks
    ]

"""Answers to questions, over one trace or several: each rank by itself, and the small results together."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import orjson
from pydantic import ValidationError

from service.analysis.catalogue import QUESTIONS
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.question import Parameters, Question, Tables, concatenated
from service.analysis.readings import Asked, Readings
from service.analysis.table import as_arrow, as_csv, as_json
from service.trace.errors import BadQuestion, NotApplicable, UnknownQuestion
from service.trace.selection import Selection

RANKS_AT_ONCE = 2


@dataclass
class Answer:
    """Tables, and for which ranks there are none, each with the reason."""

    question: Question
    parameters: Parameters
    tables: Tables
    skipped: list[dict[str, Any]] = field(default_factory=list)
    elapsed_ms: float = 0.0

    def as_json(self) -> bytes:
        """The answer as an object of JSON."""
        tables = b",".join(
            orjson.dumps(name) + b":" + as_json(self.question.tables[name], table)
            for name, table in self.tables.items()
        )
        about = {
            "analysis": self.question.name,
            "parameters": self.parameters.model_dump(mode="json"),
            "definition": self.question.definition,
            "source": self.question.source,
            "skipped": self.skipped,
            "elapsed_ms": self.elapsed_ms,
        }
        return orjson.dumps(about)[:-1] + b',"tables":{' + tables + b"}}\n"

    def form(self, form: str, table: str | None = None) -> bytes:
        """The answer as ``json``, or one of its tables, by default the main one, as ``csv`` or ``arrow``.

        Raises:
            BadQuestion: it has no such table.
        """
        if form == "json":
            return self.as_json()
        chosen = table or next(iter(self.question.tables))
        if chosen not in self.tables:
            raise BadQuestion(f"{self.question.name} has the tables {', '.join(self.tables)}, and no {chosen!r}.")
        return as_csv(self.tables[chosen]) if form == "csv" else as_arrow(self.tables[chosen])


def question_of(name: str) -> Question:
    """The question of a name; raises `UnknownQuestion`."""
    if name not in QUESTIONS:
        raise UnknownQuestion(f"There is no analysis {name!r}.", known=[*QUESTIONS])
    return QUESTIONS[name]


def parameters_of(question: Question, values: Mapping[str, Any]) -> Parameters:
    """The parameters that these values mean; raises `BadQuestion`."""
    try:
        return question.parameters.model_validate(values, strict=False)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise BadQuestion(
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
        NotApplicable: none of them has what it takes.
        SelectionError: one of them has nothing of what is selected.
        ExportFailed: the columns of one can't be read.
        DiskFull: there was no room to spill.
    """
    started = time.perf_counter()
    ranks = [rank for trace in traces for rank in ranks_of(trace)]
    found = _each(ranks, readings, partial(_ask, question, parameters))
    tables = [one for one in found if isinstance(one, dict)]
    skipped = [
        {"rank": trace.summary["rank"], "name": trace.name, "reason": why}
        for trace, why in zip(ranks, found, strict=True)
        if isinstance(why, str)
    ]
    if not tables:
        raise NotApplicable(skipped[0]["reason"])
    joined = question.joined(tables, parameters) if question.joined else concatenated(tables)
    return Answer(question, parameters, joined, skipped, round((time.perf_counter() - started) * 1000, 3))


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
    if question.traces > 1:
        return f"It takes {question.traces} traces: name others with `traces`."
    return question.missing(scope)


def _ask(question: Question, parameters: Parameters, scope: Scope) -> Tables | str:
    """The tables of a rank, or why there are none."""
    if reason := question.missing(scope):
        return reason
    tables = question.answer(scope, parameters)
    return tables if any(map(len, tables.values())) else "Nothing of what this asks for is left to count."


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
        Asked(trace.columns, {**trace.summary, "rank": rank}, whole.model_copy(update={"ranks": [rank]}), trace.name)
        for rank in ranks
    ]

"""The definition of a question about a fleet, and its answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from pydantic import ValidationError

from service.analysis.parameters import Parameters
from service.analysis.table import Columns, Tables, as_arrow, as_csv, as_json, table_of
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.record import chosen_run
from service.trace.errors import BadFleetRequest


@dataclass(frozen=True)
class FleetQuestion:
    """A question about the ranks of a run.

    Attributes:
        name: its name.
        short_question: the question in a few words.
        definition: exact description of the computation.
        source: URL or citation of the origin of the definition; None if it is our own.
        tables: the columns of each table of the answer.
        answer: computes the tables, in any order of their columns. It takes the facts, the name of the run, and the
            parameters.
        parameters: the model of the parameters.
    """

    name: str
    short_question: str
    definition: str
    source: str | None
    tables: Mapping[str, Columns]
    answer: Callable[[FactsDatabase, str, Any], Mapping[str, pa.Table]]
    parameters: type[Parameters] = Parameters


@dataclass(frozen=True)
class FleetAnswer:
    """The answer to a question about a run."""

    question: FleetQuestion
    run: str
    parameters: Parameters
    tables: Tables

    def form(self, form: str, table: str | None = None) -> bytes:
        """Serialize the tables as ``json``, or one as ``csv`` or ``arrow``, by default the first.

        Raises:
            BadFleetRequest: the question has no such table.
        """
        if table is not None and table not in self.tables:
            raise BadFleetRequest(f"{self.question.name} has the tables {', '.join(self.tables)}, and no {table!r}.")
        if form != "json":
            chosen = self.tables[table or next(iter(self.tables))]
            return as_csv(chosen) if form == "csv" else as_arrow(chosen)
        tables = b",".join(
            orjson.dumps(name) + b":" + as_json(self.question.tables[name], rows)
            for name, rows in self.tables.items()
            if table in {None, name}
        )
        about: dict[str, object] = {
            "question": self.question.name,
            "run": self.run,
            "parameters": self.parameters.model_dump(mode="json"),
            "definition": self.question.definition,
            "source": self.question.source,
            "skipped": [],
        }
        return orjson.dumps(about)[:-1] + b',"tables":{' + tables + b"}}\n"


def ask(question: FleetQuestion, facts: FactsDatabase, run: str | None, values: Mapping[str, Any]) -> FleetAnswer:
    """Answer a question about a run.

    Args:
        question: the question.
        facts: the facts of the dataset.
        run: name of the run; None for the only one.
        values: values of the parameters.

    Raises:
        BadFleetRequest: the run or a parameter is unknown, or a value is invalid.
    """
    try:
        parameters = question.parameters.model_validate(values, strict=False)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        known = ", ".join(question.parameters.model_fields) or "none"
        raise BadFleetRequest(f"{question.name} refuses {'; '.join(faults)}. Its parameters: {known}.") from error
    name = chosen_run(facts.runs, run)
    answered = question.answer(facts, name, parameters)
    tables = {table: table_of(columns, answered[table]) for table, columns in question.tables.items()}
    return FleetAnswer(question, name, parameters, tables)

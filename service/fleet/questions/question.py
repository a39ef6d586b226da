"""The definition of a question about a fleet, and its answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import ValidationError

from service.analysis import forms
from service.analysis.forms import serialized
from service.analysis.parameters import Parameters
from service.analysis.table import ALL, Columns, Page, Tables, table_of
from service.fleet.record import chosen_run
from service.trace.errors import BadFleetRequest
from service.trace.faults import faults_of

if TYPE_CHECKING:
    from service.fleet.questions.facts_database import FactsDatabase  # loads what the server does without

_SHOWN = 100  # characters of a wrong name in a message


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
    answer: "Callable[[FactsDatabase, str, Any], Mapping[str, pa.Table]]"
    parameters: type[Parameters] = Parameters


@dataclass(frozen=True)
class FleetAnswer:
    """The answer to a question about a run."""

    question: FleetQuestion
    run: str
    parameters: Parameters
    tables: Tables

    def form(self, form: str, tables: Sequence[str] = (), page: Page = ALL) -> bytes:
        """Serialize the tables as ``json`` or ``columns``, or one table as ``csv`` or ``arrow``.

        Args:
            form: the format.
            tables: names of the tables; by default all or, in a format of one table, the first.
            page: the rows of each table.

        Raises:
            BadFleetRequest: see `chosen_tables`.
        """
        about: dict[str, object] = {
            "question": self.question.name,
            "run": self.run,
            "parameters": self.parameters.model_dump(mode="json"),
            "definition": self.question.definition,
            "source": self.question.source,
            "skipped": [],
        }
        chosen = chosen_tables(self.question, form, tables)
        return serialized(form, about, {name: self.tables[name] for name in chosen}, self.question.tables, page)


def chosen_tables(question: FleetQuestion, form: str, tables: Sequence[str]) -> list[str]:
    """Return the names of the tables that an answer has in a format; see `service.analysis.forms.chosen_tables`.

    Raises:
        BadFleetRequest: the question has no such table, or the format has only one table.
    """
    return forms.chosen_tables(question, form, [name[:_SHOWN] for name in tables], error=BadFleetRequest)


def parameters_of(question: FleetQuestion, values: Mapping[str, Any]) -> Parameters:
    """Validate the values of parameters.

    Raises:
        BadFleetRequest: a parameter is unknown or has an invalid value.
    """
    try:
        return question.parameters.model_validate(values, strict=False)
    except ValidationError as error:
        known = [*question.parameters.model_fields]
        text = f"{question.name} refuses {faults_of(error)}. Its parameters: {', '.join(known) or 'none'}."
        raise BadFleetRequest(text, known=known) from error


def ask(question: FleetQuestion, facts: "FactsDatabase", run: str | None, values: Mapping[str, Any]) -> FleetAnswer:
    """Answer a question about a run.

    Args:
        question: the question.
        facts: the facts of the dataset.
        run: name of the run; None for the only one.
        values: values of the parameters.

    Raises:
        BadFleetRequest: a parameter is unknown, or a value is invalid.
        UnknownFleetRun: the run is unknown.
    """
    parameters = parameters_of(question, values)
    name = chosen_run(facts.runs, run)
    answered = question.answer(facts, name, parameters)
    tables = {table: table_of(columns, answered[table]) for table, columns in question.tables.items()}
    return FleetAnswer(question, name, parameters, tables)

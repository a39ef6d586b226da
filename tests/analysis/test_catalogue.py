"""Every question is found by its name, and documented."""

from pathlib import Path
from typing import Any

import pytest

from service.analysis.catalogue import QUESTIONS, Catalogue
from service.fleet.questions.catalogue import QUESTIONS as FLEET_QUESTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "analyses.md").read_text()


@pytest.mark.parametrize("catalogue", [QUESTIONS, FLEET_QUESTIONS], ids=["analyses", "fleet"])
def test_catalogue_has_each_question_by_its_own_name(catalogue: Catalogue[Any]) -> None:
    assert {name: question.name for name, question in catalogue.items()} == {name: name for name in catalogue}
    with pytest.raises(KeyError):
        catalogue["names"]  # a module of `service.analysis`, but no question


@pytest.mark.parametrize("name", QUESTIONS)
def test_analyses_page_lists_each_question(name: str) -> None:
    assert f"| [`{name}`](#{name}) | {QUESTIONS[name].short_question} |" in PAGE


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_parameter_and_column_has_a_description(name: str) -> None:
    question = QUESTIONS[name]
    assert question.definition.endswith(".")
    assert question.source.startswith("https://")
    assert all(field.description for field in question.parameters.model_fields.values())
    assert all(column.description for columns in question.tables.values() for column in columns)
    for columns in question.tables.values():
        assert len({column.name for column in columns}) == len(columns)


def test_costliest_question_is_the_critical_path() -> None:
    assert max(QUESTIONS.values(), key=lambda question: question.cost).name == "critical_path"
    assert min(question.cost for question in QUESTIONS.values()) == 0

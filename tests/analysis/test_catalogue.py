"""Every question is documented."""

from pathlib import Path

import pytest

from service.analysis.catalogue import QUESTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "analyses.md").read_text()


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

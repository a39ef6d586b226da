"""The model, the HTTP parameters, the command options and the page have exactly the declared fields."""

import inspect
import re
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args

import pytest
import typer
from fastapi import Depends, FastAPI
from pydantic import BaseModel

import service
from service.cli.selection import option_parameters
from service.http.selection_parameters import selection_reader
from service.trace.selection import Closure, Criteria, Duration, Ns, Number, Selection, Window, Word
from service.trace.selection_fields import FIELDS, SelectionField, Straddle, ValueKind, id_or_name, nested

PAGE = (Path(service.__file__).parent / "web" / "static" / "selection.js").read_text(encoding="utf-8")

TYPES: dict[ValueKind, Any] = {
    ValueKind.INTEGERS: list[Number],
    ValueKind.IDS: list[Number | Word],
    ValueKind.WORDS: list[Word],
    ValueKind.NAMES: list[Word],
    ValueKind.NANOSECONDS: Duration,
    ValueKind.TIMESTAMP: Ns,
    ValueKind.SPAN: Window,
    ValueKind.NAME: Word,
    ValueKind.CHOICE: Literal["keep", "start", "clip"],
    ValueKind.SWITCH: bool,
    ValueKind.OMISSION: bool,
}

COLOURS = SelectionField(
    ("colours",), ValueKind.WORDS, "colours of slices", parameter="colours", option="--colours", metavar="COLOUR,…"
)


def model_paths(model: type[BaseModel]) -> dict[tuple[str, ...], Any]:
    """Return the type of each field of a model and of its nested models, by path."""
    paths: dict[tuple[str, ...], Any] = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        (kind,) = (
            {*get_args(field.annotation)} - {NoneType} if NoneType in get_args(field.annotation) else {field.annotation}
        )
        paths[key,] = kind
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            paths |= {(key, *path): inner for path, inner in model_paths(kind).items()}
    return paths


def query_parameters(fields: tuple[SelectionField, ...]) -> dict[str, str]:
    """Return the descriptions of a route's selection parameters in its OpenAPI document, by name."""
    app = FastAPI()
    app.get("/")(lambda selection=Depends(selection_reader(fields)): None)  # noqa: B008 - FastAPI's idiom
    parameters = app.openapi()["paths"]["/"]["get"]["parameters"]
    return {parameter["name"]: parameter["description"] for parameter in parameters}


def options(fields: tuple[SelectionField, ...]) -> dict[str, str]:
    """Return the help texts of a command's selection options, by option."""
    parameters = option_parameters(fields)

    def command(**_: Any) -> None:
        pass

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # `selecting` does the same
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return {option.opts[0]: getattr(option, "help", "") for option in typer.main.get_command(app).params}


def test_model_has_the_declared_fields_with_their_types() -> None:
    paths = model_paths(Selection)

    assert {*paths} - {("exclude",), ("closure",), *excluded_paths()} == {
        field.path for field in FIELDS if field.path[0] != "exclude"
    }
    assert {field.path: paths[field.path] for field in FIELDS} == {field.path: TYPES[field.kind] for field in FIELDS}


def excluded_paths() -> set[tuple[str, ...]]:
    return {("exclude", *path) for path in model_paths(Criteria)}


def test_declared_descriptions_are_those_of_the_model() -> None:
    models: dict[tuple[str, ...], type[BaseModel]] = {(): Selection, ("window",): Window, ("closure",): Closure}
    fields = {
        (*place, field.alias or name): field.description
        for place, model in models.items()
        for name, field in model.model_fields.items()
    }
    assert {
        field.path: fields[field.path] for field in FIELDS if field.path in fields and field.path != ("window",)
    } == {field.path: field.description for field in FIELDS if field.path in fields and field.path != ("window",)}


def test_declared_choices_are_those_of_the_model() -> None:
    (straddle,) = (field for field in FIELDS if field.choices)
    assert straddle.choices == get_args(Straddle)


def test_http_parameters_are_the_declared_ones() -> None:
    parameters = query_parameters(FIELDS)
    assert parameters.pop("selection")
    assert parameters == {field.parameter: field.description for field in FIELDS if field.parameter}


def test_command_options_are_the_declared_ones() -> None:
    declared = options(FIELDS)
    assert declared.pop("--selection")
    assert [*declared] == [field.option for field in FIELDS if field.option]
    for field in FIELDS:
        if field.option:
            assert field.description.replace("`", "")[1:] in declared[field.option]


def test_page_describes_the_declared_fields() -> None:
    lists = re.search(r"const CRITERIA = \[(.*?)\n\];", PAGE, re.DOTALL)
    edges = re.search(r"const EDGES = \{(.*?)\};", PAGE, re.DOTALL)
    omissions = re.search(r"const LEFT_OUT = \{(.*?)\n\};", PAGE, re.DOTALL)
    assert lists
    assert edges
    assert omissions
    assert {*re.findall(r'\["(\w+)",', lists[1])} == {
        field.name for field in FIELDS if field.is_list and len(field.path) == 1
    }
    assert {*re.findall(r"(\w+): ", edges[1])} == {*get_args(Straddle)} - {"keep"}
    assert {*re.findall(r"(\w+): ", omissions[1])} == {
        field.path[-1] for field in FIELDS if field.kind is ValueKind.OMISSION
    }


def test_new_field_appears_in_the_http_parameters_and_the_options() -> None:
    fields = (*FIELDS, COLOURS)
    assert query_parameters(fields).items() - query_parameters(FIELDS).items() == {("colours", "colours of slices")}
    assert options(fields).items() - options(FIELDS).items() == {("--colours", "Colours of slices.")}


def test_names_of_fields_are_unique() -> None:
    assert len({field.name for field in FIELDS}) == len(FIELDS)


def test_values_nest_at_the_paths_of_their_fields() -> None:
    fields = {field.name: field for field in FIELDS}
    values = {"steps": [3], "window_from": "a", "window": {"end_ns": 5}, "closure_flows": False, "straddle": None}
    assert nested((fields[name], value) for name, value in values.items()) == {
        "steps": [3],
        "window": {"from": "a", "end_ns": 5},
        "closure": {"flows": False},
    }


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("-1", -1), ("1/7", "1/7"), ("--1", "--1"), ("9" * 19, "9" * 19), ("٣", "٣")]
)
def test_text_of_digits_is_an_id_and_other_text_a_name(text: str, value: int | str) -> None:
    assert id_or_name(text) == value

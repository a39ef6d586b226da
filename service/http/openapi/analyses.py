"""The paths of analyses, and of questions about runs: one route answers all, and the document has a path for each."""

from collections.abc import Iterator
from typing import Any

from service.analysis.catalogue import QUESTIONS
from service.analysis.question import Question
from service.fleet.questions.catalogue import QUESTIONS as FLEET_QUESTIONS
from service.fleet.questions.question import FleetQuestion
from service.http.openapi.fragments import Json
from service.http.openapi.names import pascal_case

_NAME = "{name}"
_ANALYSES, _ABOUT_RUNS = f"/analysis/{_NAME}", f"/questions/{_NAME}"
_SHARED = (_ANALYSES, _ABOUT_RUNS)
"""Ends of the paths that several questions share."""
_SUBJECTS = {"/traces/": "", "/groups/": "Group"}
"""Parts of the paths that lead to analyses, and of the ids of their operations."""


def describe_analyses(document: Json) -> None:
    """Replace each path that all analyses, or all questions about runs, share by a path for each of them.

    One route serves all analyses, because a route for each would add 0.3 s to every start of the server.
    """
    paths: Json = {}
    for path, methods in document["paths"].items():
        for name, question, operation in _questions_of(path):
            paths[path.replace(_NAME, name)] = {"get": _described(methods["get"], question, operation)}
        if not path.endswith(_SHARED):
            paths[path] = methods
    document["paths"] = paths


def _questions_of(path: str) -> Iterator[tuple[str, Question | FleetQuestion, str]]:
    """Yield the name of each question that a path stands for, the question, and the id of its operation."""
    if path.endswith(_ANALYSES):
        subject = next(subject for part, subject in _SUBJECTS.items() if part in path)
        yield from ((name, question, operation_id(name, subject)) for name, question in QUESTIONS.items())
    elif path.endswith(_ABOUT_RUNS):
        yield from ((name, question, f"ask{pascal_case(name)}") for name, question in FLEET_QUESTIONS.items())


def operation_id(name: str, subject: str = "") -> str:
    """Return the id of the operation of an analysis, like `analyzeKernelBreakdown` for ``kernel_breakdown``."""
    return f"analyze{subject}{pascal_case(name)}"


def _described(operation: Json, question: Question | FleetQuestion, identity: str) -> Json:
    """Return the operation of one question, made from the `operation` that all questions of the path share."""
    own: dict[str, Any] = question.parameters.model_json_schema().get("properties", {})
    return operation | {
        "summary": question.short_question,
        "description": f"{question.definition}\n\n{operation['description']}",
        "operationId": identity,
        "parameters": [
            *(parameter for parameter in operation["parameters"] if parameter["name"] != "name"),
            *(_parameter(parameter, schema) for parameter, schema in own.items()),
        ],
    }


def _parameter(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "description": schema["description"], "schema": schema}

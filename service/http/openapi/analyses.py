"""The paths of analyses: one route answers all of them, and the document has a path for each, with its parameters."""

from typing import Any

from service.analysis.catalogue import QUESTIONS
from service.http.openapi.fragments import Json
from service.http.openapi.names import pascal_case

_NAME = "{name}"
_SUBJECTS = {"/traces/": "", "/groups/": "Group"}
"""Parts of the paths that lead to analyses, and of the ids of their operations."""


def describe_analyses(document: Json) -> None:
    """Replace each path that all analyses share by a path for each analysis.

    One route serves all analyses, because a route for each would add 0.3 s to every start of the server.
    """
    paths: Json = {}
    for path, methods in document["paths"].items():
        if not path.endswith(f"/analysis/{_NAME}"):
            paths[path] = methods
            continue
        subject = next(subject for part, subject in _SUBJECTS.items() if part in path)
        for name in QUESTIONS:
            paths[path.replace(_NAME, name)] = {"get": _described(methods["get"], name, subject)}
    document["paths"] = paths


def operation_id(name: str, subject: str = "") -> str:
    """Return the id of the operation of an analysis, like `analyzeKernelBreakdown` for ``kernel_breakdown``."""
    return f"analyze{subject}{pascal_case(name)}"


def _described(operation: Json, name: str, subject: str) -> Json:
    """Return the operation of one analysis, made from the `operation` that all analyses of the path share."""
    question = QUESTIONS[name]
    own: dict[str, Any] = question.parameters.model_json_schema().get("properties", {})
    return operation | {
        "summary": question.short_question,
        "description": f"{question.definition}\n\n{operation['description']}",
        "operationId": operation_id(name, subject),
        "parameters": [
            *(parameter for parameter in operation["parameters"] if parameter["name"] != "name"),
            *(_parameter(parameter, schema) for parameter, schema in own.items()),
        ],
    }


def _parameter(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "description": schema["description"], "schema": schema}

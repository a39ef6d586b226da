"""What a tool is, and the arguments that several tools take."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, Field

from service.agents.api import Api, Json
from service.agents.reply import Arguments, Budgets
from service.trace.selection_fields import ViewSource


@dataclass(frozen=True)
class Tool:
    """A tool.

    Attributes:
        name: its name.
        title: its name for people.
        description: tells an agent what the tool is for, and when to use it.
        arguments: the model of its arguments.
        run: returns the reply; raises `ClientError`.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Api, Any], Awaitable[str]]

    def schema(self) -> Json:
        """Return the JSON Schema of the arguments, without what a reader does not need."""
        return _short(self.arguments.model_json_schema())


def _short(schema: Json) -> Json:
    """Return a schema without titles, defaults that are null, and alternatives that are null; budgets come last."""
    properties = {}
    for name, field in schema.get("properties", {}).items():
        options = [option for option in field.get("anyOf", ()) if option != {"type": "null"}]
        merged = {key: value for key, value in field.items() if key not in ("anyOf", "title")}
        merged |= options[0] if len(options) == 1 else {"anyOf": options} if options else {}
        properties[name] = {key: value for key, value in merged.items() if key != "default" or value is not None}
    budgets = {name: properties.pop(name) for name in Budgets.model_fields if name in properties}
    required = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", "properties": properties | budgets, "additionalProperties": False, **required}


def _parsed(value: Any) -> Any:
    """Return the JSON object that a text is; some agents send objects as text."""
    if isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value  # the model refuses the text
    return value


Object = Annotated[dict[str, Any], BeforeValidator(_parsed)]
"""A JSON object, or the text of one."""

Trace = Annotated[str, Field(min_length=1, description="id or exact name of a trace, or `latest`")]
Subject = Annotated[str, Field(min_length=1, description="id or exact name of a trace or a run, or `latest`")]
Selected = Annotated[
    Object | None,
    Field(
        description='the events to keep, like {"steps": [11], "streams": ["0/7"]}. Fields: steps, streams, devices,'
        " ranks, threads, processes, categories, names (patterns like *nccl*), phases, min_dur_ns, exclude, and"
        " window {start_ns, end_ns}. Default: all"
    ),
]
Source = Annotated[
    ViewSource | None,
    Field(
        description="what SQL and Perfetto read: the events in columns, or the original of a .pftrace as it is, whose"
        " packets of other kinds have tables of their own (sched, …). Default: columns, or original without events"
    ),
]
ChosenCycle = Annotated[
    int | None,
    Field(ge=0, description="of a run: only the traces of this cycle of the profiler's schedule; default: all cycles"),
]
Offset = Annotated[int, Field(ge=0, description="rows to skip")]


def as_text(selection: Json | None) -> str | None:
    """Return a selection as a query parameter; None for all events."""
    return None if selection is None else orjson.dumps(selection).decode()

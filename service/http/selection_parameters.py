"""Query parameters of a selection: one for each field, or one with the whole selection as JSON."""

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import Depends, Query

from service.trace.errors import BadSelection
from service.trace.selection import Selection
from service.trace.selection_fields import FIELDS, VALUES_MAX, SelectionField, ValueKind, id_or_name, nested

_TYPES: dict[ValueKind, Any] = {
    ValueKind.INTEGERS: list[int] | None,
    ValueKind.IDS: list[str] | None,
    ValueKind.WORDS: list[str] | None,
    ValueKind.NAMES: list[str] | None,
    ValueKind.NANOSECONDS: int | None,
    ValueKind.TIMESTAMP: int | None,
    ValueKind.NAME: str | None,
    ValueKind.CHOICE: str | None,
    ValueKind.SWITCH: bool,
}
"""Types of parameters. `Selection` checks the ranges of values, so that JSON and parameters raise the same errors."""

SelectionReader = Callable[..., Selection | None]


def selection_reader(fields: Iterable[SelectionField]) -> SelectionReader:
    """Return a FastAPI dependency with a query parameter for each field, and one for all fields as JSON."""
    in_query = {field.parameter: field for field in fields if field.parameter}

    def read_selection(selection: str | None, **values: Any) -> Selection | None:
        """Return the selection that the parameters describe, or None without any; raises `BadSelection`."""
        parameters = {name: value for name, value in values.items() if value is not None and value is not False}
        if selection is not None:
            if parameters:
                raise BadSelection(f"The parameter `selection` can't be combined with {', '.join(parameters)}.")
            return Selection.parsed(selection)
        parts = nested((in_query[name], _converted(in_query[name], value)) for name, value in parameters.items())
        return Selection.parsed(parts) if parts else None

    read_selection.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # FastAPI reads the parameters there
        [_JSON, *map(_parameter, in_query.values())]
    )
    return read_selection


def _converted(field: SelectionField, value: Any) -> Any:
    return [*map(id_or_name, value)] if field.kind is ValueKind.IDS else value


def _parameter(field: SelectionField) -> inspect.Parameter:
    limits: dict[str, Any] = {}
    if field.is_list:
        limits["maxItems"] = VALUES_MAX
    if field.minimum is not None:
        limits["minimum"] = field.minimum
    if field.choices:
        limits["enum"] = [*field.choices]
    query = Query(description=field.description, json_schema_extra=limits)
    return inspect.Parameter(
        field.parameter,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if field.kind is ValueKind.SWITCH else None,
        annotation=Annotated[_TYPES[field.kind], query],
    )


_JSON = inspect.Parameter(
    "selection",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        Query(description='selection as JSON, like `{"steps": [7]}`; replaces the parameters for its fields'),
    ],
)

selection_of = selection_reader(FIELDS)

NAMES = ("selection", *(field.parameter for field in FIELDS if field.parameter))
"""The names of all query parameters of a selection."""

Selected = Annotated[Selection | None, Depends(selection_of)]
"""The type of a route's parameter that receives the selection in the query; None is the whole trace."""

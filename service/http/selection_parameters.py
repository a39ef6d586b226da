"""Query parameters that name a selection: one for each criterion, or one with all of it as JSON.

The parameters are derived from the models in `service.trace.selection`.
"""

from collections.abc import Iterator
from inspect import Parameter, Signature
from typing import Annotated, Any, get_args, get_origin

from fastapi import Depends, Query
from pydantic.fields import FieldInfo

from service.trace.errors import BadSelection
from service.trace.selection import Criteria, Selection, Window
from service.trace.summary import Key

_WINDOW = ("start_ns", "end_ns", "relative")
_CRITERIA = tuple(name for name in Criteria.model_fields if name != "window")
_FIELDS: dict[str, FieldInfo] = {
    **{name: Window.model_fields[name] for name in _WINDOW},
    **{name: Criteria.model_fields[name] for name in _CRITERIA},
    "straddle": Selection.model_fields["straddle"],
}
"""The fields of a selection that are query parameters; `exclude` and `closure` are in its JSON alone."""
_DESCRIPTIONS = {
    "start_ns": "start of the window of time, in ns",
    "end_ns": "end of the window of time, in ns; exclusive",
}
"""Descriptions of fields that have none in the model."""


def selection_of(selection: str | None = None, **criteria: Any) -> Selection | None:
    """Return the selection that query parameters name, None without any.

    Args:
        selection: all of it as JSON.
        criteria: the values of the other parameters; None for those that are not given.

    Raises:
        BadSelection: a value is invalid, or there are both JSON and other parameters.
    """
    criteria["relative"] = criteria["relative"] or None
    given = {name: _parsed(_FIELDS[name], value) for name, value in criteria.items() if value is not None}
    if selection is None:
        return Selection.parsed(_nested(given)) if given else None
    if given:
        raise BadSelection(f"The selection is given as JSON, and also by the parameters {', '.join(given)}.")
    return Selection.parsed(selection)


def _nested(given: dict[str, Any]) -> dict[str, Any]:
    """Put the edges of the window into an object of their own."""
    window = {name: given[name] for name in _WINDOW if name in given}
    criteria = {name: value for name, value in given.items() if name not in _WINDOW}
    return {"window": window or None, **criteria}


def _value_types(annotation: Any) -> Iterator[type]:
    """Yield the plain types in an annotation: `int` and `str` for ``list[Annotated[int, …] | str] | None``."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is None:
        yield annotation if isinstance(annotation, type) else type(annotation)
    for part in get_args(annotation):
        yield from _value_types(part)


def _types(field: FieldInfo) -> set[type]:
    return set(_value_types(field.annotation)) - {type(None)}


def _is_list(field: FieldInfo) -> bool:
    return any(get_origin(part) is list for part in get_args(field.annotation))


def _query_type(field: FieldInfo) -> Any:
    """Return the type of a field as a parameter, whose strict checks are left to the selection."""
    value: Any = str if str in (types := _types(field)) else next(iter(types))
    return list[value] if _is_list(field) else value


def _parsed(field: FieldInfo, value: Any) -> Any:
    """Return the value of a parameter as the selection takes it: of a list of numbers or names, numbers as such."""
    return [*map(_key, value)] if _types(field) == {int, str} else value


def _key(text: str) -> Key:
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 19 else text


def _parameters() -> Iterator[Parameter]:
    as_json: Any = Query(None, description='a selection as JSON, like `{"steps": [7]}`; or its parts as parameters:')
    yield Parameter("selection", Parameter.KEYWORD_ONLY, default=as_json, annotation=str | None)
    for name, field in _FIELDS.items():
        is_flag = _types(field) == {bool}
        query: Any = Query(False if is_flag else None, description=field.description or _DESCRIPTIONS.get(name))
        annotation: Any = _query_type(field) if is_flag else _query_type(field) | None
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=query, annotation=annotation)


selection_of.__signature__ = Signature([*_parameters()])  # type: ignore[attr-defined] # as functools.wraps does it
NAMES = ("selection", *_FIELDS)
"""The names of the parameters."""

Selected = Annotated[Selection | None, Depends(selection_of)]
"""The parameters of a route that name a selection; None for the whole trace."""

"""Checks on the requests of all routes: the path, the names of query parameters, and the content type of the body.

Unknown parameters are refused. If they were ignored, ``?step=2`` would return results for the whole trace.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from typing import Any, TypeVar, get_args, get_origin
from urllib.parse import unquote_to_bytes

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute

from service.trace.errors import BadName, BodyNotJson, RepeatedParameter, UnknownParameter

_SHOWN_MAX = 100
"""Maximum characters of a client's text in an error message."""
_LISTS = (list, set, tuple)

PathValues = Mapping[str, str]
Names = Callable[[PathValues], Iterable[str]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_ADDITIONAL: dict[Callable[..., Any], Names] = {}
"""For each endpoint, a function that returns the names of its additional query parameters from the path's values."""


def also_takes(names: Names) -> Callable[[Endpoint], Endpoint]:
    """Declare query parameters of an endpoint that are not in its signature; each takes one value.

    Args:
        names: returns the names of these parameters for the values in the path.
    """

    def declare(endpoint: Endpoint) -> Endpoint:
        _ADDITIONAL[endpoint] = names
        return endpoint

    return declare


async def check_request(request: Request) -> None:
    """Check the path of a request, and its query parameters and content type against its route.

    Raises:
        UnknownParameter: the route does not declare a parameter of the query.
        RepeatedParameter: a parameter that takes one value has several.
        BodyNotJson: the content type of the body is not JSON.
        BadName: the path is not valid UTF-8.
    """
    route = request.scope["route"]
    if "\N{REPLACEMENT CHARACTER}" in request.scope["path"] and not _is_utf8(request.scope["raw_path"]):
        raise BadName("The path of the URL is not valid UTF-8.")
    if request.query_params:
        _check_parameters(request, parameters_of(route, request.path_params))
    if route.body_field:
        _check_body(request)


def _is_utf8(path: bytes) -> bool:
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        return False
    return True


def parameters_of(route: APIRoute, path: PathValues) -> dict[str, bool]:
    """Return the query parameters of a route, and whether each may be repeated."""
    fields = [field for field in get_flat_params(route.dependant) if isinstance(field.field_info, Query)]
    additional = _ADDITIONAL.get(route.endpoint)
    names = dict.fromkeys(additional(path) if additional else (), False)
    return names | {field.alias: _is_list(field.field_info.annotation) for field in fields}


def _is_list(annotation: Any) -> bool:
    """Return whether a type is a list, or a union with a list."""
    return get_origin(annotation) in _LISTS or any(get_origin(part) in _LISTS for part in get_args(annotation))


def _check_parameters(request: Request, parameters: Mapping[str, bool]) -> None:
    where = f"{request.method} {request.scope['route'].path_format}"
    for name in request.query_params:
        shown = name[:_SHOWN_MAX]
        if name not in parameters:
            nearest = next(iter(difflib.get_close_matches(shown, parameters, 1)), None)
            hint = f" Did you mean {nearest!r}?" if nearest else ""
            raise UnknownParameter(
                f"{where} has no query parameter {shown!r}.{hint} It takes {', '.join(sorted(parameters)) or 'none'}.",
                parameter=shown, nearest=nearest, known=sorted(parameters),
            )  # fmt: skip
        if not parameters[name] and len(request.query_params.getlist(name)) > 1:
            raise RepeatedParameter(f"{where} takes one value for {shown!r}, not several.", parameter=shown)


def _check_body(request: Request) -> None:
    """Raise `BodyNotJson` if the content type of the body is not JSON; a body without a content type counts as JSON."""
    kind = request.headers.get("content-type", "").strip()
    if kind and request.headers.get("content-length") != "0" and not _is_json(kind):
        raise BodyNotJson(
            f"The content type of the body is {kind[:_SHOWN_MAX]!r}; send JSON with `Content-Type: application/json`.",
            accepted=["application/json"],
        )


def _is_json(kind: str) -> bool:
    message = Message()
    message["content-type"] = kind
    return message.get_content_type() == "application/json"

"""Routers whose routes the app takes as they are. FastAPI would build those of a router that it includes twice."""

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, register_url_convertor

from service.http.deferred_route import DeferredRoute
from service.http.parameters import check_request


class _PathConvertor(PathConvertor):
    """Convertor of any text, also with line breaks, which Starlette's does not match: a route says what is wrong."""

    regex = "(?s:.*)"


register_url_convertor("path", _PathConvertor())


def operation_id(route: APIRoute) -> str:
    """Return the name of the function of a route in camel case: the id of its operation in the OpenAPI document."""
    first, *others = route.endpoint.__name__.split("_")
    return first + "".join(map(str.capitalize, others))


class CheckedRouter(APIRouter):
    """A router whose requests are checked; see `check_request`.

    Args:
        route_class: the class of its routes.
        options: further arguments of `APIRouter`.
    """

    def __init__(self, *, route_class: type[DeferredRoute] = DeferredRoute, **options: Any) -> None:
        super().__init__(
            dependencies=[Depends(check_request)],
            generate_unique_id_function=operation_id,
            route_class=route_class,
            strict_content_type=False,  # the check prevents cross-site requests, which `Hosts` already refuses
            **options,
        )


class ApiRouter(CheckedRouter):
    """A router of paths below ``/api/v1``.

    Args:
        prefix: the common beginning of the paths.
        options: further arguments of `CheckedRouter`.
    """

    def __init__(self, prefix: str = "", **options: Any) -> None:
        super().__init__(prefix=f"/api/v1{prefix}", **options)

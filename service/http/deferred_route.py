"""Routes that FastAPI builds when they first match: building all of them took a seventh of a server's start."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import compile_path


class DeferredRoute(APIRoute):
    """A route that is built at its first use.

    Until then it has only what finds it: the path, the methods and the endpoint. The first access to anything else
    builds the rest: the checks of the parameters and of the body, and the models of the responses.

    Args:
        path: the path.
        endpoint: the function that answers.
        options: further arguments of `APIRoute`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._build = partial(super().__init__, path, endpoint, **options)
        self.path = path
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = set(options["methods"])
        self.endpoint = endpoint
        self.name = options["name"] or endpoint.__name__

    def __getattr__(self, name: str) -> Any:
        """Build the route, and return the attribute; called for attributes that are not there yet."""
        build = self.__dict__.pop("_build", None)
        if build is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        build()
        return getattr(self, name)

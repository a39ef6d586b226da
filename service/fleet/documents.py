"""Documents of a dataset: its small files, any of which another program may have cut or changed."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from service.streaming.zstandard import zstd
from service.trace.errors import BadDataset

T = TypeVar("T")


def parsed(parse: Callable[[bytes], T], content: bytes, name: str) -> T:
    """Parse a document.

    Args:
        parse: parses its content.
        content: the content.
        name: name of the file, for the error.

    Raises:
        BadDataset: the content is damaged.
    """
    try:
        return parse(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BadDataset(_detail(name, f"{place}: {first['msg']}" if place else first["msg"])) from error
    except (pa.ArrowException, zstd.ZstdError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadDataset(_detail(name, str(error))) from error


def from_json(kind: type[T], content: bytes) -> T:
    """Parse JSON as a dataclass; fields that it does not have, of a later version, are ignored.

    Raises:
        pydantic.ValidationError: the content is no JSON, or a field is missing or of another type.
    """
    value: T = _adapter(kind).validate_json(content)  # type: ignore[arg-type] # every class has a hash
    return value


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _detail(name: str, reason: str) -> str:
    return f"{name} is damaged: {reason.rstrip('.')}. Remove it, and ingest its sources again."

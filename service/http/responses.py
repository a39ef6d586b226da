"""JSON responses, and conditional requests."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import Request, Response
from pydantic import BaseModel

Content = BaseModel | Mapping[str, Any] | Sequence[Any]


def to_json(content: Content) -> bytes:
    """Serialise a model of `service.http.shapes`, or plain JSON values."""
    if isinstance(content, BaseModel):
        return content.model_dump_json(by_alias=True).encode()
    return orjson.dumps(content)


def json_response(content: Content, status: int = 200, **headers: str) -> Response:
    """Return a JSON response."""
    return Response(to_json(content), status, headers, media_type="application/json")


def has_current(request: Request, tag: str) -> bool:
    """Return whether the client has the representation with this ETag, given without quotes.

    The comparison is the weak one of https://www.rfc-editor.org/rfc/rfc9110#section-13.1.2.
    """
    tags = [listed.strip().removeprefix("W/") for listed in request.headers.get("if-none-match", "").split(",")]
    return tags == ["*"] or f'"{tag}"' in tags

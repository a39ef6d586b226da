"""Parts of operations that FastAPI can't derive from a route: header fields, bodies and streams."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

BINARY: Json = {"type": "string", "format": "binary"}
"""Bytes. OpenAPI 3.1 needs no schema for them, but generators recognise them by this format of OpenAPI 3.0."""
TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "format": "int64", "minimum": 0}


def header_parameter(name: str, description: str, schema: Json | None = None, *, required: bool = False) -> Json:
    """Return the description of a request's header field, which is a string unless `schema` is given."""
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": description,
        "schema": schema or TEXT,
    }


def header_fields(descriptions: Mapping[str, str]) -> Json:
    """Return the description of a response's header fields, by their names."""
    return {name: {"description": text, "schema": TEXT} for name, text in descriptions.items()}


def body(description: str, media_type: str, *, required: bool = True) -> Json:
    """Return the description of a request body of bytes."""
    return {"description": description, "required": required, "content": {media_type: {"schema": BINARY}}}


def content(schemas: Mapping[str, Json]) -> Json:
    """Return the content of a response, by media types. Generated clients take the first that they know."""
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}


def described(text: str, schema: Json) -> Json:
    """Return a schema with a description."""
    return schema | {"description": text}


LOCATION = header_fields({"Location": "the path of the resource that was created"})
JOB_LOCATION = header_fields({"Location": "the path of the job"})
DIGESTS = [
    header_parameter("Repr-Digest", "digest of the file, like `sha-256=:BASE64:`, to verify"),
    header_parameter("Content-Digest", "digest of the body, like `sha-256=:BASE64:`, to verify"),
]
"""Header fields of a request whose body is a file."""
IF_MATCH = header_parameter("If-Match", "ETags that the file may have, or `*`: 412 if it has another")
IF_UNMODIFIED_SINCE = header_parameter(
    "If-Unmodified-Since", "an HTTP date, without `If-Match`: 412 if the file was modified later"
)
IF_NONE_MATCH = header_parameter("If-None-Match", "ETags of representations that the client has: 304 if one is current")
NOT_MODIFIED: Json = {
    "description": "The client has the current representation",
    "headers": header_fields({"ETag": "the tag of the representation"}),
}
PROBLEM: Json = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
"""The content of an error response."""
BAD_RANGE: Json = {
    "description": "The file has no such range",
    "content": PROBLEM,
    "headers": header_fields({"Content-Range": "the size of the file, like `bytes */4096`"}),
}
NDJSON_ROWS = described("a JSON object for each row, on a line of its own", TEXT)
CSV_ROWS = described("a header line, then a line for each row (RFC 4180)", TEXT)
ARROW_STREAM = described("an Arrow IPC stream; the metadata of its fields has units and descriptions", BINARY)

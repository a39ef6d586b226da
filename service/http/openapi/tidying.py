"""Tidies schemas: exact formats of numbers, no titles, and parameters that are absent instead of null."""

from typing import Any

from service.http.openapi.fragments import Json
from service.http.openapi.names import SCHEMA_NAMES

_REF = "#/components/schemas/"
_VALUES = frozenset({"default", "examples", "example", "enum", "const", "x-extensible-enum"})
"""Keys whose values are not schemas."""
_OF_NAMES = frozenset({"properties", "headers", "schemas", "content", "responses", "paths", "securitySchemes"})
"""Keys of objects whose keys are names."""
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_INT32, _INT64 = 1 << 31, 1 << 63


def tidied(node: Any, *, keys_are_names: bool = False) -> Any:
    """Return a part of a document, tidied.

    Args:
        node: the part.
        keys_are_names: whether its keys are names, and not those of OpenAPI.
    """
    if isinstance(node, list):
        return [tidied(part) for part in node]
    if not isinstance(node, dict):
        return node
    if keys_are_names:
        return {SCHEMA_NAMES.get(name, name): tidied(part) for name, part in node.items()}
    if node.get("in") in ("query", "header", "path") and "schema" in node:
        node = node | {"schema": {"description": node.get("description", "")} | _without_null(node["schema"])}
    result = {
        key: value if key in _VALUES else tidied(value, keys_are_names=key in _OF_NAMES) for key, value in node.items()
    }
    if "$ref" in result:
        name = result["$ref"].removeprefix(_REF)
        result["$ref"] = result["$ref"].removesuffix(name) + SCHEMA_NAMES.get(name, name)
    if result.get("default", ...) is None:
        del result["default"]
    if not result.get("properties", True):
        del result["properties"]
    if "version" not in result:  # the document's own title stays
        result.pop("title", None)
    return _with_format(result)


def _with_format(schema: Json) -> Json:
    """Return a schema with the format of its number. Bounds that the format implies are left out."""
    if schema.get("type") == "number":
        return {"format": "double"} | schema
    if schema.get("type") != "integer" or "format" in schema:
        return schema
    lowest, highest = schema.get("minimum", -_INT64), schema.get("maximum", _INT64)
    schema |= {key: int(schema[key]) for key in _BOUNDS if key in schema}
    if lowest <= -_INT64:
        schema.pop("minimum", None)
    if schema.get("exclusiveMaximum", 0) >= _INT64:
        schema.pop("exclusiveMaximum")
    return schema | {"format": "int32" if lowest >= -_INT32 and highest < _INT32 else "int64"}


def _without_null(schema: Json) -> Json:
    """Return the schema of a parameter without null: a parameter without a value is left out."""
    kinds: list[Json] = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    if len(kinds) != 1:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
    return kinds[0] | rest

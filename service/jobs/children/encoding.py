"""JSON of the typed values that the server and its children exchange."""

from typing import Any, TypeVar, cast

import pydantic_core
from pydantic import TypeAdapter

_T = TypeVar("_T")

_validators: dict[type[Any], TypeAdapter[Any]] = {}
"""Validators by type. Each is built at its first use: that takes milliseconds, and a child needs few of them."""


def encode(value: object) -> bytes:
    """Encode a value as JSON: a dataclass, a model, or plain JSON values."""
    return pydantic_core.to_json(value, inf_nan_mode="null")


def decode(kind: type[_T], text: bytes) -> _T:
    """Decode a value of a type from its JSON.

    Raises:
        pydantic.ValidationError: the JSON does not have the fields of the type.
    """
    if kind not in _validators:
        _validators[kind] = TypeAdapter(kind)
    return cast(_T, _validators[kind].validate_json(text))

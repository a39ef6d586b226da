"""Lossless JSON: keeps the text of numbers, duplicate keys and lone surrogates."""

import json
from typing import Any


class Number(str):
    """Text of a number."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """Members of an object, in order and with duplicates."""


def read(text: str) -> Any:
    """Parse a JSON text into `Number`, `Members`, lists, strings and constants; raise ValueError if it is invalid."""
    return json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Members, strict=False
    )


def written(value: Any, *, ensure_ascii: bool = True) -> str:
    """Serialise a value of `read`; without `ensure_ascii`, only control characters are escaped."""
    match value:
        case Members():
            members = (
                f"{json.dumps(key, ensure_ascii=ensure_ascii)}: {written(item, ensure_ascii=ensure_ascii)}"
                for key, item in value
            )
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join(written(item, ensure_ascii=ensure_ascii) for item in value)}]"
        case Number():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=ensure_ascii)


def with_member(text: str, key: str, value: str) -> str:
    """Add a member, whose value is a JSON text, to the text of an object; return other text unchanged."""
    if not text.endswith("}"):
        return text
    before = text[:-1].rstrip()
    return f"{before}{'' if before.endswith('{') else ', '}{json.dumps(key)}: {value}}}"


def decoded(text: bytes) -> str:
    """Decode the inside of a JSON string; lone surrogates become U+FFFD."""
    if b"\\" not in text:
        return text.decode()
    string: str = json.loads(b'"%b"' % text)
    return without_halves(string)


def without_halves(string: str) -> str:
    """Return the string with U+FFFD for each lone surrogate, which UTF-8 can't encode."""
    return string.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

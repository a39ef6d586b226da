"""JSON text, where a reader's values would lose something: halves of characters, the text of numbers, equal keys."""

import json
from typing import Any


class Number(str):
    """A number, as it is written."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """The members of an object, as they stand."""


def read(text: str) -> Any:
    """The value of a JSON text: numbers `Number`, objects `Members`; raises ValueError if it is none."""
    return json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Members, strict=False
    )


def written(value: Any, *, ensure_ascii: bool = True) -> str:
    """The JSON text of such a value; without `ensure_ascii`, all that is no control character stands as it is."""
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
    """The text of an object with one more member, whose value is a JSON text; that of any other value as it is."""
    if not text.endswith("}"):
        return text
    before = text[:-1].rstrip()
    return f"{before}{'' if before.endswith('{') else ', '}{json.dumps(key)}: {value}}}"


def decoded(text: bytes) -> str:
    """The string that a JSON text without its quotes stands for; half a surrogate pair becomes U+FFFD."""
    if b"\\" not in text:
        return text.decode()
    string: str = json.loads(b'"%b"' % text)
    return without_halves(string)


def without_halves(string: str) -> str:
    """The string with U+FFFD for each half of a surrogate pair, which no UTF-8 can hold."""
    return string.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

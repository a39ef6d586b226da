"""What a trace made here says of itself: the member ``tracedock``, the first of its document.

``part`` tells of which trace it is a part, and which; ``merged`` tells of which ranks it was made.
"""

import json
import re
from typing import Any

MEMBER = "tracedock"
_FRONT = re.compile(rb'\s*\{\s*"tracedock"\s*:\s*')
_BEHIND = re.compile(rb"\s*,?\s*")


def made_of(envelope: bytes) -> dict[str, Any]:
    """What a trace says of itself; nothing if it was not made here."""
    told, _ = _split(envelope)
    return told


def whole_of(envelope: bytes) -> str | None:
    """What tells the trace of which one is a part, if it is one."""
    part = made_of(envelope).get("part")
    return str(part["of"]) if isinstance(part, dict) and "of" in part else None


def without_fact(envelope: bytes, fact: str) -> bytes:
    """The envelope, not saying one of the things that it says of itself."""
    told, rest = _split(envelope)
    if fact not in told:
        return envelope
    del told[fact]
    return with_facts(b"{" + rest, told) if told else b"{" + rest


def with_facts(envelope: bytes, facts: dict[str, Any]) -> bytes:
    """The envelope, saying so of itself, beside what it says already; one that is no object says nothing."""
    if not envelope.lstrip().startswith(b"{"):
        return envelope
    told, rest = _split(envelope)
    text = json.dumps(told | facts).encode()
    between = b"" if rest.lstrip().startswith(b"}") else b",\n"
    return b'{"%b": %b%b%b' % (MEMBER.encode(), text, between, rest)


def _split(envelope: bytes) -> tuple[dict[str, Any], bytes]:
    """What it says of itself, and its other members with the bracket that closes it."""
    front = _FRONT.match(envelope)
    if not front:
        return {}, envelope.lstrip()[1:]
    text = envelope[front.end() :].decode("utf-8", "surrogateescape")
    told, end = json.JSONDecoder(strict=False).raw_decode(text)
    rest = text[end:].encode("utf-8", "surrogateescape")
    return told if isinstance(told, dict) else {}, rest[_BEHIND.match(rest).end() :]  # type: ignore[union-attr] # it matches always

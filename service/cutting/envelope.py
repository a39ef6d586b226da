"""Provenance of a derived trace: the member ``tracedock``, which is the first member of the trace's document.

Its fact ``part`` identifies the whole trace and the selection of it, ``merged`` lists the ranks of a merged trace, and
``overlay`` describes the events that an overlay adds.
"""

import json
import re
from typing import Any

MEMBER = "tracedock"
_FRONT = re.compile(rb'\s*\{\s*"tracedock"\s*:\s*')
_BEHIND = re.compile(rb"\s*,?\s*")


def provenance(envelope: bytes) -> dict[str, Any]:
    """Return the provenance of a trace; empty if the trace is not derived."""
    facts, _ = _split(envelope)
    return facts


def whole_id(envelope: bytes) -> str | None:
    """Return the identity of the whole trace that a trace is a part of, else None."""
    part = provenance(envelope).get("part")
    return str(part["of"]) if isinstance(part, dict) and "of" in part else None


def without_fact(envelope: bytes, fact: str) -> bytes:
    """Return the envelope without one fact of its provenance."""
    facts, rest = _split(envelope)
    if fact not in facts:
        return envelope
    del facts[fact]
    return with_facts(b"{" + rest, facts) if facts else b"{" + rest


def with_facts(envelope: bytes, facts: dict[str, Any]) -> bytes:
    """Return the envelope with facts added to its provenance; an envelope that is not an object stays unchanged."""
    if not envelope.lstrip().startswith(b"{"):
        return envelope
    present, rest = _split(envelope)
    text = json.dumps(present | facts).encode()
    between = b"" if rest.lstrip().startswith(b"}") else b",\n"
    return b'{"%b": %b%b%b' % (MEMBER.encode(), text, between, rest)


def _split(envelope: bytes) -> tuple[dict[str, Any], bytes]:
    """Split an envelope into its provenance and its other members with the closing bracket."""
    front = _FRONT.match(envelope)
    if not front:
        return {}, envelope.lstrip()[1:]
    text = envelope[front.end() :].decode("utf-8", "surrogateescape")
    facts, end = json.JSONDecoder(strict=False).raw_decode(text)
    rest = text[end:].encode("utf-8", "surrogateescape")
    return facts if isinstance(facts, dict) else {}, rest[_BEHIND.match(rest).end() :]  # type: ignore[union-attr] # it always matches

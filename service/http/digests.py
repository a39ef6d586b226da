"""Digest fields of a request: ``Repr-Digest`` and ``Content-Digest`` (RFC 9530)."""

import base64
import binascii
import re
from collections.abc import Iterable

from starlette.datastructures import Headers

from service.trace.errors import BadDigest

ALGORITHMS = {"sha-256": ("sha256", 32), "sha-512": ("sha512", 64)}
"""The registered algorithms that are not broken: for each, hashlib's name and the digest's size in bytes."""

_MEMBER = re.compile(r"\s*([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):\s*(?:;[^,]*)?")


def promised_digests(fields: Iterable[str]) -> dict[str, bytes]:
    """Parse digest fields, and return the digests by hashlib's names; unknown algorithms are skipped.

    Raises:
        BadDigest: a field is not a dictionary of byte sequences, a digest has a wrong length, or two digests
            of the same algorithm differ.
    """
    digests: dict[str, bytes] = {}
    for field in fields:
        for member in field.split(","):
            name, value = _member(member)
            if name not in ALGORITHMS:
                continue
            algorithm, length = ALGORITHMS[name]
            if len(value) != length or digests.setdefault(algorithm, value) != value:
                raise BadDigest(f"The {name} digest in {member.strip()!r} has a wrong length or two values.")
    return digests


def digests_of(headers: Headers) -> dict[str, bytes]:
    """Return the digests that a request promises for its body, as `promised_digests` does; raises `BadDigest`."""
    return promised_digests([*headers.getlist("repr-digest"), *headers.getlist("content-digest")])


def _member(text: str) -> tuple[str, bytes]:
    parts = _MEMBER.fullmatch(text)
    if not parts:
        raise BadDigest(f"{text.strip()!r} is not of the form `sha-256=:BASE64:`.")
    try:
        return parts[1], base64.b64decode(parts[2], validate=True)
    except binascii.Error as error:
        raise BadDigest(f"The digest in {text.strip()!r} is not base64: {error}.") from error


def repr_digest(sha256: str) -> str:
    """Return the ``Repr-Digest`` field for a SHA-256 in hexadecimal."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"

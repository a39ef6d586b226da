"""Digest fields of a request (RFC 9530)."""

import base64
import hashlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.digests import promised_digests, repr_digest
from service.trace.errors import BadDigest


def digest(algorithm: str, content: bytes = b"abc") -> bytes:
    return hashlib.new(algorithm, content).digest()


def member(name: str, value: bytes) -> str:
    return f"{name}=:{base64.b64encode(value).decode()}:"


def test_the_examples_of_the_rfc_are_read() -> None:
    field = (
        "sha-256=:4REjxQ4yrqUVicfSKYNO/cF9zNj5ANbzgDZt3/h3Qxo=:,sha-512=:" + base64.b64encode(bytes(64)).decode() + ":"
    )
    assert promised_digests([field]) == {
        "sha256": bytes.fromhex("e11123c50e32aea51589c7d229834efdc17dccd8f900d6f380366ddff877431a"),
        "sha512": bytes(64),
    }


def test_both_digest_fields_count_and_may_repeat_each_other() -> None:
    field = member("sha-256", digest("sha256"))
    assert promised_digests([field, field]) == {"sha256": digest("sha256")}


def test_unknown_digest_algorithms_are_skipped() -> None:
    assert promised_digests([member("md5", digest("md5")), member("unixsum", b"12")]) == {}


def test_digest_fields_may_have_parameters_and_spaces() -> None:
    assert promised_digests([f"  {member('sha-256', digest('sha256'))};a=1 "]) == {"sha256": digest("sha256")}


@pytest.mark.parametrize(
    "field",
    [
        "sha-256",
        "sha-256=abc",
        "sha-256=:not base64!:",
        "sha-256=:abc:",
        "sha-256=::",
        member("sha-256", bytes(31)),
        member("sha-512", bytes(32)),
        "=:AAAA:",
        "sha-256=:AAAA:, ",
    ],
)
def test_malformed_digest_is_refused(field: str) -> None:
    with pytest.raises(BadDigest):
        promised_digests([field])


def test_two_digests_that_differ_are_refused() -> None:
    with pytest.raises(BadDigest, match="two values"):
        promised_digests([member("sha-256", bytes(32)), member("sha-256", digest("sha256"))])


@given(st.text())
def test_any_digest_text_is_parsed_or_refused(text: str) -> None:
    with suppress(BadDigest):
        promised_digests([text])


@given(st.binary(min_size=32, max_size=32))
def test_own_repr_digest_can_be_parsed(value: bytes) -> None:
    assert promised_digests([repr_digest(value.hex())]) == {"sha256": value}

"""Provenance is the first member of a derived document, and leaves the rest unchanged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cutting.envelope import provenance, with_facts, without_fact

PLAIN = b' {\n  "schemaVersion": 1.50,\n "host": "\xc3\xa9\\ud83d",  "traceEvents": []\n}'
names = st.text(max_size=6).filter(lambda name: name != "tracedock")
envelopes = st.dictionaries(names, st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2))
facts = st.dictionaries(st.sampled_from(["part", "merged", "other"]), st.integers() | st.text(max_size=5), min_size=1)


def test_with_facts_prepends_a_fact_and_keeps_the_rest() -> None:
    text = with_facts(PLAIN, {"part": {"of": "a"}})

    assert text == b'{"tracedock": {"part": {"of": "a"}},\n' + PLAIN.lstrip()[1:]
    assert provenance(text) == {"part": {"of": "a"}}
    assert provenance(PLAIN) == {}


@pytest.mark.parametrize("text", [b"[]", b"\n[ ]\n"])
def test_bare_list_has_no_provenance(text: bytes) -> None:
    assert with_facts(text, {"part": 1}) == text
    assert without_fact(text, "part") == text
    assert provenance(text) == {}


@given(envelopes, facts, facts, st.sampled_from([None, 2]))
def test_facts_can_be_added_replaced_and_removed(
    envelope: dict[str, object], first: dict[str, object], second: dict[str, object], indent: int | None
) -> None:
    text = json.dumps(envelope, indent=indent).encode()

    added = with_facts(text, first)
    updated = with_facts(added, second)

    assert json.loads(added) == {"tracedock": first, **envelope}
    assert json.loads(updated) == {"tracedock": first | second, **envelope}
    assert provenance(updated) == first | second
    remaining = updated
    for fact in first | second:
        remaining = without_fact(remaining, fact)
    assert json.loads(remaining) == envelope
    assert provenance(remaining) == {}


@pytest.mark.parametrize("value", [b"null", b"[1]", b'"part"', b"{}"])
def test_malformed_provenance_is_replaced(value: bytes) -> None:
    text = b'{"tracedock": %b, "traceEvents": []}' % value

    assert provenance(text) == {}
    assert json.loads(with_facts(text, {"part": 1})) == {"tracedock": {"part": 1}, "traceEvents": []}
    assert without_fact(text, "part") == text


def test_member_that_is_not_first_is_not_provenance() -> None:
    assert provenance(b'{"a": {"tracedock": {"part": 1}}, "tracedock": {"part": 2}}') == {}

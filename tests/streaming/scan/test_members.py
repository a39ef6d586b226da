"""Integers of members are those that a JSON parser finds; anything uncommon is refused as a whole."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.streaming.scan.members import integer_members

NAMES = ["Addr", "Bytes", "Total Allocated"]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)  # JSON has neither; ingest makes strings of them
OTHER_VALUES = st.none() | st.booleans() | FLOATS | st.text() | st.lists(st.integers() | st.text(), max_size=3)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(NAMES, st.integers(-(10**18) + 1, 10**18 - 1)),
        **dict.fromkeys(["addr", "Total", "Bytes ", "x"], OTHER_VALUES),
        "inner": st.dictionaries(st.sampled_from(NAMES), st.integers()),
    },
)


def members(*texts: str | None) -> Any:
    return integer_members(pa.array(texts, pa.string()), [name.encode() for name in NAMES])


@given(st.lists(st.none() | OBJECTS, max_size=5), st.sampled_from([None, 1]), st.integers(0, 2))
def test_integers_are_those_of_a_parser(objects: list[dict[str, Any] | None], indent: int | None, skipped: int) -> None:
    texts = [None if members is None else json.dumps(members, indent=indent) for members in objects]
    array = pa.array(["{}"] * skipped + texts, pa.string()).slice(skipped)
    found = integer_members(array, [name.encode() for name in NAMES])
    assert found is not None
    wanted = [[(members or {}).get(name) for name in NAMES] for members in objects]
    rows = zip(found.values.tolist(), found.has.tolist(), strict=True)
    assert [[value if has else None for value, has in zip(*row, strict=True)] for row in rows] == wanted


@pytest.mark.parametrize(
    "text",
    [
        '{"Bytes": 1.5}',
        '{"Bytes": 1e3}',
        '{"Bytes": "12"}',
        '{"Bytes": null}',
        '{"Bytes": NaN}',
        '{"x": -Infinity}',
        '{"Bytes": -0}',
        '{"Bytes": 1234567890123456789}',
        '{"Bytes": 1, "Bytes": 2}',
        '{"\\u0042ytes": 1}',
        '{"Bytes": 1',
        '{"Bytes": 1,',
        '{"Bytes": }',
        '{"Bytes" 1}',
        "{",
        "",
        "[1]",
        "17",
    ],
)
def test_uncommon_text_is_refused(text: str) -> None:
    assert members('{"Bytes": 1}') is not None
    assert members('{"Bytes": 1}', text) is None

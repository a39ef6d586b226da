"""Gathered columns equal their concatenated pieces, whatever integers these hold."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.attribution.gathered import GatheredColumns

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
PIECES = st.lists(st.lists(st.sampled_from([-1, 0, 1, 127, 255, 1 << 31]) | INTEGERS, max_size=5), max_size=5)


def gathered(pieces: list[list[int]]) -> tuple[GatheredColumns, list[int]]:
    """Return columns of the pieces' integers and of their remainders, and all integers."""
    columns = GatheredColumns("number", "is_odd")
    for piece in pieces:
        numbers = np.array(piece, np.int64)
        columns.add(number=numbers, is_odd=(numbers % 2).astype(np.int8))
    return columns, [value for piece in pieces for value in piece]


@given(PIECES)
@example([[-(1 << 63), (1 << 63) - 1], [-1], [7, 7]])
def test_taken_column_is_all_of_its_pieces(pieces: list[list[int]]) -> None:
    columns, values = gathered(pieces)
    assert columns.take("number").tolist() == values
    assert columns.take("is_odd").tolist() == [value % 2 for value in values]


@given(PIECES, INTEGERS)
@example([[(1 << 63) - 1]], -1)
@example([[0, 200]], 255)
def test_narrow_column_has_the_further_value_behind_its_pieces(pieces: list[list[int]], further: int) -> None:
    columns, values = gathered(pieces)
    column = columns.take_narrow("number", further)
    assert column.tolist() == [*values, further]
    assert all(int(value) in range(-(1 << 63), 1 << 63) for value in column)


@pytest.mark.parametrize(
    ("values", "type_"), [([0, 255], np.uint8), ([-1, 127], np.int8), ([-1, 128], np.int16), ([1 << 31], np.uint32)]
)
def test_narrow_column_has_the_narrowest_type(values: list[int], type_: type[np.integer]) -> None:
    assert gathered([values])[0].take_narrow("number", values[0]).dtype == type_


@given(PIECES, st.integers(1, 7))
@example([[1, 2], [3, 4, 5]], 2)
def test_ranges_are_all_values_some_at_a_time(pieces: list[list[int]], size: int) -> None:
    columns, values = gathered(pieces)
    ranges = [{name: column.tolist() for name, column in some.items()} for some in columns.ranges(size)]
    expected = [values[first : first + size] for first in range(0, len(values), size)]
    assert [some["number"] for some in ranges] == expected
    assert [some["is_odd"] for some in ranges] == [[value % 2 for value in some] for some in expected]

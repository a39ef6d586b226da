"""Gathered columns equal their concatenated pieces, whatever integers these hold."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from service.attribution.gathered import GatheredColumns

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
PIECES = st.lists(st.lists(st.sampled_from([-1, 0, 1, 127, 255, 1 << 31]) | INTEGERS, max_size=5), max_size=5)


@given(PIECES, st.lists(INTEGERS, max_size=1))
@example([[-(1 << 63), (1 << 63) - 1], [-1], [7, 7]], [-1])
def test_taken_column_is_all_of_its_pieces_and_what_follows(pieces: list[list[int]], further: list[int]) -> None:
    columns = GatheredColumns("number", "is_odd")
    for piece in pieces:
        numbers = np.array(piece, np.int64)
        columns.add(number=numbers, is_odd=(numbers % 2).astype(np.int8))

    values = [value for piece in pieces for value in piece]
    assert columns.take("number", *further).tolist() == values + further
    assert columns.take("is_odd").tolist() == [value % 2 for value in values]

"""Distinct values are those that numpy finds, in order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.streaming.integers import distinct

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INTEGERS | st.integers(0, 5), max_size=30))
def test_distinct_values_are_in_order_and_occur_once(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted({*values})

"""The memory of an Arrow array has its values, also of a part of it, and cannot be written."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.streaming.buffers import characters_of, numbers_of, starts_of

spans = st.tuples(st.integers(0, 9), st.integers(0, 9))


@given(
    st.lists(st.none() | st.integers(0, 255), max_size=9), spans, st.sampled_from([pa.uint8(), pa.int32(), pa.int64()])
)
def test_numbers_of_a_part_are_its_values(values: list[int | None], span: tuple[int, int], type_: pa.DataType) -> None:
    part = pa.array(values, type_)[slice(*span)]

    numbers = numbers_of(part)

    assert (numbers.dtype, len(numbers)) == (type_.to_pandas_dtype(), len(part))
    assert [None if value is None else number for number, value in zip(numbers, part.to_pylist(), strict=True)] == (
        part.to_pylist()
    )


@given(st.lists(st.none() | st.text(max_size=3), max_size=9), spans)
def test_texts_of_a_part_lie_where_they_begin(texts: list[str | None], span: tuple[int, int]) -> None:
    part = pa.array(texts, pa.string())[slice(*span)]

    starts, characters = starts_of(part), characters_of(part)

    pieces = [characters[at:end].tobytes().decode() for at, end in pairwise(starts)]
    assert pieces == [text or "" for text in part.to_pylist()]
    assert len(characters)


def test_memory_can_not_be_written() -> None:
    own = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(np.zeros(2, np.int64))])

    with pytest.raises(ValueError, match="read-only"):
        numbers_of(own)[0] = 1

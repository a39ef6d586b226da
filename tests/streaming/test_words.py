"""Codes of nulls are in the range of the dictionary: Arrow reads them when it unifies dictionaries."""

import numpy as np
import pyarrow as pa
import pytest

from service.streaming.scan.events import ELEMENT
from service.streaming.scan.reader import Reader
from service.streaming.words import word_column


def codes_of(column: pa.DictionaryArray) -> list[int]:
    """Return all codes, also those of nulls."""
    codes: list[int] = np.frombuffer(column.indices.buffers()[1], np.int32)[: len(column)].tolist()
    return codes


@pytest.mark.parametrize("missing", [-1, 5, -(2**31), 2**31 - 1])
def test_codes_of_nulls_are_0(missing: int) -> None:
    codes = np.array([1, missing, 0], np.int64)
    column = word_column(codes, codes != missing, ["a", "b"])
    assert column.to_pylist() == ["b", None, "a"]
    assert codes_of(column) == [1, 0, 0]


def test_scanned_columns_of_words_have_no_code_out_of_range() -> None:
    text = b'{"ph": "X", "name": "a"}, {"ts": 1, "id": "x"}, {"ph": "i", "cat": "c", "tid": "t", "pid": "p"}'
    [batch] = Reader().read(text, 0, ELEMENT, last=True).batches
    columns = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    assert len(columns) == 6
    for column in columns:
        assert column.null_count
        assert all(0 <= code < max(len(column.dictionary), 1) for code in codes_of(column))

"""Columns of words: codes, and the word of each code."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def word_column(codes: Any, valid: npt.NDArray[np.bool_], words: Sequence[str]) -> pa.DictionaryArray:
    """Return the word of each code, and null where it is not valid.

    The code of a null becomes 0: when Arrow unifies dictionaries, it looks up the codes of nulls, too, and so would
    read memory that is not its own for codes like -1.
    """
    indices = pa.array(np.where(valid, codes, 0).astype(np.int32, copy=False), mask=~valid)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


def known_words(codes: pa.Array, words: pa.Array) -> pa.DictionaryArray:
    """Return the word of each code. The caller has made the codes, and knows that each is null or that of a word.

    Checking them, which is Arrow's default, takes a pass over each column of each batch.
    """
    return pa.DictionaryArray.from_arrays(codes, words, safe=False)

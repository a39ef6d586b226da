"""Memory of Arrow arrays, without copies: pyarrow's own conversions of arrays with nulls take up to ten times as long.

The results can't be written, so that compiled functions have one form for all of them.
"""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Number = TypeVar("Number", bound=np.number[Any])


def numbers_of(values: pa.Array) -> npt.NDArray[Any]:
    """Return integers in their own type, with any number where they are null."""
    numbers = _read(values.buffers()[1], values.type.to_pandas_dtype())
    return numbers[values.offset : values.offset + len(values)]


def starts_of(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """Return where each text begins in `characters_of` the array, and where the last one ends."""
    return _read(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]


def characters_of(texts: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of texts, one text after the other; at least one byte, which compiled functions may read."""
    characters = texts.buffers()[2]
    return _read(characters or bytes(1), np.uint8)


def fixed(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return the same memory as an array that can't be written."""
    view = values.view()
    view.flags.writeable = False
    return view


def _read(buffer: Any, type_: Any) -> npt.NDArray[Any]:
    return fixed(np.frombuffer(buffer, type_))

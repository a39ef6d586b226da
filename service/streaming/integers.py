"""Columns of integers as arrays."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def ints(column: pa.ChunkedArray, missing: int = 0) -> npt.NDArray[np.int64]:
    """Return the values of a column, with `missing` for null; most columns have no null, and are not copied."""
    numbers: npt.NDArray[np.int64] = (column.fill_null(missing) if column.null_count else column).to_numpy()
    return numbers

"""The columns of a rank's work on devices that questions have read, which later questions share."""

import threading
from collections.abc import Callable, Sequence

import pyarrow as pa


class WorkColumns:
    """Columns of work that are read once; several threads may ask for them at the same time.

    Args:
        read: reads columns of the work, in order of time.
    """

    def __init__(self, read: Callable[[Sequence[str]], pa.Table]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._columns: dict[str, pa.ChunkedArray] = {}

    def table(self, names: Sequence[str]) -> pa.Table:
        """Return columns, of which those of numbers have one chunk."""
        with self._lock:
            if missing := [name for name in names if name not in self._columns]:
                table = self._read(missing)
                for name in missing:  # one after the other, because two copies of all would take much memory
                    column = table[name]
                    table = table.drop_columns(name)
                    self._columns[name] = _joined(column)
            return pa.table({name: self._columns[name] for name in names})


def _joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Join the chunks of numbers, so that NumPy needs no copy of them."""
    is_joined = column.num_chunks == 1 or pa.types.is_dictionary(column.type)
    return column if is_joined else pa.chunked_array([column.combine_chunks()], column.type)

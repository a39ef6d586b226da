"""The columns of a snapshot's allocations and frees, of which each is read when it is needed first."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from service.analysis.facts.intervals import Ints
from service.analysis.facts.memory_changes import memory_changes_of, memory_file_of
from service.analysis.facts.scope import Scope
from service.store.folder import unreadable

Rows = npt.NDArray[np.intp] | slice
"""Rows of an array."""
_COLUMNS = ("at", "bytes", "allocated", "reserved", "device_id", "address", "stack", "stream")
_BATCH_ROWS = 1 << 16


class SnapshotChanges:
    """The allocations and frees of all devices, in order of time; see `memory_changes_of`.

    Touching new memory takes longer than decoding a column. So columns are read in small batches into one array each.

    Args:
        source: the file of the changes, or a table of them.
        count: number of changes.
    """

    def __init__(self, source: Path | pa.Table, count: int) -> None:
        self._source = source
        self._count = count

    def ints(self, name: str, missing: int = 0) -> Ints:
        """Return a column as integers; `missing` stands for null.

        Raises:
            ExportFailed: the file can't be read.
        """
        values = np.empty(self._count, np.int64)
        first = 0
        for part in self._parts(name):
            values[first : first + len(part)] = part.fill_null(missing) if part.null_count else part
            first += len(part)
        return values

    def distinct(self, name: str, missing: int = 0) -> list[int]:
        """Return the distinct values of a column, in order."""
        values = set[int]()
        for part in self._parts(name):
            filled = part.fill_null(missing)
            bounds = {*pc.min_max(filled).as_py().values()} - {None}
            values.update(bounds if len(bounds) < 2 else filled.unique().to_pylist())  # mostly there is one value
        return sorted(values)

    def devices(self) -> dict[int, Rows]:
        """Return the numbers of the devices, in order, and the changes of each."""
        numbers = self.distinct("device_id")
        if len(numbers) == 1:
            return {numbers[0]: slice(None)}
        of_changes = self.ints("device_id")
        return {number: np.flatnonzero(of_changes == number) for number in numbers}

    def _parts(self, name: str) -> Iterator[pa.Array]:
        if isinstance(self._source, pa.Table):
            yield from self._source[name].chunks
            return
        try:
            with pq.ParquetFile(self._source) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=[name]):
                    yield batch.column(0)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self._source, error) from error


def snapshot_changes_of(scope: Scope) -> SnapshotChanges:
    """Return the allocations and frees of a snapshot.

    Raises:
        ExportFailed: the file or the events can't be read.
    """
    if file := memory_file_of(scope):
        try:
            return SnapshotChanges(file, pq.read_metadata(file).num_rows)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(file, error) from error
    table = memory_changes_of(scope, _COLUMNS)
    return SnapshotChanges(table, len(table))

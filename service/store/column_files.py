"""The files of a trace's columns: in a folder of this machine, or in a location, of which only ranges are read."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from service.store.locations.ranged import RangedFile, RangedFolder
from service.trace.selection import Interval

ColumnFolder = Path | RangedFolder
ColumnFile = Path | RangedFile


class ParquetColumns:
    """A Parquet file of columns.

    Args:
        path: the file. Arrow reads a local one itself.
        words: columns to read as dictionaries.

    Raises:
        OSError: the file can't be read; `read` and `fetch` raise this, too.
        pyarrow.ArrowException: it is damaged; likewise.
        LocationError: its location can't be used; likewise.
    """

    def __init__(self, path: ColumnFile, words: Sequence[str] | None = None) -> None:
        self._path = path
        source = path if isinstance(path, Path) else path.open("rb")
        # `fetch` reads ahead: Arrow's own requests are too large, and of a local file, they cost more than they save
        self._file = pq.ParquetFile(source, read_dictionary=words, pre_buffer=False)
        self.metadata = self._file.metadata
        self.schema: pa.Schema = self._file.schema_arrow
        self.groups = [self.metadata.row_group(index) for index in range(self.metadata.num_row_groups)]
        self.places = {name: index for index, name in enumerate(self.metadata.schema.names)}

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Read some columns of some row groups."""
        self.fetch(groups, columns)
        return self._file.read_row_groups(groups, columns=columns)

    def fetch(self, groups: Iterable[int], columns: Sequence[str]) -> None:
        """Request what `read` will need, at once; does nothing for a local file."""
        if isinstance(self._path, RangedFile):
            self._path.fetch(self._range(group, column) for group in groups for column in columns)

    def _range(self, group: int, column: str) -> Interval:
        """Return the start and the end in the file of a column of a row group."""
        chunk = self.groups[group].column(self.places[column])
        start = chunk.data_page_offset
        if 0 < (chunk.dictionary_page_offset or 0) < start:
            start = chunk.dictionary_page_offset
        return start, start + chunk.total_compressed_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()

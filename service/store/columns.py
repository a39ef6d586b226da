"""The file of a trace's events as columns, sorted by time."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from service.store.folder import COLUMNS_VERSION, EVENTS
from service.streaming.integers import ints
from service.streaming.schema import SCHEMA, UNTIMED_LAST

ROW_GROUP = 3 << 14
"""Largest number of events in a part of a file."""

_ENCODINGS = {  # measured: about the smallest for each column, and no slower than others
    **dict.fromkeys(("ts_ns", "correlation", "external_id", "bytes"), "DELTA_BINARY_PACKED"),
    **dict.fromkeys(("position", "dur_ns", "dur_digits", "id"), "BYTE_STREAM_SPLIT"),
    **dict.fromkeys(("ts_digits", "device", "args", "rest"), "PLAIN"),
}
_DENSE = {"ts_ns", "args"}  # Zstandard would make others a sixth smaller, and reading them take a third longer
WORDS = [name for name in SCHEMA.names if name not in {*_ENCODINGS, "verbatim"}]
"""Columns with dictionary encoding, which should be read as dictionaries."""
_PRUNED = [  # columns that queries filter by; statistics of all others would add a seventh to the write time
    *("position", "cat", "name", "pid", "pid_text", "tid", "tid_text", "ts_ns", "dur_ns", "id"),
    *("device", "stream", "correlation", "external_id", "bytes"),
]

MERGED = SCHEMA.append(pa.field("rank", pa.int64()))
"""The columns of a trace that was merged from ranks."""

Times = npt.NDArray[np.int64]


class EventsFile:
    """A new file `EVENTS` in `folder`, with the columns of `SCHEMA` and optional further ones.

    Write all events in order of time, then `close`; leaving the ``with`` block closes the file, too.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._file = pq.ParquetWriter(
            folder / EVENTS,
            schema.with_metadata({"tracedock.columns": COLUMNS_VERSION}),
            compression={name: "zstd" if name in _DENSE else "lz4" for name in schema.names},
            compression_level={name: 1 for name in schema.names if name in _DENSE},
            use_dictionary=WORDS,
            column_encoding=_ENCODINGS,
            write_statistics=[*_PRUNED, *(name for name in schema.names if name not in SCHEMA.names)],
            write_page_index=True,
            write_batch_size=ROW_GROUP,
        )

    def __enter__(self) -> "EventsFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, events: pa.Table) -> None:
        """Write the next events, whose columns have one chunk each, as parts of about equal size."""
        self._file.write_table(events, row_group_size=part_size(len(events)))

    def describe(self, texts: Mapping[str, bytes]) -> None:
        """Add texts to the file's metadata; see `EventNotes`."""
        self._file.add_key_value_metadata(texts)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


def part_size(events: int) -> int:
    """Return the size of the equal parts of some events, as few as `ROW_GROUP` allows."""
    parts = max(1, math.ceil(events / ROW_GROUP))
    return max(1, math.ceil(events / parts))


def with_ranks(events: pa.Table, ranks: Mapping[int, int]) -> pa.Table:
    """Return the events with a column ``rank``: the rank of the event's process, or null if it has none."""
    if not ranks:
        return events.append_column(MERGED.field("rank"), pa.nulls(len(events), pa.int64()))
    pids = np.array(sorted(ranks))
    values = np.array([ranks[pid] for pid in pids.tolist()])
    of_events = events["pid"].fill_null(UNTIMED_LAST).to_numpy()
    at = np.minimum(np.searchsorted(pids, of_events), len(pids) - 1)
    return events.append_column(MERGED.field("rank"), pa.array(values[at], mask=pids[at] != of_events))


def by_time(table: pa.Table) -> tuple[pa.Table, Times]:
    """Return the rows in one chunk, stably sorted by time, and their times; untimed events come last."""
    table = table.unify_dictionaries().combine_chunks()
    times = ints(table["ts_ns"], UNTIMED_LAST)
    if (times[:-1] <= times[1:]).all():
        return table, times
    order = np.argsort(times, kind="stable")
    rows = pa.array(order)
    columns = [
        column if column.null_count == len(table) else pc.take(column, rows, boundscheck=False)
        for column in table.columns
    ]
    return pa.table(columns, table.schema), times[order]

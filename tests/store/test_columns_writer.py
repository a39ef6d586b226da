"""Columns are sorted by time, cheap to read in part, and independent of batches and runs."""

import resource
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.store import columns_writer, runs
from service.store.columns import ROW_GROUP, EventsFile
from service.store.columns_writer import ColumnsWriter
from service.store.event_notes import EventNotes
from service.store.flow_ids import FlowIds
from service.store.folder import COLUMNS_VERSION, EVENTS
from service.store.parts import Parts
from service.streaming.scan.events import ELEMENT_OR_CLOSE
from service.streaming.scan.reader import Reader
from service.streaming.schema import SCHEMA
from service.trace.errors import DiskFull
from tests.columns import parsed
from tests.columns import rows as oracle_rows
from tests.conftest import scaled
from tests.events import rows_of, written_back
from tests.traces import TraceShape, trace_chunks

READER = Reader()


def batch_of(times: Iterable[int | None]) -> pa.RecordBatch:
    """Return a batch of events at the given times in ns."""
    events = ",".join(f'{{"name":"{n % 7}"{_ts(time)}}}' for n, time in enumerate(times))
    (batch,) = READER.read(events.encode() + b"]", 0, ELEMENT_OR_CLOSE, last=True).batches
    return batch


def _ts(time: int | None) -> str:
    return "" if time is None else f',"ts":{"-" if time < 0 else ""}{abs(time) // 1000}.{abs(time) % 1000:03}'


def copies(times: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
    """Return a batch of copies of one event at different times."""
    (single,) = READER.read(b'{"ph":"X","ts":1.5}]', 0, ELEMENT_OR_CLOSE, last=True).batches
    batch = single.take(pa.array(np.zeros(len(times), np.int64)))
    return batch.set_column(SCHEMA.get_field_index("ts_ns"), SCHEMA.field("ts_ns"), pa.array(times))


def write(folder: Path, batches: Iterable[pa.RecordBatch]) -> list[pa.Table]:
    """Write columns, and return the sorted slabs that the writer passes on."""
    passed: list[pa.Table] = []
    with ColumnsWriter(folder) as writer:
        for batch in batches:
            writer.add(batch)
        assert writer.finish(lambda part: passed.append(part.table)) == sum(map(len, passed))
    return passed


def times_of(path: Path) -> list[int | None]:
    times: list[int | None] = pq.read_table(path / EVENTS)["ts_ns"].to_pylist()
    return times


times = st.lists(st.none() | st.integers(-20, 20) | st.integers(-(10**18), 10**18), max_size=30)


@given(
    st.lists(times.filter(bool), max_size=8),
    st.sampled_from([(1, 1 << 28), (3, 1 << 28), (20, 1 << 28), (1 << 18, 1 << 28), (1 << 18, 1000)]),
    st.sampled_from([1, 2, 5]),
)
@settings(max_examples=scaled(30))
def test_rows_are_sorted_by_time_and_then_by_position(
    tmp_path_factory: pytest.TempPathFactory, original: list[list[int | None]], run: tuple[int, int], batch: int
) -> None:
    folder = tmp_path_factory.mktemp("columns")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns_writer, "RUN_ROWS", run[0])
        patched.setattr(columns_writer, "RUN_BYTES", run[1])
        patched.setattr(runs, "_BATCH_ROWS", batch)
        patched.setattr(runs, "_SLAB_ROWS", 2 * batch)
        passed = write(folder, map(batch_of, original))

    table = pq.read_table(folder / EVENTS)
    flat = [time for part in original for time in part]
    order = sorted(range(len(flat)), key=lambda n: (flat[n] is None, flat[n] or 0, n))
    assert table["position"].to_pylist() == order
    assert table["ts_ns"].to_pylist() == [flat[n] for n in order]
    names = [str(n % 7) for part in original for n in range(len(part))]
    assert table["name"].to_pylist() == [names[n] for n in order]
    assert [position for slab in passed for position in slab["position"].to_pylist()] == order
    assert [path.name for path in folder.iterdir()] == [EVENTS]


def test_runs_on_disk_and_in_memory_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"".join(trace_chunks(TraceShape(steps=20, document="array"))).lstrip(b"[ \n")
    batches = READER.read(text, 0, ELEMENT_OR_CLOSE, last=True).batches
    pieces = [batch.slice(at, 500) for batch in batches for at in range(0, len(batch), 500)]
    (tmp_path / "whole").mkdir()
    (tmp_path / "spilled").mkdir()

    write(tmp_path / "whole", pieces)
    monkeypatch.setattr(columns_writer, "RUN_ROWS", 700)
    monkeypatch.setattr(runs, "_BATCH_ROWS", 64)
    monkeypatch.setattr(runs, "_SLAB_ROWS", 256)
    write(tmp_path / "spilled", pieces)

    whole, spilled = (pq.read_table(tmp_path / name / EVENTS) for name in ("whole", "spilled"))
    assert whole.to_pylist() == spilled.to_pylist()
    rows = list(rows_of([whole]))
    assert [written_back(row) for row in sorted(rows, key=lambda row: row["position"])] == [
        written_back(row) for row in rows_of(batches)
    ]
    expected = [row["position"] for row in oracle_rows(parsed(b"[" + text))]
    assert [row["position"] for row in rows] == expected


def test_runs_that_all_span_the_same_time_may_outnumber_the_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_writer, "RUN_ROWS", 2)
    monkeypatch.setattr(runs, "_BATCH_ROWS", 1)
    monkeypatch.setattr(runs, "_SLAB_ROWS", 4)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        write(tmp_path, [batch_of((run, 1000 - run)) for run in range(200)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert times_of(tmp_path) == [*range(200), *range(801, 1001)]


def test_events_that_do_not_fit_in_one_part_fill_two_equal_parts(tmp_path: Path) -> None:
    notes = EventNotes()
    with EventsFile(tmp_path, SCHEMA) as file:
        part = notes.add(pa.Table.from_batches([copies(np.arange(ROW_GROUP + 2))]))
        file.write(part.table)
        file.describe(notes.texts())

    written = pq.ParquetFile(tmp_path / EVENTS).metadata
    assert [written.row_group(n).num_rows for n in range(written.num_row_groups)] == [ROW_GROUP // 2 + 1] * 2
    with closing(Parts(tmp_path / EVENTS)) as parts:
        assert [parts.flow_ids(index) for index in range(len(parts))] == [FlowIds(None, None)] * 2


def test_window_of_one_percent_reads_about_one_percent_of_rows(tmp_path: Path) -> None:
    count = 1_000_000
    random = np.random.default_rng(0)
    original = random.integers(0, 10**10, count)
    halves = [np.sort(original[: count // 2]), original[count // 2 :]]  # host events are sorted by time, others are not

    write(tmp_path, [copies(part) for half in halves for part in np.array_split(half, 8)])

    file = pq.ParquetFile(tmp_path / EVENTS).metadata
    column = SCHEMA.get_field_index("ts_ns")
    groups = [file.row_group(n) for n in range(file.num_row_groups)]
    bounds = [(group.column(column).statistics.min, group.column(column).statistics.max) for group in groups]
    for start in random.integers(0, 99 * 10**8, 50):
        window = (start, start + 10**8)
        touched = sum(
            group.num_rows
            for group, (low, high) in zip(groups, bounds, strict=True)
            if low < window[1] and high >= window[0]
        )
        assert touched <= count // 100 + 2 * ROW_GROUP
    assert max(group.num_rows for group in groups) <= ROW_GROUP == 49_152
    assert np.array_equal(np.sort(original), pq.read_table(tmp_path / EVENTS)["ts_ns"].to_numpy())


def test_events_with_long_arguments_are_in_memory_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_writer, "RUN_BYTES", 100_000)
    monkeypatch.setattr(runs, "_BATCH_BYTES", 10_000)
    text = ",".join(f'{{"ts":{n * 7919 % 1000},"args":{{"text":"{"x" * 1000}"}}}}' for n in range(1000))
    batches = READER.read(text.encode() + b"]", 0, ELEMENT_OR_CLOSE, last=True).batches

    passed = write(tmp_path, [batch.slice(first, 10) for batch in batches for first in range(0, len(batch), 10)])

    assert max(slab["args"].nbytes for slab in passed) <= 150_000
    assert times_of(tmp_path) == [n * 1000 for n in range(1000)]


@pytest.mark.parametrize("time", [None, 0])
def test_events_of_the_same_time_are_never_in_memory_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: int | None
) -> None:
    monkeypatch.setattr(columns_writer, "RUN_ROWS", 100)
    monkeypatch.setattr(runs, "_BATCH_ROWS", 10)
    monkeypatch.setattr(runs, "_SLAB_ROWS", 40)

    passed = write(tmp_path, (batch_of([n, *[time] * 18, -n]) for n in range(1, 101)))

    assert max(map(len, passed)) <= 200
    original = [value for n in range(1, 101) for value in (n, *[time] * 18, -n)]
    assert times_of(tmp_path) == sorted(original, key=lambda value: (value is None, value or 0))


def test_file_has_its_format_version_in_metadata(tmp_path: Path) -> None:
    write(tmp_path, [batch_of([1, None])])

    file = pq.ParquetFile(tmp_path / EVENTS)
    assert file.schema_arrow.metadata[b"tracedock.columns"] == COLUMNS_VERSION.encode() == b"1"
    assert file.schema_arrow.names == SCHEMA.names
    columns = [file.metadata.row_group(0).column(index) for index in range(len(SCHEMA))]
    assert {column.path_in_schema for column in columns if column.compression == "ZSTD"} == {"ts_ns", "args"}
    assert {column.compression for column in columns} == {"ZSTD", "LZ4"}


def test_trace_without_events_has_columns(tmp_path: Path) -> None:
    write(tmp_path, [])

    assert times_of(tmp_path) == []
    assert pq.ParquetFile(tmp_path / EVENTS).schema_arrow.names == SCHEMA.names


def test_end_is_announced_after_the_last_slab(tmp_path: Path) -> None:
    calls: list[int | str] = []

    with ColumnsWriter(tmp_path) as writer:
        writer.add(batch_of(range(5)))
        writer.finish(lambda part: calls.append(len(part)), on_end=lambda: calls.append("end"))

    assert calls == [5, "end"]
    assert times_of(tmp_path) == [*range(5)]


def test_error_at_the_end_is_raised_and_leaves_no_runs_behind(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError), ColumnsWriter(tmp_path) as writer:  # noqa: PT012 - the batch is part of the test
        writer.add(batch_of(range(5)))
        writer.finish(lambda part: None, on_end=fail)

    assert not (tmp_path / "runs").exists()


def test_aborted_writer_leaves_no_runs_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_writer, "RUN_ROWS", 10)

    with pytest.raises(KeyError), ColumnsWriter(tmp_path) as writer:  # noqa: PT012 - the batches are part of the test
        for _ in range(10):
            writer.add(batch_of(range(20)))
        raise KeyError

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run", [10, 1 << 18])
def test_full_disk_is_reported_and_leaves_no_runs_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: int
) -> None:
    monkeypatch.setattr(columns_writer, "RUN_ROWS", run)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # the kernel refuses to write more
    try:
        with pytest.raises(DiskFull):
            write(tmp_path, (batch_of(range(50)) for _ in range(20)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert not (tmp_path / "runs").exists()

"""Packed events are the events that were packed, in order of time, down to every null."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.store import packed_events, runs
from service.store.packed_events import PackedEvents, joined
from service.store.runs import Run
from service.streaming.schema import SCHEMA
from tests.conftest import scaled

Row = dict[str, Any]

INTS = st.integers(-3, 3) | st.integers(0, 1 << 34) | st.sampled_from([-(1 << 63), (1 << 63) - 1])
TIMES = st.integers(-3, 3) | st.integers(-(1 << 62), 1 << 62)
WORDS = st.sampled_from(["", "a", "b", "ключ"]) | st.text(max_size=3)
TEXTS = st.text("xyé{}", max_size=40) | st.integers(0, 17).map(lambda at: "0123456789abcdefg"[at:] * 4)
VALUES = {pa.int64(): INTS, pa.int8(): st.integers(0, 12), pa.string(): TEXTS, pa.bool_(): st.booleans()}
SIZES = st.sampled_from([1, 100, 1 << 31])  # of texts


def columns_of(field: pa.Field, size: int) -> st.SearchStrategy[list[Any]]:
    """Return a strategy of columns with few different values, of which some are null or equal throughout."""
    values = TIMES if field.name == "ts_ns" else VALUES.get(field.type, WORDS)
    some = st.lists(values | st.none() if field.nullable else values, min_size=1, max_size=3)
    return some.flatmap(lambda found: st.lists(st.sampled_from(found), min_size=size, max_size=size))


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Draw a batch of events, which may be a part of another one."""
    size = draw(st.integers(1, 6))
    batch = pa.RecordBatch.from_pydict({field.name: draw(columns_of(field, size)) for field in SCHEMA}, SCHEMA)
    return batch.slice(draw(st.integers(0, size - 1)))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["ts_ns"] is None, row["ts_ns"] or 0))


@given(st.lists(st.lists(batches(), min_size=1, max_size=2), min_size=1, max_size=3), SIZES)
@settings(max_examples=scaled(60), deadline=None)
def test_joined_pieces_are_all_their_events_in_order_of_time(groups: list[list[pa.RecordBatch]], text_max: int) -> None:
    pieces = [PackedEvents.sorted(pa.Table.from_batches(group, SCHEMA)) for group in groups]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packed_events, "TEXT_MAX", text_max)
        tables = [*joined(pieces)]

    expected = in_order([row for group in groups for batch in group for row in batch.to_pylist()])
    assert [row for table in tables for row in table.to_pylist()] == expected
    for table in tables:
        table.validate(full=True)
        assert table.schema.equals(SCHEMA)
        assert {column.num_chunks for column in table.columns} == {1}
        largest = max(sum(len((text or "").encode()) for text in table[name].to_pylist()) for name in ("args", "rest"))
        assert largest <= text_max or len(table) == 1


@given(st.lists(batches(), min_size=1, max_size=4), st.integers(1, 5), st.data())
@settings(max_examples=scaled(30), deadline=None)
def test_run_on_disk_yields_its_events_before_any_times(
    tmp_path_factory: pytest.TempPathFactory, group: list[pa.RecordBatch], rows: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("runs") / "0.arrow"
    expected = in_order([row for batch in group for row in batch.to_pylist()])
    times = [row["ts_ns"] for row in expected if row["ts_ns"] is not None]
    cuts = sorted(data.draw(st.lists(st.sampled_from(times), max_size=3))) if times else []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "_BATCH_ROWS", rows)
        run = Run(group, path)
        taken = [run.before(cut) for cut in (*cuts, None)]

    found = [[row for piece in pieces for table in joined([piece]) for row in table.to_pylist()] for pieces in taken]
    assert [row for part in found for row in part] == expected
    for cut, part in zip(cuts, found, strict=False):
        assert all(row["ts_ns"] is not None and row["ts_ns"] < cut for row in part)


def test_packed_integers_take_as_many_bytes_as_their_range_needs(tmp_path: Path) -> None:
    count = 1000
    rows = {"position": range(count), "ts_ns": range(10**18, 10**18 + count), "dur_ns": [0, 1 << 40] * (count // 2)}
    columns = {name: rows.get(name, [None] * count) for name in SCHEMA.names}
    table = pa.table({**columns, "verbatim": [False] * count}, SCHEMA)

    batch = PackedEvents.sorted(table).batch

    assert {name: batch[name].type for name in batch.schema.names} == {
        "position": pa.uint16(), "ts_ns": pa.uint16(), "dur_ns": pa.uint64(), "has": pa.uint32(),
    }  # fmt: skip

"""Columns are read part by part, guided by their statistics; track numbers are the same in all parts."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.store.folder import EVENTS
from service.store.parts import TRACK, UNTIMED, Part, Parts, Tracks, Words, WordValues, mixed, packed
from service.streaming.schema import SCHEMA
from service.trace.errors import ExportFailed
from tests.cutting.choices import cut, text_of
from tests.cutting.test_cut import ingested

ints = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 3) | st.sampled_from([1 << 20, 1 << 42, (1 << 42) - 1])
pairs = st.lists(st.tuples(ints, ints), min_size=1, max_size=20)


def moments(*times: int | None, **more: Any) -> list[dict[str, Any]]:
    return [{"ph": "X", "pid": 1, "tid": 1, **({} if at is None else {"ts": at}), **more} for at in times]


def test_parts_are_read_in_order_with_their_rows() -> None:
    with cut(text_of(*moments(*range(10))), row_group=4) as columns:
        parts = [(part.index, part.rows, part.starts.tolist()) for part in columns.parts.read(["ts_ns"])]
        indexes = [part.index for part in columns.parts.read(["ts_ns"], [2, 0])]
        no_parts = list(columns.parts.read(["ts_ns"], []))

    assert [(index, rows.start, rows.stop) for index, rows, _ in parts] == [(0, 0, 4), (1, 4, 8), (2, 8, 10)]
    assert [time for _, _, times in parts for time in times] == [at * 1000 for at in range(10)]
    assert indexes == [2, 0]
    assert no_parts == []


def test_tables_hold_all_events_in_order_with_null_columns() -> None:
    events = [*moments(*range(100)), *moments(*range(100, 140), args={"correlation": 7})]
    with cut(text_of(*events), row_group=4) as columns:
        names = ["tid_text", "correlation", "ts_ns", "name", "device"]
        tables = list(columns.parts.tables(names))
        null_tables = list(columns.parts.tables(["tid_text"]))
        schema = columns.parts.schema
    assert all(table.schema == pa.schema([schema.field(name) for name in names]) for table in tables)
    rows = pa.concat_tables(tables).to_pydict()
    assert rows["ts_ns"] == [at * 1000 for at in range(140)]
    assert rows["correlation"] == [None] * 100 + [7] * 40
    assert rows["tid_text"] == rows["name"] == rows["device"] == [None] * 140
    assert sum(map(len, null_tables)) == 140
    assert null_tables[0]["tid_text"].null_count == len(null_tables[0])


@pytest.mark.parametrize("untimed_apart", [True, False])
def test_time_of_a_part_covers_its_events_with_untimed_ones_first(untimed_apart: bool) -> None:
    times = [*moments(3, 1, 5, 9), *moments(4, dur=100), *moments(None, None)]
    with cut(text_of(*times), row_group=3, untimed_apart=untimed_apart) as columns:
        for part in columns.parts.read(["ph", "ts_ns", "dur_ns"]):
            first, last = columns.parts.time(part.index)
            assert first <= part.starts.min()
            assert last >= part.ends.max()
            assert columns.parts.has_untimed(part.index) >= (part.starts == UNTIMED).any()


@pytest.mark.parametrize(
    ("times", "parts", "expected"),
    [
        ((1, 2, 3, 4, 5, 6), [1], [1]),
        ((1, 2, 2, 3, 3, 4), [1], [0, 1, 2]),
        ((1, 2, 2, 2, 2, 2, 2, 3), [2], [0, 1, 2, 3]),
        ((1, 2, 2, 3, 4, 5, 5, 6), [0], [0, 1]),
        ((1, 2, None, None), [0, 1], [0, 1]),
        ((), [], []),
    ],
)
def test_parts_that_share_a_time_with_a_part_are_its_neighbours(
    times: tuple[int | None, ...], parts: list[int], expected: list[int]
) -> None:
    with cut(text_of(*moments(*times)), row_group=2) as columns:
        assert columns.parts.with_neighbours(parts) == expected


def test_span_of_a_part_holds_only_its_values() -> None:
    linked = [{"ph": "X", "ts": at, "args": {"correlation": at} if at < 4 else {}} for at in range(6)]
    with cut(text_of(*linked), row_group=2) as columns:
        assert [columns.parts.span(index, "correlation") for index in range(3)] == [(0, 1), (2, 3), None]


def test_null_is_not_a_word() -> None:
    with cut(text_of({"ts": 1}, {"ph": "X", "ts": 2}, {"ph": "M"})) as columns:
        slices = [flag for part in columns.parts.read(["ph"]) for flag in part.slices.tolist()]
        absent = [flag for part in columns.parts.read(["ph"]) for flag in part.which("ph", lambda word: word is None)]

    assert slices == [False, True, False]
    assert absent == [True, False, False]


def test_words_and_tracks_have_the_same_numbers_in_all_parts() -> None:
    ids = [(1, 1), ("1", 1), (1, "1"), ("", ""), (1, 1), ("a", 1), (1, 1), ("1", 1), (2, 2), (1, 2)]
    events = [{"ph": "X", "cat": str(tid), "pid": pid, "tid": tid, "ts": at} for at, (pid, tid) in enumerate(ids)]
    words, tracks = Words(), Tracks()
    with cut(text_of(*events), row_group=3) as columns:
        parts = list(columns.parts.read(["cat", *TRACK]))
        categories = [number for part in parts for number in words.of(part, "cat").tolist()]
        keys = [tracks.keys[number] for part in parts for number in tracks.of(part).tolist()]
        keys_again = [tracks.keys[number] for part in parts for number in tracks.of(part).tolist()]
        on_first = [flag for part in parts for flag in tracks.where(part, (1, 1).__eq__).tolist()]

    assert keys == keys_again == ids
    assert on_first == [track == (1, 1) for track in ids]
    assert [categories.index(number) for number in categories] == [
        [str(tid) for _, tid in ids].index(str(tid)) for _, tid in ids
    ]


def test_words_are_asked_for_once_while_parts_list_the_same_ones() -> None:
    asked: list[str | None] = []

    def value_of(word: str | None) -> int:
        asked.append(word)
        return len(word or "")

    def part_of(indices: list[int | None], words: list[str]) -> Part:
        codes = pa.array(indices, pa.int32())
        return Part(0, 0, pa.table({"name": pa.DictionaryArray.from_arrays(codes, pa.array(words))}))

    values, words = WordValues(value_of), ["a", "bb", "ccc", "dddd"]
    assert values.of(part_of([2, None, 0, 2], words), "name").tolist() == [3, 0, 1, 3]
    assert asked == [None, "a", "ccc"]
    assert values.of(part_of([1, 0, None], words), "name", np.array([0, 2])).tolist() == [2, 0]
    assert asked == [None, "a", "ccc", "bb"]
    assert values.table(part_of([], words), "name").tolist() == [1, 2, 3, 4, 0]
    assert asked == [None, "a", "ccc", "bb", "dddd"]
    assert values.of(part_of([1], ["bb", "a"]), "name").tolist() == [1]
    assert asked[5:] == [None, "a"]


def test_notations_of_an_id_are_the_same_track() -> None:
    events = (
        '{"pid": 1, "tid": "a", "ts": 1}, {"pid": 1, "tid": "\\u0061", "ts": 2}, {"pid": 1, "ts": 3},'
        ' {"pid": 1, "tid": "", "ts": 4}, {"pid": 1, "tid": null, "ts": 5}'
    )
    tracks = Tracks()
    with cut(f'{{"traceEvents": [{events}]}}', row_group=1) as columns:
        numbers = [number for part in columns.parts.read(TRACK) for number in tracks.of(part).tolist()]

    assert [tracks.keys[number] for number in numbers] == [(1, "a"), (1, "a"), (1, ""), (1, ""), (1, "")]
    assert len(set(numbers)) == len(tracks.keys) == 2


def test_tracks_of_hard_numbers_are_different() -> None:
    powers = [1 << bit for bit in range(63)]
    numbers = sorted({*range(-9, 9), *powers, *(-power for power in powers), *(power - 1 for power in powers)})
    pids, tids = (column.ravel() for column in np.meshgrid(numbers, numbers))
    empty = pa.nulls(len(pids), pa.dictionary(pa.int32(), pa.string()))
    table = pa.table({"pid": pids, "pid_text": empty, "tid": tids, "tid_text": empty})
    tracks = Tracks()
    assert len(set(tracks.of(Part(0, 0, table)).tolist())) == len(pids) == len(tracks.keys)


@given(pairs)
def test_different_values_have_different_hashes(values: list[tuple[int, int]]) -> None:
    columns = np.array(values, np.int64).reshape(-1, 2)
    for numbers in (mixed(columns[:, 0], columns[:, 1]), packed(columns[:, 0], columns[:, 1])):
        assert len({*values}) == len({*numbers.tolist()})
        assert len({*zip(values, numbers.tolist(), strict=True)}) == len({*values})


@given(st.lists(st.tuples(st.integers(0, (1 << 42) - 1), st.integers(0, (1 << 20) - 1)), min_size=2, max_size=20))
def test_packed_numbers_of_ordinary_values_are_in_their_order(values: list[tuple[int, int]]) -> None:
    columns = np.array(values, np.int64)
    numbers = packed(columns[:, 0], columns[:, 1]).tolist()

    assert sorted(values) == [value for _, value in sorted(zip(numbers, values, strict=True))]


def test_unreadable_columns_are_reported(tmp_path: Path) -> None:
    (tmp_path / "events.parquet").write_bytes(b"PAR1 but no more")

    for name in ("events.parquet", "absent.parquet"):
        with pytest.raises(ExportFailed, match="can't be read"):
            Parts(tmp_path / name)


def test_columns_that_break_off_later_are_reported(tmp_path: Path) -> None:
    columns = ingested(text_of(*moments(*range(1000))), tmp_path / "trace").columns / EVENTS
    chunk = pq.ParquetFile(columns).metadata.row_group(0).column(SCHEMA.names.index("ts_ns"))
    with columns.open("r+b") as file:
        file.seek(chunk.data_page_offset)
        file.write(b"\xff" * chunk.total_compressed_size)

    with closing(Parts(columns)) as parts:
        for reader in (parts.read, parts.tables):
            with pytest.raises(ExportFailed, match="can't be read"):
                list(reader(["ts_ns"]))
            assert list(reader(["pid"]))

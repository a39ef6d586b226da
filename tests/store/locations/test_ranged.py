"""Of a file in a location, the ranges that are needed are read: each once, neighbours together, never stale."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.store.column_files import ParquetColumns
from service.store.locations.location import Entry, Location
from service.store.locations.ranged import GAP, RangedFolder
from service.trace.errors import LocationError, SourceChanged, UnknownLocation

CONTENT = os.urandom(9 << 20)


@pytest.fixture
def folder(place: Location) -> Iterator[RangedFolder]:
    """A folder with one file, of nine MB."""
    place.write("traces/one/file", CONTENT)
    with RangedFolder(place, "traces/one") as opened:
        yield opened


def test_ranges_are_read_at_any_place_and_each_byte_once(folder: RangedFolder) -> None:
    random = Random(0)
    with (folder / "file").open("rb") as first, (folder / "file").open("rb") as second:
        for reader in (first, second) * 10:
            start, size = random.randrange(len(CONTENT)), random.randrange(1 << 18)
            reader.seek(start)
            assert reader.read(size) == CONTENT[start : start + size]
            assert reader.tell() == min(start + size, len(CONTENT))
        assert folder.location.meter.size < len(CONTENT)
        first.seek(-3, os.SEEK_END)
        assert first.read(10) == CONTENT[-3:]
        assert first.read(10) == b""
    assert (folder / "file").read_bytes() == CONTENT
    assert folder.location.meter.size == len(CONTENT)


def test_neighbouring_ranges_are_one_request(folder: RangedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[int, int]] = []
    read_range = folder.location.read_range

    def noted(entry: Entry, start: int, end: int) -> bytes:
        requests.append((start, end))
        return read_range(entry, start, end)

    monkeypatch.setattr(folder.location, "read_range", noted)
    far = 100 + GAP + 101
    (folder / "file").fetch([(far, far + 50), (0, 50), (50, 90), (100, 200)])
    assert sorted(requests) == [(0, 200), (far, far + 50)]
    (folder / "file").fetch([(10, 150)])
    assert len(requests) == 2


def test_threads_share_what_was_read(folder: RangedFolder) -> None:
    def read(number: int) -> bool:
        with (folder / "file").open("rb") as reader:
            reader.seek(number << 16)
            return reader.read(1 << 20) == CONTENT[number << 16 : (number << 16) + (1 << 20)]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(64)))
    assert folder.location.meter.size == (63 << 16) + (1 << 20)


def test_parquet_columns_are_read_without_the_others(place: Location) -> None:
    table = pa.table({name: [os.urandom(500).hex() for _ in range(1000)] for name in "abc"})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=250)
    place.write("traces/one/file", sink.getvalue().to_pybytes())
    with RangedFolder(place, "traces/one") as folder:
        columns = ParquetColumns(folder / "file")
        assert columns.read([1, 2], ["b"]) == table.select(["b"]).slice(250, 500)
        columns.close()
        assert folder.location.meter.size < folder.sizes["file"] / 4
        assert columns.metadata.num_row_groups == 4


def test_file_that_changes_is_never_mixed(place: Location, folder: RangedFolder) -> None:
    file = folder / "file"
    file.fetch([(0, 100)])
    place.write("traces/one/file", CONTENT[::-1] + b"more")
    with file.open("rb") as reader:
        assert reader.read(100) == CONTENT[:100]
        with pytest.raises(SourceChanged, match="traces/one/file was changed while it was read"):
            reader.read(100)


def test_error_of_the_location_passes_through_arrow(place: Location) -> None:
    place.write("traces/one/file", CONTENT)
    with RangedFolder(place, "traces/one") as folder:
        place.write("traces/one/file", CONTENT[:-5])
        with pytest.raises(SourceChanged):
            ParquetColumns(folder / "file")


def test_lost_file_is_named(place: Location, folder: RangedFolder) -> None:
    place.remove("traces/one/file")
    with pytest.raises(UnknownLocation, match=r"There is no traces/one/file in .*\.$"):
        (folder / "file").read_bytes()
    assert not (folder / "other").exists()
    with pytest.raises(LocationError, match="There is no traces/one/other in"):
        (folder / "other").open("rb")


def test_local_copies_are_removed(place: Location) -> None:
    place.write("traces/one/file", CONTENT)
    with RangedFolder(place, "traces/one") as folder:
        (folder / "file").fetch([(0, 10)])
        assert [*folder.scratch.iterdir()]
    assert not folder.scratch.exists()

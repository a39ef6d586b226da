"""Gathered columns equal their concatenated pieces, whatever integers these hold."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.attribution import gathered as gathered_columns
from service.attribution.gathered import GatheredColumns
from service.attribution.nesting import NONE

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
PIECES = st.lists(st.lists(st.sampled_from([-1, 0, 1, 127, 255, 1 << 31]) | INTEGERS, max_size=5), max_size=5)


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathered_columns, "_PIECE_MIN", 3)
        yield


def gathered(pieces: list[list[int]]) -> tuple[GatheredColumns, list[int]]:
    """Return columns of the pieces' integers and of their remainders, and all integers."""
    columns = GatheredColumns("number", "is_odd")
    for piece in pieces:
        numbers = np.array(piece, np.int64)
        columns.add(number=numbers, is_odd=(numbers % 2).astype(np.int8))
    return columns, [value for piece in pieces for value in piece]


@given(PIECES)
@example([[-(1 << 63), (1 << 63) - 1], [-1], [7, 7]])
def test_column_is_all_of_its_pieces(pieces: list[list[int]]) -> None:
    columns, values = gathered(pieces)
    assert len(columns) == len(values)
    assert columns.values("number").tolist() == values
    assert columns.values("is_odd").tolist() == [value % 2 for value in values]


@given(PIECES, st.lists(st.integers(NONE, 24)), INTEGERS)
@example([[1, 2], [3, 3], [4]], [4, NONE, 0, 4], 9)
def test_values_at_indices_are_those_of_the_column_or_the_missing_one(
    pieces: list[list[int]], indices: list[int], missing: int
) -> None:
    columns, values = gathered(pieces)
    chosen = [index for index in indices if index < len(values)]
    expected = [missing if index == NONE else values[index] for index in chosen]
    found = columns.at(np.array(chosen, np.int32), {"number": missing, "is_odd": 7})
    assert found["number"].tolist() == expected
    assert found["is_odd"].tolist() == [7 if index == NONE else values[index] % 2 for index in chosen]


@given(PIECES, INTEGERS, INTEGERS)
@example([[1, 9], [2, 3], [9]], 2, 3)
def test_values_between_bounds_are_found_with_their_indices(pieces: list[list[int]], least: int, most: int) -> None:
    columns, values = gathered(pieces)
    found, indices = columns.between("number", least, most)
    assert found.tolist() == [values[index] for index in indices.tolist()]
    assert indices.tolist() == sorted({*indices.tolist()})
    assert {index for index, value in enumerate(values) if least <= value <= most} <= {*indices.tolist()}


def test_columns_in_a_file_are_read_like_those_in_memory(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    numbers = random.integers(-(1 << 63), 1 << 63, (20, 10_000), np.int64)  # 1.6 MB
    in_memory, in_file = GatheredColumns("number"), GatheredColumns("number", folder=tmp_path)
    indices = random.integers(0, numbers.size, 1000).astype(np.int32)
    for piece in numbers:
        for columns in (in_memory, in_file):
            columns.add(number=piece)
            assert columns.values("number", len(columns) - 1).tolist() == [piece[-1]]
    assert (open_files(tmp_path), [*tmp_path.iterdir()]) == (1, [])
    for columns in (in_memory, in_file):
        assert (columns.values("number") == numbers.ravel()).all()
        assert (columns.at(indices, {"number": 0})["number"] == numbers.ravel()[indices]).all()
    del columns, in_file
    assert open_files(tmp_path) == 0


def open_files(folder: Path) -> int:
    """Return the number of open files of this process in a folder."""
    files = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(file.parent == folder for file in files)


@given(PIECES, st.integers(1, 7))
@example([[1, 2], [3, 4, 5]], 2)
def test_ranges_are_all_values_some_at_a_time(pieces: list[list[int]], size: int) -> None:
    columns, values = gathered(pieces)
    ranges = [{name: column.tolist() for name, column in some.items()} for some in columns.ranges(size)]
    expected = [values[first : first + size] for first in range(0, max(len(values), 1), size)]  # at least one range
    assert [some["number"] for some in ranges] == expected
    assert [some["is_odd"] for some in ranges] == [[value % 2 for value in some] for some in expected]

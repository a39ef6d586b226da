"""A query's result passes rows from the engine to its readers."""

import asyncio
import errno
import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.result import BLOB, DOUBLE, INTEGER, STRING, Batch, Result
from service.engine.spool import MEMORY_MAX, SpoolBudget
from service.engine.trace_processor.cells import ProtoCells
from service.trace.errors import DiskFull, EngineFailed, ResultTooLarge
from tests.engine.conftest import TABLES, Row, answer, cells_batch, in_time


def result_of(
    *answers: Any,
    limit: int | None = None,
    max_bytes: int = 1 << 30,
    done: bool = True,
    scratch: Path | None = None,
) -> Result:
    """Return a result to which the given responses have been added."""
    result = Result(limit=limit, max_bytes=max_bytes, on_enough=lambda: None, budget=SpoolBudget(scratch))
    for response in answers:
        result.add(response)
    if done:
        result.finish()
    return result


async def rows_of(result: Result) -> list[Row]:
    return [row async for batch in result.follow() for row in zip(*batch.columns(), strict=True)]


def read(result: Result) -> list[Row]:
    try:
        return asyncio.run(rows_of(result))
    finally:
        result.close()


def answers_of(rows: list[Row], batch_rows: int) -> list[Any]:
    names = [f"c{index}" for index in range(len(rows[0]) if rows else 1)]
    cuts = range(0, max(len(rows), 1), batch_rows)
    return [answer(*rows[at : at + batch_rows], names=tuple(names) if at == 0 else ()) for at in cuts]


# -- batches -------------------------------------------------------------------------------------------------------


@given(TABLES, st.integers(1, 7))
def test_rows_are_read_as_they_were_packed(rows: list[Row], batch_rows: int) -> None:
    result = result_of(*answers_of(rows, batch_rows))
    assert result.rows == len(rows)
    assert not result.truncated
    assert [(row, list(map(type, row))) for row in read(result)] == [(row, list(map(type, row))) for row in rows]


@given(TABLES, st.integers(1, 7), st.integers(0, 32))
def test_limit_keeps_the_first_rows_and_marks_truncation(rows: list[Row], batch_rows: int, limit: int) -> None:
    result = result_of(*answers_of(rows, batch_rows), limit=limit)
    assert result.truncated == (len(rows) > limit)
    assert read(result) == rows[:limit]


@given(TABLES)
def test_column_types_are_those_of_the_cells(rows: list[Row]) -> None:
    result = result_of(*answers_of(rows, 3))
    kinds = {int: INTEGER, float: DOUBLE, str: STRING, bytes: BLOB}
    columns = list(zip(*rows, strict=True)) or [()]
    assert result.column_types() == [{kinds[type(cell)] for cell in column if cell is not None} for column in columns]
    result.close()


def test_rows_beyond_the_limit_do_not_affect_column_types() -> None:
    result = result_of(answer((1,), ("text",), names=("x",)), limit=1)
    assert result.column_types() == [{INTEGER}]
    result.close()


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 0])))
def test_integers_fit_doubles_only_if_each_keeps_its_value(numbers: list[int]) -> None:
    batch = Batch(ProtoCells(cells_batch(*(("x", number) for number in numbers))), 2)
    assert batch.integers_fit_doubles(1) == all(int(float(number)) == number for number in numbers)


def test_invalid_utf8_is_replaced_only_where_it_is_invalid() -> None:
    raw = cells_batch(("?",), ("b",)).SerializeToString().replace(b"?", b"\xff")
    assert Batch(ProtoCells.unpack(raw), 1).columns() == [["\ufffd", "b"]]


def test_cells_that_fill_no_row_or_have_no_value_raise_engine_failed() -> None:
    with pytest.raises(EngineFailed, match="3 cells for rows of 2"):
        Batch(ProtoCells(cells_batch((1, 2, 3))), 2)
    broken = cells_batch((1,))
    broken.ClearField("varint_cells")
    with pytest.raises(EngineFailed, match="0 values for 1 cells"):
        Batch(ProtoCells(broken), 1).columns()


def test_statement_without_columns_has_no_rows() -> None:
    result = result_of(answer())
    assert (result.names, result.rows, read(result)) == ([], 0, [])


# -- bounds --------------------------------------------------------------------------------------------------------


def test_engine_is_stopped_beyond_the_limit() -> None:
    stops: list[None] = []
    result = Result(limit=2, max_bytes=1 << 20, on_enough=lambda: stops.append(None))
    result.add(answer((1,), (2,), names=("x",)))
    assert not stops  # without a third row, these two rows are the complete result
    result.add(answer((3,)))
    assert len(stops) == 1
    result.add(answer((4,)))  # a response that was already on its way
    result.finish(EngineFailed("interrupted"))
    assert result.error is None
    assert read(result) == [(1,), (2,)]


def test_result_beyond_its_size_limit_is_an_error_and_not_truncated() -> None:
    stops: list[None] = []
    result = Result(limit=None, max_bytes=100, on_enough=lambda: stops.append(None))
    result.add(answer(("x" * 60,), names=("x",)))
    result.add(answer(("y" * 60,)))
    result.finish(EngineFailed("interrupted"))
    assert stops
    assert not result.truncated
    with pytest.raises(ResultTooLarge, match="100 bytes"):
        read(result)


def test_large_result_moves_to_the_given_folder_and_is_read_back(tmp_path: Path) -> None:
    rows: list[Row] = [(number, "x" * 1000) for number in range(2 * MEMORY_MAX // 1000)]
    result = result_of(*answers_of(rows, 500), scratch=tmp_path)
    open_files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert any(file.is_relative_to(tmp_path) for file in open_files)
    assert read(result) == rows


def test_full_disk_is_an_error_and_stops_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[None] = []
    result = Result(limit=None, max_bytes=1 << 20, on_enough=lambda: stops.append(None))

    def full(_: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(result._spool._file, "write", full)
    result.add(answer((1,), names=("x",)))
    result.finish()
    assert stops
    with pytest.raises(DiskFull):
        read(result)


# -- readers -------------------------------------------------------------------------------------------------------


async def test_reader_follows_while_rows_arrive() -> None:
    result = result_of(answer((1,), names=("x",)), done=False)
    batches = result.follow()
    assert (await anext(batches)).columns() == [[1]]
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.wait([waiting], timeout=0)
    assert not waiting.done()
    result.add(answer((2,)))
    assert (await in_time(waiting)).columns() == [[2]]
    result.finish()
    assert [_ async for _ in batches] == []
    result.close()


async def test_slow_reader_blocks_neither_engine_nor_other_readers() -> None:
    result = result_of(answer((0,), names=("x",)), done=False)
    slow = result.follow()
    await anext(slow)  # the slow reader reads only this batch
    for number in range(1, 100):
        result.add(answer((number,)))
    result.finish()
    assert await rows_of(result) == [(number,) for number in range(100)]
    assert [row async for batch in slow for row in batch.columns()[0]] == list(range(1, 100))
    result.close()


async def test_first_returns_with_the_first_row_and_complete_with_the_last() -> None:
    result = result_of(done=False)
    first, complete = asyncio.create_task(result.first()), asyncio.create_task(result.complete())
    result.add(answer((1,), names=("x",)))
    await in_time(first)
    assert not complete.done()
    result.finish()
    await in_time(complete)
    result.close()


async def test_error_is_raised_after_the_rows_before_it() -> None:
    result = result_of(answer((1,), names=("x",)), done=False)
    result.finish(EngineFailed("it died"))
    batches = result.follow()
    assert (await anext(batches)).columns() == [[1]]
    with pytest.raises(EngineFailed):
        await anext(batches)
    with pytest.raises(EngineFailed):
        await result.complete()
    result.close()


async def test_closed_result_stops_its_query_once() -> None:
    stops: list[None] = []
    result = Result(limit=None, max_bytes=1 << 20, on_enough=lambda: stops.append(None))
    result.add(answer((1,), names=("x",)))
    result.close()
    result.add(answer((2,)))  # rows after the close are ignored without an error
    result.finish()
    result.close()
    assert len(stops) == 1
    del result
    gc.collect()  # pytest fails if the result has left a file open

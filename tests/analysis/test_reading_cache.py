"""The reading cache shares readings of equal inputs, and closes the least recently used ones that are not in use."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.analysis.facts.rank_database import RankDatabase
from service.analysis.reading_cache import KEPT_MAX, AnalysisInput, ReadingCache
from service.cutting.source import Source
from service.trace.selection import Selection
from tests.analysis.test_answers import KERNEL, text_of


@pytest.fixture
def trace(read_once: Callable[[Path | str], Source]) -> AnalysisInput:
    source = read_once(text_of([KERNEL]))
    return AnalysisInput(source.columns, source.summary)


def of_rank(trace: AnalysisInput, rank: int, events: int = 1) -> AnalysisInput:
    return AnalysisInput(trace.columns, replace(trace.summary, rank=rank, events={"kept": events}))


def open_readings(readings: ReadingCache, *inputs: AnalysisInput) -> list[RankDatabase]:
    rows = []
    for item in inputs:
        with readings.of(item) as reading:
            rows.append(reading)
    return rows


def test_equal_inputs_share_a_reading(trace: AnalysisInput, tmp_path: Path) -> None:
    readings = ReadingCache(tmp_path)
    first, repeated, selected, other_rank = open_readings(
        readings,
        trace,
        trace,
        AnalysisInput(trace.columns, trace.summary, Selection(names=["gemm"])),
        of_rank(trace, 3),
    )
    assert first is repeated
    assert len({id(reading) for reading in (first, selected, other_rank)}) == 3


def test_least_recently_used_reading_is_closed_first(trace: AnalysisInput, tmp_path: Path) -> None:
    readings = ReadingCache(tmp_path, events_max=10)
    first, second = (of_rank(trace, rank, events=5) for rank in range(2))
    used, unused = open_readings(readings, first, second)
    open_readings(readings, first, of_rank(trace, 2, events=5))
    assert open_readings(readings, first) == [used]
    assert open_readings(readings, second) != [unused]


def test_number_of_open_databases_is_limited(trace: AnalysisInput, tmp_path: Path) -> None:
    readings = ReadingCache(tmp_path)
    rows = open_readings(readings, *(of_rank(trace, rank) for rank in range(KEPT_MAX + 1)))
    assert open_readings(readings, of_rank(trace, 0)) != rows[:1]
    assert open_readings(readings, of_rank(trace, KEPT_MAX)) == rows[-1:]


def test_reading_in_use_stays_open(trace: AnalysisInput, tmp_path: Path) -> None:
    readings = ReadingCache(tmp_path, events_max=1)
    with readings.of(trace) as reading:
        open_readings(readings, of_rank(trace, 1, events=5), of_rank(trace, 2, events=5))
        assert reading.database().sql("SELECT count(*) FROM events").fetchall() == [(1,)]


def test_shared_facts_are_computed_once_and_retried_after_a_failure(trace: AnalysisInput, tmp_path: Path) -> None:
    rows: list[int] = []
    started, go_on = threading.Event(), threading.Event()

    def find() -> int:
        rows.append(1)
        started.set()
        assert go_on.wait(20)
        if len(rows) == 1:
            raise ValueError("the first time")
        return len(rows)

    with ReadingCache(tmp_path).of(trace) as reading, ThreadPoolExecutor(2) as threads:
        first = threads.submit(reading.cached, "key", find)
        assert started.wait(20)
        second = threads.submit(reading.cached, "key", lambda: 0)
        go_on.set()
        for future in (first, second):
            with pytest.raises(ValueError, match="the first time"):
                future.result(20)
        assert [reading.cached("key", find) for _ in range(2)] == [2, 2]


def test_databases_spill_to_separate_folders(trace: AnalysisInput, tmp_path: Path) -> None:
    def filled(reading: RankDatabase, start: int) -> Any:
        with reading.database() as db:
            db.execute("SET memory_limit = '40MB'")
            db.execute(f"CREATE TABLE t AS SELECT range AS a, hash(range) AS b FROM range({start}, {start} + 4000000)")
            return db

    readings = ReadingCache(tmp_path / "spill")
    with readings.of(trace) as first, readings.of(of_rank(trace, 1)) as second:
        filled(first, 0)
        filled(second, 10**9)
        folders = [*(tmp_path / "spill").iterdir()]
        assert len(folders) == 2
        assert all(any(folder.iterdir()) for folder in folders)
        for reading, start in ((first, 0), (second, 10**9)):
            answer = reading.database().sql("SELECT min(a), sum(a)::BIGINT, bool_and(b = hash(a)) FROM t").fetchall()
            assert answer == [(start, sum(range(start, start + 4_000_000)), True)]
    readings.close()

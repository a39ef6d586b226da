"""The file of allocations and frees has what their events have, and is made once."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.analysis.facts.memory_changes import memory_changes_of
from service.analysis.facts.rank_database import RankDatabase
from service.analysis.facts.scope import scope_of
from service.cutting.source import Source
from service.jobs.ingest import ingest
from service.store.folder import MEMORY, size_of
from service.trace.selection import Selection
from tests.analysis.test_memory import CAPTURED


def changes_of(columns: Path, source: Source, selection: Selection | None = None) -> pa.Table:
    database = RankDatabase(columns, source.summary, selection, spill=columns / "spill", threads=2)
    with closing(database), scope_of(database) as scope:
        return memory_changes_of(scope)


@pytest.fixture
def source(read_once: Any) -> Source:
    trace: Source = read_once(CAPTURED)
    return trace


@pytest.fixture
def columns(source: Source, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source.columns, tmp_path / "columns"))


def test_file_of_the_ingest_has_what_the_events_have(source: Source, columns: Path) -> None:
    from_file = changes_of(columns, source)
    assert len(from_file) > 10
    assert changes_of(columns, source, Selection(categories=["cpu_instant_event"])).equals(from_file)


def test_file_has_uncommon_numbers_as_the_events_have_them(tmp_path: Path) -> None:
    arguments = [
        '{"Bytes": 512, "Total Allocated": 1024, "Device Type": 1, "Device Id": 0, "Addr": 99}',
        '{"Bytes": "512", "Total Allocated": 1e3, "Total Reserved": 1.5, "Device Id": null}',
        '{"Bytes": 99999999999999999999, "Addr": 9223372036854775807, "Device Type": 1, "Device Type": 2}',
        '{"\\u0042ytes": -0}',
        "{}",
    ]
    events = [
        f'{{"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": {at}, "args": {args}}}'
        for at, args in enumerate(arguments)
    ]
    for place, few in enumerate((events, events[:1], events[3:])):
        path = tmp_path / f"{place}.json"
        path.write_text(f'{{"traceEvents": [{", ".join(few)}]}}')
        columns = tmp_path / f"columns{place}"
        with path.open("rb") as original:
            summary = ingest(original, columns, path.name, lambda _: None)
        source = Source(columns, path.name, summary, "")
        from_file = changes_of(columns, source)
        assert len(from_file) == len(few)
        (columns / MEMORY).unlink()
        assert changes_of(columns, source).equals(from_file)


def test_missing_file_is_written_by_the_first_question(source: Source, columns: Path) -> None:
    text = (columns / MEMORY).read_bytes()
    from_file = changes_of(columns, source)
    (columns / MEMORY).unlink()
    assert changes_of(columns, source).equals(from_file)
    assert (columns / MEMORY).read_bytes() == text


def test_question_is_answered_where_the_file_cannot_be_written(
    source: Source, columns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_file = changes_of(columns, source)
    (columns / MEMORY).unlink()
    monkeypatch.setattr("service.analysis.facts.memory_changes.MEMORY", "no-folder/memory.parquet")
    assert changes_of(columns, source).equals(from_file)
    assert not (columns / MEMORY).exists()


@pytest.mark.parametrize("damage", ["cut", "version"])
def test_damaged_file_or_one_of_another_version_is_written_again(source: Source, columns: Path, damage: str) -> None:
    text, from_file = (columns / MEMORY).read_bytes(), changes_of(columns, source)
    if damage == "cut":
        (columns / MEMORY).write_bytes(text[:100])
    else:
        pq.write_table(pq.read_table(columns / MEMORY).slice(1).replace_schema_metadata({}), columns / MEMORY)
    assert changes_of(columns, source).equals(from_file)
    assert (columns / MEMORY).read_bytes() == text


def test_file_does_not_count_as_columns(source: Source, columns: Path) -> None:
    size = size_of(columns)
    (columns / MEMORY).unlink()
    assert size_of(columns) == size

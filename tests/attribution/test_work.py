"""Traces whose file of links lacks the fields of work answer the same, and their first question writes them."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.attribution.file import has_work, links_of
from service.attribution.work import FIELDS, LAUNCH
from service.store.folder import ATTRIBUTION
from service.trace.errors import DiskFull, ExportFailed
from tests.conftest import DATA, SHARED
from tests.cutting.test_cut import ingested

QUESTIONS = (
    *("temporal_breakdown", "idle_breakdown", "comm_overlap", "kernel_breakdown", "launch_stats", "queue_length"),
    *("memory_bandwidth", "operators", "steps", "gpu_summary", "collectives", "recommendations", "overview"),
)
SMALL = sorted(
    path for path in (*DATA.glob("*.json.gz"), *SHARED.glob("*.pt.trace.json.gz")) if path.stat().st_size < 200_000
)


def answers(path: Path, folder: Path, change: Callable[[Path], Any]) -> dict[str, Any]:
    """Ingest a trace, change the file of its links, and return what each question answers."""
    source = ingested(path.read_bytes(), folder / "trace", path.name)
    change(source.columns / ATTRIBUTION)
    found: dict[str, Any] = {}
    readings = ReadingCache(folder / "spill")
    for name in QUESTIONS:
        question = question_of(name)
        try:
            answer = answer_question(
                question, parameters_of(question, {}), [AnalysisInput(source.columns, source.summary)], readings
            )
        except Exception as error:  # noqa: BLE001 - a refusal must be the same, too
            found[name] = str(error)
        else:
            found[name] = {table: [rounded(row) for row in rows.to_pylist()] for table, rows in answer.tables.items()}
    return found


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the last digits of doubles, which depend on the order in which they were added up."""
    return {name: float(f"{value:.9g}") if isinstance(value, float) else value for name, value in row.items()}


def without_fields(file: Path) -> None:
    """Write a file of links as earlier versions did."""
    table = pq.read_table(file)
    pq.write_table(table.drop_columns([*FIELDS.names, *LAUNCH.names]), file)


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.partition(".")[0])
def test_traces_without_the_fields_of_work_answer_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_fields = answers(path, tmp_path / "new", lambda file: None)
    files = [tmp_path / name / "trace" / "columns" / ATTRIBUTION for name in ("new", "old", "none")]
    assert answers(path, tmp_path / "old", without_fields) == with_fields
    assert answers(path, tmp_path / "none", Path.unlink) == with_fields
    assert all(has_work(file.parent) for file in files)
    new, old, none = (pq.read_table(file).to_pydict() for file in files)
    assert new == old == none

    def full(*_: Any) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr("service.attribution.file.rewrite_links", full)
    assert answers(path, tmp_path / "full", without_fields) == with_fields
    assert "can't be written: no room" in caplog.text


def test_damaged_file_is_named(tmp_path: Path) -> None:
    path = DATA / "cuda_train_steps.pt.trace.json.gz"
    source = ingested(gzip.decompress(path.read_bytes()), tmp_path / "trace", "trace.json")
    file = source.columns / ATTRIBUTION
    assert has_work(source.columns)
    file.write_bytes(file.read_bytes()[:100])
    for read in (lambda: has_work(source.columns), lambda: links_of(source.columns, source.summary)):
        with pytest.raises(ExportFailed, match=f"{ATTRIBUTION} can't be read"):
            read()

"""Answers that are kept in files equal those that are computed, and are computed again if they may differ."""

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.analysis import kept_answers
from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.kept_answers import KEPT, keep_answers
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.store.folder import ANSWERS
from service.trace.errors import NotApplicable
from service.trace.selection import Selection
from tests.docs.pages import EXAMPLES

RANKS = sorted(EXAMPLES.glob("gpt_rank*.json.gz"))


def answered(name: str, traces: list[AnalysisInput], spill: Path, **parameters: Any) -> dict[str, list[dict[str, Any]]]:
    question = question_of(name)
    with closing(ReadingCache(spill)) as readings:
        answer = answer_question(question, parameters_of(question, parameters), traces, readings)
        return {table: rows.to_pylist() for table, rows in answer.tables.items()}


@pytest.fixture
def ranks(read_once: Any, tmp_path: Path) -> list[AnalysisInput]:
    """The ranks of a run, without kept answers."""
    inputs = []
    for path in RANKS:
        source = read_once(path)
        columns = shutil.copytree(source.columns, tmp_path / path.name, ignore=shutil.ignore_patterns(ANSWERS))
        inputs.append(AnalysisInput(Path(columns), source.summary, name=path.name))
    return inputs


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each read of events fail."""
    for name in ("db", "_events"):
        monkeypatch.setattr(f"service.analysis.facts.scope.Scope.{name}", None)


def files_of(trace: AnalysisInput) -> list[Path]:
    return sorted((trace.columns / ANSWERS).iterdir()) if (trace.columns / ANSWERS).exists() else []


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("count", [1, len(RANKS)])
def test_kept_answer_equals_the_computed_one(
    ranks: list[AnalysisInput], tmp_path: Path, name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = answered(name, ranks[:count], tmp_path / "spill")
    assert files_of(ranks[0])
    forbid_reading(monkeypatch)
    assert answered(name, ranks[:count], tmp_path / "spill") == computed


def test_prepared_answers_serve_a_trace_and_its_run(
    ranks: list[AnalysisInput], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ReadingCache(tmp_path / "spill")) as readings:
        assert [keep_answers(rank, readings) for rank in ranks] == [len(KEPT)] * len(ranks)
    forbid_reading(monkeypatch)
    for name in (*KEPT, "overview"):
        assert answered(name, ranks[:1], tmp_path / "spill")
        assert answered(name, ranks, tmp_path / "spill")


def test_reason_is_kept(read_once: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = read_once('{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]}')
    trace = AnalysisInput(Path(shutil.copytree(source.columns, tmp_path / "columns")), source.summary)
    for _ in range(2):
        with pytest.raises(NotApplicable, match="no work on a device"):
            answered("steps", [trace], tmp_path / "spill")
        forbid_reading(monkeypatch)


def test_answers_with_options_and_of_selections_are_not_kept(ranks: list[AnalysisInput], tmp_path: Path) -> None:
    answered("steps", ranks[:1], tmp_path / "spill", bounds="host")
    answered("overview", ranks[:1], tmp_path / "spill")
    part = AnalysisInput(ranks[0].columns, ranks[0].summary, Selection(steps=[ranks[0].summary.steps[0]["number"]]))
    answered("steps", [part], tmp_path / "spill")
    assert files_of(ranks[0]) == []


def test_answer_of_other_code_is_computed_again(
    ranks: list[AnalysisInput], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = answered("steps", ranks[:1], tmp_path / "spill")
    [file] = files_of(ranks[0])
    kept_answers._write(file, f"{kept_answers.code_digest()} rank {ranks[0].summary.rank}", "old")
    with pytest.raises(NotApplicable, match="old"):
        answered("steps", ranks[:1], tmp_path / "spill")
    monkeypatch.setattr(kept_answers, "code_digest", lambda: "other")
    assert answered("steps", ranks[:1], tmp_path / "spill") == computed


def test_answer_names_the_rank_that_the_trace_has_now(ranks: list[AnalysisInput], tmp_path: Path) -> None:
    answered("steps", ranks[:1], tmp_path / "spill")
    other = replace(ranks[0], summary=replace(ranks[0].summary, rank=77))
    assert {row["rank"] for row in answered("steps", [other], tmp_path / "spill")["steps"]} == {77}


@pytest.mark.parametrize("size", [0, 1, 40, 400, -1])
def test_damaged_file_is_computed_again(
    ranks: list[AnalysisInput], tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    computed = answered("collectives", ranks, tmp_path / "spill")
    [file] = files_of(ranks[0])
    kept = file.read_bytes()
    file.write_bytes(kept[:size])
    assert answered("collectives", ranks, tmp_path / "spill") == computed
    assert file.read_bytes() == kept
    assert f"{file} is damaged" in caplog.text


def test_large_answer_is_not_kept(ranks: list[AnalysisInput], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "SIZE_MAX", 10)
    assert answered("steps", ranks[:1], tmp_path / "spill")
    assert files_of(ranks[0]) == []

"""Fixture of the gate's tests: runs of simulated traces, through the real ingest and the real analysis."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tracedock.gate.runs import ANALYSIS, Run, tables_of

from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from tests.cutting.test_cut import ingested

RunOf = Callable[[list[dict[str, Any]]], Run]


@pytest.fixture
def run_of(tmp_path: Path) -> RunOf:
    """Return a function that reads the events of a trace, and returns the run that a gate compares."""
    readings, question, numbers = ReadingCache(tmp_path / "spill"), question_of(ANALYSIS), count()

    def run(events: list[dict[str, Any]]) -> Run:
        source = ingested(json.dumps({"traceEvents": events}), tmp_path / f"trace{next(numbers)}")
        trace = AnalysisInput(source.columns, source.summary, None, source.name)
        answer = answer_question(question, parameters_of(question, {}), [trace], readings)
        tables, notes = tables_of(answer.form("json"))
        return Run(source.name, tables, notes=notes)

    return run

"""What the tests of analyses share: real traces, read once, their golden tables, and who asks."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from service.analysis.answers import Answer, answered, parameters_of, question_of
from service.analysis.readings import Asked, Readings
from service.cutting.source import Source
from service.trace.selection import Selection
from tests.conftest import SHARED
from tests.cutting.test_cut import ingested

Rows = list[dict[str, Any]]
Ask = Callable[..., "Told"]
Events = Sequence[dict[str, Any]]


class Told(dict[str, Rows]):
    """The rows of each table of an answer, as dicts, and the answer itself."""

    def __init__(self, answer: Answer) -> None:
        super().__init__({name: table.to_pylist() for name, table in answer.tables.items()})
        self.answer = answer


def golden(tool: str, name: str) -> Any:
    """A golden table."""
    return json.loads((SHARED / "golden" / tool / f"{name}.json").read_text())


def real(name: str) -> Path:
    """A real trace."""
    return SHARED / f"{name}.pt.trace.json.gz"


@pytest.fixture(scope="session")
def read_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path | str], Source]:
    """Reads a trace's file, or its text, once in a session."""

    @cache
    def read(trace: Path | str) -> Source:
        folder = tmp_path_factory.mktemp("analysis") / "trace"
        return ingested(trace, folder) if isinstance(trace, str) else ingested(trace.read_bytes(), folder, trace.name)

    return read


@pytest.fixture(scope="session")
def ask(read_once: Callable[[Path | str], Source], tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Asks a question of traces: files, or lists of events."""
    readings = Readings(tmp_path_factory.mktemp("spill"))

    def asked(
        name: str,
        *traces: Path | str | Events,
        base: Sequence[Path | str | Events] = (),
        selection: Selection | None = None,
        **parameters: Any,
    ) -> Told:
        sources = [
            read_once(one if isinstance(one, Path | str) else json.dumps({"traceEvents": list(one)}))
            for one in (*traces, *base)
        ]
        question = question_of(name)
        wanted = [
            Asked(one.columns, one.summary, selection, one.name, is_base=place >= len(traces))
            for place, one in enumerate(sources)
        ]
        return Told(answered(question, parameters_of(question, parameters), wanted, readings))

    return asked

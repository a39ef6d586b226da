"""Fixtures of the analysis tests: real traces that are read once, their golden tables, and answers to questions."""

import gzip
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from service.analysis.answers import Answer, answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.cutting.source import Source
from service.trace.selection import Selection
from tests.conftest import SHARED
from tests.cutting.test_cut import ingested

Rows = list[dict[str, Any]]
Ask = Callable[..., "AnswerRows"]
Events = Sequence[dict[str, Any]]


class AnswerRows(dict[str, Rows]):
    """The rows of each table of an answer, as dicts, and the answer itself."""

    def __init__(self, answer: Answer) -> None:
        super().__init__({name: table.to_pylist() for name, table in answer.tables.items()})
        self.answer = answer


def golden(tool: str, name: str) -> Any:
    """Read a golden table."""
    return json.loads((SHARED / "golden" / tool / f"{name}.json").read_text())


def real(name: str) -> Path:
    """Return the path of a real trace."""
    return SHARED / f"{name}.pt.trace.json.gz"


def exact(name: str) -> dict[str, Any]:
    """Return the exact figures of a trace of one rank, with the current names of communication kernels."""
    figures: dict[str, Any] = golden("exact", name)["0"]
    if name != "b200_eager_rank0_of_8":
        return figures
    # the golden table counts only 1 of the 74 communication kernels as communication
    times: dict[str, list[tuple[int, int]]] = {"comm": [], "comp": [], "mem": []}
    for entry in json.loads(gzip.decompress(real(name).read_bytes()), parse_float=Decimal)["traceEvents"]:
        if entry.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            communicating = entry["name"].startswith("nccl") or "multimem_all_reduce_kernel" in entry["name"]
            type_ = "mem" if entry["cat"] != "kernel" else "comm" if communicating else "comp"
            times[type_].append((int(entry["ts"] * 1000), int((entry["ts"] + entry["dur"]) * 1000)))
    comm, comp, mem = times.values()
    assert (_union(comm), len(comm)) == (21_953 + 2_119_548, 1 + 73)
    return figures | {
        "comp_union_ns": _union(comp),
        "comm_union_ns": _union(comm),
        "overlap_comp_comm_ns": _union(comm) + _union(comp) - _union(comm + comp),
        "exposed_comm_ns": _union(comm + comp + mem) - _union(comp + mem),
    }


def _union(slices: list[tuple[int, int]]) -> int:
    """Return the length of the union of slices, in ns."""
    union, until = 0, 0
    for start, end in sorted(slices):
        union += max(end - max(start, until), 0)
        until = max(until, end)
    return union


@pytest.fixture(scope="session")
def read_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path | str], Source]:
    """Return a function that ingests a trace, from its file or its text, once in a session."""

    @cache
    def read(trace: Path | str) -> Source:
        folder = tmp_path_factory.mktemp("analysis") / "trace"
        return ingested(trace, folder) if isinstance(trace, str) else ingested(trace.read_bytes(), folder, trace.name)

    return read


@pytest.fixture(scope="session")
def ask(read_once: Callable[[Path | str], Source], tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Return a function that answers a question about traces, given as files, texts or lists of events."""
    readings = ReadingCache(tmp_path_factory.mktemp("spill"))

    def answer_rows(
        name: str,
        *traces: Path | str | Events,
        base: Sequence[Path | str | Events] = (),
        selection: Selection | None = None,
        base_selection: Selection | None = None,
        **parameters: Any,
    ) -> AnswerRows:
        sources = [
            read_once(trace if isinstance(trace, Path | str) else json.dumps({"traceEvents": list(trace)}))
            for trace in (*traces, *base)
        ]
        question = question_of(name)
        inputs = [
            AnalysisInput(
                source.columns,
                source.summary,
                base_selection if place >= len(traces) and base_selection else selection,
                source.name,
                is_base=place >= len(traces),
            )
            for place, source in enumerate(sources)
        ]
        return AnswerRows(answer_question(question, parameters_of(question, parameters), inputs, readings))

    return answer_rows

"""An analysis over a dataset says what the analysis of its files says, whoever asks the ranks."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.names import COMPARISONS, NAMES, OF_SNAPSHOTS
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.fleet.asking import AnalysisRequest, analyze, traces_of_run
from service.fleet.dataset import Dataset
from service.fleet.ingesting import ingest_sources
from service.fleet.record import Record
from service.fleet.sources import find_sources
from service.fleet.workers.here import Here
from service.fleet.workers.request import WorkersRequest
from service.fleet.workers.start import workers_of
from service.fleet.workers.task import Workers
from service.trace.errors import (
    BadAnalysisRequest,
    BadFleetRequest,
    NotApplicable,
    SelectionError,
    UnknownAnalysis,
    UnknownCycle,
)
from service.trace.selection import Selection
from tests.http.test_memory_snapshots import stepped
from tests.snapshots import SMALL, pickled
from tests.traces import TraceShape, write_trace

RANKS, CYCLES = 2, 2
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A dataset of two runs: one of two cycles, and one of a single cycle."""
    folder = tmp_path_factory.mktemp("asking")
    for run, cycles in (("before", 1), ("after", CYCLES)):
        (folder / run).mkdir()
        for rank in range(RANKS):
            for cycle in range(cycles):
                seed = rank + 10 * cycle + (100 if run == "after" else 0)
                shape = TraceShape(rank=rank, world_size=RANKS, steps=2, first_step=3 + 10 * cycle, seed=seed)
                write_trace(folder / run / f"rank{rank}.{cycle}.json", shape)
    dataset = Dataset.create(str(folder / "dataset"))
    for run in ("before", "after"):
        ingest_sources(dataset, find_sources([str(folder / run)], None, dataset.location.url), Here())
    return dataset


@pytest.fixture(scope="module")
def local() -> Iterator[Workers]:
    with workers_of(WorkersRequest(mode="local", count=2, patience_s=60)) as workers:
        yield workers


def expected(dataset: Dataset, name: str, run: str, base: str | None, selection: Selection | None, spill: Path) -> Any:
    records = [*dataset.records().values()]
    traces = [
        AnalysisInput(
            Path(dataset.location.url, "traces", record.trace), dataset.summary(record.trace), selection, record.name,
            is_base=side == base,
        )
        for side in ((base, run) if base else (run,))
        for record in traces_of_run(records, side)
    ]  # fmt: skip
    question = question_of(name)
    with closing(ReadingCache(spill)) as readings:
        return outcome(lambda: answer_question(question, parameters_of(question, {}), traces, readings))


def asked(
    dataset: Dataset, name: str, run: str, base: str | None, selection: Selection | None, workers: Workers
) -> Any:
    records = [*dataset.records().values()]
    request = AnalysisRequest(
        name, {}, selection, traces_of_run(records, run), traces_of_run(records, base) if base else ()
    )
    answered: list[tuple[int, int]] = []
    result = outcome(lambda: analyze(dataset, request, workers, lambda *counts: answered.append(counts)))
    if answered:
        assert all(done <= total for done, total in answered)
    return result


def outcome(answer: Any) -> Any:
    """Return the parts of an answer, or the error."""
    try:
        found = answer()
    except (NotApplicable, SelectionError) as error:
        return type(error), error.detail
    tables = {name: table.to_pydict() for name, table in found.tables.items()}
    return tables, found.skipped, found.notes, found.cycles


@pytest.mark.parametrize("selection", [None, Selection(steps=[3])], ids=["whole", "step"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_SNAPSHOTS])
def test_analysis_equals_that_of_the_files(
    dataset: Dataset, local: Workers, tmp_path: Path, name: str, selection: Selection | None
) -> None:
    base = "before" if name in COMPARISONS else None
    found = asked(dataset, name, "after", base, selection, local)
    assert found == expected(dataset, name, "after", base, selection, tmp_path)


def test_analysis_of_a_cycle_is_that_of_its_traces_alone(dataset: Dataset) -> None:
    records = [*dataset.records().values()]
    traces = traces_of_run(records, "after")
    second = [record for record in traces if record.first_step == 13]

    def tables(records: Sequence[Record], **chosen: Any) -> Any:
        request = AnalysisRequest("temporal_breakdown", {}, None, records, **chosen)
        answer = analyze(dataset, request, Here(), lambda *_: None)
        return {name: table.to_pydict() for name, table in answer.tables.items()}

    assert tables(traces, cycle=1) == tables(second)
    with pytest.raises(UnknownCycle, match=r"the cycles 0 \(steps 3 to 4\), 1 \(steps 13 to 14\)"):
        tables(traces, cycle=2)


def test_kept_answers_need_no_columns(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = expected(dataset, "collectives", "after", None, None, tmp_path)
    monkeypatch.setattr("service.fleet.asking.columns_of", None)
    for name in ("collectives", "recommendations", "steps"):
        found = asked(dataset, name, "after", None, None, Here())
        assert name != "collectives" or found == answer


def test_snapshot_of_a_dataset_has_the_steps_of_its_ranks_trace(tmp_path: Path, local: Workers) -> None:
    (tmp_path / "run").mkdir()
    for rank in range(RANKS):
        (tmp_path / "run" / f"memory_rank{rank}.pickle").write_bytes(pickled(SMALL))
        (tmp_path / "run" / f"rank{rank}.json").write_bytes(stepped(1 + rank))
    dataset = Dataset.create(str(tmp_path / "dataset"))
    ingest_sources(dataset, find_sources([str(tmp_path / "run")], None, dataset.location.url), Here())

    tables, _, notes, _ = asked(dataset, "memory_snapshot", "run", None, None, local)

    # the first entry is 1 µs after `START_US`, which is zero of the snapshots' clocks
    assert tables["steps"]["start_ns"] == [start * 1000 + rank * 1000 for rank in range(RANKS) for start in (0, 4)]
    assert notes == [
        f"Rank {rank}: steps from trace rank{rank}.json: 2 of its 2 overlap the snapshot's entries."
        for rank in range(RANKS)
    ]


def test_run_is_named_unless_there_is_one(dataset: Dataset) -> None:
    records = [*dataset.records().values()]
    ranks = [record.rank for record in traces_of_run(records, "after")]
    assert ranks == [0, 0, 1, 1]
    assert traces_of_run([record for record in records if record.run == "before"], None)
    with pytest.raises(BadFleetRequest, match=r"Name a run\. Done are traces of after, before\."):
        traces_of_run(records, None)
    with pytest.raises(BadFleetRequest, match=r"There is no run 'other'\. Done are traces of after, before\."):
        traces_of_run(records, "other")
    with pytest.raises(BadFleetRequest, match="No trace is done yet"):
        traces_of_run([], "other")


def test_unknown_analysis_and_parameter_are_refused(dataset: Dataset) -> None:
    records = traces_of_run([*dataset.records().values()], "before")
    for name, parameters, error in [("nothing", {}, UnknownAnalysis), ("steps", {"colour": "1"}, BadAnalysisRequest)]:
        with pytest.raises(error):
            analyze(dataset, AnalysisRequest(name, parameters, None, records), Here(), lambda *_: None)

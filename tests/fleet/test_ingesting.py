"""An ingest of many sources reads each once, goes on where it stopped, and names what failed."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.fleet import ingesting
from service.fleet.dataset import Dataset
from service.fleet.ingesting import IngestProgress, ingest_sources, run_states
from service.fleet.record import Record, current_records
from service.fleet.sources import Source, find_sources
from service.fleet.workers.here import Here
from service.fleet.workers.request import WorkersRequest
from service.fleet.workers.start import workers_of
from service.fleet.workers.task import Task
from service.trace.errors import LocationUnavailable, WorkerDied
from tests.traces import TraceShape, write_trace
from tests.waiting import until

RANKS = 6


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run-7"
    folder.mkdir()
    for rank in range(RANKS):
        write_trace(folder / f"rank{rank}.json", TraceShape(rank=rank, world_size=RANKS, steps=1, seed=rank))
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset.create(str(tmp_path / "dataset"))


class Unreliable:
    """Workers that fail with an error at first."""

    count = 1

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.left = error, times

    def results(self, tasks: Mapping[str, Task]) -> Generator[tuple[str, Any], None, None]:
        for name, task in tasks.items():
            self.left -= 1
            if self.left < 0:
                yield from Here().results({name: task})
            else:
                yield name, self.error


def sources_of(dataset: Dataset, run: Path) -> list[Source]:
    return find_sources([str(run)], None, dataset.location.url)


def ranks_in_facts(dataset: Dataset) -> list[int]:
    """Return the ranks of the devices in the merged facts."""
    parts = (Path(dataset.location.url) / "facts" / "devices").glob("*.parquet")
    return sorted(rank for part in parts for rank in pq.read_table(part)["rank"].to_pylist())


def test_all_sources_are_read_and_their_facts_merged(dataset: Dataset, run: Path) -> None:
    seen: list[tuple[int, Record | None]] = []
    sources = sources_of(dataset, run)
    progress = ingest_sources(
        dataset, sources, Here(), on_progress=lambda progress, record: seen.append((progress.done, record))
    )
    assert (progress.done, progress.failed, progress.present, progress.left_bytes) == (RANKS, 0, 0, 0)
    assert progress.read_bytes == progress.size_bytes == sum(path.stat().st_size for path in run.iterdir())
    assert progress.left_s == 0
    assert [done for done, _ in seen] == [*range(RANKS + 1)]
    assert ranks_in_facts(dataset) == [*range(RANKS)]
    [part] = dataset.parts()
    assert {record.source for record in part.records} == {str(path) for path in run.iterdir()}
    [state] = run_states(dataset.records().values())
    assert (state.run, state.done, state.failed, state.ranks, state.world_size) == ("run-7", RANKS, (), RANKS, RANKS)


def test_second_ingest_reads_only_what_is_new(dataset: Dataset, run: Path) -> None:
    ingest_sources(dataset, sources_of(dataset, run), Here())
    write_trace(run / "rank6.json", TraceShape(rank=RANKS, world_size=RANKS, steps=1, seed=RANKS))
    progress = ingest_sources(dataset, sources_of(dataset, run), Here())
    assert (progress.present, progress.done) == (RANKS, 1)
    assert ranks_in_facts(dataset) == [*range(RANKS + 1)]


def test_parts_have_at_most_their_maximum_of_traces(
    dataset: Dataset, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "PART_MAX", 4)
    ingest_sources(dataset, sources_of(dataset, run), Here())
    assert sorted(len(part.traces) for part in dataset.parts()) == [2, 4]
    assert ranks_in_facts(dataset) == [*range(RANKS)]


def test_file_that_is_no_trace_fails_alone_and_is_read_again_on_request(dataset: Dataset, run: Path) -> None:
    (run / "rank3.json").write_text("no trace")
    progress = ingest_sources(dataset, sources_of(dataset, run), Here())
    assert (progress.done, progress.failed) == (RANKS - 1, 1)
    [state] = run_states(dataset.records().values())
    [failed] = state.failed
    assert failed.name == "rank3.json"
    assert failed.error
    assert failed.error["code"] == "not_json"
    progress = ingest_sources(dataset, sources_of(dataset, run), Here())
    assert (progress.present, progress.done, progress.failed) == (RANKS - 1, 0, 1)
    ingest_sources(dataset, sources_of(dataset, run), Here(), retry=True)
    [again] = [record for record in dataset.records().values() if record.state == "failed"]
    assert again.attempts == 2


def test_file_that_is_written_anew_replaces_its_trace(dataset: Dataset, run: Path) -> None:
    ingest_sources(dataset, sources_of(dataset, run), Here())
    write_trace(run / "rank3.json", TraceShape(rank=3, world_size=RANKS, steps=2, seed=99))
    progress = ingest_sources(dataset, sources_of(dataset, run), Here())
    assert (progress.present, progress.done) == (RANKS - 1, 1)
    records = current_records(dataset.records().values())
    assert [record.rank for record in records] == [*range(RANKS)]
    assert records[3].steps == 2


def test_error_that_passes_is_tried_again(dataset: Dataset, run: Path) -> None:
    workers = Unreliable(LocationUnavailable("The store is busy."), times=RANKS + 2)
    progress = ingest_sources(dataset, sources_of(dataset, run), workers)
    assert (progress.done, progress.failed) == (RANKS, 0)


def test_error_that_stays_is_recorded_and_tried_by_the_next_ingest(dataset: Dataset, run: Path) -> None:
    sources = sources_of(dataset, run)[:1]
    progress = ingest_sources(dataset, sources, Unreliable(LocationUnavailable("The store is busy."), times=99))
    assert progress.failed == 1
    assert ingest_sources(dataset, sources, Here()).done == 1


def test_trace_that_kills_its_workers_is_named(dataset: Dataset, run: Path) -> None:
    progress = ingest_sources(dataset, sources_of(dataset, run), Unreliable(WorkerDied("3 workers died at it."), 1))
    assert (progress.done, progress.failed) == (RANKS - 1, 1)
    [state] = run_states(dataset.records().values())
    assert [record.name for record in state.failed] == ["rank0.json"]
    assert ingest_sources(dataset, sources_of(dataset, run), Here()).failed == 1, "it would kill them again"


def test_empty_progress_knows_no_rate() -> None:
    progress = IngestProgress(sources=1, size_bytes=10)
    assert progress.bytes_per_s is None
    assert progress.left_s is None


def test_local_processes_and_this_process_make_the_same_dataset(dataset: Dataset, run: Path, tmp_path: Path) -> None:
    ingest_sources(dataset, sources_of(dataset, run), Here())
    other = Dataset.create(str(tmp_path / "other"))
    with workers_of(WorkersRequest(mode="local", count=2, patience_s=60)) as workers:
        progress = ingest_sources(other, sources_of(other, run), workers)
    assert progress.done == RANKS
    traces = [{record.trace: record.events for record in each.records().values()} for each in (dataset, other)]
    assert traces[0] == traces[1]
    files = [{entry.name: entry.size for entry in each.location.entries("facts")} for each in (dataset, other)]
    assert files[0].keys() == files[1].keys()


@pytest.mark.system
def test_killed_ingest_goes_on_with_each_rank_once(dataset: Dataset, run: Path) -> None:
    command = [
        str(Path(sys.executable).parent / "tracedock"), "fleet", "ingest", str(run), "--to", dataset.location.url,
        "--workers", "2",
    ]  # fmt: skip
    for done in range(1, RANKS, 2):
        with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
            until(lambda: len(dataset.records()) >= done or process.poll() is not None)  # noqa: B023 - called here
            os.killpg(process.pid, signal.SIGKILL)
    subprocess.run(command, check=True)
    records = [*dataset.records().values()]
    assert sorted(str(record.rank) for record in records) == [*map(str, range(RANKS))]
    assert all(record.state == "done" for record in records)
    assert ranks_in_facts(dataset) == [*range(RANKS)]
    for record in records:
        assert dataset.summary(record.trace).kept_events == record.events

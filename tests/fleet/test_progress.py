"""A look at a dataset finds what is done, what has failed and the progress of ingests, and reads nothing twice."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from service.fleet import plan, progress
from service.fleet.dataset import Dataset, Part
from service.fleet.ingesting import ingest_sources, run_states
from service.fleet.plan import Counts, Plan, announced
from service.fleet.progress import NO_PLAN, DatasetProgress
from service.fleet.record import FAILED, Record, current_records
from service.fleet.sources import find_sources
from service.fleet.workers.here import Here
from service.store.locations.folder_location import FolderLocation
from service.store.locations.location import Location
from service.trace.errors import BadDataset, LocationUnavailable
from tests.fleet.test_questions import add_rank
from tests.traces import TraceShape, write_trace
from tests.waiting import until

RANKS = 3


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset.create(str(tmp_path / "dataset"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the reads of each file."""
    counted: Counter[str] = Counter()
    read = FolderLocation.read

    def counting(place: FolderLocation, name: str) -> bytes | None:
        counted[name] += 1
        return read(place, name)

    monkeypatch.setattr(FolderLocation, "read", counting)
    return counted


COUNTS = Counts(
    sources=10, size_bytes=1000, present=1, done=3, failed=1, left_bytes=500, bytes_per_s=100.0
)  # fmt: skip
"""The counts of an ingest of ten sources of 100 bytes, of which four are done."""


def counts() -> Counts:
    return COUNTS


def failed(record: Record, key: str) -> Record:
    return replace(
        record,
        key=key,
        source=f"/{key}",
        state=FAILED,
        trace="",
        error={"code": "not_json", "title": "x", "detail": key},
    )


# -- records ----------------------------------------------------------------------------------------------------------


def test_runs_are_those_of_fleet_status(dataset: Dataset) -> None:
    records = [add_rank(dataset, run, rank) for run in ("first", "second") for rank in range(RANKS)]
    dataset.record(failed(records[0], "cut"))
    dataset.add_part(Part("one", tuple(records[:4]), tuple(record.trace for record in records[:4])))
    report = DatasetProgress(dataset).look()
    expected = [
        (state.run, state.done, len(state.failed), state.ranks, state.world_size, state.size_bytes, state.events)
        for state in run_states(current_records(dataset.records().values()))
    ]
    assert [
        (run.name, run.done, run.failed, run.ranks, run.world_size, run.size_bytes, run.events) for run in report.runs
    ] == expected
    assert (report.status, report.reason, report.unread) == ("idle", NO_PLAN, 0)


def test_second_look_reads_only_what_is_new(dataset: Dataset, reads: Counter[str]) -> None:
    records = [add_rank(dataset, "first", rank) for rank in range(RANKS)]
    dataset.add_part(Part("one", tuple(records[:2]), tuple(record.trace for record in records[:2])))
    watching = DatasetProgress(dataset)
    watching.look()
    reads.clear()
    watching.look()
    assert reads == {"dataset.json": 1}
    added = add_rank(dataset, "first", RANKS)
    reads.clear()
    report = watching.look()
    assert reads == {"dataset.json": 1, f"sources/{added.key}.json": 1}
    assert [run.done for run in report.runs] == [RANKS + 1]


def test_record_that_changes_is_read_again(dataset: Dataset) -> None:
    record = add_rank(dataset, "first", 0)
    dataset.location.remove(f"sources/{record.key}.json")
    dataset.record(replace(failed(record, record.key), source=record.source))
    watching = DatasetProgress(dataset)
    assert [(run.done, run.failed) for run in watching.look().runs] == [(0, 1)]
    dataset.record(record)
    assert [(run.done, run.failed) for run in watching.look().runs] == [(1, 0)]


def test_one_look_reads_a_bounded_number_of_records(
    dataset: Dataset, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "RECORDS_MAX", 2)
    for rank in range(5):
        add_rank(dataset, "first", rank)
    watching = DatasetProgress(dataset)
    reads.clear()
    seen = []
    for _ in range(3):
        report = watching.look()
        seen.append((report.runs[0].done, report.unread))
    assert seen == [(2, 3), (4, 1), (5, 0)]
    assert max(reads[name] for name in reads if name.startswith("sources/")) == 1


def test_failures_come_in_pages_with_their_reasons(dataset: Dataset) -> None:
    record = add_rank(dataset, "first", 0)
    for key in ("c", "a", "b"):
        dataset.record(failed(record, key))
    watching = DatasetProgress(dataset)
    report = watching.look()
    first = watching.with_failures(report, 2, "")
    assert [failure.error["detail"] for failure in first.failures] == ["a", "b"]
    second = watching.with_failures(report, 2, first.following or "")
    assert ([failure.source for failure in second.failures], second.following) == (["/c"], None)
    assert watching.with_failures(report, 3, "").following is None


def test_dataset_that_is_gone_is_an_error(dataset: Dataset) -> None:
    watching = DatasetProgress(dataset)
    watching.look()
    dataset.location.remove("dataset.json")
    with pytest.raises(BadDataset, match="has no dataset"):
        watching.look()


# -- plans ------------------------------------------------------------------------------------------------------------


def test_ingest_leaves_its_plan_as_done(dataset: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run-7"
    run.mkdir()
    for rank in range(RANKS):
        write_trace(run / f"rank{rank}.json", TraceShape(rank=rank, world_size=RANKS, steps=1, seed=rank))
    (run / "broken.json").write_text("no trace")
    sources = find_sources([str(run)], None, dataset.location.url)
    watching = DatasetProgress(dataset)
    seen = []
    ingest_sources(dataset, sources, Here(), on_progress=lambda *_: seen.append(watching.look()))
    size = sum(path.stat().st_size for path in run.iterdir())
    assert {report.status for report in seen} == {"ingesting"}
    assert [report.runs[0].done + report.runs[0].failed for report in seen[1:]] == [*range(1, RANKS + 2)]
    [ingest] = watching.look().ingests
    assert (ingest.status, ingest.sources, ingest.done, ingest.failed) == ("done", RANKS + 1, RANKS, 1)
    assert (ingest.size_bytes, ingest.settled_bytes, ingest.left_s, ingest.reason) == (size, size, 0.0, None)
    ingest_sources(dataset, sources, Here())
    [again] = watching.look().ingests
    assert (again.key, again.done, again.status) == (ingest.key, RANKS, "done")


def test_time_left_follows_from_rate_and_bytes(dataset: Dataset) -> None:
    with announced(dataset.location, "k", counts):
        [ingest] = DatasetProgress(dataset).look().ingests
    assert (ingest.status, ingest.done, ingest.settled_bytes, ingest.left_s) == ("running", 4, 500, 5.0)


def test_unknown_rate_is_null_with_a_reason(dataset: Dataset) -> None:
    with announced(dataset.location, "k", lambda: replace(COUNTS, bytes_per_s=None)):
        [ingest] = DatasetProgress(dataset).look().ingests
    assert (ingest.left_s, ingest.reason) == (None, "The ingest has read no source so far.")


def test_plan_is_written_again_and_again(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "BEAT_S", 0.01)
    left = iter(range(1000, 0, -1))
    watching = DatasetProgress(dataset)
    with announced(dataset.location, "k", lambda: replace(COUNTS, left_bytes=next(left, 0))):
        first = watching.look().ingests[0].settled_bytes
        until(lambda: watching.look().ingests[0].settled_bytes > first)


def test_ingest_that_ends_by_an_error_has_stopped(dataset: Dataset) -> None:
    with pytest.raises(KeyboardInterrupt), announced(dataset.location, "k", counts):
        raise KeyboardInterrupt
    report = DatasetProgress(dataset).look()
    assert (report.status, report.ingests[0].status) == ("stopped", "stopped")
    assert "was stopped" in str(report.ingests[0].reason)


def test_store_that_refuses_a_later_beat_does_not_end_the_ingest(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with announced(dataset.location, "k", counts):

        def refuse(_: Location, name: str, __: bytes) -> None:
            raise LocationUnavailable(f"{name} can't be used")

        monkeypatch.setattr(FolderLocation, "write", refuse)
    assert "ingests/k.json can't be used" in caplog.text


@pytest.fixture
def silent(dataset: Dataset) -> tuple[DatasetProgress, Plan]:
    """A `DatasetProgress`, and the plan of an ingest that was killed an hour ago."""
    with announced(dataset.location, "k", counts):
        content = dataset.location.read("ingests/k.json") or b""
    killed = replace(Plan.from_json(content), beat_ns=Plan.from_json(content).beat_ns - 3600 * 10**9)
    dataset.location.write("ingests/k.json", killed.as_json())
    return DatasetProgress(dataset), killed


def test_ingest_without_a_sign_of_life_has_stopped(silent: tuple[DatasetProgress, Plan]) -> None:
    watching, killed = silent
    report = watching.look()
    assert (report.status, report.ingests[0].status, report.ingests[0].left_s) == ("stopped", "stopped", None)
    assert f"process {killed.process} on {killed.host} has died" in str(report.ingests[0].reason)


def test_beat_of_a_host_whose_clock_is_wrong_is_a_sign_of_life(
    silent: tuple[DatasetProgress, Plan], dataset: Dataset
) -> None:
    watching, killed = silent
    assert watching.look().status == "stopped"
    dataset.location.write("ingests/k.json", replace(killed, beat_ns=killed.beat_ns + 1).as_json())
    assert watching.look().status == "ingesting"


def test_last_ingest_decides_whether_the_dataset_has_stopped(
    silent: tuple[DatasetProgress, Plan], dataset: Dataset
) -> None:
    watching, _ = silent
    with announced(dataset.location, "later", counts):
        assert watching.look().status == "ingesting"
    report = watching.look()
    assert (report.status, [ingest.status for ingest in report.ingests]) == ("idle", ["done", "stopped"])


def test_plan_is_plain_json(dataset: Dataset) -> None:
    with announced(dataset.location, "k", counts):
        values = json.loads(dataset.location.read("ingests/k.json") or b"")
    assert values.keys() >= {"sources", "size_bytes", "started_ns", "beat_ns", "left_bytes"}
    assert values["ended"] is None

"""The catalog: states and jobs change together, pages are complete, and a kill at any time loses nothing told."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.store.catalog import Catalog, Job, JobState, State, Trace, new_trace_id
from service.trace.errors import DiskFull, TracedockError, UnknownJob, UnknownTrace
from service.trace.summary import Summary

SUMMARY = Summary(format="json", events={"in": 1, "kept": 1, "refused": 0}, counts={"X|kernel": 1})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    one = Catalog(tmp_path / "catalog.sqlite")
    yield one
    one.close()


def add(catalog: Catalog, trace_id: str = "", name: str = "t.json") -> Trace:
    return catalog.add(trace_id or new_trace_id(), name=name, size=5, sha256="00")


def take(catalog: Catalog) -> Job:
    job = catalog.take_job()
    assert job
    return job


# -- states -----------------------------------------------------------------------------------------------------


def test_a_new_trace_is_queued_with_a_job(catalog: Catalog) -> None:
    trace = add(catalog, "a")

    assert (trace.id, trace.name, trace.state, trace.size, trace.sha256) == ("a", "t.json", State.QUEUED, 5, "00")
    assert (trace.error, trace.summary) == (None, None)
    assert catalog.get("a") == trace
    job = take(catalog)
    assert (job.kind, job.trace, job.attempts) == ("ingest", "a", 1)


def test_a_job_taken_is_ingesting_and_not_taken_again(catalog: Catalog) -> None:
    add(catalog, "a")

    take(catalog)

    assert catalog.get("a").state is State.INGESTING
    assert catalog.take_job() is None


def test_the_job_of_one_trace_can_be_taken_before_its_turn(catalog: Catalog) -> None:
    for trace_id in ("a", "b"):
        add(catalog, trace_id)

    job = catalog.take_job("b")

    assert job
    assert job.trace == "b"
    assert catalog.take_job("b") is None
    assert take(catalog).trace == "a"


def test_a_finished_job_makes_its_trace_ready(catalog: Catalog) -> None:
    add(catalog, "a")

    catalog.finish(take(catalog), SUMMARY)

    trace = catalog.get("a")
    assert (trace.state, trace.summary, trace.error) == (State.READY, asdict(SUMMARY), None)
    assert catalog.take_job() is None


def test_a_failed_job_fails_its_trace_with_the_reason(catalog: Catalog) -> None:
    add(catalog, "a")

    catalog.fail(take(catalog), {"code": "not_json", "offset": 7})

    trace = catalog.get("a")
    assert (trace.state, trace.summary, trace.error) == (State.FAILED, None, {"code": "not_json", "offset": 7})
    assert catalog.take_job() is None


def test_a_job_that_is_tried_again_counts_its_attempts(catalog: Catalog) -> None:
    add(catalog, "a")

    catalog.retry(take(catalog))

    assert catalog.get("a").state is State.QUEUED
    assert take(catalog).attempts == 2


def test_jobs_are_taken_in_the_order_they_came(catalog: Catalog) -> None:
    for trace_id in ("c", "a", "b"):
        add(catalog, trace_id)

    assert [take(catalog).trace for _ in range(3)] == ["c", "a", "b"]


@pytest.mark.parametrize(("state", "settled"), [(s, s in ("ready", "failed")) for s in State])
def test_only_ready_and_failed_stay(state: State, settled: bool) -> None:
    assert state.settled is settled


def test_a_restart_puts_what_was_running_back_and_leaves_the_rest(tmp_path: Path) -> None:
    first = Catalog(tmp_path / "c")
    for trace_id in ("ready", "failed", "running", "queued"):
        add(first, trace_id)
    first.finish(take(first), SUMMARY)
    first.fail(take(first), {})
    take(first)
    first.close()

    second = Catalog(tmp_path / "c")
    second.requeue()

    assert {trace.id: trace.state for trace in second.page(limit=9)} == {
        "ready": "ready", "failed": "failed", "running": "queued", "queued": "queued",
    }  # fmt: skip
    assert [(job.trace, job.attempts) for job in (take(second), take(second))] == [("running", 2), ("queued", 1)]
    second.close()


# -- removal ----------------------------------------------------------------------------------------------------


def test_a_trace_goes_with_its_job(catalog: Catalog) -> None:
    add(catalog, "a")

    catalog.remove("a")

    assert catalog.take_job() is None
    assert catalog.ids() == []
    with pytest.raises(UnknownTrace, match="'a'"):
        catalog.get("a")


def test_an_unknown_trace_cannot_be_removed(catalog: Catalog) -> None:
    with pytest.raises(UnknownTrace):
        catalog.remove("a")


def test_a_job_that_ends_after_its_trace_was_removed_changes_nothing(catalog: Catalog) -> None:
    for end in (lambda job: catalog.finish(job, SUMMARY), lambda job: catalog.fail(job, {}), catalog.retry):
        add(catalog, "a")
        job = take(catalog)
        catalog.remove("a")

        end(job)

        assert catalog.ids() == []
        assert catalog.take_job() is None


# -- pages ------------------------------------------------------------------------------------------------------


def test_pages_are_newest_first_and_meet_without_gap_or_overlap(catalog: Catalog) -> None:
    added = [add(catalog).id for _ in range(11)]
    found: list[Trace] = []
    after = None
    while page := catalog.page(limit=3, after=after):
        assert len(page) <= 3
        found += page
        after = page[-1].created_ns, page[-1].id

    assert [trace.id for trace in found] == added[::-1]


def test_traces_of_one_instant_are_paged_by_id(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.catalog.time.time_ns", lambda: 7)
    for trace_id in "cabd":
        add(catalog, trace_id)

    assert [trace.id for trace in catalog.page(limit=2)] == ["d", "c"]
    assert [trace.id for trace in catalog.page(limit=9, after=(7, "c"))] == ["b", "a"]


def test_a_page_may_be_of_one_state(catalog: Catalog) -> None:
    add(catalog, "a")
    catalog.finish(take(catalog), SUMMARY)
    add(catalog, "b")

    assert [trace.id for trace in catalog.page(limit=9, state=State.READY)] == ["a"]
    assert [trace.id for trace in catalog.page(limit=9, state=State.QUEUED)] == ["b"]


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("", ["50%_of.json", "50x_of.json", "RANK_0.json", "Über.json", "50%of.json"]),
        ("%", ["50%_of.json", "50%of.json"]),
        ("_", ["50%_of.json", "50x_of.json", "RANK_0.json"]),
        ("rank_", ["RANK_0.json"]),
        ("JSON", ["50%_of.json", "50x_of.json", "RANK_0.json", "Über.json", "50%of.json"]),
        ("ÜBER", ["Über.json"]),
        ("*", []),
        ("'", []),
    ],
)
def test_a_page_may_be_of_names_that_contain_a_text_taken_literally(
    catalog: Catalog, part: str, names: list[str]
) -> None:
    for name in ("50%of.json", "Über.json", "RANK_0.json", "50x_of.json", "50%_of.json"):
        add(catalog, name=name)

    assert [trace.name for trace in catalog.page(limit=9, name=part)] == names


@given(names=st.lists(st.text(max_size=4), max_size=6), part=st.text(max_size=2))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_filter_finds_what_contains_it_in_any_case(tmp_path: Path, names: list[str], part: str) -> None:
    catalog = Catalog(Path(":memory:"))
    names = [name.replace("\0", "") for name in names]
    part = part.replace("\0", "")  # no plain name has one
    for name in names:
        add(catalog, name=name)

    found = [trace.name for trace in catalog.page(limit=99, name=part)]

    catalog.close()
    assert found == [name for name in reversed(names) if part.casefold() in name.casefold()]


# -- jobs that make traces --------------------------------------------------------------------------------------


def made(trace_id: str, parent: str | None = "p") -> Trace:
    selection = {"steps": [1]}
    return Trace(trace_id, "part.json", State.READY, None, 1, 9, "", asdict(SUMMARY), parent, selection)


def test_a_job_that_is_done_has_made_its_traces(catalog: Catalog) -> None:
    job = catalog.add_job("split", {"trace": "p"})
    assert (job.state, job.attempts, job.result) == (JobState.QUEUED, 0, None)
    assert catalog.take_job() is None  # it is no ingest
    job = catalog.begin_job(job)
    assert (job.state, job.attempts) == (JobState.RUNNING, 1)

    catalog.finish_job(job, [made("a"), made("b", None)], events=8)

    job = catalog.job(job.id)
    assert (job.state, job.result, job.events) == (JobState.DONE, ["a", "b"], 8)
    assert catalog.get("a") == made("a")
    assert not catalog.get("a").has_original
    assert [trace.id for trace in catalog.page(limit=9, parent="p")] == ["a"]


def test_of_a_job_that_fails_to_finish_no_trace_is_made(catalog: Catalog) -> None:
    job = catalog.begin_job(catalog.add_job("split", {}))
    with pytest.raises(sqlite3.IntegrityError):
        catalog.finish_job(job, [made("a"), made("a")], events=1)
    assert catalog.ids() == []
    assert [one.id for one in catalog.unfinished_jobs()] == [job.id]


def test_a_job_that_is_cancelled_or_failed_is_over(catalog: Catalog) -> None:
    for state, error in ((JobState.CANCELLED, None), (JobState.FAILED, {"code": "nothing_selected"})):
        job = catalog.add_job("merge", {"traces": ["a"]})
        catalog.end_job(job, state, error)
        assert (catalog.job(job.id).state, catalog.job(job.id).error) == (state, error)
        assert state.over
    assert catalog.unfinished_jobs() == []


def test_a_job_that_runs_when_the_server_ends_is_queued_again(catalog: Catalog) -> None:
    job = catalog.begin_job(catalog.add_job("split", {}))
    catalog.requeue()
    assert catalog.job(job.id).state is JobState.QUEUED


@pytest.mark.parametrize("job_id", [0, 5, 1 << 70])
def test_a_job_that_there_is_not_is_unknown(catalog: Catalog, job_id: int) -> None:
    with pytest.raises(UnknownJob):
        catalog.job(job_id)


# -- what goes wrong --------------------------------------------------------------------------------------------


OLD_SCHEMA = """
CREATE TABLE trace (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, error TEXT, created_ns INTEGER NOT NULL,
    size INTEGER NOT NULL, sha256 TEXT NOT NULL, summary TEXT
) STRICT;
CREATE INDEX trace_newest ON trace (created_ns DESC, id DESC);
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,
    trace TEXT NOT NULL REFERENCES trace (id) ON DELETE CASCADE, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX job_waiting ON job (state, id);
INSERT INTO trace VALUES ('a', 't.json', 'ready', NULL, 1, 5, '00', '{"format":"json"}');
INSERT INTO trace VALUES ('b', 't.json', 'failed', '{"code":"not_json"}', 2, 5, '00', NULL);
INSERT INTO trace VALUES ('c', 't.json', 'queued', NULL, 3, 5, '00', NULL);
INSERT INTO job VALUES (7, 'ingest', 'c', 'queued', 1);
"""


def of_version(path: Path, version: int) -> Catalog:
    """What is made of a catalog that an earlier version left."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{OLD_SCHEMA} PRAGMA user_version = {version};")
    return Catalog(path)


def test_traces_of_the_first_version_are_read_anew(tmp_path: Path) -> None:
    with closing(of_version(tmp_path / "c", 1)) as now:
        assert [(now.get(one).state, now.get(one).error) for one in "abc"] == [(State.QUEUED, None)] * 3
        jobs = [now.take_job() for _ in range(4)]
        assert [job.trace if job else None for job in jobs] == ["a", "b", "c", None]


def test_traces_and_jobs_of_the_second_version_stay(tmp_path: Path) -> None:
    with closing(of_version(tmp_path / "c", 2)) as now:
        assert [now.get(one).state for one in "abc"] == [State.READY, State.FAILED, State.QUEUED]
        assert (now.get("a").parent, now.get("a").selection, now.get("a").has_original) == (None, None, True)
        job = now.take_job()
        assert job
        assert (job.id, job.trace, job.attempts) == (7, "c", 2)
        assert now.add_job("split", {}).id == 8
    Catalog(tmp_path / "c").close()


def test_a_catalog_of_another_version_is_refused_and_told(tmp_path: Path) -> None:
    path = tmp_path / "c"
    first = Catalog(path)
    first._db.execute("PRAGMA user_version = 7")
    first.close()

    with pytest.raises(TracedockError, match="has the schema version 7; this version of the service reads 3"):
        Catalog(path)


def test_a_catalog_without_room_says_so_and_works_again_with_room(catalog: Catalog) -> None:
    add(catalog, "a")
    pages = catalog._db.execute("PRAGMA page_count").fetchone()[0]
    catalog._db.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(DiskFull):
        add(catalog, "b", name="x" * 100_000)

    assert catalog.ids() == ["a"]
    catalog._db.execute("PRAGMA max_page_count = 1000000")
    add(catalog, "b", name="x" * 100_000)
    assert [take(catalog).trace for _ in range(2)] == ["a", "b"]


def test_a_change_that_fails_half_way_is_undone(catalog: Catalog) -> None:
    with pytest.raises(RuntimeError), catalog._transaction() as db:  # noqa: PT012 - the order is the claim
        db.execute("INSERT INTO trace VALUES ('a', 'n', 'queued', NULL, 1, 1, '', NULL, NULL, NULL)")
        raise RuntimeError

    assert catalog.ids() == []
    add(catalog, "a")


def test_threads_add_and_take_at_once_and_each_job_is_taken_once(catalog: Catalog) -> None:
    def work(_: int) -> list[str]:
        taken = []
        for _ in range(10):
            add(catalog)
            if job := catalog.take_job():
                catalog.finish(job, SUMMARY)
                taken.append(job.trace)
            catalog.page(limit=5)
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = [trace_id for part in pool.map(work, range(8)) for trace_id in part]

    assert len(taken) == 80
    assert sorted(taken) == sorted(catalog.ids())
    assert all(trace.state is State.READY for trace in catalog.page(limit=100))


WORK_UNTIL_KILLED = """
import sys
from pathlib import Path
from service.store.catalog import Catalog
catalog = Catalog(Path(sys.argv[1]))
for number in range(20):
    catalog.add(f"{number:02}", name="n", size=1, sha256="")
    print(number, flush=True)
catalog.take_job()
with catalog._transaction() as db:
    db.execute("UPDATE trace SET state = 'failed'")
    db.execute("DELETE FROM job")
    print("inside", flush=True)
    sys.stdin.read()
"""


def test_kill_9_inside_a_change_loses_that_change_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with subprocess.Popen(
        [sys.executable, "-c", WORK_UNTIL_KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout
        told = [line.strip() for line in iter(worker.stdout.readline, "inside\n")]
        worker.kill()

    catalog = Catalog(path)
    catalog.requeue()

    assert told == [str(number) for number in range(20)]
    assert sorted(catalog.ids()) == [f"{number:02}" for number in range(20)]
    assert [take(catalog).trace for _ in range(20)] == [f"{number:02}" for number in range(20)]
    assert catalog._db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    catalog.close()


def test_ids_are_twelve_hexadecimal_digits_and_never_twice_the_same() -> None:
    ids = {new_trace_id() for _ in range(1000)}

    assert len(ids) == 1000
    assert all(len(one) == 12 and int(one, 16) >= 0 for one in ids)

"""The catalog: states and jobs change together, pages are complete, and a kill at any time loses nothing told."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.store.catalog import Catalog, Job, State, Trace, new_trace_id
from service.trace.errors import DiskFull, TracedockError, UnknownTrace
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


# -- what goes wrong --------------------------------------------------------------------------------------------


def test_traces_of_the_first_version_are_read_anew(tmp_path: Path) -> None:
    first = Catalog(tmp_path / "catalog.sqlite")
    for trace_id in ("a" * 12, "b" * 12):
        first.add(trace_id, name="t.json", size=1, sha256="0" * 64)
    done, damaged = first.take_job(), first.take_job()
    assert done
    assert damaged
    first.finish(done, Summary(format="json"))
    first.fail(damaged, {"code": "not_json"})
    first._db.execute("PRAGMA user_version = 1")
    first.close()
    now = Catalog(tmp_path / "catalog.sqlite")
    assert {(now.get(one).state, now.get(one).error) for one in now.ids()} == {(State.QUEUED, None)}
    jobs = [now.take_job(), now.take_job(), now.take_job()]
    assert [job.trace if job else None for job in jobs] == ["a" * 12, "b" * 12, None]
    now.close()


def test_a_catalog_of_another_version_is_refused_and_told(tmp_path: Path) -> None:
    path = tmp_path / "c"
    first = Catalog(path)
    first._db.execute("PRAGMA user_version = 7")
    first.close()

    with pytest.raises(TracedockError, match="has the schema version 7; this version of the service reads 2"):
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
        db.execute("INSERT INTO trace VALUES ('a', 'n', 'queued', NULL, 1, 1, '', NULL)")
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

"""The queue: jobs and their traces change together, who waits goes first, and what is over stays so."""

import sqlite3
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from service.store.catalog import INGEST, Catalog, State, Trace, new_trace_id
from service.store.jobs import Job, Jobs, JobState, Priority
from service.trace.errors import Cancelled, UnknownJob
from service.trace.summary import Summary

SUMMARY = Summary(format="json", events={"in": 1, "kept": 1, "refused": 0}, counts={"X|kernel": 1})


def add(catalog: Catalog, trace_id: str = "", priority: Priority = Priority.INTERACTIVE) -> Trace:
    return catalog.add(trace_id or new_trace_id(), name="t.json", size=5, sha256="00", priority=priority)


def take(jobs: Jobs, *kinds: str) -> Job:
    job = jobs.take(kinds or [INGEST])
    assert job
    return job


def made(trace_id: str, parent: str | None = "p") -> Trace:
    selection = {"steps": [1]}
    return Trace(trace_id, "part.json", State.READY, None, 1, 9, "", asdict(SUMMARY), parent, selection)


# -- whose turn it is -------------------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in nanoseconds, which a test may set."""
    clock = [1_700_000_000_000_000_000]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])
    return clock


def sized(catalog: Catalog, trace_id: str, size: int, priority: Priority = Priority.INTERACTIVE) -> int:
    """The id of the job that reads a new trace of so many bytes."""
    trace = catalog.add(trace_id, name="t.json", size=size, sha256="00", priority=priority)
    assert trace.job
    return trace.job


def order(jobs: Jobs, **how: Any) -> list[str]:
    """The traces of the jobs that wait, as they are taken."""
    return [job.trace for job in iter(lambda: jobs.take([INGEST], **how), None) if job]


def test_small_traces_go_before_large_ones(catalog: Catalog, jobs: Jobs, now: list[int]) -> None:
    for trace_id, size in (("large", 2_710_000_000), ("small", 55_000), ("middle", 5_000_000)):
        sized(catalog, trace_id, size)
        now[0] += 1
    assert order(jobs) == ["small", "middle", "large"]


def test_a_large_trace_is_overtaken_for_a_while_only(catalog: Catalog, jobs: Jobs, now: list[int]) -> None:
    sized(catalog, "large", 2_710_000_000)
    for trace_id, after_s in (("soon", 10), ("within", 541), ("beyond", 543)):
        began, now[0] = now[0], now[0] + after_s * 1_000_000_000
        sized(catalog, trace_id, 55_000)
        now[0] = began
    assert order(jobs) == ["soon", "within", "large", "beyond"]


def test_awaited_jobs_go_before_all_others(catalog: Catalog, jobs: Jobs) -> None:
    awaited = [sized(catalog, "bulk", 9, Priority.BULK), sized(catalog, "large", 2_710_000_000)]
    sized(catalog, "small", 5)
    assert order(jobs, awaited=awaited) == ["large", "bulk", "small"]


def test_jobs_beyond_a_cost_stay_in_the_queue(catalog: Catalog, jobs: Jobs) -> None:
    for trace_id, size in (("large", 1001), ("even", 1000), ("small", 1)):
        sized(catalog, trace_id, size)
    assert sorted(order(jobs, cost_max=1000)) == ["even", "small"]
    assert order(jobs) == ["large"]


def test_the_cost_of_a_job_is_the_size_of_all_traces_that_it_works_on(catalog: Catalog, jobs: Jobs) -> None:
    for trace_id, size in (("a", 10), ("b", 200), ("c", 3000)):
        sized(catalog, trace_id, size)
    assert jobs.add("merge", {"traces": ["a", "b"]}).cost == 210
    assert jobs.add("split", {"trace": "c"}, trace="c").cost == 3000
    assert jobs.add("import", {"path": "/x"}).cost == 0


# -- ingests ----------------------------------------------------------------------------------------------------


def test_a_new_trace_is_queued_with_a_job(catalog: Catalog, jobs: Jobs) -> None:
    trace = add(catalog, "a")

    assert (trace.id, trace.name, trace.state, trace.size, trace.sha256) == ("a", "t.json", State.QUEUED, 5, "00")
    assert (trace.error, trace.summary) == (None, None)
    assert catalog.get("a") == trace
    job = take(jobs)
    assert (job.id, job.kind, job.trace, job.attempts) == (trace.job, "ingest", "a", 1)


def test_a_job_taken_is_ingesting_and_not_taken_again(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")

    take(jobs)

    assert catalog.get("a").state is State.INGESTING
    assert jobs.take([INGEST]) is None


def test_the_job_of_one_trace_can_be_taken_before_its_turn(catalog: Catalog, jobs: Jobs) -> None:
    for trace_id in ("a", "b"):
        add(catalog, trace_id)

    job = jobs.take([INGEST], trace="b")

    assert job
    assert job.trace == "b"
    assert jobs.take([INGEST], trace="b") is None
    assert take(jobs).trace == "a"


def test_an_ingest_that_is_done_makes_its_trace_ready(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")
    job = take(jobs)

    jobs.read(job, SUMMARY)

    trace, job = catalog.get("a"), jobs.get(job.id)
    assert (trace.state, trace.summary, trace.error) == (State.READY, asdict(SUMMARY), None)
    assert (job.state, job.result, job.events) == (JobState.DONE, {"traces": ["a"]}, 1)
    assert jobs.take([INGEST]) is None


def test_an_ingest_that_fails_fails_its_trace_with_the_reason(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")
    job = take(jobs)

    jobs.fail(job, {"code": "not_json", "offset": 7})

    trace, job = catalog.get("a"), jobs.get(job.id)
    assert (trace.state, trace.summary, trace.error) == (State.FAILED, None, {"code": "not_json", "offset": 7})
    assert (job.state, job.error) == (JobState.FAILED, trace.error)
    assert jobs.take([INGEST]) is None


def test_an_ingest_that_is_cancelled_fails_its_trace(catalog: Catalog, jobs: Jobs) -> None:
    trace = add(catalog, "a")
    assert trace.job

    assert jobs.cancel(jobs.get(trace.job))

    trace = catalog.get("a")
    assert (trace.state, (trace.error or {})["code"]) == (State.FAILED, "cancelled")
    assert jobs.take([INGEST]) is None


def test_a_job_that_is_tried_again_counts_its_attempts(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")

    jobs.retry(take(jobs))

    assert catalog.get("a").state is State.QUEUED
    assert take(jobs).attempts == 2


@pytest.mark.parametrize(("state", "settled"), [(s, s in ("ready", "failed")) for s in State])
def test_only_ready_and_failed_stay(state: State, settled: bool) -> None:
    assert state.settled is settled


def test_a_restart_puts_what_was_running_back_and_counts_no_attempt(tmp_path: Path) -> None:
    first = Catalog(tmp_path / "c")
    jobs = Jobs(first.connection)
    for trace_id in ("ready", "failed", "running", "queued"):
        add(first, trace_id)
    jobs.read(take(jobs), SUMMARY)
    jobs.fail(take(jobs), {})
    take(jobs)
    split = jobs.add("split", {})
    take(jobs, "split")
    first.close()

    second = Catalog(tmp_path / "c")
    jobs = Jobs(second.connection)
    jobs.requeue()

    assert {trace.id: trace.state for trace in second.page(limit=9)} == {
        "ready": "ready", "failed": "failed", "running": "queued", "queued": "queued",
    }  # fmt: skip
    assert [(job.trace, job.attempts) for job in (take(jobs), take(jobs))] == [("running", 1), ("queued", 1)]
    assert (jobs.get(split.id).state, jobs.get(split.id).attempts) == (JobState.QUEUED, 0)
    second.close()


# -- who goes first ---------------------------------------------------------------------------------------------


def test_jobs_are_taken_in_the_order_they_came(catalog: Catalog, jobs: Jobs) -> None:
    for trace_id in ("c", "a", "b"):
        add(catalog, trace_id)

    assert [take(jobs).trace for _ in range(3)] == ["c", "a", "b"]


def test_what_somebody_waits_for_goes_before_what_is_taken_by_the_dozen(catalog: Catalog, jobs: Jobs) -> None:
    for trace_id in ("a", "b"):
        add(catalog, trace_id, Priority.BULK)
    for trace_id in ("c", "d"):
        add(catalog, trace_id)

    assert [take(jobs).trace for _ in range(4)] == ["c", "d", "a", "b"]


def test_a_lane_takes_only_jobs_of_its_kinds(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")
    split, merge = jobs.add("split", {}, trace="a"), jobs.add("merge", {})

    assert [take(jobs, "split", "merge").id for _ in range(2)] == [split.id, merge.id]
    assert jobs.take(["split", "merge"]) is None
    assert catalog.get("a").state is State.QUEUED
    assert take(jobs).trace == "a"


# -- jobs that make traces --------------------------------------------------------------------------------------


def test_a_job_that_is_done_has_made_its_traces(catalog: Catalog, jobs: Jobs) -> None:
    job = jobs.add("split", {"trace": "p"}, trace="p")
    assert (job.state, job.attempts, job.result, job.started_ns) == (JobState.QUEUED, 0, None, None)
    job = take(jobs, "split")
    assert (job.state, job.attempts, job.ended_ns) == (JobState.RUNNING, 1, None)

    jobs.done(job, {"traces": ["a", "b"]}, made=[made("a"), made("b", None)], events=8)

    job = jobs.get(job.id)
    assert (job.state, job.result, job.events) == (JobState.DONE, {"traces": ["a", "b"]}, 8)
    assert job.started_ns
    assert job.ended_ns
    assert job.created_ns <= job.started_ns <= job.ended_ns
    assert catalog.get("a") == made("a")
    assert not catalog.get("a").has_original
    assert [trace.id for trace in catalog.page(limit=9, parent="p")] == ["a"]


def test_of_a_job_that_fails_to_finish_no_trace_is_made(catalog: Catalog, jobs: Jobs) -> None:
    jobs.add("split", {})
    job = take(jobs, "split")
    with pytest.raises(sqlite3.IntegrityError):
        jobs.done(job, {"traces": ["a"]}, made=[made("a"), made("a")], events=1)
    assert catalog.ids() == []
    assert [one.id for one in jobs.unfinished()] == [job.id]


def test_a_job_that_was_cancelled_makes_nothing_any_more(catalog: Catalog, jobs: Jobs) -> None:
    jobs.add("split", {})
    job = take(jobs, "split")
    assert jobs.cancel(job)
    with pytest.raises(Cancelled):
        jobs.done(job, {"traces": ["a"]}, made=[made("a")], events=1)
    jobs.fail(job, {"code": "late"})
    jobs.retry(job)
    assert not jobs.cancel(job)
    assert catalog.ids() == []
    assert (jobs.get(job.id).state, jobs.get(job.id).error) == (JobState.CANCELLED, None)


def test_a_job_that_is_cancelled_or_failed_is_over(jobs: Jobs) -> None:
    job = jobs.add("merge", {"traces": ["a"]})
    jobs.fail(job, {"code": "nothing_selected"})
    assert (jobs.get(job.id).state, jobs.get(job.id).error) == (JobState.FAILED, {"code": "nothing_selected"})
    jobs.cancel(jobs.add("merge", {}))
    assert jobs.unfinished() == []
    assert all(job.state.over for job in jobs.page(limit=9))


@pytest.mark.parametrize("job_id", [-1, 0, 5, 1 << 70])
def test_a_job_that_there_is_not_is_unknown(jobs: Jobs, job_id: int) -> None:
    with pytest.raises(UnknownJob):
        jobs.get(job_id)


# -- pages ------------------------------------------------------------------------------------------------------


def test_pages_are_newest_first_and_meet_without_gap_or_overlap(jobs: Jobs) -> None:
    added = [jobs.add("merge", {}).id for _ in range(11)]
    found: list[int] = []
    while page := jobs.page(limit=3, before=found[-1] if found else None):
        assert len(page) <= 3
        found += [job.id for job in page]
    assert found == added[::-1]


def test_a_page_may_be_of_states_of_a_kind_and_of_a_trace(catalog: Catalog, jobs: Jobs) -> None:
    ingest = add(catalog, "a").job
    split = jobs.add("split", {"trace": "a"}, trace="a")
    merge = jobs.add("merge", {"traces": ["a", "b"]})
    jobs.add("split", {"trace": "c"}, trace="c")
    jobs.cancel(merge)
    take(jobs, "split")
    jobs.done(split, {"traces": ["d"]}, made=[made("d", "a")])

    assert [job.id for job in jobs.page(limit=9, trace="a")] == [merge.id, split.id, ingest]
    assert [job.id for job in jobs.page(limit=9, trace="d")] == [split.id]
    assert [job.id for job in jobs.page(limit=9, trace="b", kind="split")] == []
    assert [job.id for job in jobs.page(limit=9, kind="merge")] == [merge.id]
    over = [JobState.DONE, JobState.CANCELLED]
    assert [job.id for job in jobs.page(limit=9, states=over)] == [merge.id, split.id]
    assert jobs.unfinished_counts() == {("ingest", JobState.QUEUED): 1, ("split", JobState.QUEUED): 1}
    assert jobs.ended == {("merge", JobState.CANCELLED): 1, ("split", JobState.DONE): 1}


def test_the_newest_of_those_that_are_over_stay(catalog: Catalog) -> None:
    jobs = Jobs(catalog.connection, history=30)
    waiting = jobs.add("merge", {})
    over = [jobs.add("merge", {}) for _ in range(100)]
    for job in over:
        jobs.cancel(job)
    assert [job.id for job in jobs.page(limit=200)] == [*(job.id for job in over[:-31:-1]), waiting.id]

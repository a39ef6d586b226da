"""Jobs change together with their traces, awaited jobs go first, and final states stay."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from service.store.catalog import INGEST, Catalog, State, Trace, new_trace_id
from service.store.jobs import Job, Jobs, JobState, Priority
from service.trace.errors import Cancelled, NothingSelected, NotJson, UnknownJob
from service.trace.summary import Summary

SUMMARY = Summary(format="json", events={"in": 1, "kept": 1, "refused": 0}, counts={"X|kernel": 1})


def add(catalog: Catalog, trace_id: str = "", priority: Priority = Priority.INTERACTIVE) -> Trace:
    return catalog.add(trace_id or new_trace_id(), name="t.json", size=5, sha256="00", priority=priority)


def take(jobs: Jobs, *kinds: str) -> Job:
    job = jobs.claim(kinds or [INGEST])
    assert job
    return job


def child(trace_id: str, parent: str | None = "p") -> Trace:
    selection = {"steps": [1]}
    return Trace(trace_id, "part.json", State.READY, None, 1, 9, "", SUMMARY, parent, selection)


# -- scheduling -------------------------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Clock in ns since the epoch, which a test can set."""
    clock = [1_700_000_000_000_000_000]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])
    return clock


def sized(catalog: Catalog, trace_id: str, size: int, priority: Priority = Priority.INTERACTIVE) -> int:
    """Add a trace of the given size in bytes, and return the id of its job."""
    trace = catalog.add(trace_id, name="t.json", size=size, sha256="00", priority=priority)
    assert trace.job
    return trace.job


def order(jobs: Jobs, **how: Any) -> list[str]:
    """Claim all queued jobs, and return their traces in the order of the claims."""
    return [job.trace for job in iter(lambda: jobs.claim([INGEST], **how), None) if job]


def test_small_traces_go_before_large_ones(catalog: Catalog, jobs: Jobs, now: list[int]) -> None:
    for trace_id, size in (("large", 2_710_000_000), ("small", 55_000), ("middle", 5_000_000)):
        sized(catalog, trace_id, size)
        now[0] += 1
    assert order(jobs) == ["small", "middle", "large"]


def test_large_trace_is_overtaken_for_a_limited_time(catalog: Catalog, jobs: Jobs, now: list[int]) -> None:
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


def test_claimed_job_is_ingesting_and_not_claimed_again(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")

    take(jobs)

    assert catalog.get("a").state is State.INGESTING
    assert jobs.claim([INGEST]) is None


def test_job_of_a_given_trace_can_be_claimed_first(catalog: Catalog, jobs: Jobs) -> None:
    for trace_id in ("a", "b"):
        add(catalog, trace_id)

    job = jobs.claim([INGEST], trace="b")

    assert job
    assert job.trace == "b"
    assert jobs.claim([INGEST], trace="b") is None
    assert take(jobs).trace == "a"


def test_finished_ingest_makes_its_trace_ready(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")
    job = take(jobs)

    jobs.finish_ingest(job, SUMMARY)

    trace, job = catalog.get("a"), jobs.get(job.id)
    assert (trace.state, trace.summary, trace.error) == (State.READY, SUMMARY, None)
    assert (job.state, job.result, job.events) == (JobState.DONE, {"traces": ["a"]}, 1)
    assert jobs.claim([INGEST]) is None


def test_failed_ingest_fails_its_trace_with_the_error(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")
    job = take(jobs)

    error = NotJson("No JSON at byte 7.", offset=7)

    jobs.fail(job, error)

    trace, job = catalog.get("a"), jobs.get(job.id)
    assert (trace.state, trace.summary, trace.error) == (State.FAILED, None, error.as_document())
    assert (job.state, job.error) == (JobState.FAILED, trace.error)
    assert jobs.claim([INGEST]) is None


def test_cancelled_ingest_fails_its_trace(catalog: Catalog, jobs: Jobs) -> None:
    trace = add(catalog, "a")
    assert trace.job

    assert jobs.cancel(jobs.get(trace.job))

    trace = catalog.get("a")
    assert (trace.state, trace.error and trace.error.code) == (State.FAILED, "cancelled")
    assert jobs.claim([INGEST]) is None


def test_retried_job_counts_its_attempts(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")

    jobs.retry(take(jobs))

    assert catalog.get("a").state is State.QUEUED
    assert take(jobs).attempts == 2


@pytest.mark.parametrize(("state", "settled"), [(s, s in ("ready", "failed")) for s in State])
def test_only_ready_and_failed_are_final_states(state: State, settled: bool) -> None:
    assert state.settled is settled


def test_restart_requeues_running_jobs_without_counting_the_attempt(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c")
    jobs = Jobs(catalog.connection)
    for trace_id in ("ready", "failed", "running", "queued"):
        add(catalog, trace_id)
    jobs.finish_ingest(take(jobs), SUMMARY)
    jobs.fail(take(jobs), NotJson("No JSON."))
    take(jobs)
    child = jobs.add("split", {})
    take(jobs, "split")
    catalog.close()

    second = Catalog(tmp_path / "c")
    jobs = Jobs(second.connection)
    jobs.requeue_interrupted()

    assert {trace.id: trace.state for trace in second.page(limit=9)} == {
        "ready": "ready", "failed": "failed", "running": "queued", "queued": "queued",
    }  # fmt: skip
    assert [(job.trace, job.attempts) for job in (take(jobs), take(jobs))] == [("running", 1), ("queued", 1)]
    assert (jobs.get(child.id).state, jobs.get(child.id).attempts) == (JobState.QUEUED, 0)
    second.close()


# -- order of claims --------------------------------------------------------------------------------------------


def test_jobs_are_claimed_in_order_of_arrival(catalog: Catalog, jobs: Jobs) -> None:
    for trace_id in ("c", "a", "b"):
        add(catalog, trace_id)

    assert [take(jobs).trace for _ in range(3)] == ["c", "a", "b"]


def test_interactive_jobs_go_before_bulk_jobs(catalog: Catalog, jobs: Jobs) -> None:
    for trace_id in ("a", "b"):
        add(catalog, trace_id, Priority.BULK)
    for trace_id in ("c", "d"):
        add(catalog, trace_id)

    assert [take(jobs).trace for _ in range(4)] == ["c", "d", "a", "b"]


def test_claim_is_limited_to_given_kinds(catalog: Catalog, jobs: Jobs) -> None:
    add(catalog, "a")
    split, merge = jobs.add("split", {}, trace="a"), jobs.add("merge", {})

    assert [take(jobs, "split", "merge").id for _ in range(2)] == [split.id, merge.id]
    assert jobs.claim(["split", "merge"]) is None
    assert catalog.get("a").state is State.QUEUED
    assert take(jobs).trace == "a"


# -- jobs that make traces --------------------------------------------------------------------------------------


def test_finished_job_records_its_traces(catalog: Catalog, jobs: Jobs) -> None:
    job = jobs.add("split", {"trace": "p"}, trace="p")
    assert (job.state, job.attempts, job.result, job.started_ns) == (JobState.QUEUED, 0, None, None)
    job = take(jobs, "split")
    assert (job.state, job.attempts, job.ended_ns) == (JobState.RUNNING, 1, None)

    jobs.finish(job, {"traces": ["a", "b"]}, children=[child("a"), child("b", None)], events=8)

    job = jobs.get(job.id)
    assert (job.state, job.result, job.events) == (JobState.DONE, {"traces": ["a", "b"]}, 8)
    assert job.started_ns
    assert job.ended_ns
    assert job.created_ns <= job.started_ns <= job.ended_ns
    assert catalog.get("a") == child("a")
    assert not catalog.get("a").has_original
    assert [trace.id for trace in catalog.page(limit=9, parent="p")] == ["a"]


def test_job_that_fails_to_finish_records_no_trace(catalog: Catalog, jobs: Jobs) -> None:
    jobs.add("split", {})
    job = take(jobs, "split")
    with pytest.raises(sqlite3.IntegrityError):
        jobs.finish(job, {"traces": ["a"]}, children=[child("a"), child("a")], events=1)
    assert catalog.ids() == []
    assert [unfinished.id for unfinished in jobs.unfinished()] == [job.id]


def test_cancelled_job_records_nothing(catalog: Catalog, jobs: Jobs) -> None:
    jobs.add("split", {})
    job = take(jobs, "split")
    assert jobs.cancel(job)
    with pytest.raises(Cancelled):
        jobs.finish(job, {"traces": ["a"]}, children=[child("a")], events=1)
    jobs.fail(job, NotJson("It is too late."))
    jobs.retry(job)
    assert not jobs.cancel(job)
    assert catalog.ids() == []
    assert (jobs.get(job.id).state, jobs.get(job.id).error) == (JobState.CANCELLED, None)


def test_cancelled_or_failed_job_is_over(jobs: Jobs) -> None:
    job = jobs.add("merge", {"traces": ["a"]})
    error = NothingSelected("There is no step 7.")
    jobs.fail(job, error)
    assert (jobs.get(job.id).state, jobs.get(job.id).error) == (JobState.FAILED, error.as_document())
    jobs.cancel(jobs.add("merge", {}))
    assert jobs.unfinished() == []
    assert all(job.state.is_final for job in jobs.page(limit=9))


def test_stored_documents_of_another_version_are_read_as_they_are(catalog: Catalog, jobs: Jobs) -> None:
    job = jobs.add("split", {"trace": "a", "selection": {"colours": ["red"]}})
    error = {"code": "of_another_version", "title": "A title", "detail": "A detail.", "known": [1]}
    result = {"traces": ["b"], "more": 1}
    with catalog.connection.transaction() as db:
        db.execute(
            "UPDATE job SET error = ?, result = ?", (orjson.dumps(error).decode(), orjson.dumps(result).decode())
        )

    stored = jobs.get(job.id)

    assert stored.error
    assert (stored.error.as_dict(), stored.result, stored.request) == (error, result, job.request)


@pytest.mark.parametrize("job_id", [-1, 0, 5, 1 << 70])
def test_missing_job_is_unknown(jobs: Jobs, job_id: int) -> None:
    with pytest.raises(UnknownJob):
        jobs.get(job_id)


# -- pages ------------------------------------------------------------------------------------------------------


def test_pages_are_newest_first_and_meet_without_gap_or_overlap(jobs: Jobs) -> None:
    ids = [jobs.add("merge", {}).id for _ in range(11)]
    listed: list[int] = []
    while page := jobs.page(limit=3, before=listed[-1] if listed else None):
        assert len(page) <= 3
        listed += [job.id for job in page]
    assert listed == ids[::-1]


def test_page_is_filtered_by_state_kind_and_trace(catalog: Catalog, jobs: Jobs) -> None:
    ingest = add(catalog, "a").job
    split = jobs.add("split", {"trace": "a"}, trace="a")
    merge = jobs.add("merge", {"traces": ["a", "b"]})
    jobs.add("split", {"trace": "c"}, trace="c")
    jobs.cancel(merge)
    take(jobs, "split")
    jobs.finish(split, {"traces": ["d"]}, children=[child("d", "a")])

    assert [job.id for job in jobs.page(limit=9, trace="a")] == [merge.id, split.id, ingest]
    assert [job.id for job in jobs.page(limit=9, trace="d")] == [split.id]
    assert [job.id for job in jobs.page(limit=9, trace="b", kind="split")] == []
    assert [job.id for job in jobs.page(limit=9, kind="merge")] == [merge.id]
    over = [JobState.DONE, JobState.CANCELLED]
    assert [job.id for job in jobs.page(limit=9, states=over)] == [merge.id, split.id]
    assert jobs.unfinished_counts() == {("ingest", JobState.QUEUED): 1, ("split", JobState.QUEUED): 1}
    assert jobs.ended == {("merge", JobState.CANCELLED): 1, ("split", JobState.DONE): 1}


def test_newest_ended_jobs_are_kept(catalog: Catalog) -> None:
    jobs = Jobs(catalog.connection, history=30)
    waiting = jobs.add("merge", {})
    over = [jobs.add("merge", {}) for _ in range(100)]
    for job in over:
        jobs.cancel(job)
    assert [job.id for job in jobs.page(limit=200)] == [*(job.id for job in over[:-31:-1]), waiting.id]

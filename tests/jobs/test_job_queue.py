"""Queues run jobs in order, and the monitor notifies all waits for jobs."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from service.http.job_events import job_events
from service.jobs.job_monitor import REQUESTED_S, JobMonitor
from service.jobs.job_queue import JobQueue
from service.jobs.slots import SMALL_BYTES
from service.store.catalog import Catalog
from service.store.jobs import Job, Jobs, JobState, Priority
from service.streaming.source import Progress
from service.trace.errors import (
    ClusterLost,
    ErrorDocument,
    JobDied,
    LocationUnavailable,
    NotReady,
    TracedockError,
    UnknownJob,
    WorkerDied,
)
from tests.waiting import PATIENCE_S


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "catalog.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def jobs(catalog: Catalog) -> Jobs:
    return Jobs(catalog.connection)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


class HeldJobs:
    """A queue whose jobs run until they are released."""

    def __init__(self, jobs: Jobs, *, at_once: int = 1, attempts: int = 3) -> None:
        self.monitor = JobMonitor(jobs)
        self.queue = JobQueue(self.monitor, ["merge"], self.attempt, at_once=at_once, attempts=attempts)
        self.started: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}
        self.error: Exception | None = None

    async def attempt(self, job: Job) -> None:
        self.started.append(job.id)
        self.monitor.moved(job.id, Progress(events=1, events_total=2))
        await self.ends.setdefault(job.id, asyncio.Event()).wait()
        if self.error:
            raise self.error
        self.monitor.jobs.finish(job, {"traces": []})

    def submit(self, priority: Priority = Priority.INTERACTIVE) -> int:
        job = self.monitor.jobs.add("merge", {}, priority=priority)
        self.queue.wake()
        return job.id

    def release(self, job_id: int) -> None:
        self.ends.setdefault(job_id, asyncio.Event()).set()

    async def have_started(self, count: int) -> None:
        """Return once `count` jobs have started."""
        with self.monitor.watching() as news:
            while len(self.started) < count:
                await news.wait()
                news.clear()

    async def all_over(self, *ids: int) -> None:
        """Return once the jobs are done, without awaiting a single job: an awaited job goes first."""
        with self.monitor.watching() as news:
            while {self.monitor.jobs.get(job_id).state for job_id in ids} != {JobState.DONE}:
                await news.wait()
                news.clear()

    async def over(self, job_id: int) -> Job:
        return await self.monitor.settled(job_id, within_s=PATIENCE_S)


# -- queues ------------------------------------------------------------------------------------------------------


def test_queue_runs_few_jobs_at_once_and_urgent_ones_first(jobs: Jobs) -> None:
    async def work() -> None:
        held_jobs = HeldJobs(jobs, at_once=2)
        held_jobs.queue.start()
        bulk = [held_jobs.submit(Priority.BULK) for _ in range(3)]
        urgent = held_jobs.submit()
        for job_id in (*bulk, urgent):
            held_jobs.release(job_id)
        await held_jobs.all_over(*bulk, urgent)
        assert held_jobs.started == [urgent, *bulk]
        await held_jobs.queue.close()

    run(work())


@pytest.mark.parametrize("by_request", [False, True])
def test_jobs_that_clients_wait_for_or_have_requested_go_first(jobs: Jobs, by_request: bool) -> None:
    async def work() -> None:
        held_jobs = HeldJobs(jobs)
        held_jobs.queue.start()
        bulk_jobs, awaited = [held_jobs.submit() for _ in range(2)], held_jobs.submit(Priority.BULK)
        for job_id in (*bulk_jobs, awaited):
            held_jobs.release(job_id)
        if by_request:
            held_jobs.monitor.ask_for(awaited)
            await held_jobs.all_over(*bulk_jobs, awaited)
        else:
            await held_jobs.over(awaited)
            await held_jobs.all_over(*bulk_jobs)
        assert held_jobs.started == [awaited, *bulk_jobs]
        await held_jobs.queue.close()

    run(work())


def test_requested_job_counts_as_awaited_for_a_limited_time(jobs: Jobs) -> None:
    now = 0.0
    monitor = JobMonitor(jobs, clock=lambda: now)
    monitor.ask_for(7)
    with monitor.watching(8), monitor.watching():
        assert monitor.awaited() == {7, 8}
    now = REQUESTED_S
    assert monitor.awaited() == set()
    monitor.ask_for(9)
    assert monitor.awaited() == {9}


def test_only_one_small_job_runs_in_addition_to_large_ones(jobs: Jobs, catalog: Catalog) -> None:
    async def work() -> None:
        large = catalog.add("large", name="t.json", size=SMALL_BYTES + 1, sha256="00").id
        small = catalog.add("small", name="t.json", size=SMALL_BYTES, sha256="00").id
        held_jobs = HeldJobs(jobs)
        held_jobs.queue.start()
        first, waiting = (jobs.add("merge", {"traces": [large]}).id for _ in range(2))
        held_jobs.queue.wake()
        await held_jobs.have_started(1)
        second, third = (jobs.add("merge", {"traces": [small]}) for _ in range(2))
        assert (held_jobs.queue.has_room(second), held_jobs.queue.has_room(jobs.get(waiting))) == (True, False)
        held_jobs.queue.wake()
        await held_jobs.have_started(2)
        assert not held_jobs.queue.has_room(third)
        for job_id in (second.id, third.id):
            held_jobs.release(job_id)
            await held_jobs.all_over(job_id)
        assert held_jobs.started == [first, second.id, third.id]
        for job_id in (first, waiting):
            held_jobs.release(job_id)
        await held_jobs.all_over(first, waiting)
        await held_jobs.queue.close()

    run(work())


@pytest.mark.parametrize("kind", [JobDied, WorkerDied, LocationUnavailable])
def test_job_that_may_pass_later_has_a_bounded_number_of_attempts(jobs: Jobs, kind: type[TracedockError]) -> None:
    async def work() -> None:
        held_jobs = HeldJobs(jobs, attempts=3)
        held_jobs.error = kind("It was killed by SIGKILL.")
        held_jobs.queue.start()
        job_id = held_jobs.submit()
        held_jobs.release(job_id)
        job = await held_jobs.over(job_id)
        assert held_jobs.started == [job_id] * 3
        assert (job.state, job.attempts) == (JobState.FAILED, 3)
        assert job.error == ErrorDocument(kind.code, kind.title, "It was killed by SIGKILL, 3 times.", {"attempts": 3})
        await held_jobs.queue.close()

    run(work())


def test_job_whose_scheduler_dies_runs_again_without_an_attempt(jobs: Jobs) -> None:
    async def work() -> None:
        held_jobs = HeldJobs(jobs, attempts=1)
        held_jobs.error = ClusterLost("The scheduler was lost.")
        held_jobs.queue.start()
        job_id = held_jobs.submit()
        held_jobs.release(job_id)
        await held_jobs.have_started(3)
        held_jobs.error = None
        job = await held_jobs.over(job_id)
        assert (job.state, job.attempts) == (JobState.DONE, 1)
        await held_jobs.queue.close()

    run(work())


@pytest.mark.parametrize(("error", "code"), [(NotReady("no"), "not_ready"), (ValueError("a bug"), "internal")])
def test_failed_job_has_its_error_and_next_job_runs(jobs: Jobs, error: Exception, code: str) -> None:
    async def work() -> None:
        held_jobs = HeldJobs(jobs)
        held_jobs.error = error
        held_jobs.queue.start()
        first, second = held_jobs.submit(), held_jobs.submit()
        held_jobs.release(first)
        failed = await held_jobs.over(first)
        assert (failed.state, failed.error and failed.error.code) == (JobState.FAILED, code)
        held_jobs.error = None
        held_jobs.release(second)
        assert (await held_jobs.over(second)).state is JobState.DONE
        await held_jobs.queue.close()

    run(work())


def test_job_can_be_cancelled_in_each_state(jobs: Jobs) -> None:
    async def work() -> None:
        held_jobs = HeldJobs(jobs)
        held_jobs.queue.start()
        runs, waits, last = held_jobs.submit(), held_jobs.submit(), held_jobs.submit()
        await held_jobs.monitor.until(runs, lambda job: job.state is JobState.RUNNING, within_s=PATIENCE_S)
        assert (await held_jobs.monitor.cancel(waits)).state is JobState.CANCELLED
        assert (await held_jobs.monitor.cancel(runs)).state is JobState.CANCELLED
        held_jobs.release(last)
        assert (await held_jobs.over(last)).state is JobState.DONE
        assert (await held_jobs.monitor.cancel(last)).state is JobState.DONE
        assert held_jobs.started == [runs, last]
        with pytest.raises(UnknownJob):
            await held_jobs.monitor.cancel(99)
        await held_jobs.queue.close()

    run(work())


def test_job_that_is_unfinished_when_its_queue_closes_runs_at_next_start(jobs: Jobs) -> None:
    async def work() -> None:
        held_jobs = HeldJobs(jobs)
        held_jobs.queue.start()
        job_id = held_jobs.submit()
        await held_jobs.monitor.until(job_id, lambda job: job.state is JobState.RUNNING, within_s=PATIENCE_S)
        await held_jobs.queue.close()
        jobs.requeue_interrupted()
        again = HeldJobs(jobs)
        again.release(job_id)
        again.queue.start()
        job = await again.over(job_id)
        assert (job.state, job.attempts) == (JobState.DONE, 1)
        await again.queue.close()

    run(work())


def test_time_left_is_known_for_second_job_of_a_kind(jobs: Jobs) -> None:
    async def work() -> None:
        now = 0.0
        monitor = JobMonitor(jobs, clock=lambda: now)
        estimates = []
        for _ in range(2):
            job = jobs.claim(["merge"]) or jobs.claim([jobs.add("merge", {}).kind])
            assert job
            for events in range(5):
                monitor.moved(job.id, Progress(events=events, events_total=4))
                estimates.append(monitor.left_s(job.id))
                now += 1
            now += 1
            jobs.finish(job, {"traces": []})
            monitor.stopped(job.id)
            assert (monitor.progress(job.id), monitor.left_s(job.id)) == (None, None)
        assert estimates[:5] == [None] * 5
        assert estimates[6:] == pytest.approx([5.0, 4.0, 3.0, 2.0])  # two seconds pass after the last progress

    run(work())


# -- waits --------------------------------------------------------------------------------------------------


def test_wait_for_a_job_returns_it_as_it_is_when_time_is_up(jobs: Jobs) -> None:
    async def work() -> None:
        monitor = JobMonitor(jobs)
        job = jobs.add("merge", {})
        assert (await monitor.settled(job.id, within_s=0.01)).state is JobState.QUEUED
        with pytest.raises(UnknownJob):
            await monitor.settled(99, within_s=1)

    run(work())


def test_monitor_that_closes_releases_all_waits(jobs: Jobs) -> None:
    async def work() -> None:
        monitor = JobMonitor(jobs)
        job = jobs.add("merge", {})
        waiting = [asyncio.create_task(monitor.settled(job.id, within_s=60)) for _ in range(3)]
        await asyncio.sleep(0)  # the tasks wait now
        monitor.close()
        assert {(await waiting_task).state for waiting_task in waiting} == {JobState.QUEUED}

    run(work())


async def _events(monitor: JobMonitor, job_id: int, last: str = "") -> list[str]:
    return [
        piece.decode()
        async for piece in job_events(monitor, job_id, lambda job: {"state": job.state}, last=last, heartbeat_s=0.01)
    ]


def test_stream_without_news_sends_heartbeats(jobs: Jobs) -> None:
    async def work() -> None:
        monitor = JobMonitor(jobs)
        job = jobs.add("merge", {})
        stream = job_events(monitor, job.id, lambda record: {"state": record.state}, heartbeat_s=0.001)
        assert [await anext(stream) for _ in range(4)] == [
            b"retry: 1000\n\n", b'id: 0.queued.0.0\ndata: {"state":"queued"}\n\n',
            b": nothing new\n\n", b": nothing new\n\n",
        ]  # fmt: skip
        jobs.cancel(job)
        monitor.changed(job.id)
        rest = b"".join([piece async for piece in stream])
        assert orjson.loads(rest.rpartition(b"data: ")[2]) == {"state": "cancelled"}

    run(work())


def test_stream_repeats_no_event_that_its_client_has(jobs: Jobs) -> None:
    async def work() -> None:
        monitor = JobMonitor(jobs)
        job = jobs.add("merge", {})
        jobs.cancel(job)
        assert len(await _events(monitor, job.id)) == 2
        assert await _events(monitor, job.id, last="0.cancelled.0.0") == ["retry: 1000\n\n"]
        assert await _events(monitor, 99) == ["retry: 1000\n\n"]

    run(work())

"""Who waits for jobs hears of them, in whatever order things happen."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from service.http.job_events import job_events
from service.jobs.board import ASKED_S, Board
from service.jobs.lane import Lane
from service.jobs.slots import SMALL_BYTES
from service.store.catalog import Catalog
from service.store.jobs import Job, Jobs, JobState, Priority
from service.streaming.source import Progress
from service.trace.errors import JobDied, NotReady, UnknownJob


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    one = Catalog(tmp_path / "catalog.sqlite")
    yield one
    one.close()


@pytest.fixture
def jobs(catalog: Catalog) -> Jobs:
    return Jobs(catalog.connection)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


class Work:
    """What a lane does: each job goes on until it is let go."""

    def __init__(self, jobs: Jobs, *, at_once: int = 1, attempts: int = 3) -> None:
        self.board = Board(jobs)
        self.lane = Lane(self.board, ["merge"], self.attempt, at_once=at_once, attempts=attempts)
        self.begun: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}
        self.error: Exception | None = None

    async def attempt(self, job: Job) -> None:
        self.begun.append(job.id)
        self.board.moved(job.id, Progress(events=1, events_total=2))
        await self.ends.setdefault(job.id, asyncio.Event()).wait()
        if self.error:
            raise self.error
        self.board.jobs.done(job, {"traces": []})

    def submit(self, priority: Priority = Priority.INTERACTIVE) -> int:
        job = self.board.jobs.add("merge", {}, priority=priority)
        self.lane.wake()
        return job.id

    def let_go(self, job_id: int) -> None:
        self.ends.setdefault(job_id, asyncio.Event()).set()

    async def has_begun(self, count: int) -> None:
        """Return once so many jobs have begun."""
        with self.board.watching() as news:
            while len(self.begun) < count:
                await news.wait()
                news.clear()

    async def all_over(self, *ids: int) -> None:
        """Return once these jobs are done, without a wait for any of them, which would have it go first."""
        with self.board.watching() as news:
            while {self.board.jobs.get(job_id).state for job_id in ids} != {JobState.DONE}:
                await news.wait()
                news.clear()

    async def over(self, job_id: int) -> Job:
        return await self.board.settled(job_id, within_s=20)


# -- lanes ------------------------------------------------------------------------------------------------------


def test_only_so_many_jobs_go_on_at_once_and_the_urgent_go_first(jobs: Jobs) -> None:
    async def work() -> None:
        one = Work(jobs, at_once=2)
        one.lane.start()
        bulk = [one.submit(Priority.BULK) for _ in range(3)]
        urgent = one.submit()
        for job_id in (*bulk, urgent):
            one.let_go(job_id)
        await one.all_over(*bulk, urgent)
        assert one.begun == [urgent, *bulk]
        await one.lane.close()

    run(work())


@pytest.mark.parametrize("is_asked", [False, True])
def test_jobs_that_clients_wait_for_or_have_asked_for_go_first(jobs: Jobs, is_asked: bool) -> None:
    async def work() -> None:
        one = Work(jobs)
        one.lane.start()
        others, awaited = [one.submit() for _ in range(2)], one.submit(Priority.BULK)
        for job_id in (*others, awaited):
            one.let_go(job_id)
        if is_asked:
            one.board.ask_for(awaited)
            await one.all_over(*others, awaited)
        else:
            await one.over(awaited)
            await one.all_over(*others)
        assert one.begun == [awaited, *others]
        await one.lane.close()

    run(work())


def test_who_has_asked_once_is_not_waited_upon_for_ever(jobs: Jobs) -> None:
    now = 0.0
    board = Board(jobs, clock=lambda: now)
    board.ask_for(7)
    with board.watching(8), board.watching():
        assert board.awaited() == {7, 8}
    now = ASKED_S
    assert board.awaited() == set()
    board.ask_for(9)
    assert board.awaited() == {9}


def test_a_small_job_goes_on_beside_large_ones_and_only_one(jobs: Jobs, catalog: Catalog) -> None:
    async def work() -> None:
        large = catalog.add("large", name="t.json", size=SMALL_BYTES + 1, sha256="00").id
        small = catalog.add("small", name="t.json", size=SMALL_BYTES, sha256="00").id
        one = Work(jobs)
        one.lane.start()
        first, waiting = (jobs.add("merge", {"traces": [large]}).id for _ in range(2))
        one.lane.wake()
        await one.has_begun(1)
        two, three = (jobs.add("merge", {"traces": [small]}) for _ in range(2))
        assert (one.lane.has_room(two), one.lane.has_room(jobs.get(waiting))) == (True, False)
        one.lane.wake()
        await one.has_begun(2)
        assert not one.lane.has_room(three)
        for job_id in (two.id, three.id):
            one.let_go(job_id)
            await one.all_over(job_id)
        assert one.begun == [first, two.id, three.id]
        for job_id in (first, waiting):
            one.let_go(job_id)
        await one.all_over(first, waiting)
        await one.lane.close()

    run(work())


def test_a_job_whose_process_dies_is_tried_again_and_not_for_ever(jobs: Jobs) -> None:
    async def work() -> None:
        one = Work(jobs, attempts=3)
        one.error = JobDied("The process was killed by SIGKILL.")
        one.lane.start()
        job_id = one.submit()
        one.let_go(job_id)
        job = await one.over(job_id)
        assert one.begun == [job_id] * 3
        assert (job.state, job.attempts) == (JobState.FAILED, 3)
        assert job.error == {
            "code": "job_died", "title": "The process that did the job died",
            "detail": "The process was killed by SIGKILL, 3 times.", "attempts": 3,
        }  # fmt: skip
        await one.lane.close()

    run(work())


@pytest.mark.parametrize(("error", "code"), [(NotReady("no"), "not_ready"), (ValueError("a bug"), "internal")])
def test_a_job_that_fails_tells_why_and_the_next_goes_on(jobs: Jobs, error: Exception, code: str) -> None:
    async def work() -> None:
        one = Work(jobs)
        one.error = error
        one.lane.start()
        first, second = one.submit(), one.submit()
        one.let_go(first)
        failed = await one.over(first)
        assert (failed.state, (failed.error or {})["code"]) == (JobState.FAILED, code)
        one.error = None
        one.let_go(second)
        assert (await one.over(second)).state is JobState.DONE
        await one.lane.close()

    run(work())


def test_a_job_is_cancelled_whether_it_waits_or_runs_or_is_over(jobs: Jobs) -> None:
    async def work() -> None:
        one = Work(jobs)
        one.lane.start()
        runs, waits, last = one.submit(), one.submit(), one.submit()
        await one.board.until(runs, lambda job: job.state is JobState.RUNNING, within_s=20)
        assert (await one.board.cancel(waits)).state is JobState.CANCELLED
        assert (await one.board.cancel(runs)).state is JobState.CANCELLED
        one.let_go(last)
        assert (await one.over(last)).state is JobState.DONE
        assert (await one.board.cancel(last)).state is JobState.DONE
        assert one.begun == [runs, last]
        with pytest.raises(UnknownJob):
            await one.board.cancel(99)
        await one.lane.close()

    run(work())


def test_what_is_not_finished_when_the_lane_closes_is_there_at_the_next_start(jobs: Jobs) -> None:
    async def work() -> None:
        one = Work(jobs)
        one.lane.start()
        job_id = one.submit()
        await one.board.until(job_id, lambda job: job.state is JobState.RUNNING, within_s=20)
        await one.lane.close()
        jobs.requeue()
        again = Work(jobs)
        again.let_go(job_id)
        again.lane.start()
        job = await again.over(job_id)
        assert (job.state, job.attempts) == (JobState.DONE, 1)
        await again.lane.close()

    run(work())


def test_the_time_left_is_told_of_the_second_job_of_a_kind(jobs: Jobs) -> None:
    async def work() -> None:
        now = 0.0
        board = Board(jobs, clock=lambda: now)
        told = []
        for _ in range(2):
            job = jobs.take(["merge"]) or jobs.take([jobs.add("merge", {}).kind])
            assert job
            for events in range(5):
                board.moved(job.id, Progress(events=events, events_total=4))
                told.append(board.left_s(job.id))
                now += 1
            now += 1
            jobs.done(job, {"traces": []})
            board.rests(job.id)
            assert (board.progress(job.id), board.left_s(job.id)) == (None, None)
        assert told[:5] == [None] * 5
        assert told[6:] == pytest.approx([5.0, 4.0, 3.0, 2.0])  # and two more for the end

    run(work())


# -- who waits --------------------------------------------------------------------------------------------------


def test_who_waits_no_longer_than_so_long_gets_the_job_as_it_is(jobs: Jobs) -> None:
    async def work() -> None:
        board = Board(jobs)
        job = jobs.add("merge", {})
        assert (await board.settled(job.id, within_s=0.01)).state is JobState.QUEUED
        with pytest.raises(UnknownJob):
            await board.settled(99, within_s=1)

    run(work())


def test_a_board_that_closes_lets_everybody_go(jobs: Jobs) -> None:
    async def work() -> None:
        board = Board(jobs)
        job = jobs.add("merge", {})
        waiting = [asyncio.create_task(board.settled(job.id, within_s=60)) for _ in range(3)]
        await asyncio.sleep(0)  # they wait now
        board.close()
        assert {(await one).state for one in waiting} == {JobState.QUEUED}

    run(work())


async def _events(board: Board, job_id: int, last: str = "") -> list[str]:
    return [
        piece.decode()
        async for piece in job_events(board, job_id, lambda job: {"state": job.state}, last=last, heartbeat_s=0.01)
    ]


def test_a_stream_without_news_says_that_there_are_none(jobs: Jobs) -> None:
    async def work() -> None:
        board = Board(jobs)
        job = jobs.add("merge", {})
        stream = job_events(board, job.id, lambda one: {"state": one.state}, heartbeat_s=0.001)
        assert [await anext(stream) for _ in range(4)] == [
            b"retry: 1000\n\n", b'id: 0.queued.0.0\ndata: {"state":"queued"}\n\n',
            b": nothing new\n\n", b": nothing new\n\n",
        ]  # fmt: skip
        jobs.cancel(job)
        board.changed(job.id)
        rest = b"".join([piece async for piece in stream])
        assert orjson.loads(rest.rpartition(b"data: ")[2]) == {"state": "cancelled"}

    run(work())


def test_who_has_heard_the_last_event_hears_none_twice(jobs: Jobs) -> None:
    async def work() -> None:
        board = Board(jobs)
        job = jobs.add("merge", {})
        jobs.cancel(job)
        assert len(await _events(board, job.id)) == 2
        assert await _events(board, job.id, last="0.cancelled.0.0") == ["retry: 1000\n\n"]
        assert await _events(board, 99) == ["retry: 1000\n\n"]

    run(work())

"""Each ingest ends, even if its child dies, the server stops, or the trace is deleted."""

import asyncio
import logging
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.jobs.children.fork_server import ForkServer
from service.jobs.ingest_jobs import IngestJobs
from service.jobs.slots import SMALL_BYTES
from service.store.catalog import State
from service.trace.errors import DiskFull, UnknownTrace
from tests.jobs.conftest import Parts, workers
from tests.traces import TraceShape, expected, sized, write_trace
from tests.waiting import PATIENCE_S

SHAPE = TraceShape(steps=2)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine of a test within a time limit."""
    asyncio.run(asyncio.wait_for(work, 90))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace", SHAPE)


def test_queued_trace_becomes_ready(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        trace_id = parts.add(trace, "rank3.json")
        ingests = parts.ingests()
        ingests.start()

        settled = await ingests.settled(trace_id, within_s=PATIENCE_S)

        assert settled.state is State.READY
        assert settled.summary
        assert settled.summary.counts == expected(SHAPE).counts
        assert (parts.folder.columns_of(trace_id) / "envelope.json").exists()
        await ingests.close()
        assert ingests.progress(trace_id) is None

    run(work())


def test_later_trace_is_read_when_the_queue_is_woken(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        ingests = parts.ingests()
        ingests.start()
        for _ in range(3):
            trace_id = parts.add(trace)
            ingests.wake()

            assert (await ingests.settled(trace_id, within_s=PATIENCE_S)).state is State.READY
        await ingests.close()

    run(work())


def test_file_that_is_no_trace_fails_at_once_with_the_reason(parts: Parts) -> None:
    async def work() -> None:
        trace_id = parts.add(b"PK\x03\x04 a zip archive")
        ingests = parts.ingests()
        ingests.start()

        settled = await ingests.settled(trace_id, within_s=PATIENCE_S)

        assert settled.state is State.FAILED
        assert settled.error
        assert (settled.error.code, settled.error.facts["offset"]) == ("not_json", 0)
        await ingests.close()

    run(work())


def test_killed_ingest_child_is_replaced(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        pipe = parts.add_pipe()
        ingests = parts.ingests()
        ingests.start()
        worker = await pipe.opened()
        os.link(trace, pipe.path.with_name("whole"))
        pipe.path.with_name("whole").replace(pipe.path)  # the next worker reads this file

        worker.kill()

        assert (await ingests.settled(pipe.id, within_s=PATIENCE_S)).state is State.READY
        os.close(pipe.end)
        await ingests.close()

    run(work())


def test_trace_fails_if_its_child_dies_at_each_attempt(parts: Parts) -> None:
    async def work() -> None:
        pipe = parts.add_pipe()
        ingests = parts.ingests(attempts=3)
        ingests.start()
        for _ in range(3):
            worker = await pipe.opened()
            assert parts.catalog.get(pipe.id).state is State.INGESTING
            worker.kill()
            await pipe.closed()

        settled = await ingests.settled(pipe.id, within_s=PATIENCE_S)

        assert settled.state is State.FAILED
        assert settled.error
        assert (settled.error.code, settled.error.facts["attempts"]) == ("worker_died", 3)
        assert "SIGKILL" in settled.error.detail
        await ingests.close()

    run(work())


def test_trace_that_kills_its_child_does_not_block_the_next(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        pipe, trace_id = parts.add_pipe(), parts.add(trace)
        ingests = parts.ingests(attempts=1)
        ingests.start()
        (await pipe.opened()).kill()
        await pipe.closed()

        assert (await ingests.settled(trace_id, within_s=PATIENCE_S)).state is State.READY
        assert parts.catalog.get(pipe.id).state is State.FAILED
        await ingests.close()

    run(work())


def test_trace_fails_if_its_child_cannot_be_started(parts: Parts, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.jobs.children.fork_server.sys.executable", "/nowhere/python")
    monkeypatch.setattr("tests.jobs.conftest.FORK_SERVER", ForkServer())

    async def work() -> None:
        trace_id = parts.add(trace)
        ingests = parts.ingests(attempts=2)
        ingests.start()

        settled = await ingests.settled(trace_id, within_s=PATIENCE_S)

        assert settled.error
        assert settled.error.code == "worker_died"
        assert "could not be started" in settled.error.detail
        await ingests.close()

    run(work())


# -- large and small --------------------------------------------------------------------------------------------

LARGE = SMALL_BYTES + 1


def test_small_trace_is_read_while_large_ones_take_all_workers(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        running, waiting = parts.add_pipe(LARGE), parts.add_pipe(LARGE)
        ingests = parts.ingests(workers=1)
        ingests.start()
        await running.opened()
        for _ in range(3):
            trace_id = parts.add(trace)
            ingests.wake()
            assert (await ingests.settled(trace_id, within_s=PATIENCE_S)).state is State.READY
        states = [parts.catalog.get(pipe.id).state for pipe in (running, waiting)]
        assert states == [State.INGESTING, State.QUEUED]
        await ingests.close()
        await running.closed()

    run(work())


def test_only_one_small_trace_is_read_in_addition_to_large_ones(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        large = parts.add_pipe(LARGE)
        ingests = parts.ingests(workers=1)
        ingests.start()
        await large.opened()
        small = parts.add_pipe()
        ingests.wake()
        await small.opened()
        waiting = parts.add(trace)
        ingests.wake()
        assert (await ingests.settled(waiting, within_s=0.05)).state is State.QUEUED
        await ingests.close()
        for pipe in (small, large):
            await pipe.closed()

    run(work())


def test_awaited_trace_is_read_before_smaller_ones(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        pipe = parts.add_pipe()
        ingests = parts.ingests()
        ingests.start()
        await pipe.opened()
        unwanted, wanted = parts.add_pipe(2), parts.add(trace)
        waiting = asyncio.create_task(ingests.settled(wanted, within_s=PATIENCE_S))
        await asyncio.sleep(0)  # it waits now
        await ingests.cancel(pipe.id)
        parts.catalog.remove(pipe.id)
        await pipe.closed()

        assert (await waiting).state is State.READY
        assert parts.catalog.get(wanted).size > 2
        await unwanted.opened()
        await ingests.close()
        await unwanted.closed()

    run(work())


# -- cancel and delete ------------------------------------------------------------------------------------------


def test_cancelling_kills_the_child_and_makes_room_for_the_next(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        pipe, trace_id = parts.add_pipe(), parts.add(trace)
        ingests = parts.ingests()
        ingests.start()
        worker = await pipe.opened()

        await ingests.cancel(pipe.id)

        assert not worker.is_running()
        assert ingests.progress(pipe.id) is None
        await pipe.closed()
        assert (await ingests.settled(trace_id, within_s=PATIENCE_S)).state is State.READY
        await ingests.close()

    run(work())


def test_cancelling_a_trace_that_is_not_read_does_nothing(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        ingests = parts.ingests()
        ingests.start()
        await ingests.cancel("unknown")
        await ingests.close()

    run(work())


def test_wait_for_a_trace_ends_when_it_is_deleted(parts: Parts) -> None:
    async def work() -> None:
        pipe = parts.add_pipe()
        ingests = parts.ingests()
        ingests.start()
        await pipe.opened()
        waiting = asyncio.create_task(ingests.settled(pipe.id, within_s=PATIENCE_S))
        await asyncio.sleep(0)  # it waits now

        parts.catalog.remove(pipe.id)
        await ingests.cancel(pipe.id)

        with pytest.raises(UnknownTrace):
            await asyncio.wait_for(waiting, 5)
        await pipe.closed()
        await ingests.close()

    run(work())


# -- waiting ----------------------------------------------------------------------------------------------------


def test_wait_for_a_trace_ends_when_time_is_up(parts: Parts) -> None:
    async def work() -> None:
        pipe = parts.add_pipe()
        ingests = parts.ingests()
        ingests.start()
        await pipe.opened()

        assert (await ingests.settled(pipe.id, within_s=0.01)).state is State.INGESTING
        await ingests.close()
        await pipe.closed()

    run(work())


def test_wait_for_a_settled_trace_returns_at_once(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        trace_id = parts.add(trace)
        ingests = parts.ingests()
        ingests.start()
        await ingests.settled(trace_id, within_s=PATIENCE_S)
        await ingests.close()

        assert (await ingests.settled(trace_id, within_s=3600)).state is State.READY

    run(work())


def test_all_waits_for_a_trace_end_with_its_ingest(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        traces = [parts.add(trace) for _ in range(4)]
        ingests = parts.ingests(workers=2)
        ingests.start()

        settled_traces = await asyncio.gather(
            *(ingests.settled(trace_id, within_s=PATIENCE_S) for trace_id in traces * 3)
        )

        assert {trace_id.state for trace_id in settled_traces} == {State.READY}
        await ingests.close()

    run(work())


def test_progress_of_a_trace_only_grows(parts: Parts, tmp_path: Path) -> None:
    async def work() -> None:
        path = write_trace(tmp_path / "large", sized(TraceShape(kernels=500), 75_000_000))
        trace_id = parts.add(path)
        ingests = parts.ingests()
        ingests.start()
        reports = []
        while not (await ingests.settled(trace_id, within_s=0.05)).state.settled:
            if progress := ingests.progress(trace_id):
                reports.append((progress.bytes, progress.events))

        assert reports == sorted(reports)
        assert len(set(reports)) > 2
        summary = parts.catalog.get(trace_id).summary
        assert summary
        assert reports[-1] <= (path.stat().st_size, summary.events["in"])
        await ingests.close()

    run(work())


def test_number_of_concurrent_ingests_is_bounded(parts: Parts) -> None:
    async def work() -> None:
        pipes = [parts.add_pipe() for _ in range(3)]
        ingests = parts.ingests(workers=2)
        ingests.start()
        await asyncio.gather(*(pipe.opened() for pipe in pipes[:2]))

        assert len(workers()) == 2
        assert [parts.catalog.get(pipe.id).state for pipe in pipes] == ["ingesting", "ingesting", "queued"]

        await ingests.cancel(pipes[0].id)
        await pipes[2].opened()

        assert len(workers()) == 2
        await ingests.close()
        for pipe in pipes:
            await pipe.closed()

    run(work())


# -- uploads that are followed ----------------------------------------------------------------------------------


async def at_work(parts: Parts) -> psutil.Process:
    """Return the only child once it has begun to read."""

    def wait_for_start() -> None:
        while not list(parts.folder.columns.iterdir()):
            pass

    await asyncio.to_thread(wait_for_start)
    (worker,) = workers()
    return worker


def test_child_that_follows_an_upload_gets_its_job(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        ingests = parts.ingests(attempts=1)
        ingests.start()
        trace_id = parts.receive(trace, 1000)
        async with ingests.following(trace_id, "t.json") as upload:
            upload.grew(1000)
            worker = await at_work(parts)
            assert ingests.progress(trace_id) is None  # the trace does not exist yet
            parts.keep(trace_id, trace)
            ingests.hand_over(trace_id)
            assert parts.catalog.get(trace_id).state is State.INGESTING

        settled = await ingests.settled(trace_id, within_s=PATIENCE_S)

        assert settled.state is State.READY
        assert settled.summary
        assert settled.summary.counts == expected(SHAPE).counts
        assert not worker.is_running()
        await ingests.close()

    run(work())


def test_abandoned_upload_ends_its_child_and_removes_its_columns(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        ingests = parts.ingests()
        ingests.start()
        trace_id = parts.receive(trace)
        async with ingests.following(trace_id, "t.json") as upload:
            upload.grew(1000)
            worker = await at_work(parts)

        assert not worker.is_running()
        assert list(parts.folder.columns.iterdir()) == []
        await ingests.close()

    run(work())


def test_closing_ends_followers_and_begins_no_more(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        ingests = parts.ingests(workers=2)
        ingests.start()
        first, second = (parts.receive(trace) for _ in range(2))
        async with ingests.following(first, "t.json") as upload, ingests.following(second, "t.json") as second_upload:
            upload.grew(1000)
            await at_work(parts)

            await ingests.close()

            upload.grew(2000)
            second_upload.grew(1000)
            assert workers() == []
            parts.keep(first)
            ingests.hand_over(first)
        assert parts.catalog.get(first).state is State.QUEUED
        assert list(parts.folder.columns.iterdir()) == []

    run(work())


def test_follower_of_a_complete_upload_counts_as_a_worker(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        ingests = parts.ingests(workers=1)
        ingests.start()
        pipe, later = parts.receive_pipe(), parts.receive(trace)
        async with ingests.following(pipe.id, "t.json") as upload:
            upload.grew(1)
            await pipe.opened()
            parts.keep(pipe.id)
            ingests.hand_over(pipe.id)
        async with ingests.following(later, "t.json") as upload:
            upload.grew(1000)
            parts.keep(later)
            ingests.hand_over(later)
        assert len(workers()) == 1
        assert [parts.catalog.get(resumed_id).state for resumed_id in (pipe.id, later)] == ["ingesting", "queued"]

        os.close(pipe.end)

        assert (await ingests.settled(later, within_s=PATIENCE_S)).state is State.READY
        assert parts.catalog.get(pipe.id).state is State.FAILED
        await ingests.close()

    run(work())


def test_job_that_cannot_be_handed_over_stays_in_the_queue(
    parts: Parts, trace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise DiskFull("no room")

    async def work() -> None:
        ingests = parts.ingests(attempts=1)
        ingests.start()
        trace_id = parts.receive(trace)
        async with ingests.following(trace_id, "t.json") as upload:
            upload.grew(1000)
            worker = await at_work(parts)
            parts.keep(trace_id)
            monkeypatch.setattr(parts.jobs, "claim", no_room)
            ingests.hand_over(trace_id)

        assert (await ingests.settled(trace_id, within_s=PATIENCE_S)).state is State.READY
        assert not worker.is_running()
        assert "no job starts until the disk has room" in caplog.text
        await ingests.close()

    run(work())


# -- the end of the server, and the next one --------------------------------------------------------------------


def test_closing_ends_children_and_unfinished_ingests_resume_at_next_start(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        pipe, trace_id = parts.add_pipe(), parts.add(trace)
        first = parts.ingests()
        first.start()
        worker = await pipe.opened()

        await first.close()

        assert not worker.is_running()
        await pipe.closed()
        assert not parts.catalog.get(pipe.id).state.settled
        pipe.path.unlink()
        pipe.path.hardlink_to(trace)
        second = parts.ingests()
        second.start()
        for resumed_id in (pipe.id, trace_id):
            assert (await second.settled(resumed_id, within_s=PATIENCE_S)).state is State.READY
        await second.close()

    run(work())


def test_ingest_job_replaces_what_a_killed_child_left(parts: Parts, trace: Path) -> None:
    async def work() -> None:
        trace_id = parts.add(trace)
        for leftover in (trace_id, f"{trace_id}.partial"):
            parts.folder.columns_of(leftover).mkdir()
            (parts.folder.columns_of(leftover) / "stale").write_bytes(b"x")
        ingests = parts.ingests()
        ingests.start()
        await ingests.settled(trace_id, within_s=PATIENCE_S)

        names = {path.name for path in parts.folder.columns.rglob("*")}
        assert names >= {trace_id, "envelope.json"}
        assert not names & {f"{trace_id}.partial", "stale"}
        await ingests.close()

    run(work())


def test_closing_ingests_that_never_started_does_nothing(parts: Parts) -> None:
    run(parts.ingests().close())


# -- a catalog that fails ---------------------------------------------------------------------------------------


def test_result_without_room_is_logged_and_recorded_later(
    parts: Parts, trace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = parts.jobs.finish_ingest
    refused: list[Any] = []

    def fail_once(*of: Any, **options: Any) -> bool:
        if not refused:
            refused.append(of)
            raise DiskFull("no room")
        return read(*of, **options)

    monkeypatch.setattr(parts.jobs, "finish_ingest", fail_once)

    async def work() -> None:
        first = parts.add(trace)
        ingests = parts.ingests()
        ingests.start()
        await asyncio.sleep(0)  # the job is taken now
        second = parts.add(trace)

        assert (await ingests.settled(second, within_s=PATIENCE_S)).state is State.READY
        assert (await ingests.settled(first, within_s=PATIENCE_S)).state is State.READY
        await ingests.close()
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert first in caplog.text

    run(work())


def test_catalog_without_room_is_tried_again_at_the_next_upload(
    parts: Parts, trace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempted = asyncio.Event()

    def no_room(*_: object, **__: object) -> None:
        monkeypatch.undo()
        attempted.set()
        raise DiskFull("no room")

    monkeypatch.setattr(parts.jobs, "claim", no_room)

    async def work() -> None:
        first = parts.add(trace)
        ingests = parts.ingests()
        ingests.start()
        await attempted.wait()

        ingests.wake()

        assert (await ingests.settled(first, within_s=PATIENCE_S)).state is State.READY
        assert "no job starts until the disk has room" in caplog.text
        await ingests.close()

    run(work())


def test_trace_that_is_not_read_has_no_progress(parts: Parts) -> None:
    assert isinstance(ingests := parts.ingests(), IngestJobs)
    assert ingests.progress("unknown") is None

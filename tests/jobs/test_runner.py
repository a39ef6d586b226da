"""The runner brings each job to its end: through workers that die, a server that stops, and traces that are deleted."""

import asyncio
import logging
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.jobs.ingest_jobs import IngestJobs
from service.jobs.slots import SMALL_BYTES
from service.store.catalog import State
from service.trace.errors import DiskFull, UnknownTrace
from tests.jobs.conftest import Dock, workers
from tests.traces import TraceShape, expected, sized, write_trace

SHAPE = TraceShape(steps=2)
WAIT_S = 30.0


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's work; what it leaves undone is an error of the test."""
    asyncio.run(asyncio.wait_for(work, 90))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace", SHAPE)


def test_a_queued_trace_becomes_ready(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        trace_id = dock.add(trace, "rank3.json")
        runner = dock.runner()
        runner.start()

        found = await runner.settled(trace_id, within_s=WAIT_S)

        assert found.state is State.READY
        assert found.summary
        assert found.summary["counts"] == expected(SHAPE).counts
        assert (dock.folder.columns_of(trace_id) / "envelope.json").exists()
        await runner.close()
        assert runner.progress(trace_id) is None

    run(work())


def test_a_worker_is_kept_ready_used_and_replaced(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        runner = dock.runner(keep_ready=True)
        runner.start()
        assert runner._pool._warm
        await runner._pool._warm
        [ready] = workers()
        trace_id = dock.add(trace, "rank3.json")
        runner.wake()
        found = await runner.settled(trace_id, within_s=WAIT_S)
        assert found.state is State.READY
        assert found.summary
        assert found.summary["counts"] == expected(SHAPE).counts
        [other] = await appeared(1)
        assert other != ready

        other.kill()  # nobody notices before it is needed
        trace_id = dock.add(trace)
        runner.wake()
        assert (await runner.settled(trace_id, within_s=WAIT_S)).state is State.READY
        await runner.close()
        assert workers() == []

    run(work())


async def appeared(count: int) -> list[psutil.Process]:
    """The workers, once there are so many."""
    async with asyncio.timeout(20):
        while len(found := workers()) != count:  # noqa: ASYNC110 - another process tells nobody that it has started
            await asyncio.sleep(0.01)
    return found


def test_a_trace_that_comes_later_is_taken_when_the_runner_is_woken(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        runner = dock.runner()
        runner.start()
        for _ in range(3):
            trace_id = dock.add(trace)
            runner.wake()

            assert (await runner.settled(trace_id, within_s=WAIT_S)).state is State.READY
        await runner.close()

    run(work())


def test_a_file_that_is_no_trace_fails_with_the_reason_at_once(dock: Dock) -> None:
    async def work() -> None:
        trace_id = dock.add(b"PK\x03\x04 a zip archive")
        runner = dock.runner()
        runner.start()

        found = await runner.settled(trace_id, within_s=WAIT_S)

        assert found.state is State.FAILED
        assert found.error
        assert (found.error["code"], found.error["offset"]) == ("not_json", 0)
        await runner.close()

    run(work())


def test_a_worker_that_is_killed_is_replaced(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        pipe = dock.add_pipe()
        runner = dock.runner()
        runner.start()
        worker = await pipe.opened()
        os.link(trace, pipe.path.with_name("whole"))
        pipe.path.with_name("whole").replace(pipe.path)  # what the next worker reads

        worker.kill()

        assert (await runner.settled(pipe.id, within_s=WAIT_S)).state is State.READY
        os.close(pipe.end)
        await runner.close()

    run(work())


def test_workers_that_die_each_time_fail_the_trace(dock: Dock) -> None:
    async def work() -> None:
        pipe = dock.add_pipe()
        runner = dock.runner(attempts=3)
        runner.start()
        for _ in range(3):
            worker = await pipe.opened()
            assert dock.catalog.get(pipe.id).state is State.INGESTING
            worker.kill()
            await pipe.closed()

        found = await runner.settled(pipe.id, within_s=WAIT_S)

        assert found.state is State.FAILED
        assert found.error
        assert (found.error["code"], found.error["attempts"]) == ("worker_died", 3)
        assert "SIGKILL" in found.error["detail"]
        await runner.close()

    run(work())


def test_a_trace_that_kills_its_workers_does_not_hold_up_the_next(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        pipe, trace_id = dock.add_pipe(), dock.add(trace)
        runner = dock.runner(attempts=1)
        runner.start()
        (await pipe.opened()).kill()
        await pipe.closed()

        assert (await runner.settled(trace_id, within_s=WAIT_S)).state is State.READY
        assert dock.catalog.get(pipe.id).state is State.FAILED
        await runner.close()

    run(work())


def test_a_worker_that_cannot_be_started_fails_the_trace_in_the_end(
    dock: Dock, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.jobs.children.process.sys.executable", "/nowhere/python")

    async def work() -> None:
        trace_id = dock.add(trace)
        runner = dock.runner(attempts=2)
        runner.start()

        found = await runner.settled(trace_id, within_s=WAIT_S)

        assert found.error
        assert found.error["code"] == "worker_died"
        assert "could not be started" in found.error["detail"]
        await runner.close()

    run(work())


# -- large and small --------------------------------------------------------------------------------------------

LARGE = SMALL_BYTES + 1


def test_a_small_trace_is_read_while_large_ones_take_all_workers(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        running, waiting = dock.add_pipe(LARGE), dock.add_pipe(LARGE)
        runner = dock.runner(workers=1)
        runner.start()
        await running.opened()
        for _ in range(3):
            trace_id = dock.add(trace)
            runner.wake()
            assert (await runner.settled(trace_id, within_s=WAIT_S)).state is State.READY
        states = [dock.catalog.get(one.id).state for one in (running, waiting)]
        assert states == [State.INGESTING, State.QUEUED]
        await runner.close()
        await running.closed()

    run(work())


def test_only_one_small_trace_is_read_beside_large_ones(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        large = dock.add_pipe(LARGE)
        runner = dock.runner(workers=1)
        runner.start()
        await large.opened()
        small = dock.add_pipe()
        runner.wake()
        await small.opened()
        other = dock.add(trace)
        runner.wake()
        assert (await runner.settled(other, within_s=0.05)).state is State.QUEUED
        await runner.close()
        for pipe in (small, large):
            await pipe.closed()

    run(work())


def test_a_trace_that_a_client_waits_for_is_read_before_smaller_ones(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        pipe = dock.add_pipe()
        runner = dock.runner()
        runner.start()
        await pipe.opened()
        unwanted, wanted = dock.add_pipe(2), dock.add(trace)
        waiting = asyncio.create_task(runner.settled(wanted, within_s=WAIT_S))
        await asyncio.sleep(0)  # it waits now
        await runner.cancel(pipe.id)
        dock.catalog.remove(pipe.id)
        await pipe.closed()

        assert (await waiting).state is State.READY
        assert dock.catalog.get(wanted).size > 2
        await unwanted.opened()
        await runner.close()
        await unwanted.closed()

    run(work())


# -- cancel and delete ------------------------------------------------------------------------------------------


def test_cancelling_kills_the_worker_and_makes_room_for_the_next(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        pipe, trace_id = dock.add_pipe(), dock.add(trace)
        runner = dock.runner()
        runner.start()
        worker = await pipe.opened()

        await runner.cancel(pipe.id)

        assert not worker.is_running()
        assert runner.progress(pipe.id) is None
        await pipe.closed()
        assert (await runner.settled(trace_id, within_s=WAIT_S)).state is State.READY
        await runner.close()

    run(work())


def test_cancelling_what_does_not_run_does_nothing(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        runner = dock.runner()
        runner.start()
        await runner.cancel("unknown")
        await runner.close()

    run(work())


def test_who_waits_for_a_trace_that_is_deleted_hears_of_it(dock: Dock) -> None:
    async def work() -> None:
        pipe = dock.add_pipe()
        runner = dock.runner()
        runner.start()
        await pipe.opened()
        waiting = asyncio.create_task(runner.settled(pipe.id, within_s=WAIT_S))
        await asyncio.sleep(0)  # it waits now

        dock.catalog.remove(pipe.id)
        await runner.cancel(pipe.id)

        with pytest.raises(UnknownTrace):
            await asyncio.wait_for(waiting, 5)
        await pipe.closed()
        await runner.close()

    run(work())


# -- waiting ----------------------------------------------------------------------------------------------------


def test_waiting_ends_with_the_time_that_was_given(dock: Dock) -> None:
    async def work() -> None:
        pipe = dock.add_pipe()
        runner = dock.runner()
        runner.start()
        await pipe.opened()

        assert (await runner.settled(pipe.id, within_s=0.01)).state is State.INGESTING
        await runner.close()
        await pipe.closed()

    run(work())


def test_a_settled_trace_is_not_waited_for(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        trace_id = dock.add(trace)
        runner = dock.runner()
        runner.start()
        await runner.settled(trace_id, within_s=WAIT_S)
        await runner.close()

        assert (await runner.settled(trace_id, within_s=3600)).state is State.READY

    run(work())


def test_all_who_wait_are_told(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        traces = [dock.add(trace) for _ in range(4)]
        runner = dock.runner(workers=2)
        runner.start()

        found = await asyncio.gather(*(runner.settled(one, within_s=WAIT_S) for one in traces * 3))

        assert {one.state for one in found} == {State.READY}
        await runner.close()

    run(work())


def test_progress_only_grows(dock: Dock, tmp_path: Path) -> None:
    async def work() -> None:
        path = write_trace(tmp_path / "large", sized(TraceShape(kernels=500), 25_000_000))
        trace_id = dock.add(path)
        runner = dock.runner()
        runner.start()
        seen = []
        while not (await runner.settled(trace_id, within_s=0.05)).state.settled:
            if progress := runner.progress(trace_id):
                seen.append((progress.bytes, progress.events))

        assert seen == sorted(seen)
        assert len(set(seen)) > 2
        assert seen[-1] <= (path.stat().st_size, dock.catalog.get(trace_id).summary["events"]["in"])  # type: ignore[index]
        await runner.close()

    run(work())


def test_no_more_workers_run_than_are_allowed(dock: Dock) -> None:
    async def work() -> None:
        pipes = [dock.add_pipe() for _ in range(3)]
        runner = dock.runner(workers=2)
        runner.start()
        await asyncio.gather(*(pipe.opened() for pipe in pipes[:2]))

        assert len(workers()) == 2
        assert [dock.catalog.get(pipe.id).state for pipe in pipes] == ["ingesting", "ingesting", "queued"]

        await runner.cancel(pipes[0].id)
        await pipes[2].opened()

        assert len(workers()) == 2
        await runner.close()
        for pipe in pipes:
            await pipe.closed()

    run(work())


# -- uploads that are followed ----------------------------------------------------------------------------------


async def at_work(dock: Dock) -> psutil.Process:
    """The one worker, once it has begun to read."""

    def until_begun() -> None:
        while not list(dock.folder.columns.iterdir()):
            pass

    await asyncio.to_thread(until_begun)
    (worker,) = workers()
    return worker


def test_the_worker_that_follows_an_upload_has_its_job(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        runner = dock.runner(attempts=1)
        runner.start()
        trace_id = dock.receive(trace, 1000)
        async with runner.following(trace_id, "t.json") as upload:
            upload.grew(1000)
            worker = await at_work(dock)
            assert runner.progress(trace_id) is None  # of a trace that is not there
            dock.keep(trace_id, trace)
            runner.hand_over(trace_id)
            assert dock.catalog.get(trace_id).state is State.INGESTING

        found = await runner.settled(trace_id, within_s=WAIT_S)

        assert found.state is State.READY
        assert found.summary
        assert found.summary["counts"] == expected(SHAPE).counts
        assert not worker.is_running()
        await runner.close()

    run(work())


def test_an_upload_that_comes_to_nothing_ends_its_worker_and_takes_its_columns_along(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        runner = dock.runner()
        runner.start()
        trace_id = dock.receive(trace)
        async with runner.following(trace_id, "t.json") as upload:
            upload.grew(1000)
            worker = await at_work(dock)

        assert not worker.is_running()
        assert list(dock.folder.columns.iterdir()) == []
        await runner.close()

    run(work())


def test_closing_ends_the_workers_that_follow_and_no_more_are_begun(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        runner = dock.runner(workers=2)
        runner.start()
        first, second = (dock.receive(trace) for _ in range(2))
        async with runner.following(first, "t.json") as one, runner.following(second, "t.json") as other:
            one.grew(1000)
            await at_work(dock)

            await runner.close()

            one.grew(2000)
            other.grew(1000)
            assert workers() == []
            dock.keep(first)
            runner.hand_over(first)
        assert dock.catalog.get(first).state is State.QUEUED
        assert list(dock.folder.columns.iterdir()) == []

    run(work())


def test_a_worker_whose_upload_is_complete_counts_as_one_that_works(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        runner = dock.runner(workers=1)
        runner.start()
        pipe, later = dock.receive_pipe(), dock.receive(trace)
        async with runner.following(pipe.id, "t.json") as upload:
            upload.grew(1)
            await pipe.opened()
            dock.keep(pipe.id)
            runner.hand_over(pipe.id)
        async with runner.following(later, "t.json") as upload:
            upload.grew(1000)
            dock.keep(later)
            runner.hand_over(later)
        assert len(workers()) == 1
        assert [dock.catalog.get(one).state for one in (pipe.id, later)] == ["ingesting", "queued"]

        os.close(pipe.end)

        assert (await runner.settled(later, within_s=WAIT_S)).state is State.READY
        assert dock.catalog.get(pipe.id).state is State.FAILED
        await runner.close()

    run(work())


def test_a_job_that_cannot_be_handed_over_has_its_turn(
    dock: Dock, trace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise DiskFull("no room")

    async def work() -> None:
        runner = dock.runner(attempts=1)
        runner.start()
        trace_id = dock.receive(trace)
        async with runner.following(trace_id, "t.json") as upload:
            upload.grew(1000)
            worker = await at_work(dock)
            dock.keep(trace_id)
            monkeypatch.setattr(dock.jobs, "take", no_room)
            runner.hand_over(trace_id)

        assert (await runner.settled(trace_id, within_s=WAIT_S)).state is State.READY
        assert not worker.is_running()
        assert "no job can be begun" in caplog.text
        await runner.close()

    run(work())


# -- the end of the server, and the next one --------------------------------------------------------------------


def test_closing_ends_the_workers_and_the_next_runner_takes_up_what_was_left(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        pipe, trace_id = dock.add_pipe(), dock.add(trace)
        first = dock.runner()
        first.start()
        worker = await pipe.opened()

        await first.close()

        assert not worker.is_running()
        await pipe.closed()
        assert not dock.catalog.get(pipe.id).state.settled
        pipe.path.unlink()
        pipe.path.hardlink_to(trace)
        second = dock.runner()
        second.start()
        for one in (pipe.id, trace_id):
            assert (await second.settled(one, within_s=WAIT_S)).state is State.READY
        await second.close()

    run(work())


def test_what_a_killed_worker_left_is_replaced(dock: Dock, trace: Path) -> None:
    async def work() -> None:
        trace_id = dock.add(trace)
        for leftover in (trace_id, f"{trace_id}.partial"):
            dock.folder.columns_of(leftover).mkdir()
            (dock.folder.columns_of(leftover) / "stale").write_bytes(b"x")
        runner = dock.runner()
        runner.start()
        await runner.settled(trace_id, within_s=WAIT_S)

        left = {path.name for path in dock.folder.columns.rglob("*")}
        assert left >= {trace_id, "envelope.json"}
        assert not left & {f"{trace_id}.partial", "stale"}
        await runner.close()

    run(work())


def test_closing_a_runner_that_never_started_does_nothing(dock: Dock) -> None:
    run(dock.runner().close())


# -- a catalog that fails ---------------------------------------------------------------------------------------


def test_a_result_that_cannot_be_recorded_is_logged_and_recorded_once_there_is_room(
    dock: Dock, trace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = dock.jobs.read
    refused: list[Any] = []

    def fail_once(*of: Any) -> None:
        if not refused:
            refused.append(of)
            raise DiskFull("no room")
        read(*of)

    monkeypatch.setattr(dock.jobs, "read", fail_once)

    async def work() -> None:
        first = dock.add(trace)
        runner = dock.runner()
        runner.start()
        await asyncio.sleep(0)  # it is taken now
        second = dock.add(trace)

        assert (await runner.settled(second, within_s=WAIT_S)).state is State.READY
        assert (await runner.settled(first, within_s=WAIT_S)).state is State.READY
        await runner.close()
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert first in caplog.text

    run(work())


def test_a_catalog_without_room_is_asked_again_at_the_next_upload(
    dock: Dock, trace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()

    def no_room(*_: object, **__: object) -> None:
        monkeypatch.undo()
        asked.set()
        raise DiskFull("no room")

    monkeypatch.setattr(dock.jobs, "take", no_room)

    async def work() -> None:
        first = dock.add(trace)
        runner = dock.runner()
        runner.start()
        await asked.wait()

        runner.wake()

        assert (await runner.settled(first, within_s=WAIT_S)).state is State.READY
        assert "no job can be begun" in caplog.text
        await runner.close()

    run(work())


def test_the_runner_names_no_trace_that_does_not_run(dock: Dock) -> None:
    assert isinstance(runner := dock.runner(), IngestJobs)
    assert runner.progress("unknown") is None

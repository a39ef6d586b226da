"""The fork server starts children that own their pipes only, and the death of either side ends all children."""

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import uvloop

from service.jobs.children.fork_server import ForkServer, environment
from service.jobs.children.kinds import FORK_SERVER_TITLE, Kind
from service.jobs.children.messages import Done, Failed, Output
from service.jobs.children.process import ChildProcess
from service.jobs.children.tasks.documents import ExportTask
from tests.columns import write_columns
from tests.processes import living
from tests.traces import TraceShape, trace_chunks
from tests.waiting import PATIENCE_S, until

POOL = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"


def run(scenario: Callable[[ForkServer], Awaitable[None]]) -> None:
    """Run a scenario with a fork server of its own, and check that no process is left."""

    async def main() -> None:
        fork_server = ForkServer()
        try:
            await scenario(fork_server)
        finally:
            await fork_server.close()

    before = set(psutil.Process().children(recursive=True))
    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert not psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=PATIENCE_S)[1]


def pids_of(fork_server: ForkServer) -> tuple[psutil.Process, list[int]]:
    """Return the process of a fork server, and the ids of its children."""
    assert fork_server._running
    process = psutil.Process(fork_server._running.process.pid)
    return process, [child.pid for child in process.children()]


async def answers(child: ChildProcess) -> bool:
    """Return whether a child fails to export columns that do not exist, as it should."""
    child.call(ExportTask(Path("/nowhere")))
    return isinstance(await child.receive(), Failed)


def backend_of(settings: dict[str, str]) -> str:
    return subprocess.run([sys.executable, "-c", POOL], env=settings, capture_output=True, check=True).stdout.decode()


def test_arrow_of_a_child_allocates_from_the_system() -> None:
    assert backend_of(environment()) == "system\n"


def test_environment_overrides_where_arrow_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    assert backend_of(environment()) == "mimalloc\n"


def test_child_runs_its_task_and_ends(tmp_path: Path) -> None:
    columns = write_columns(tmp_path / "columns", b"".join(trace_chunks(TraceShape())))

    async def scenario(fork_server: ForkServer) -> None:
        child = await fork_server.fork(Kind.EXPORT)
        child.call(ExportTask(columns))
        sizes = {Output: 0, Done: 0}
        while message := await child.receive():
            while piece := await child.read_body():
                sizes[type(message)] += len(piece)
        assert sizes[Output] > 1000
        assert sizes[Done] > 0
        assert await child.wait() == 0
        assert not child.is_alive

    run(scenario)


def test_process_lists_name_the_fork_server_and_its_children() -> None:
    async def scenario(fork_server: ForkServer) -> None:
        child = await fork_server.fork(Kind.EXPORT)
        process, pids = pids_of(fork_server)
        assert await answers(child)
        assert " ".join(process.cmdline()).strip() == FORK_SERVER_TITLE == "tracedock fork server"
        assert pids == [child.pid]
        await child.end()

    run(scenario)


def test_the_code_of_children_is_loaded_without_pandas() -> None:
    """Wherever pandas is installed, pyarrow and DuckDB load it at their first use."""

    async def scenario(fork_server: ForkServer) -> None:
        child = await fork_server.fork(Kind.EXPORT)
        assert await answers(child)
        process, _ = pids_of(fork_server)
        libraries = [mapping.path for mapping in process.memory_maps()]
        assert any("pyarrow" in path for path in libraries)
        assert not any("pandas" in path for path in libraries)
        await child.end()

    run(scenario)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system has no /proc")
def test_fork_server_keeps_few_unchanged_pages_of_its_libraries() -> None:
    async def scenario(fork_server: ForkServer) -> None:
        child = await fork_server.fork(Kind.EXPORT)
        assert await answers(child)
        process, _ = pids_of(fork_server)
        libraries = [
            mapping for mapping in process.memory_maps() if mapping.path.endswith(".so") or ".so." in mapping.path
        ]
        assert any("llvmlite" in mapping.path for mapping in libraries)
        assert sum(mapping.rss - mapping.anonymous for mapping in libraries) < 30_000_000
        await child.end()

    run(scenario)


def test_killed_child_reports_its_signal() -> None:
    async def scenario(fork_server: ForkServer) -> None:
        child = await fork_server.fork(Kind.EXPORT)
        process, _ = pids_of(fork_server)
        while not (processes := living("tracedock export", process.pid)):  # noqa: ASYNC110 - a child sends no event when it starts
            await asyncio.sleep(0.01)
        assert [process.pid for process in processes] == [child.pid]
        assert await child.end() == -signal.SIGKILL
        assert await child.wait() == -signal.SIGKILL
        assert await child.receive() is None

    run(scenario)


def test_child_has_no_open_files_but_its_own() -> None:
    async def scenario(fork_server: ForkServer) -> None:
        first, second = [await fork_server.fork(Kind.EXPORT) for _ in range(2)]
        for child in (first, second):
            while psutil.Process(child.pid).num_fds() != 3:  # noqa: ASYNC110 - a child sends no event when it is ready
                await asyncio.sleep(0.01)
        first.close_input()
        assert await first.wait() == 0  # the second child does not hold the first one's pipe open
        await second.end()

    run(scenario)


def test_children_run_at_the_same_time() -> None:
    async def scenario(fork_server: ForkServer) -> None:
        children = await asyncio.gather(*(fork_server.fork(Kind.EXPORT) for _ in range(8)))
        assert len({child.pid for child in children}) == 8
        assert all(await asyncio.gather(*map(answers, children)))
        assert await asyncio.gather(*(child.wait() for child in children)) == [0] * 8

    run(scenario)


@pytest.mark.system
def test_ends_of_children_close_no_file_of_another_thread() -> None:
    ended, errors = threading.Event(), []

    def use_files() -> None:
        while not ended.is_set():
            try:
                os.close(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                errors.append(error)

    async def main() -> None:
        fork_server = ForkServer()
        for _ in range(60):
            child = await fork_server.fork(Kind.EXPORT)
            await child.end()
            gc.collect()
        await fork_server.close()

    user = threading.Thread(target=use_files)
    switch_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)  # otherwise the other thread runs for 5 ms whenever this one has waited
    user.start()
    try:
        uvloop.run(main())
    finally:
        sys.setswitchinterval(switch_interval_s)
        ended.set()
        user.join()
    assert errors == []


def test_death_of_the_fork_server_ends_its_children_and_the_next_child_starts(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(fork_server: ForkServer) -> None:
        child = await fork_server.fork(Kind.EXPORT)
        process, [pid] = pids_of(fork_server)
        process.kill()
        assert await child.wait() == -signal.SIGKILL
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(PATIENCE_S)
        child = await fork_server.fork(Kind.EXPORT)
        assert await answers(child)
        await child.wait()

    with caplog.at_level(logging.ERROR):
        run(scenario)
    assert "the process that starts worker processes was killed by SIGKILL" in caplog.text


async def request(fork_server: ForkServer) -> tuple[psutil.Process, asyncio.Task[ChildProcess]]:
    """Request a child of a fork server that does not answer."""
    process, _ = pids_of(fork_server)
    process.suspend()
    forking = asyncio.create_task(fork_server.fork(Kind.EXPORT))
    await asyncio.sleep(0)
    return process, forking


@pytest.mark.parametrize("is_noticed", [False, True])
def test_child_starts_although_the_fork_server_dies_first(is_noticed: bool) -> None:
    async def scenario(fork_server: ForkServer) -> None:
        fork_server.prepare()
        if is_noticed:
            process, forking = await request(fork_server)
            process.kill()
        else:
            process, _ = pids_of(fork_server)
            process.kill()
            psutil.wait_procs([process])
            forking = asyncio.create_task(fork_server.fork(Kind.EXPORT))
        child = await forking
        assert await answers(child)
        await child.wait()

    run(scenario)


def test_request_fails_if_the_fork_server_dies_twice() -> None:
    async def scenario(fork_server: ForkServer) -> None:
        fork_server.prepare()
        process, forking = await request(fork_server)
        process.kill()
        while fork_server._running is None or fork_server._running.process.pid == process.pid:  # noqa: ASYNC110
            await asyncio.sleep(0)  # it starts again without an event
        pids_of(fork_server)[0].kill()
        with pytest.raises(OSError, match="worker processes died"):
            await forking

    run(scenario)


def test_cancelled_request_leaves_no_child() -> None:
    async def scenario(fork_server: ForkServer) -> None:
        forking = asyncio.create_task(fork_server.fork(Kind.EXPORT))
        await asyncio.sleep(0)
        files = psutil.Process().num_fds()
        forking.cancel()
        await asyncio.wait([forking])
        assert forking.cancelled()
        assert psutil.Process().num_fds() == files - 2
        child = await fork_server.fork(Kind.EXPORT)
        process, _ = pids_of(fork_server)
        while len(process.children()) > 1:  # noqa: ASYNC110 - the cancelled child ends without an event
            await asyncio.sleep(0.01)
        await child.end()

    run(scenario)


def test_stopped_child_of_a_cancelled_request_is_killed() -> None:
    """Such a child does not notice that its input ends."""

    async def scenario(fork_server: ForkServer) -> None:
        fork_server.prepare()
        process, _ = pids_of(fork_server)
        forking = asyncio.create_task(fork_server.fork(Kind.EXPORT))
        await asyncio.sleep(0)
        until(lambda: bool(process.children()))  # blocks the event loop, so that the request is still open
        [child] = process.children()
        child.suspend()
        forking.cancel()
        await asyncio.wait([forking])
        await asyncio.to_thread(child.wait, PATIENCE_S)

    run(scenario)


def test_child_that_the_system_refuses_to_fork_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.jobs.children.fork_server.PACKAGE", "tests.jobs.without_forks")

    async def scenario(fork_server: ForkServer) -> None:
        for _ in range(2):
            with pytest.raises(OSError, match="Resource temporarily unavailable"):
                await fork_server.fork(Kind.EXPORT)

    run(scenario)


def test_interpreter_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.jobs.children.fork_server.sys.executable", "/nowhere/python")

    async def scenario(fork_server: ForkServer) -> None:
        with pytest.raises(FileNotFoundError):
            await fork_server.fork(Kind.EXPORT)

    run(scenario)

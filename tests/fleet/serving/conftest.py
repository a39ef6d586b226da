"""A Dask cluster on loopback, whose processes tests kill."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from tests.fleet.test_workers import listens, scheduler, worker
from tests.ports import free_port
from tests.waiting import until


class LoopbackCluster:
    """A scheduler and its workers."""

    def __init__(self) -> None:
        self.port = free_port()
        self._processes = ExitStack()
        self._scheduler: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        self._scheduler = self._processes.enter_context(scheduler(self.port))
        until(lambda: listens(self.port))

    def kill_scheduler(self) -> None:
        assert self._scheduler
        os.killpg(self._scheduler.pid, signal.SIGKILL)
        self._scheduler.wait()

    def add_worker(self, log: Path = Path(os.devnull)) -> "subprocess.Popen[bytes]":
        """Start a worker and its nanny, which writes what it does to a log."""
        process: subprocess.Popen[bytes] = self._processes.enter_context(worker(self.port, log=log))
        return process

    def close(self) -> None:
        self._processes.close()

    @contextmanager
    def client(self) -> Iterator[Any]:
        with Client(self.address, set_as_default=False) as client:
            yield client

    def finished(self) -> dict[str, int]:
        """Return the number of tasks that workers have finished, by the class of the task."""
        with self.client() as client:
            counts: dict[str, int] = client.run_on_scheduler(_finished)
        return counts

    def is_idle(self) -> bool:
        """Return whether no worker runs a task."""
        with self.client() as client:
            return not any(client.run(_executing).values())


def _finished(dask_scheduler: Any) -> dict[str, int]:
    return {name: prefix.state_counts["memory"] for name, prefix in dask_scheduler.task_prefixes.items()}


def _executing(dask_worker: Any) -> int:
    return len(dask_worker.active_threads) + int(dask_worker.state.executing_count)


@pytest.fixture
def cluster() -> Iterator[LoopbackCluster]:
    """A cluster with a scheduler, and no worker."""
    cluster = LoopbackCluster()
    cluster.start_scheduler()
    try:
        yield cluster
    finally:
        cluster.close()

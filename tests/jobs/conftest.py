"""Support for job tests: a server's data folder and catalog, and originals that block a child."""

import asyncio
import os
import select
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from service.jobs.ingest_jobs import IngestJobs
from service.jobs.job_monitor import JobMonitor
from service.jobs.task_runner import ChildRunner
from service.store.catalog import Catalog, new_trace_id
from service.store.folder import Folder
from service.store.jobs import Jobs
from service.store.originals import Originals
from tests.processes import FORK_SERVER, living
from tests.waiting import PATIENCE_S


@dataclass
class Parts:
    """The parts of a server that ingests use."""

    folder: Folder
    catalog: Catalog
    jobs: Jobs

    def ingests(self, workers: int = 1, attempts: int = 3) -> IngestJobs:
        self.jobs.requeue_interrupted()  # as a server does at its start
        monitor = JobMonitor(self.jobs)
        return IngestJobs(
            self.catalog,
            monitor,
            self.folder,
            ChildRunner(FORK_SERVER),
            Originals(self.catalog, self.folder),
            workers=workers,
            attempts=attempts,
        )

    def add(self, content: bytes | Path, name: str = "t.json") -> str:
        """Queue a trace of the given bytes."""
        trace_id = new_trace_id()
        if isinstance(content, Path):
            self.folder.original(trace_id).hardlink_to(content)
        else:
            self.folder.original(trace_id).write_bytes(content)
        self.catalog.add(trace_id, name=name, size=self.folder.original(trace_id).stat().st_size, sha256="00")
        return trace_id

    def receive(self, trace: Path, size: int | None = None) -> str:
        """Begin an upload of which `size` bytes are received, and return its id."""
        trace_id = new_trace_id()
        self.folder.received(trace_id).write_bytes(trace.read_bytes()[:size])
        return trace_id

    def receive_pipe(self) -> "Pipe":
        """Begin an upload whose bytes never arrive."""
        trace_id = new_trace_id()
        os.mkfifo(self.folder.received(trace_id))
        return Pipe(trace_id, self.folder.received(trace_id))

    def keep(self, trace_id: str, trace: Path | None = None) -> None:
        """Receive the rest of an upload, and queue its trace."""
        if trace:
            self.folder.received(trace_id).write_bytes(trace.read_bytes())
        original = self.folder.received(trace_id).rename(self.folder.original(trace_id))
        self.catalog.add(trace_id, name="t.json", size=original.stat().st_size, sha256="00")

    def add_pipe(self, size: int = 1) -> "Pipe":
        """Queue a trace of `size` bytes that never arrive, so that its child blocks during the ingest."""
        trace_id = new_trace_id()
        os.mkfifo(self.folder.original(trace_id))
        self.catalog.add(trace_id, name="t.json", size=size, sha256="00")
        return Pipe(trace_id, self.folder.original(trace_id))


@dataclass
class Pipe:
    """A trace whose file is a named pipe."""

    id: str
    path: Path
    end: int = -1

    async def opened(self) -> psutil.Process:
        """Return the child once it has opened the pipe."""
        self.end = await asyncio.to_thread(os.open, self.path, os.O_WRONLY)
        (worker,) = (worker for worker in workers() if self._is_open_in(worker))
        return worker

    def _is_open_in(self, worker: psutil.Process) -> bool:
        """Return whether a process has the pipe open."""
        for descriptor in Path(f"/proc/{worker.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # the descriptor has been closed meanwhile
                if descriptor.readlink().name == self.path.name:
                    return True
        return False

    async def closed(self) -> None:
        """Return once no child has the pipe open."""
        poll = select.poll()
        poll.register(self.end, 0)
        assert await asyncio.to_thread(poll.poll, PATIENCE_S * 1000), "the child still lives"
        os.close(self.end)


def workers() -> list[psutil.Process]:
    """Return the living ingest children of this process."""
    return living("tracedock ingest")


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    folder = Folder(tmp_path / "data")
    folder.open()
    catalog = Catalog(folder.catalog)
    yield Parts(folder, catalog, Jobs(catalog.connection))
    catalog.close()
    folder.close()
    assert workers() == []

"""Tasks of tests. Workers import them."""

import itertools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from distributed import get_worker

from service.fleet.serving.server_task import ProgressReporter
from service.fleet.workers.task import Task
from service.streaming.source import Progress
from service.trace.errors import NotJson


@dataclass(frozen=True)
class Square:
    """Squares a number, and notes its process in a folder."""

    number: int
    notes: str = ""

    def run(self) -> int:
        if self.notes:
            (Path(self.notes) / f"{self.number}-{os.getpid()}-{time.monotonic_ns()}").touch()
        return self.number**2


@dataclass(frozen=True)
class InOrder:
    """Runs tasks one after the other, as bare calls in the process of a worker, and returns the seconds."""

    tasks: tuple[Task, ...]

    def run(self) -> float:
        started = time.perf_counter()
        for task in self.tasks:
            task.run()
        return time.perf_counter() - started


@dataclass(frozen=True)
class Fails:
    """Fails with an error of the domain, or with another one."""

    is_known: bool

    def run(self) -> None:
        if self.is_known:
            raise NotJson("It is no trace.", offset=7)
        raise ZeroDivisionError("by zero")


@dataclass(frozen=True)
class Kills:
    """Kills its process, the first times."""

    times: int
    notes: str

    def run(self) -> str:
        if len([*Path(self.notes).iterdir()]) < self.times:
            (Path(self.notes) / str(time.monotonic_ns())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "survived"


@dataclass(frozen=True)
class ReportsForever:
    """Reports progress to a topic until it is cancelled."""

    topic: str

    def run(self) -> None:
        reporter = ProgressReporter(get_worker(), self.topic, 7)
        for events in itertools.count():
            reporter(Progress(events=events))


@dataclass(frozen=True)
class WaitsFor:
    """Waits until a file is there."""

    file: str

    def run(self) -> str:
        while not Path(self.file).exists():
            time.sleep(0.01)
        return "seen"

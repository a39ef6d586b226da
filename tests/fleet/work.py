"""Tasks of tests. Workers import them."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

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
class WaitsFor:
    """Waits until a file is there."""

    file: str

    def run(self) -> str:
        while not Path(self.file).exists():
            time.sleep(0.01)
        return "seen"

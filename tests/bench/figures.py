"""Figures of a step of the benchmark: wall time, and the memory of all processes that take part.

The peak of a process is the kernel's `VmHWM`: the most since the process started, so an earlier step may have caused
it. ``together_mb`` is the largest sum over all processes in one sample.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.server import Server

SAMPLE_EVERY_S = 0.25  # a sample takes some milliseconds of processor time, which the step may need
QUIET_S = 5
"""Seconds in a row in which a server must be idle before the next step."""
BUSY_S = 0.1
"""Seconds of processor time in a second from which a server counts as busy."""
STREAMS = tuple(range(7, 17))
"""Streams of generated traces."""
PASS = "ijson.items alone"
"""Name of one pass of ijson over a trace."""
IJSON = (
    "from service.streaming.codec import plain_chunks as p; import ijson, sys, types\n"
    "chunks = p(open(sys.argv[1], 'rb'))\n"
    "reader = types.SimpleNamespace(read=lambda n: next(chunks, b'') if n else b'')\n"
    "for e in ijson.items(reader, 'traceEvents.item'): pass"
)
"""Program of one pass of ijson over the trace that its argument names."""


@dataclass
class Row:
    """The figures of a step of the benchmark.

    Attributes:
        step: name of the step.
        wall_s: wall time in seconds.
        peak_mb: largest peak of a process, in MB, by role.
        together_mb: memory of all processes together, in MB.
    """

    step: str
    wall_s: float
    peak_mb: dict[str, float] = field(default_factory=dict)
    together_mb: float = 0.0


class Memory:
    """Context manager that samples the memory of a process and its children in MB, by role and together."""

    def __init__(self, pid: int, role: Callable[[psutil.Process], str]) -> None:
        self._pid = pid
        self._role = role
        self._over = threading.Event()
        self.peak_mb: dict[str, float] = {}
        self.together_mb = 0.0

    def __enter__(self) -> "Memory":
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            over = self._over.is_set()
            self._sample()
            if over:
                return
            self._over.wait(SAMPLE_EVERY_S)

    def _sample(self) -> None:
        try:
            top = psutil.Process(self._pid)
            together = 0.0
            for process in (top, *top.children(recursive=True)):
                status = dict(
                    line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
                )
                resident, peak = (int(status.get(key, "0 kB").split()[0]) * 1.024e-3 for key in ("VmRSS", "VmHWM"))
                role = self._role(process)
                self.peak_mb[role] = max(self.peak_mb.get(role, 0.0), peak)
                together += resident
            self.together_mb = max(self.together_mb, together)
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            return  # the process ended during the sample


def announce(step: str) -> None:
    """Write the name of a step that begins to standard error."""
    sys.stderr.write(f"{step} …\n")


@contextmanager
def served(data: Path, **settings: object) -> Iterator[Server]:
    """Serve a data folder, with an hour for each request.

    The server has an interpreter of its own: a fork of the tests' would count the memory of that one as its own, and
    use the processors that it may use.
    """
    server = Server(data, **settings)
    server.command = (sys.executable, "-m", "service")
    server.start()
    server.api.timeout = 3600
    try:
        yield server
    finally:
        server.stop()


def settle(server: Server) -> None:
    """Wait until a server and its children are idle: after each trace, the server starts new warm processes."""
    quiet, last_time = 0, 0.0
    while quiet < QUIET_S:
        time.sleep(1)
        cpu_time = processor_time(server.pid)
        quiet = quiet + 1 if abs(cpu_time - last_time) < BUSY_S else 0
        last_time = cpu_time


def processor_time(pid: int) -> float:
    """Return the processor time in seconds of a process and all its children, with those that have ended."""
    top, cpu_time = psutil.Process(pid), 0.0
    for process in (top, *top.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            cpu_time += sum(process.cpu_times()[:4])  # its own, and its ended children's, as user and as the system
    return cpu_time


def run_alone(step: str, command: list[str]) -> Row:
    """Run a command, and measure its wall time and peak memory."""
    announce(step)
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with Memory(process.pid, lambda _: "process") as memory:
        if process.wait():
            sys.exit(f"{command} failed")
    return Row(step, time.perf_counter() - start, memory.peak_mb, memory.together_mb)


def role_of(process: psutil.Process) -> str:
    """Return the name of the part of the service that runs in a process."""
    words = " ".join(process.cmdline())
    roles = {
        "--stdiod": "engine",
        "tracedock fork server": "fork server",
        "tracedock ingest": "ingest",
        "tracedock export": "export",
        "tracedock render": "rendering",
        "tracedock derive": "derive",
        "tracedock analysis": "analysis",
    }
    return next((role for mark, role in roles.items() if mark in words), "server")


@contextmanager
def timed(step: str, server: Server, rows: list[Row]) -> Iterator[None]:
    """Measure a block of calls to the server, and append its row."""
    announce(step)
    start = time.perf_counter()
    with Memory(server.pid, role_of) as memory:
        yield
    rows.append(Row(step, time.perf_counter() - start, memory.peak_mb, memory.together_mb))


def drain(server: Server, path: str, to: Path | None = None, **params: str | int) -> None:
    """Read a response to its end, and write it to the file if one is given."""
    with server.api.stream("GET", path, params=params or None) as response, (to or Path(os.devnull)).open("wb") as file:
        response.raise_for_status()
        for piece in response.iter_raw():
            file.write(piece)


def run_job(server: Server, path: str, **body: object) -> None:
    """Request a job, and wait until it is done; exit if it fails."""
    answer = server.api.post(path, params={"wait": 3600}, json=body)
    answer.raise_for_status()
    if (job := answer.json())["state"] != "done":
        sys.exit(f"{path} failed: {job['error']}")

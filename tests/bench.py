"""``make bench``: what each step costs on one trace, beside the same file's bare limits, in one run.

Each row is one step, alone on the machine: wall time, megabytes of JSON and events a second, and the peak memory
of the processes that do it (the kernel's own high-water mark).
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from service.engine.provision import engine_path
from service.settings import Settings
from service.streaming.codec import plain_chunks
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace

SAMPLE_EVERY_S = 0.05
_GUNZIP = (
    "from service.streaming.codec import plain_chunks as p; import sys, pathlib\n"
    "for c in p(pathlib.Path(sys.argv[1])): pass"
)
_IJSON = (
    "from service.streaming.codec import plain_chunks as p; import ijson, sys, pathlib, types\n"
    "chunks = p(pathlib.Path(sys.argv[1]))\n"
    "reader = types.SimpleNamespace(read=lambda n: next(chunks, b'') if n else b'')\n"
    "for e in ijson.items(reader, 'traceEvents.item'): pass"
)


@dataclass
class Row:
    """One step's figures."""

    step: str
    wall_s: float
    peak_mb: dict[str, float] = field(default_factory=dict)


class Memory:
    """The high-water marks of a process and its children, by role, for as long as the block runs."""

    def __init__(self, pid: int, role: Callable[[psutil.Process], str]) -> None:
        self._pid = pid
        self._role = role
        self._over = threading.Event()
        self.peak_mb: dict[str, float] = {}

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
            self._look()
            if over:
                return
            self._over.wait(SAMPLE_EVERY_S)

    def _look(self) -> None:
        try:
            top = psutil.Process(self._pid)
            for process in (top, *top.children(recursive=True)):
                status = Path(f"/proc/{process.pid}/status").read_text()
                peak = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
                role = self._role(process)
                self.peak_mb[role] = max(self.peak_mb.get(role, 0.0), peak / 1024)
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            return  # it ended while it was looked at


def run_alone(step: str, command: list[str]) -> Row:
    """A command's wall time and peak memory."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with Memory(process.pid, lambda _: "process") as memory:
        if process.wait():
            sys.exit(f"{command} failed")
    return Row(step, time.perf_counter() - started, memory.peak_mb)


def role_of(process: psutil.Process) -> str:
    """Which part of the service a process is."""
    words = " ".join(process.cmdline())
    return "engine" if "--stdiod" in words else "worker" if "service.jobs.worker" in words else "server"


@contextmanager
def timed(step: str, server: Server, rows: list[Row]) -> Iterator[None]:
    """Time a block of calls to the server."""
    started = time.perf_counter()
    with Memory(server.pid, role_of) as memory:
        yield
    rows.append(Row(step, time.perf_counter() - started, memory.peak_mb))


def measure(trace: Path, data: Path) -> tuple[list[Row], int]:
    """All rows, and the number of events."""
    engine = engine_path(Settings())
    rows = [
        run_alone("decompress alone", [sys.executable, "-c", _GUNZIP, str(trace)]),
        run_alone("ijson alone", [sys.executable, "-c", _IJSON, str(trace)]),
        run_alone("trace_processor alone: load", [str(engine), "-Q", "select 1", str(trace)]),
    ]
    server = Server(data, perfetto_port=0).start()
    server.api.timeout = 3600
    try:
        with timed("upload", server, rows):
            one = server.upload(trace, wait=0)
        with timed("ingest", server, rows):
            one = server.api.get(f"/traces/{one['id']}", params={"wait": 3600}).json()
        with timed("session: load in the engine", server, rows):
            server.api.post(f"/traces/{one['id']}/session", params={"wait": 3600}).raise_for_status()
        with timed("SQL: select count(*) from slice", server, rows):
            server.rows(one["id"], "select count(*) from slice")
        with timed("SQL: ten names of most time", server, rows):
            server.rows(one["id"], "select name, count(*), sum(dur) from slice group by name order by 3 desc limit 10")
        with timed("SQL: one million rows as Arrow", server, rows):
            server.api.post(
                f"/traces/{one['id']}/query",
                json={"sql": "select id, ts, dur, name from slice limit 1000000", "limit": None},
                headers={"accept": "application/vnd.apache.arrow.stream"},
            ).raise_for_status()
    finally:
        server.stop()
    return rows, one["events"]["in"]


def main() -> None:
    """Measure a trace, or one that is made."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("trace", nargs="?", type=Path)
    options.add_argument("--megabytes", type=int, default=500, help="size of the JSON that is made when none is given")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        trace = chosen.trace
        if trace is None:
            trace = write_trace(
                Path(scratch, "made.json.gz"), sized(TraceShape(), chosen.megabytes * 10**6), compress="gzip"
            )
        size, packed = sum(map(len, plain_chunks(trace))), trace.stat().st_size
        rows, events = measure(trace, Path(scratch, "data"))
    sys.stdout.write(
        f"\n{trace.name}: {size / 1e6:,.0f} MB of JSON, {packed / 1e6:,.1f} MB packed, {events:,} events\n\n"
    )
    sys.stdout.write(
        f"| {'step':33} | {'wall s':>8} | {'MB/s':>7} | {'events/s':>10} | peak MB |\n|---|---:|---:|---:|---|\n"
    )
    for row in rows:
        whole = not row.step.startswith("SQL")
        rate = f"{size / 1e6 / row.wall_s:,.0f}" if whole else ""
        event_rate = f"{events / row.wall_s:,.0f}" if whole else ""
        peaks = ", ".join(f"{role} {peak:,.0f}" for role, peak in sorted(row.peak_mb.items()))
        sys.stdout.write(f"| {row.step:33} | {row.wall_s:8.2f} | {rate:>7} | {event_rate:>10} | {peaks} |\n")


if __name__ == "__main__":
    main()

"""Benchmark of what starts: how long a server and a command take, and the memory of a server that is idle."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.bench.figures import announce, role_of, served, settle
from tests.server import Server
from tests.traces import TraceShape, write_trace

ROUNDS = 5
READY, LISTED = "start of `tracedock serve` to /readyz", "`tracedock ls`"
FIRST, AFTER = "idle server that has just started", "idle server after an upload"


def measure_starts() -> str:
    """Measure all steps, and return their rows as text."""
    ready, listed, lines = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        trace = write_trace(Path(folder, "small.json.gz"), TraceShape(), compress="gzip")
        announce(READY)
        for number in range(ROUNDS):
            started = time.perf_counter()
            with served(Path(folder, str(number)), keep_ready=True, prepare_pages=True) as server:
                while server.api.get(f"{server.url}/readyz").status_code != 200:
                    time.sleep(0.01)
                ready.append(time.perf_counter() - started)
        with served(Path(folder, "idle"), keep_ready=True, prepare_pages=True) as server:
            lines.append(_idle(FIRST, server))
            server.upload(trace, wait=60)
            lines.append(_idle(AFTER, server))
            announce(LISTED)
            for _ in range(ROUNDS):
                started = time.perf_counter()
                command = str(Path(sys.executable).with_name("tracedock"))
                subprocess.run([command, "--url", server.url, "ls"], stdout=subprocess.DEVNULL, check=True)
                listed.append(time.perf_counter() - started)
    times = [
        f"| {step} | {statistics.median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f} |"
        for step, seconds in ((READY, ready), (LISTED, listed))
    ]
    heads = ["", "| step | median s | range s |", "|---|---:|---|", *times, ""]
    return "\n".join([*heads, "| PSS in MB | all | by process |", "|---|---:|---|", *lines, "", ""])


def _idle(step: str, server: Server) -> str:
    """Return the row of a server's memory, once it is idle: shared memory counts once (PSS, see proc_pid_smaps(5))."""
    announce(step)
    settle(server)
    top = psutil.Process(server.pid)
    sizes = [
        (role_of(process), process.memory_full_info().pss / 1e6) for process in (top, *top.children(recursive=True))
    ]
    by_process = ", ".join(f"{role} {size:.0f}" for role, size in sizes)
    return f"| {step} | {sum(size for _, size in sizes):.0f} | {by_process} |"

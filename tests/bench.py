"""``make bench``: what each step costs on one trace, beside the same file's bare limits, in one run.

Each row is one step, alone on the machine: wall time, megabytes of JSON and events a second, the peak memory of each
process that does it (the kernel's own high-water mark), and the largest sum of what all of them had at one time.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from service.engine.provision import engine_path
from service.settings import Settings
from service.streaming.codec import plain_chunks
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace

STREAMS = tuple(range(7, 17))  # of the trace that is made
SAMPLE_EVERY_S = 0.25  # a look takes some milliseconds, of a processor that the step may need
LIMIT, IJSON, ENGINE = "decompress alone", "ijson.items alone", "trace_processor alone: load"
FILTER = "ijson filter: 1 % window to .json.gz"
INGEST, WINDOW, STREAM = "ingest: PUT to ready", "1 % window to .json.gz", "one stream to .json.gz"
STEPS, PARTS, MERGE = "split by step into traces", "split into five traces", "merge of the ranks"
SESSION, ESSENTIAL, WINDOWED = "session: all arguments", "session: essential arguments", "session: 1 % window"
IDLE, ARROW, ROWS = "an idle engine's start", "SQL: one million rows as Arrow", "the same by perfetto's own client"
SELECT_1, ASKED = "SQL: SELECT 1, median", 300
MILLION = "select id, ts, dur, name from slice limit 1000000"
_GUNZIP = "from service.streaming.codec import plain_chunks as p; import sys\nfor c in p(open(sys.argv[1], 'rb')): pass"
_IJSON = (
    "from service.streaming.codec import plain_chunks as p; import ijson, sys, types\n"
    "chunks = p(open(sys.argv[1], 'rb'))\n"
    "reader = types.SimpleNamespace(read=lambda n: next(chunks, b'') if n else b'')\n"
    "for e in ijson.items(reader, 'traceEvents.item'): pass"
)

_IDLE = (
    "from service.engine.process import EngineProcess; from service.engine import wire; import asyncio, pathlib, sys\n"
    "async def start():\n"
    "    engine = await EngineProcess.start(pathlib.Path(sys.argv[1]))\n"
    "    await engine.ask(wire.request(wire.GET_STATUS))\n"
    "    await engine.stop(1)\n"
    "asyncio.run(start())"
)
_ROWS = (
    "from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig as Config; import sys, time\n"
    "engine = TraceProcessor(trace=sys.argv[1], config=Config(bin_path=sys.argv[2], load_timeout=600))\n"
    "started = time.perf_counter()\n"
    "for row in engine.query(sys.argv[3]): row.id, row.ts, row.dur, row.name\n"
    "print(time.perf_counter() - started); engine.close()"
)
_FILTER = (
    "from service.streaming.codec import plain_chunks as p; import gzip, ijson, json, sys, types\n"
    "chunks, first, last = p(open(sys.argv[1], 'rb')), int(sys.argv[2]), int(sys.argv[3])\n"
    "reader = types.SimpleNamespace(read=lambda n: next(chunks, b'') if n else b'')\n"
    "kept = [e for e in ijson.items(reader, 'traceEvents.item', use_float=True)\n"
    "        if first <= (e.get('ts') or 0) * 1000 <= last]\n"
    "with gzip.open(sys.argv[4], 'wt', compresslevel=2) as f: json.dump({'traceEvents': kept}, f)"
)


@dataclass
class Row:
    """One step's figures."""

    step: str
    wall_s: float
    peak_mb: dict[str, float] = field(default_factory=dict)
    together_mb: float = 0.0


class Memory:
    """The memory of a process and its children, by role and together, for as long as the block runs."""

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
            self._look()
            if over:
                return
            self._over.wait(SAMPLE_EVERY_S)

    def _look(self) -> None:
        try:
            top = psutil.Process(self._pid)
            together = 0.0
            for process in (top, *top.children(recursive=True)):
                status = dict(
                    line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
                )
                now, peak = (int(status.get(key, "0 kB").split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
                role = self._role(process)
                self.peak_mb[role] = max(self.peak_mb.get(role, 0.0), peak)
                together += now
            self.together_mb = max(self.together_mb, together)
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            return  # it ended while it was looked at


def run_alone(step: str, command: list[str]) -> Row:
    """A command's wall time and peak memory."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with Memory(process.pid, lambda _: "process") as memory:
        if process.wait():
            sys.exit(f"{command} failed")
    return Row(step, time.perf_counter() - started, memory.peak_mb, memory.together_mb)


def role_of(process: psutil.Process) -> str:
    """Which part of the service a process is."""
    words = " ".join(process.cmdline())
    roles = {
        "--stdiod": "engine",
        "service.jobs.worker": "worker",
        "service.jobs.export": "export",
        "service.jobs.rendering": "rendering",
        "service.jobs.maker": "maker",
    }
    return next((role for mark, role in roles.items() if mark in words), "server")


@contextmanager
def timed(step: str, server: Server, rows: list[Row]) -> Iterator[None]:
    """Time a block of calls to the server."""
    started = time.perf_counter()
    with Memory(server.pid, role_of) as memory:
        yield
    rows.append(Row(step, time.perf_counter() - started, memory.peak_mb, memory.together_mb))


def drain(server: Server, path: str, to: Path | None = None, **params: str | int) -> None:
    """Read a response to its end, into a file if one is named."""
    with server.api.stream("GET", path, params=params or None) as response, (to or Path(os.devnull)).open("wb") as file:
        response.raise_for_status()
        for piece in response.iter_raw():
            file.write(piece)


def done(server: Server, path: str, **asked: object) -> None:
    """Do a job to its end."""
    answer = server.api.post(path, params={"wait": 3600}, json=asked)
    answer.raise_for_status()
    if (job := answer.json())["state"] != "done":
        sys.exit(f"{path} failed: {job['error']}")


def measure_merge(folder: Path, megabytes: int, ranks: int = 8) -> Row:
    """The merge of some ranks of that size."""
    server = Server(folder / "ranks", perfetto_port=0).start()
    server.api.timeout = 3600
    rows: list[Row] = []
    try:
        traces = []
        for rank in range(ranks):
            shape = sized(TraceShape(rank=rank, world_size=ranks), megabytes * 10**6)
            path = write_trace(folder / f"rank{rank}.json.gz", shape, compress="gzip")
            traces.append(server.upload(path, wait=3600)["id"])
            path.unlink()
        with timed(f"{MERGE}: {ranks} of {megabytes} MB", server, rows):
            done(server, "/traces/merge", traces=traces)
    finally:
        server.stop()
    return rows[0]


def measure_cutting(server: Server, one: dict[str, Any], trace: Path, out: Path) -> list[Row]:
    """What is written of a trace that is ready, and made of its parts."""
    rows: list[Row] = []
    with timed("download as JSON, by time", server, rows):
        drain(server, f"/traces/{one['id']}/download?format=json")
    with timed("download as JSON, original order", server, rows):
        drain(server, f"/traces/{one['id']}/download?format=json&order=original")
    where, bounds = f"/traces/{one['id']}", one["bounds"]
    middle, hundredth = (bounds["start_ns"] + bounds["end_ns"]) // 2, (bounds["end_ns"] - bounds["start_ns"]) // 100
    window = {"start_ns": middle, "end_ns": middle + hundredth}
    rows.append(run_alone(FILTER, [sys.executable, "-c", _FILTER, str(trace), *map(str, window.values()), str(out)]))
    with timed(WINDOW, server, rows):
        drain(server, f"{where}/download", out, **window)
    if one["streams"]:
        with timed(STREAM, server, rows):
            drain(server, f"{where}/download", out, streams=one["streams"][0])
    few = 0 < len({step["number"] for step in one["steps"]}) <= 100
    with timed(STEPS if few else PARTS, server, rows):
        done(server, f"{where}/split", **({"by": "step"} if few else {"by": "parts", "value": 5}))
    return rows


def measure_engine(server: Server, trace: dict[str, Any], file: Path, engine: Path) -> list[Row]:
    """Sessions on a trace that is ready, and questions to them."""
    rows = [run_alone(IDLE, [sys.executable, "-c", _IDLE, str(engine)])]
    where = f"/traces/{trace['id']}/session"

    def opened(**params: str | int) -> dict[str, Any]:
        answer = server.api.post(where, params={"wait": 3600, **params})
        answer.raise_for_status()
        account = answer.json()["account"]
        if not account["complete"]:
            sys.exit(f"the session of {params} lost something: {account}")
        return dict(account["slices"])

    start, end = trace["bounds"]["start_ns"], trace["bounds"]["end_ns"]
    window = {"start_ns": (start + end) // 2, "end_ns": (start + end) // 2 + (end - start) // 100}
    with timed(WINDOWED, server, rows):
        opened(**window)
    server.api.delete(where, params=window)
    with timed(ESSENTIAL, server, rows):
        opened(args="essential")
    server.api.delete(where, params={"args": "essential"})
    with timed(SESSION, server, rows):
        slices = opened()
    sys.stdout.write(f"slices: {slices['expected']:,} in the trace, {slices['engine']:,} in the engine\n")
    with timed("SQL: select count(*) from slice", server, rows):
        server.rows(trace["id"], "select count(*) from slice")
    with timed("SQL: ten names of most time", server, rows):
        server.rows(trace["id"], "select name, count(*), sum(dur) from slice group by name order by 3 desc limit 10")
    with timed(ARROW, server, rows):
        server.api.post(
            f"/traces/{trace['id']}/query",
            json={"sql": MILLION, "limit": None},
            headers={"accept": "application/vnd.apache.arrow.stream"},
        ).raise_for_status()
    took = []
    for _ in range(ASKED):
        started = time.perf_counter()
        server.rows(trace["id"], "select 1")
        took.append(time.perf_counter() - started)
    rows.append(Row(SELECT_1, statistics.median(took)))
    server.api.delete(where)
    said = subprocess.run(
        [sys.executable, "-c", _ROWS, str(file), str(engine), MILLION], stdout=subprocess.PIPE, check=True
    ).stdout
    rows.append(Row(ROWS, float(said)))
    return rows


def measure(trace: Path, data: Path, *, only_engine: bool) -> tuple[list[Row], int, int]:
    """All rows, the number of events, and the bytes of the columns."""
    engine = engine_path(Settings())
    rows = [run_alone(ENGINE, [str(engine), "-Q", "select 1", str(trace)])]
    if not only_engine:
        rows.append(run_alone(LIMIT, [sys.executable, "-c", _GUNZIP, str(trace)]))
        rows.append(run_alone(IJSON, [sys.executable, "-c", _IJSON, str(trace)]))
    server = Server(data, perfetto_port=0).start()
    server.api.timeout = 3600
    try:
        with timed(INGEST, server, rows):
            one = server.upload(trace, wait=3600)
        columns = sum(path.stat().st_size for path in (data / "columns" / str(one["id"])).iterdir())
        if not only_engine:
            rows += measure_cutting(server, one, trace, data / "out.json.gz")
        rows += measure_engine(server, one, trace, engine)
    finally:
        server.stop()
    return rows, one["events"]["in"], columns


def main() -> None:
    """Measure a trace, or one that is made."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("trace", nargs="?", type=Path)
    options.add_argument("--megabytes", type=int, default=500, help="size of the JSON that is made when none is given")
    options.add_argument("--ranks-megabytes", type=int, default=60, help="size of each of the ranks that are merged")
    options.add_argument("--only-engine", action="store_true", help="leave out all but sessions and SQL")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        trace = chosen.trace
        if trace is None:
            trace = write_trace(
                Path(scratch, "made.json.gz"),
                sized(TraceShape(streams=STREAMS), chosen.megabytes * 10**6),
                compress="gzip",
            )
        with trace.open("rb") as file:
            size, packed = sum(map(len, plain_chunks(file))), trace.stat().st_size
        rows, events, columns = measure(trace, Path(scratch, "data"), only_engine=chosen.only_engine)
        if not chosen.only_engine:
            rows.append(measure_merge(Path(scratch), chosen.ranks_megabytes))
    sys.stdout.write(
        f"\n{trace.name}: {size / 1e6:,.0f} MB of JSON, {packed / 1e6:,.1f} MB packed, {events:,} events\n\n"
    )
    sys.stdout.write(
        f"| {'step':37} | {'wall s':>8} | {'MB/s':>7} | {'events/s':>10} | {'together':>8} | peak MB |\n"
        "|---|---:|---:|---:|---:|---|\n"
    )
    for row in rows:
        whole = not row.step.startswith(("SQL", "1 %", "one stream", "the same", MERGE, WINDOWED, IDLE))
        rate = f"{size / 1e6 / row.wall_s:,.0f}" if whole else ""
        event_rate = f"{events / row.wall_s:,.0f}" if whole else ""
        peaks = ", ".join(f"{role} {peak:,.0f}" for role, peak in sorted(row.peak_mb.items()))
        figures = (
            f"{row.wall_s:8.{4 if row.wall_s < 0.1 else 2}f} | {rate:>7} | {event_rate:>10} | {row.together_mb:8,.0f}"
        )
        sys.stdout.write(f"| {row.step:37} | {figures} | {peaks} |\n")
    wall = {row.step: row.wall_s for row in rows}
    peak = {row.step: row.peak_mb for row in rows}
    if IJSON in wall:
        sys.stdout.write(
            f"\nIngest is {wall[ENGINE] / wall[INGEST]:.1f} x faster than trace_processor's load and"
            f" {wall[IJSON] / wall[INGEST]:.1f} x faster than one pass of ijson.items;"
            f" its columns take {columns / 1e6:,.1f} MB, {columns / packed:.2f} x the packed file.\n"
        )
    for step in (WINDOW, STREAM, STEPS, PARTS):
        if step in wall:
            sys.stdout.write(f"{step}: {wall[FILTER] / wall[step]:.1f} x faster than one filter pass of ijson.\n")
    alone = peak[ENGINE]["process"]
    for step in (SESSION, ESSENTIAL):
        sys.stdout.write(
            f"{step}: {wall[step] / wall[ENGINE]:.2f} x the time of trace_processor alone,"
            f" {peak[step]['engine'] / alone:.2f} x its memory.\n"
        )
    sys.stdout.write(f"{WINDOWED}: {wall[WINDOWED] - wall[IDLE]:.2f} s more than an idle engine's start.\n")
    sys.stdout.write(f"{ARROW}: {wall[ROWS] / wall[ARROW]:.1f} x faster than the rows of perfetto's client.\n")


if __name__ == "__main__":
    main()

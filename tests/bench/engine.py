"""Benchmarks of sessions and of SQL on them."""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.figures import Row, run_alone, timed
from tests.bench.pages import SCREENS, measure_screen
from tests.server import Server

SESSION, ESSENTIAL, WINDOWED = "session: all arguments", "session: essential arguments", "session: 1 % window"
IDLE, ARROW, ROWS = "an idle engine's start", "SQL: one million rows as Arrow", "the same by perfetto's own client"
SELECT_1, ASKED = "SQL: SELECT 1, median", 300
MILLION = "select id, ts, dur, name from slice limit 1000000"
_IDLE = (
    "from service.engine.trace_processor.process import TraceProcessor; import asyncio, pathlib, sys\n"
    "async def start():\n"
    "    engine = await TraceProcessor.start(pathlib.Path(sys.argv[1]))\n"
    "    await engine.version()\n"
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


def measure_engine(server: Server, trace: dict[str, Any], file: Path, engine: Path) -> list[Row]:
    """Measure sessions on a trace that is ready, and their queries."""
    rows = [run_alone(IDLE, [sys.executable, "-c", _IDLE, str(engine)])]
    path = f"/traces/{trace['id']}/session"

    def open_session(**params: str | int) -> dict[str, Any]:
        answer = server.api.post(path, params={"wait": 3600, **params})
        answer.raise_for_status()
        account = answer.json()["account"]
        if not account["complete"]:
            sys.exit(f"the session of {params} is incomplete: {account}")
        return dict(account["slices"])

    start, end = trace["bounds"]["start_ns"], trace["bounds"]["end_ns"]
    window = {"start_ns": (start + end) // 2, "end_ns": (start + end) // 2 + (end - start) // 100}
    with timed(WINDOWED, server, rows):
        open_session(**window)
    server.api.delete(path, params=window)
    with timed(ESSENTIAL, server, rows):
        open_session(args="essential")
    server.api.delete(path, params={"args": "essential"})
    for args in SCREENS:
        rows += measure_screen(server, trace, args)
        for loaded in ("all", "essential"):
            server.api.delete(path, params={"args": loaded})
    with timed(SESSION, server, rows):
        slices = open_session()
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
    seconds = []
    for _ in range(ASKED):
        started = time.perf_counter()
        server.rows(trace["id"], "select 1")
        seconds.append(time.perf_counter() - started)
    rows.append(Row(SELECT_1, statistics.median(seconds)))
    server.api.delete(path)
    output = subprocess.run(
        [sys.executable, "-c", _ROWS, str(file), str(engine), MILLION], stdout=subprocess.PIPE, check=True
    ).stdout
    rows.append(Row(ROWS, float(output)))
    return rows

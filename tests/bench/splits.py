"""Benchmark of splits: from a ready trace of ten streams to a ready trace of one, and of a hundredth of its time."""

import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench.figures import IJSON, PASS, STREAMS, Row, run_alone, run_job, served, settle, timed
from tests.traces import TraceShape, sized, write_trace

MEGABYTES, ROUNDS = 434, 5
WINDOW, STREAM = "split of 1 %", "split of one stream of ten"


def measure_splits() -> str:
    """Measure all steps, and return their rows as text."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        shape = sized(TraceShape(streams=STREAMS), MEGABYTES * 10**6)
        trace = write_trace(Path(folder, "ten.json.gz"), shape, compress="gzip")
        with served(Path(folder, "data"), keep_ready=True) as server:
            source = server.upload(trace, wait=600)
            start, end = (source["bounds"][key] for key in ("start_ns", "end_ns"))
            window = {"start_ns": (start + end) // 2, "end_ns": (start + end) // 2 + (end - start) // 100}
            settle(server)
            for number in range(ROUNDS):
                rows.append(run_alone(PASS, [sys.executable, "-c", IJSON, str(trace)]))
                shifted = {key: time + number for key, time in window.items()}  # the same split would be there already
                for step, selection in (
                    (WINDOW, {"window": shifted}),
                    (STREAM, {"streams": [source["streams"][number]]}),
                ):
                    with timed(step, server, rows):
                        run_job(server, f"/traces/{source['id']}/split", selection=selection)
    seconds = {step: [row.wall_s for row in rows if row.step == step] for step in (PASS, WINDOW, STREAM)}
    whole = statistics.median(seconds[PASS])
    lines = [
        f"| {step} | {statistics.median(times):.2f} | {min(times):.2f} to {max(times):.2f}"
        f" | {whole / statistics.median(times):.1f} x |"
        for step, times in seconds.items()
    ]
    heads = [f"| {MEGABYTES} MB of JSON | median s | range s | against ijson |", "|---|---:|---|---:|"]
    return "\n".join(["", *heads, *lines, "", ""])

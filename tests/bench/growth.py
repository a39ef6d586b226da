"""Benchmark of the growth of ingest: traces of several sizes, read on one processor, on two, and on all."""

import os
import tempfile
from pathlib import Path

from tests.bench.figures import STREAMS, Row, served, settle, timed
from tests.traces import TraceShape, sized, write_trace

SIZES_MB = (270, 2700, 8000)


def measure_growth() -> str:
    """Measure the ingest of each size, and return the rows as text; the largest trace is not read on one processor."""
    usable = sorted(os.sched_getaffinity(0))
    lines = [
        "| MB of JSON | processors | wall s | MB/s | peak MB of the ingest | all MB |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for size_mb in SIZES_MB:
            shape = sized(TraceShape(streams=STREAMS), size_mb * 10**6)
            trace = write_trace(Path(folder, f"{size_mb}.json.gz"), shape, compress="gzip")
            for count in sorted({1, min(2, len(usable)), len(usable)}):
                row = _ingest(trace, Path(folder, f"{size_mb}_{count}"), set(usable[:count]))
                peak_mb = row.peak_mb["ingest"]
                lines.append(
                    f"| {size_mb:,} | {count} | {row.wall_s:.2f} | {size_mb / row.wall_s:.0f} | {peak_mb:,.0f}"
                    f" | {row.together_mb:,.0f} |"
                )
            trace.unlink()
    return "\n".join(["", *lines, ""])


def _ingest(trace: Path, data: Path, processors: set[int]) -> Row:
    """Upload a trace to a new server that uses the given processors, and wait until it is ready."""
    rows: list[Row] = []
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)  # the server inherits it
    try:
        with served(data, keep_ready=True) as server:
            settle(server)
            with timed(f"{trace.name} on {len(processors)} processors", server, rows):
                server.upload(trace, wait=3600)
    finally:
        os.sched_setaffinity(0, before)
    return rows[0]

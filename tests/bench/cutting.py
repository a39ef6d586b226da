"""Benchmarks of downloads, cuts, splits and merges."""

import sys
from pathlib import Path
from typing import Any

from tests.bench.figures import Row, drain, run_alone, run_job, served, timed
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace

FILTER = "ijson filter: 1 % window to .json.gz"
WINDOW, STREAM = "1 % window to .json.gz", "one stream to .json.gz"
STEPS, PARTS, MERGE = "split by step into traces", "split into five traces", "merge of the ranks"
_FILTER = (
    "from service.streaming.codec import plain_chunks as p; import gzip, ijson, json, sys, types\n"
    "chunks, first, last = p(open(sys.argv[1], 'rb')), int(sys.argv[2]), int(sys.argv[3])\n"
    "reader = types.SimpleNamespace(read=lambda n: next(chunks, b'') if n else b'')\n"
    "kept = [e for e in ijson.items(reader, 'traceEvents.item', use_float=True)\n"
    "        if first <= (e.get('ts') or 0) * 1000 <= last]\n"
    "with gzip.open(sys.argv[4], 'wt', compresslevel=2) as f: json.dump({'traceEvents': kept}, f)"
)


def measure_merge(folder: Path, megabytes: int, ranks: int = 8) -> Row:
    """Measure the merge of ranks whose traces have the given size each."""
    rows: list[Row] = []
    with served(folder / "ranks", keep_ready=True) as server:
        traces = []
        for rank in range(ranks):
            shape = sized(TraceShape(rank=rank, world_size=ranks), megabytes * 10**6)
            path = write_trace(folder / f"rank{rank}.json.gz", shape, compress="gzip")
            traces.append(server.upload(path, wait=3600)["id"])
            path.unlink()
        with timed(f"{MERGE}: {ranks} of {megabytes} MB", server, rows):
            run_job(server, "/traces/merge", traces=traces)
    return rows[0]


def measure_cutting(server: Server, source: dict[str, Any], trace: Path, out: Path) -> list[Row]:
    """Measure downloads, cuts and splits of a trace that is ready."""
    rows: list[Row] = []
    with timed("download as JSON, by time", server, rows):
        drain(server, f"/traces/{source['id']}/download?format=json")
    with timed("download as JSON, original order", server, rows):
        drain(server, f"/traces/{source['id']}/download?format=json&order=original")
    path, bounds = f"/traces/{source['id']}", source["bounds"]
    middle, hundredth = (bounds["start_ns"] + bounds["end_ns"]) // 2, (bounds["end_ns"] - bounds["start_ns"]) // 100
    window = {"start_ns": middle, "end_ns": middle + hundredth}
    rows.append(run_alone(FILTER, [sys.executable, "-c", _FILTER, str(trace), *map(str, window.values()), str(out)]))
    with timed(WINDOW, server, rows):
        drain(server, f"{path}/download", out, **window)
    if source["streams"]:
        with timed(STREAM, server, rows):
            drain(server, f"{path}/download", out, streams=source["streams"][0])
    by_step = 0 < len({step["number"] for step in source["steps"]}) <= 100
    with timed(STEPS if by_step else PARTS, server, rows):
        run_job(server, f"{path}/split", **({"by": "step"} if by_step else {"by": "parts", "value": 5}))
    return rows

"""Benchmark of ingest against trace_processor's load and a pass of ijson, in turns: a machine's speed varies."""

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from service.engine.trace_processor.provision import engine_path
from service.settings import Settings
from tests.bench.figures import IJSON, PASS, Row, processor_time, run_alone, served, settle, timed

ROUNDS = 3
INGEST, ENGINE = "ingest: PUT to ready", "trace_processor alone: load"


def measure_ingests(trace: Path, json_bytes: int) -> Iterator[str]:
    """Measure the ingest of a trace and both others in turns; yield the lines of a table, one after each round.

    Args:
        trace: the trace.
        json_bytes: the size of its JSON.
    """
    engine = str(engine_path(Settings()))
    yield "| round | ingest s | processor s a GB | trace_processor s | ratio | ijson s | ratio |\n"
    yield "|---|---:|---:|---:|---:|---:|---:|\n"
    rounds: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), keep_ready=True) as server:
        for number in range(1, ROUNDS + 1):
            settle(server)
            rows: list[Row] = []
            before = processor_time(server.pid)
            with timed(INGEST, server, rows):
                ingested = server.upload(trace, wait=3600)
            wall, cpu = rows[0].wall_s, processor_time(server.pid) - before
            server.api.delete(f"/traces/{ingested['id']}").raise_for_status()
            settle(server)
            load = run_alone(ENGINE, [engine, "-Q", "select 1", str(trace)]).wall_s
            one_pass = run_alone(PASS, [sys.executable, "-c", IJSON, str(trace)]).wall_s
            rounds.append((wall, cpu / json_bytes * 1e9, load, load / wall, one_pass, one_pass / wall))
            yield _line(str(number), rounds[-1])
    yield _line("median", [*map(statistics.median, zip(*rounds, strict=True))])


def _line(name: str, figures: Sequence[float]) -> str:
    wall, cpu, load, faster, one_pass, faster_than_pass = figures
    ours, others = f"{wall:.1f} | {cpu:.1f}", f"{load:.1f} | {faster:.2f} x | {one_pass:.1f} | {faster_than_pass:.2f} x"
    return f"| {name} | {ours} | {others} |\n"

"""Benchmark of memory snapshots and Nsight exports: from the upload to a ready trace, and the first answers after it.

Each step has a server that has just started, with the settings that the product has by default.
"""

import tempfile
from pathlib import Path

from tests.bench.figures import Row, served, settle, timed
from tests.nsys import Export, write_export
from tests.server import Server
from tests.snapshots import write_large

MILLIONS = 5
ROUNDS = 3
SNAPSHOT, NSIGHT = f"snapshot of {MILLIONS} M entries to ready", f"Nsight export of {MILLIONS} M kernels to ready"
COLD = "its live set at a moment, as the server starts"
FIRST, NEXT = "its live set, first answer of an idle server", "its live set at another moment"
_SETTINGS = {"keep_ready": True, "prepare_pages": True}


def measure_formats() -> str:
    """Measure all steps `ROUNDS` times, and return their rows as text."""
    with tempfile.TemporaryDirectory() as folder:
        rows = _measure(Path(folder))
    lines = ["| step | wall s | peak MB of a process | all MB |", "|---|---|---:|---:|"]
    for step in dict.fromkeys(row.step for row in rows):
        of_step = [row for row in rows if row.step == step]
        peak_mb = max(peak for row in of_step for peak in row.peak_mb.values())
        together_mb = max(row.together_mb for row in of_step)
        seconds = ", ".join(f"{row.wall_s:.2f}" for row in of_step)
        lines.append(f"| {step} | {seconds} | {peak_mb:,.0f} | {together_mb:,.0f} |")
    return "\n".join(["", *lines, ""])


def _measure(folder: Path) -> list[Row]:
    snapshot, export = folder / "snapshot.pickle", folder / "export.sqlite"
    write_large(snapshot, MILLIONS * 10**6)
    write_export(export, Export(MILLIONS * 10**6))
    rows: list[Row] = []
    for turn in range(ROUNDS):
        data = folder / f"snapshots{turn}"
        with served(data, **_SETTINGS) as server, timed(SNAPSHOT, server, rows):
            trace = server.upload(snapshot, wait=3600)
        start_ns, end_ns = trace["bounds"]["start_ns"], trace["bounds"]["end_ns"]
        for steps in ((COLD,), (FIRST, NEXT)):
            with served(data, **_SETTINGS) as server:
                if FIRST in steps:
                    settle(server)
                for number, step in enumerate(steps, 2):
                    with timed(step, server, rows):
                        _live_set(server, trace["id"], start_ns + (end_ns - start_ns) // number)
        with served(folder / f"exports{turn}", **_SETTINGS) as server, timed(NSIGHT, server, rows):
            server.upload(export, wait=3600)
    return rows


def _live_set(server: Server, trace_id: str, at_ns: int) -> None:
    answer = server.api.get(
        f"/traces/{trace_id}/analysis/memory_snapshot",
        params={"table": "live_stacks", "at_ns": at_ns, "wait": 60},
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["tables"], "a table was asked for"

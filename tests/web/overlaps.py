"""A trace with slices that overlap without nesting, on a stream and a thread, which the engine can't show unchanged."""

import json
from pathlib import Path
from typing import Any

HOST, DEVICE, STREAM = 4242, 1, 7


def write_overlaps(folder: Path) -> Path:
    """Write the trace of rank 3: a step with two ops and two kernels; the slices of each pair half overlap."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": HOST, "args": {"name": "trainer"}},
        {"ph": "M", "name": "thread_name", "pid": HOST, "tid": HOST, "args": {"name": "main"}},
        {"ph": "M", "name": "process_labels", "pid": DEVICE, "args": {"labels": f"GPU {DEVICE}"}},
        _slice("user_annotation", "ProfilerStep#5", HOST, HOST, 100, 500),
    ]
    for name, start, correlation in (("first", 200, 1), ("second", 250, 2)):
        op = {"External id": correlation, "Sequence number": 10 + correlation}
        kernel = {"device": DEVICE, "stream": STREAM, "correlation": correlation, "grid": [80, 1, 1]}
        events += [
            _slice("cpu_op", f"aten::{name}", HOST, HOST, start, 100, op),
            _slice("kernel", f"{name}_gemm", DEVICE, STREAM, start + 20, 100, kernel),
        ]
    path = folder / "overlaps.pt.trace.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": 3, "world_size": 4}, "traceEvents": events}))
    return path


def _slice(
    category: str, name: str, pid: int, tid: int, start: int, duration: int, args: dict[str, Any] | None = None
) -> dict[str, Any]:
    track_and_time = {"pid": pid, "tid": tid, "ts": start, "dur": duration}
    return {"ph": "X", "cat": category, "name": name, **track_and_time, "args": args or {}}

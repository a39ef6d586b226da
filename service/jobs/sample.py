"""Small samples. Reading and analysing them calls all compiled functions, so that their machine code is loaded."""

import pickle
import sqlite3
from contextlib import closing
from typing import Any

import orjson

Event = dict[str, Any]


def _slice(cat: str, name: str, start: float, duration: float, args: Event) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration, "args": args}


def _work(cat: str, name: str, start: float, correlation: int, args: Event) -> Event:
    args = {"device": 0, "stream": 7, "correlation": correlation, **args}
    return {**_slice(cat, name, start, 2, args), "pid": 0, "tid": 7}


_EVENTS = (
    _slice("python_function", "nn.Module: Linear_0", 0, 100, {}),
    _slice("user_annotation", "ProfilerStep#1", 1, 90, {}),
    _slice("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 2, 3, {}),
    _slice("cpu_op", "aten::linear", 10, 20, {"External id": 1}),
    _slice("cpu_op", "aten::linear", 11, 18, {"External id": 2}),
    _slice("cpu_op", "record_param_comms", 31, 9, {"External id": 3}),
    _slice("cuda_runtime", "cudaLaunchKernel", 12, 2, {"External id": 2, "correlation": 1}),
    _slice("cuda_runtime", "cudaMemcpyAsync", 15, 2, {"External id": 2, "correlation": 2}),
    _slice("cuda_runtime", "cudaLaunchKernel", 18, 2, {"External id": 2, "correlation": 5}),
    _slice("cuda_runtime", "cudaLaunchKernel", 32, 2, {"External id": 3, "correlation": 3}),
    _slice("cuda_runtime", "cudaDeviceSynchronize", 50, 20, {"correlation": 4}),
    _work("kernel", "gemm", 20, 1, {"External id": 2, "grid": [1, 1, 1], "block": [1, 1, 1]}),
    _work("gpu_memcpy", "Memcpy HtoD", 23, 2, {"bytes": 8}),
    _work("kernel", "bias", 26, 5, {"External id": 2}),
    _slice("cuda_profiler_range", "gemm", 20, 1, {"inst.sum": 2}),
    _work("kernel", "ncclDevKernel_AllReduce", 35, 3, {"External id": 3, "Collective name": "allreduce"}),
    {
        "ph": "i",
        "s": "t",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": 13,
        "args": {"Bytes": 64, "Total Allocated": 64, "Device Type": 1, "Device Id": 0, "Addr": 1},
    },
    {"ph": "X", "name": "compile", "pid": 1, "tid": "one", "ts": 1.5, "dur": 1, "args": {"x": [1]}, "more": {}},
)

SAMPLE = orjson.dumps({"schemaVersion": 1, "traceEvents": _EVENTS})
"""The document of the trace."""

_FRAMES = [{"filename": "train.py", "line": 1, "name": "step"}]
_BLOCK = {"address": 1, "size": 8, "requested_size": 8, "state": "active_allocated", "frames": _FRAMES}
_ENTRY = {"addr": 1, "size": 8, "stream": 0, "time_us": 1, "frames": _FRAMES}

SNAPSHOT_SAMPLE = pickle.dumps(
    {
        "segments": [{"device": 0, "address": 1, "total_size": 8, "blocks": [_BLOCK]}],
        "device_traces": [[{"action": action, **_ENTRY} for action in ("alloc", "free_completed", "alloc")]],
    },
    protocol=4,
)
"""A memory snapshot."""


def _export() -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        columns = ("start", "end", "globalTid", "nameId")
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ({', '.join(f'{name} INTEGER' for name in columns)})")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 3, 4)")
        return db.serialize()


EXPORT_SAMPLE = _export()
"""An SQLite export of Nsight Systems."""

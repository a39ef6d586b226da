"""Builders of events for small traces: GPU work, the calls that launch it, and steps. Times are in µs."""

from typing import Any

Event = dict[str, Any]


def work(start: float, dur: float, cat: str = "kernel", name: str = "gemm", **args: Any) -> Event:
    args = {"device": 0, "stream": 7, **args}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": dur, "args": args}


def call(start: float, correlation: int, name: str = "cudaLaunchKernel", dur: float = 1) -> Event:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": args}


def step(number: int, start: float, dur: float) -> Event:
    name = f"ProfilerStep#{number}"
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}

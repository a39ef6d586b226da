"""Call stacks: the tree of Python functions and operators by time, compared with plain loops over the events."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from service.trace.selection import Selection
from tests.analysis.conftest import Ask, Rows

CAPTURED = Path(__file__).parent.parent / "data/cpu_stack_memory.pt.trace.json.gz"
Event = dict[str, Any]
Path_ = tuple[str, ...]


def slice_of(name: str, start: int, end: int, cat: str = "python_function", **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


def path_of(rows: Rows, row: Event) -> Path_:
    above = () if row["parent"] is None else path_of(rows, rows[row["parent"]])
    return (*above, row["name"])


def plain(events: list[Event]) -> tuple[dict[Path_, list[int]], dict[int, Path_]]:
    """Return calls, total and own time in ns of each path, and the path around each launch, by its correlation."""
    slices = [event for event in events if event["ph"] == "X" and event["cat"] != "kernel"]
    slices.sort(key=lambda event: (event["ts"], -event["dur"]))
    stack: list[tuple[Event, Path_]] = []
    sums: dict[Path_, list[int]] = {}
    launches: dict[int, Path_] = {}
    for event in slices:
        while stack and stack[-1][0]["ts"] + stack[-1][0]["dur"] <= event["ts"]:
            stack.pop()
        above = stack[-1][1] if stack else ()
        if event["cat"] == "cuda_runtime":
            launches[event["args"]["correlation"]] = above
            continue
        path = (*above, event["name"])
        duration = round(event["dur"] * 1000)
        counts = sums.setdefault(path, [0, 0, 0])
        counts[0] += 1
        counts[1] += duration
        counts[2] += duration
        if above:
            sums[above][2] -= duration
        stack.append((event, path))
    return sums, launches


EVENTS = [
    slice_of("train.py(7): step", 0, 100),
    slice_of("model.py(3): forward", 10, 60),
    slice_of("aten::mm", 20, 40, "cpu_op"),
    slice_of("cudaLaunchKernel", 25, 30, "cuda_runtime", correlation=1),
    slice_of("cudaLaunchKernel", 45, 50, "cuda_runtime", correlation=2),
    slice_of("model.py(3): forward", 70, 90),
    slice_of("cudaLaunchKernel", 200, 210, "cuda_runtime", correlation=3),
    *({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 300 + 10 * n, "dur": n,
       "args": {"device": 0, "stream": 7, "correlation": n}} for n in (1, 2, 3)),
]  # fmt: skip


def test_tree_has_the_time_of_the_host_and_of_launched_work(ask: Ask) -> None:
    tables = ask("call_stacks", EVENTS)
    names = ["id", "parent", "depth", "kind", "name", "calls"]
    times = ["host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns"]
    assert [[row[name] for name in names] for row in tables["frames"]] == [
        [0, None, 0, "python", "train.py(7): step", 1],
        [1, 0, 1, "python", "model.py(3): forward", 2],
        [2, 1, 2, "op", "aten::mm", 1],
    ]
    assert [[row[name] for name in times] for row in tables["frames"]] == [
        [100_000, 30_000, 3000, 0],
        [70_000, 50_000, 3000, 2000],
        [20_000, 20_000, 1000, 1000],
    ]
    assert [(row["name"], row["host_self_ns"], row["device_self_ns"]) for row in tables["functions"]] == [
        ("model.py(3): forward", 50_000, 2000),
        ("train.py(7): step", 30_000, 0),
        ("aten::mm", 20_000, 1000),
    ]
    assert {key: value for key, value in tables["totals"][0].items() if key != "rank"} == {
        "rows": 3, "listed": 3, "host_ns": 100_000, "device_ns": 3000, "unattributed_ns": 3000,
    }  # fmt: skip


def test_tree_of_a_captured_trace_equals_a_plain_loop(ask: Ask) -> None:
    events = json.loads(gzip.decompress(CAPTURED.read_bytes()))["traceEvents"]
    threads = {(event["pid"], event["tid"]) for event in events if event.get("cat") == "python_function"}
    expected: dict[Path_, list[int]] = {}
    cats = ("python_function", "cpu_op")
    for thread in {(event["pid"], event["tid"]) for event in events if event.get("cat") in cats}:
        of_thread = [e for e in events if e["ph"] == "X" and e.get("cat") in cats and (e["pid"], e["tid"]) == thread]
        for path, counts in plain(of_thread)[0].items():
            sums = expected.setdefault(path, [0, 0, 0])
            expected[path] = [a + b for a, b in zip(sums, counts, strict=True)]
    rows = ask("call_stacks", CAPTURED, rows=1_000_000)["frames"]
    assert threads
    assert {path_of(rows, row): [row["calls"], row["host_total_ns"], row["host_self_ns"]] for row in rows} == expected


@st.composite
def programs(draw: st.DrawFn) -> list[Event]:
    """Nested calls on one thread, some of which launch kernels."""
    events: list[Event] = []

    def call(start: int, end: int, depth: int) -> None:
        kind = draw(st.sampled_from(["python_function", "cpu_op"]))
        events.append(slice_of(draw(st.sampled_from("abc")), start, end, kind))
        at = start
        while depth < 4 and end - at > 3 and draw(st.booleans()):
            first = draw(st.integers(at, end - 2))
            last = draw(st.integers(first + 1, end))
            if draw(st.integers(0, 3)) == 0:
                number = len(events)
                events.append(slice_of("cudaLaunchKernel", first, last, "cuda_runtime", correlation=number))
                kernel = {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "k",
                    "pid": 0,
                    "tid": 7,
                    "ts": 2000 + 9 * number,
                    "dur": 3,
                }
                events.append(kernel | {"args": {"device": 0, "stream": 7, "correlation": number}})
            else:
                call(first, last, depth + 1)
            at = last

    for number in range(draw(st.integers(1, 4))):
        call(number * 200, number * 200 + draw(st.integers(1, 199)), 0)
    return [*events, slice_of("a", 5000, 5001)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs())
def test_tree_equals_a_plain_loop(ask: Ask, events: list[Event]) -> None:
    expected, launches = plain(events)
    tables = ask("call_stacks", events)
    rows = tables["frames"]
    kinds = {path_of(rows, row) for row in rows}
    assert len(kinds) == len(rows) == len(expected)
    assert {path_of(rows, row): [row["calls"], row["host_total_ns"], row["host_self_ns"]] for row in rows} == expected
    kernels = [event for event in events if event["cat"] == "kernel"]
    device = Counter[Path_]()
    for kernel in kernels:
        device[launches[kernel["args"]["correlation"]]] += kernel["dur"] * 1000
    assert {path_of(rows, row): row["device_self_ns"] for row in rows if row["device_self_ns"]} == device
    assert sum(row["host_self_ns"] for row in tables["functions"]) == tables["totals"][0]["host_ns"]


def test_cut_tree_has_the_largest_rows_with_their_callers(ask: Ask) -> None:
    whole = ask("call_stacks", CAPTURED, rows=1_000_000)
    cut = ask("call_stacks", CAPTURED, rows=10)
    by_path = {path_of(whole["frames"], row): row for row in whole["frames"]}
    paths = [path_of(cut["frames"], row) for row in cut["frames"]]
    largest = sorted(-max(r["host_total_ns"], r["device_total_ns"]) for r in whole["frames"])[:10]
    assert {path[:length] for path in paths for length in range(1, len(path) + 1)} == {*paths}
    assert sorted(-by_path[path]["host_total_ns"] for path in paths)[:10] == largest
    assert cut["functions"] == whole["functions"]
    totals = cut["totals"][0]
    assert (totals["rows"], totals["listed"]) == (len(whole["frames"]), len(paths))


def test_trace_without_python_functions_has_a_reason(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="with_stack=True"):
        ask("call_stacks", [slice_of("aten::mm", 0, 5, "cpu_op")])
    with pytest.raises(NotApplicable, match=r"No Python function is in this selection\."):
        ask("call_stacks", CAPTURED, selection=Selection(categories=["cpu_op"]))

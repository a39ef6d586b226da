"""Modules by their nesting in time, compared with the ids of Python functions."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from service.trace.errors import NotApplicable
from service.trace.selection import Criteria, Selection
from tests.analysis.conftest import Ask, Rows, real
from tests.conftest import SHARED, needs_shared

CAPTURED = Path(__file__).parent.parent / "data/cpu_stack_memory.pt.trace.json.gz"
Event = dict[str, Any]


def _path(rows: Rows, row: Event) -> tuple[str, ...]:
    above = () if row["parent"] is None else _path(rows, rows[row["parent"]])
    return (*above, row["name"])


def _by_ids(trace: Path) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return calls and time in ns of each module, by the path that Python ids give. The analysis ignores these ids."""
    text = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
    events = [entry for entry in json.loads(text)["traceEvents"] if entry.get("cat") == "python_function"]
    by_id = {event["args"]["Python id"]: event for event in events}

    def path(event: Event | None) -> tuple[str, ...]:
        if event is None:
            return ()
        above = path(by_id.get(event["args"]["Python parent id"]))
        return (*above, event["name"].removeprefix("nn.Module: ")) if "Python module id" in event["args"] else above

    rows: dict[tuple[str, ...], list[int]] = {}
    for event in events:
        if "Python module id" in event["args"]:
            counts = rows.setdefault(path(event), [0, 0])
            counts[0] += 1
            counts[1] += round(event["dur"] * 1000)
    return {path: (calls, lasting) for path, (calls, lasting) in rows.items()}


@needs_shared
@pytest.mark.parametrize(
    "trace",
    [*(real(name) for name in ("h100_timesformer", "b200_eager_rank0_of_8", "mi300_resnet_rank0_of_8")),
     SHARED / "torch213_cpu/sched_stack_modules.pt.trace.json"],
    ids=lambda trace: trace.name,
)  # fmt: skip
def test_module_tree_equals_that_of_python_ids(trace: Path, ask: Ask) -> None:
    rows = ask("modules", trace)["modules"]
    assert {_path(rows, row): (row["calls"], row["host_total_ns"]) for row in rows} == _by_ids(trace)


def test_module_tree_of_a_captured_trace_equals_that_of_python_ids(ask: Ask) -> None:
    rows = ask("modules", CAPTURED)["modules"]
    assert rows
    assert {_path(rows, row): (row["calls"], row["host_total_ns"]) for row in rows} == _by_ids(CAPTURED)


@needs_shared
def test_modules_equal_tensorboard(ask: Ask) -> None:
    """TensorBoard's module view of this trace: calls, operators, and total and self host time in µs."""
    rows = {row["name"]: row for row in ask("modules", real("h100_timesformer"))["modules"]}
    for name, calls, operators, host, own, device in [
        ("TimesformerEmbeddings_0", 1, 19, 1453.861, 359.095, 1729.079),
        ("TimesformerEncoder_0", 1, 0, 28581.401, 151.411, None),
        ("Conv2d_0", 1, 1, 420.946, 68.901, 1297.914),
        ("TimesformerLayer_0", 1, 36, 3115.765, 478.895, None),
        ("Linear_0", 1, 1, 199.523, 20.591, 125.247),
        ("Identity_0", 3, 0, 10.03, 10.03, 0),
    ]:
        row = rows[name]
        assert (row["calls"], row["operators"]) == (calls, operators)
        assert row["host_total_ns"] / 1000 == pytest.approx(host, abs=1)
        assert row["host_python_ns"] / 1000 == pytest.approx(own, abs=1)
        if device is not None:  # TensorBoard leaves out work that a driver call launched
            assert row["device_total_ns"] / 1000 == pytest.approx(device, abs=1)


def _slice(name: str, start: int, end: int, cat: str = "python_function", **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}


EVENTS = [
    _slice("nn.Module: Net_0", 0, 100),
    _slice("forward", 1, 99),
    _slice("nn.Module: Linear_0", 10, 30),
    _slice("aten::linear", 12, 28, "cpu_op", **{"External id": 1}),
    _slice("aten::mm", 14, 26, "cpu_op", **{"External id": 2}),
    _slice("cudaLaunchKernel", 15, 16, "cuda_runtime", **{"External id": 2, "correlation": 1}),
    _slice("nn.Module: Linear_0", 40, 50),
    _slice("triton", 60, 61, "cuda_driver", correlation=2),
    _slice("nn.Module: Linear_0", 200, 210),
    _slice("kernel", 300, 307, "kernel", **{"External id": 2, "correlation": 1}),
    _slice("kernel", 310, 315, "kernel", correlation=2),
    _slice("kernel", 320, 321, "kernel", **{"External id": 1}),
    _slice("kernel", 330, 331, "kernel"),
]


def test_module_includes_its_calls_and_their_launches(ask: Ask) -> None:
    names = ["id", "parent", "depth", "name", "calls", "operators"]
    times = ["host_total_ns", "host_self_ns", "host_python_ns", "device_total_ns", "device_self_ns"]
    rows = ask("modules", EVENTS)["modules"]
    assert [[row[name] for name in names] for row in rows] == [
        [0, None, 0, "Net_0", 1, 0],
        [1, 0, 1, "Linear_0", 2, 1],
        [2, None, 0, "Linear_0", 1, 0],
    ]
    assert [[row[name] // 1000 for name in times] for row in rows] == [
        [100, 70, 69, 13, 5],
        [30, 30, 14, 8, 8],
        [10, 10, 10, 0, 0],
    ]
    assert (rows[1]["host_mean_us"], rows[1]["device_mean_us"]) == (15, 4)


def test_trace_without_modules_has_a_reason(ask: Ask) -> None:
    others = [event for event in EVENTS if not event["name"].startswith("nn.Module")]
    with pytest.raises(NotApplicable, match="recorded without `with_stack=True`"):
        ask("modules", [event for event in others if event.get("cat") != "python_function"])
    with pytest.raises(NotApplicable, match=r"No nn\.Module is called in this trace\."):
        ask("modules", [*others, _slice("main.py(1): main", 0, 5)])
    with pytest.raises(NotApplicable, match=r"No nn\.Module is called in this selection\."):
        ask("modules", EVENTS, selection=Selection(exclude=Criteria(names=["nn.Module*"])))


def test_modules_of_many_threads_and_deep_recursion_are_separate(ask: Ask) -> None:
    deep = [_slice("nn.Module: Deep_0", at, 2_000 - at) for at in range(900)]
    wide = [{**_slice("nn.Module: Wide_0", 1, 2), "tid": thread} for thread in range(2, 300)]
    rows = ask("modules", [*deep, *wide])["modules"]
    assert Counter(row["depth"] for row in rows) == Counter([*range(900), 0])
    assert {row["calls"] for row in rows if row["name"] == "Wide_0"} == {298}


def _backward_trace(threads: tuple[int, ...] = (1,)) -> list[Event]:
    """Return modules in which an operator runs, and the operator's backward pass on the autograd thread."""

    def of(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: object) -> Event:
        event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
        return {**event, "args": {key.replace("_", " "): value for key, value in args.items()}}

    forward = [
        event
        for tid in threads
        for event in (
            of("python_function", "nn.Module: Linear_0", 0, 20, tid),
            of("cpu_op", "aten::linear", 1, 18, tid, Sequence_number=5, Fwd_thread_id=0),
            of("cpu_op", "aten::addmm", 2, 10, tid, Sequence_number=5, Fwd_thread_id=0),
        )
    ]
    return [
        *forward,
        of("cuda_runtime", "cudaLaunchKernel", 3, 1, correlation=1),
        of(
            "cpu_op",
            "autograd::engine::evaluate_function: AddmmBackward0",
            40,
            20,
            9,
            Sequence_number=5,
            Fwd_thread_id=1,
        ),
        of("cpu_op", "aten::mm", 42, 8, 9),
        of("cuda_runtime", "cudaLaunchKernel", 43, 1, 9, correlation=2),
        {**of("kernel", "forward", 10, 3, correlation=1), "pid": 0, "tid": 7},
        {**of("kernel", "backward", 50, 5, correlation=2), "pid": 0, "tid": 7},
    ]


def test_work_of_the_backward_pass_counts_for_the_module_of_its_forward_operator(ask: Ask) -> None:
    [row] = ask("modules", _backward_trace())["modules"]

    assert (row["name"], row["device_total_ns"], row["device_backward_ns"]) == ("Linear_0", 8_000, 5_000)


def test_work_of_the_backward_pass_has_no_module_where_two_threads_number_their_operators_alike(ask: Ask) -> None:
    rows = ask("modules", _backward_trace((1, 2)))["modules"]

    assert [(row["device_total_ns"], row["device_backward_ns"]) for row in rows] == [(3_000, 0)]

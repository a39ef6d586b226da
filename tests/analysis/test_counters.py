"""Counters of the CUPTI range profiler, compared with plain sums over the ranges of each operator."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.analysis.catalogue import QUESTIONS
from service.trace.errors import NotApplicable
from service.trace.selection import Selection, Window
from tests.analysis.conftest import Ask
from tests.analysis.gpu import call, work
from tests.conftest import DATA, scaled

Event = dict[str, Any]
FMA, ADD = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"


def op(name: str, start: float, dur: float, cat: str = "cpu_op") -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}


def profiler_range(start: float, name: str, **metrics: Any) -> Event:
    """Return a range of the profiler with metrics. Ranges are adjacent, even if their kernels are not."""
    return {
        "ph": "X", "cat": "cuda_profiler_range", "name": name, "pid": 0, "tid": 0, "ts": start, "dur": 10,
        "args": metrics,
    }  # fmt: skip


OPS = [op("aten::conv2d", 0, 50), op("aten::cudnn_convolution", 5, 40), op("aten::add", 60, 20)]
LAUNCHES = [
    call(10, 1),
    # the runtime's call calls the driver: both are one launch
    {**call(10.25, 2, name="cuLaunchKernel", dur=0.5), "cat": "cuda_driver"},
    call(20, 3, name="cudaLaunchKernelExC"),
    call(30, 4, name="cudaMemcpyAsync"),  # launches no kernel
    call(65, 5, name="cudaLaunchCooperativeKernel"),
    {**call(90, 6, name="cuLaunchKernelEx"), "cat": "cuda_driver"},
]
RANGES = [
    profiler_range(10, "fft", **{FMA: 5, ADD: 7}),
    profiler_range(20, "fft", **{FMA: 6, ADD: 0.5}),
    profiler_range(30, "__missing__", **{FMA: 2**60, ADD: "n/a"}),
    profiler_range(40, "add", **{ADD: 3, "device": 0}),
]


def test_counters_belong_to_operators_around_the_launch_with_the_index_of_the_range(ask: Ask) -> None:
    answer = ask("counters", [*OPS, *LAUNCHES, *RANGES])
    conv, add = ("aten::cudnn_convolution", "aten::conv2d"), ("aten::add", "aten::add")
    assert [tuple(row.values())[1:] for row in answer["counters"]] == [
        (0, *conv, "fft", ADD, 2, 7.5, 3.75, 0.5, 7),
        (0, *conv, "fft", FMA, 2, 11, 5.5, 5, 6),
        (0, *add, "__missing__", FMA, 1, 2.0**60, 2.0**60, 2.0**60, 2.0**60),
        (0, None, None, "add", ADD, 1, 3, 3, 3, 3),
    ]
    first, _, third, last = answer["ranges"]
    assert (first["number"], first["start_ns"], first["call"], first["call_start_ns"]) == (
        *(0, 10_000, "cudaLaunchKernel", 10_000),
    )
    assert first["op_stack"] == "aten::conv2d > aten::cudnn_convolution"
    assert json.loads(third["counters"]) == {FMA: 2**60, ADD: "n/a"}
    assert (last["call"], last["op_stack"]) == ("cuLaunchKernelEx", None)
    assert answer["totals"] == [{"rank": None, "ranges": 4, "launches": 4, "linked_ranges": 4, "reason": None}]
    assert len(ask("counters", [*OPS, *LAUNCHES, *RANGES], ranges=3)["ranges"]) == 3


@pytest.mark.parametrize("missing", [1, 2])
def test_unequal_numbers_of_ranges_and_launches_leave_ranges_unlinked_with_a_reason(ask: Ask, missing: int) -> None:
    answer = ask("counters", [*OPS, *LAUNCHES, *RANGES[missing:]])
    assert answer["totals"][0]["linked_ranges"] == 0
    assert answer["totals"][0]["reason"].startswith(f"There are {4 - missing} ranges and 4 launches of kernels")
    assert {row[name] for row in answer["counters"] for name in ("op", "top_op")} == {None}
    assert {row[name] for row in answer["ranges"] for name in ("op", "op_stack", "call", "call_start_ns")} == {None}


def test_ranges_of_a_cut_trace_stay_unlinked(ask: Ask) -> None:
    part = Selection(window=Window(start_ns=0, end_ns=45_000, relative=True))
    [totals] = ask("counters", [*OPS, *LAUNCHES, *RANGES], selection=part)["totals"]
    assert totals["linked_ranges"] == 0
    assert "this is a part of it" in totals["reason"]


NAMES = st.sampled_from(["a", "b"])
METRICS = st.dictionaries(NAMES, st.integers(0, 2**40) | st.just("x") | st.just(None), max_size=2)


@settings(max_examples=scaled(30))
@given(st.lists(st.tuples(NAMES, st.sampled_from(["k", "l"]), METRICS), min_size=1, max_size=8))
def test_sums_equal_a_plain_loop(ask: Ask, ranges: list[tuple[str, str, dict[str, Any]]]) -> None:
    events: list[Event] = []
    values: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, (name, kernel, metrics) in enumerate(ranges):
        events += [
            op(name, 10 * index, 5),
            call(10 * index + 1, index + 1),
            profiler_range(1000 + 10 * index, kernel, **metrics),
        ]
        for counter, value in metrics.items():
            if isinstance(value, int):
                values[name, kernel, counter].append(value)
    if not values:
        with pytest.raises(NotApplicable, match="have no counters"):
            ask("counters", events)
        return
    rows = ask("counters", events)["counters"]
    assert {
        (row["op"], row["kernel"], row["counter"]): [row[name] for name in ("ranges", "sum", "min", "max")]
        for row in rows
    } == {key: [len(numbers), sum(numbers), min(numbers), max(numbers)] for key, numbers in values.items()}
    for row in rows:
        assert row["mean"] == row["sum"] / row["ranges"]


def test_analyses_of_gpu_time_refer_a_trace_with_only_ranges_to_counters(ask: Ask) -> None:
    for name in ("temporal_breakdown", "kernel_breakdown", "launch_stats", "gpu_summary", "comm_overlap"):
        with pytest.raises(NotApplicable, match="range profiler was on: GPU work has counters"):
            ask(name, [*OPS, *LAUNCHES, *RANGES])
    [row] = ask("temporal_breakdown", [*OPS, *LAUNCHES, *RANGES, work(100, 1)])["breakdown"]
    assert row["busy_ns"] == 1_000, "a range is not work: it spans all passes of the profiler"


def test_trace_without_ranges_is_not_applicable(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="CUPTI's range profiler counted nothing in this trace"):
        ask("counters", Path(DATA / "cpu_train_steps.pt.trace.json.gz"))
    assert "counters" in QUESTIONS

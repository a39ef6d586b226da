"""Sequences of kernels under operators, compared with a plain search over every event."""

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, real
from tests.analysis.gpu import call, work
from tests.conftest import DATA, needs_shared, scaled

Event = dict[str, Any]
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def op(name: str, start: float, dur: float, tid: int = 1, cat: str = "cpu_op") -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": dur, "args": {}}


def brute(events: list[Event], pattern: str, least: int) -> dict[tuple[str, ...], tuple[int, int, int]]:
    """Return count, device time and host time of each sequence, keyed by operator and kernels; times in ns."""
    slices = [(int(event["ts"] * 1000), int((event["ts"] + event["dur"]) * 1000), event) for event in events]
    cats = ("cpu_op", "user_annotation") if pattern else ("cpu_op",)
    ops = [slice_ for slice_ in slices if slice_[2]["cat"] in cats and pattern in slice_[2]["name"]]

    def encloses(outer: tuple[int, int, Event], inner: tuple[int, int, Event]) -> bool:
        same_thread = (outer[2]["pid"], outer[2]["tid"]) == (inner[2]["pid"], inner[2]["tid"])
        first = outer[:2] != inner[:2] or slices.index(outer) < slices.index(
            inner
        )  # of two equal slices, the first is the outer one
        return outer is not inner and same_thread and outer[0] <= inner[0] and inner[1] <= outer[1] and first

    roots = [op for op in ops if not any(encloses(outer, op) for outer in ops)]
    launches = {slice_[2]["args"]["correlation"]: slice_ for slice_ in slices[::-1] if "cuda_" in slice_[2]["cat"]}
    under: dict[int, list[tuple[int, int, Event]]] = defaultdict(list)
    for slice_ in sorted((slice_ for slice_ in slices if slice_[2]["cat"] in WORK), key=lambda slice_: slice_[0]):
        launch = launches.get(slice_[2]["args"].get("correlation"))
        for number, root in enumerate(roots):
            if launch and encloses(root, launch):
                under[number].append(slice_)
    counts: Counter[tuple[str, ...]] = Counter()
    device: Counter[tuple[str, ...]] = Counter()
    host: Counter[tuple[str, ...]] = Counter()
    for number, rows in under.items():
        if len(rows) >= least:
            key = (roots[number][2]["name"], *(row[2]["name"] for row in rows))
            counts[key] += 1
            device[key] += sum(end - start for start, end, _ in rows)
            host[key] += roots[number][1] - roots[number][0]
    return {key: (counts[key], device[key], host[key]) for key in counts}


def summary_of(rows: list[Event]) -> dict[tuple[str, ...], tuple[int, int, int]]:
    return {(row["op"], *row["kernels"].split(" | ")): (row["count"], row["device_ns"], row["host_ns"]) for row in rows}


@needs_shared
@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("a100_nccl_3_steps", "aten::conv2d"),
        ("a100_nccl_3_steps", "Optimizer.step"),
        ("b200_eager_rank0_of_8", "vllm::"),
        ("mi300_resnet_rank0_of_8", "evaluate_function: ConvolutionBackward0"),
        ("v100_resnet50_2021", "CudnnConvolutionBackward"),
    ],
)
def test_sequences_of_real_traces_are_exact(name: str, operator: str, ask: Ask) -> None:
    renamed = {"Operator": "cpu_op", "User": "user_annotation", "Runtime": "cuda_runtime", "Kernel": "kernel"}
    renamed |= {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
    events = [
        entry | {"cat": renamed.get(entry["cat"], entry["cat"]), "args": entry.get("args", {})}
        for entry in json.loads(gzip.decompress(real(name).read_bytes()), parse_float=Decimal)["traceEvents"]
        if entry.get("ph") == "X" and "cat" in entry
    ]
    calls = [event for event in events if "cuda_" in event["cat"] and "correlation" in event["args"]]
    ops = [event for event in events if event["cat"] in ("cpu_op", "user_annotation") and operator in event["name"]]
    work = [event for event in events if event["cat"] in WORK]
    expected = brute([*ops, *calls, *work], operator, 2)
    assert expected
    limits = {"min_length": 2, "top": 100_000, "names_max": 10_000}
    rows = ask("kernel_sequences", real(name), operator=operator, **limits)["sequences"]
    assert summary_of(rows) == expected
    assert [row["count"] for row in rows] == sorted((row["count"] for row in rows), reverse=True)
    assert all(row["length"] == len(row["kernels"].split(" | ")) for row in rows)


OPS = st.lists(
    st.tuples(st.sampled_from(["aten::a", "aten::b", "c"]), st.integers(0, 9), st.integers(1, 3)), max_size=6
)
LAUNCHES = st.lists(st.tuples(st.integers(0, 39), st.integers(1, 9), st.sampled_from("xyz")), min_size=1, max_size=9)


@settings(max_examples=scaled(40))
@given(OPS, LAUNCHES, st.sampled_from(["", "aten::", "b"]), st.integers(1, 3))
def test_sequences_equal_a_plain_search(
    ask: Ask, ops: list[tuple[str, int, int]], launches: list[tuple[int, int, str]], operator: str, least: int
) -> None:
    """The operators nest up to three deep, each with room for its children; the work runs in another order."""
    events: list[Event] = []
    for name, place, depth in ops:
        events.append(op(name, 40 * place + 4 * depth, 40 - 8 * depth, tid=place % 2))
    for number, (start, dur, name) in enumerate(launches, 1):
        launch = {**call(10 * start + 0.5, number, dur=0.25), "tid": (10 * start // 40) % 2}
        events += [launch, work(1000 - 20 * start + number / 8, dur, name=name, correlation=number)]
    unique = list({(event["name"], event["ts"], event["tid"], event["cat"]): event for event in events}.values())
    expected = brute(unique, operator, least)
    if expected:
        assert summary_of(ask("kernel_sequences", unique, operator=operator, min_length=least)["sequences"]) == expected
    else:
        with pytest.raises(NotApplicable):
            ask("kernel_sequences", unique, operator=operator, min_length=least)


def test_long_sequences_are_truncated_and_only_the_most_frequent_are_listed(ask: Ask) -> None:
    events = [op("once", 0, 10), op("twice", 20, 10), op("twice", 40, 10)]
    events += [call(start + at, 10 * start + at, dur=0.5) for start in (0, 20, 40) for at in (1, 2, 3)]
    events += [
        work(100 + start + at, 1, name=f"k{at}", correlation=10 * start + at)
        for start in (0, 20, 40)
        for at in (1, 2, 3)
    ]
    first, second = ask("kernel_sequences", events, names_max=2)["sequences"]
    assert (first["op"], first["count"], first["length"], first["kernels"]) == ("twice", 2, 3, "k1 | k2 | … and 1 more")
    assert (first["device_ns"], first["device_mean_ns"], first["first_start_ns"]) == (6_000, 3_000, 20_000)
    assert (second["op"], second["count"]) == ("once", 1)
    assert [row["op"] for row in ask("kernel_sequences", events, top=1)["sequences"]] == ["twice"]


def test_ranks_without_sequences_are_skipped_with_a_reason(ask: Ask) -> None:
    events = [op("a", 0, 10), call(1, 1), call(3, 2), work(20, 1, correlation=1), work(30, 1, correlation=2)]
    shorter = [*events[:2], events[3]]
    answer = ask("kernel_sequences", shorter, events, min_length=2)
    assert [row["kernels"] for row in answer["sequences"]] == ["gemm | gemm"]
    reason = "None of 1 operators launched at least 2 kernels, copies or memsets."
    assert [row["reason"] for row in answer.answer.skipped] == [reason]
    with pytest.raises(NotApplicable, match=reason):
        ask("kernel_sequences", shorter, shorter, min_length=2)


def test_trace_without_sequences_has_a_reason(ask: Ask) -> None:
    events = [op("a", 0, 10), call(1, 1), work(20, 1, correlation=1), op("b", 20, 5)]
    for parameters, reason in (
        ({"operator": "c"}, "No operator's name contains 'c'"),
        ({"operator": "b"}, "The selected operators launched no work on a device"),
        ({}, "None of 2 operators launched at least 3 kernels, copies or memsets"),
    ):
        with pytest.raises(NotApplicable, match=reason):
            ask("kernel_sequences", events, **parameters)
    with pytest.raises(NotApplicable, match="Nothing in this trace runs on a GPU"):
        ask("kernel_sequences", Path(DATA / "cpu_train_steps.pt.trace.json.gz"))

"""The breakdown of a GPU's time, compared with an independent oracle to the nanosecond."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable, NothingSelected
from service.trace.selection import Closure, Selection, Window
from tests.analysis.conftest import Ask, exact, golden, real
from tests.analysis.gpu import call, step, work
from tests.conftest import SHARED, needs_shared, scaled

SINGLE = [
    *("a100_nccl_3_steps", "b200_eager_rank0_of_8", "h100_bert_small", "h100_timesformer"),
    *("mi300_resnet_rank0_of_8", "v100_ddp_epoch_us", "v100_resnet50_2021"),
]
NARROW = ["kernel", "gpu_memcpy", "gpu_memset"]
NAMES = {
    "span_ns": "span_ns", "busy_ns": "busy_ns", "idle_ns": "idle_ns", "compute_ns": "comp_union_ns",
    "comm_ns": "comm_union_ns", "mem_ns": "mem_union_ns", "overlap_ns": "overlap_comp_comm_ns",
    "exposed_comm_ns": "exposed_comm_ns", "exposed_mem_ns": "exposed_mem_ns",
}  # fmt: skip


@needs_shared
@pytest.mark.parametrize("name", SINGLE)
def test_breakdown_is_exact(name: str, ask: Ask) -> None:
    expected = exact(name)
    [row] = ask("temporal_breakdown", real(name))["breakdown"]
    assert {ours: row[ours] for ours in NAMES} == {ours: expected[theirs] for ours, theirs in NAMES.items()}


@needs_shared
def test_ranks_are_separate(ask: Ask) -> None:
    rows = ask("temporal_breakdown", *sorted(SHARED.glob("dlrm_8_ranks/*")))["breakdown"]
    for rank, expected in golden("exact", "dlrm_8_ranks").items():
        [row] = [row for row in rows if row["rank"] == int(rank)]
        assert {ours: row[ours] for ours in NAMES} == {ours: expected[theirs] for ours, theirs in NAMES.items()}


HTA = {"types": "hta", "last_step": "drop"}
HTA_NAMES = {
    "idle_ns": "idle_time(us)", "compute_ns": "compute_time(us)", "non_compute_ns": "non_compute_time(us)",
    "span_ns": "kernel_time(us)",
}  # fmt: skip
HTA_SHARES = {
    "idle_pct": "idle_time_pctg", "compute_pct": "compute_time_pctg", "non_compute_pct": "non_compute_time_pctg",
}  # fmt: skip


@needs_shared
@pytest.mark.parametrize("name", [name for name in SINGLE if name != "v100_resnet50_2021"])
def test_breakdown_equals_hta_with_its_filters(name: str, ask: Ask) -> None:
    [expected] = golden("hta_ns", name)["temporal_breakdown"]
    [row] = ask("temporal_breakdown", real(name), **HTA)["breakdown"]
    for ours, theirs in HTA_NAMES.items():
        assert row[ours] / 1000 == pytest.approx(expected[theirs], abs=0.5), ours
    for ours, theirs in HTA_SHARES.items():
        assert row[ours] == pytest.approx(expected[theirs], abs=0.006), ours


@needs_shared
def test_breakdown_equals_hta_for_whole_times(ask: Ask) -> None:
    [row] = ask("temporal_breakdown", real("v100_resnet50_2021"), **HTA)["breakdown"]
    rows = [row, *ask("temporal_breakdown", *sorted(SHARED.glob("dlrm_8_ranks/*")), **HTA)["breakdown"]]
    own = [golden("hta_default", name)["temporal_breakdown"] for name in ("v100_resnet50_2021", "dlrm_8_ranks")]
    for row, expected in zip(rows, [*own[0], *own[1]], strict=True):
        assert {ours: row[ours] for ours in HTA_NAMES} == {o: expected[t] * 1000 for o, t in HTA_NAMES.items()}
        assert {ours: round(row[ours], 2) for ours in HTA_SHARES} == {o: expected[t] for o, t in HTA_SHARES.items()}


def test_each_moment_counts_for_the_first_matching_type(ask: Ask) -> None:
    trace = [
        work(0, 10),
        work(5, 10, name="ncclDevKernel_AllReduce"),
        work(12, 8, "gpu_memcpy", "Memcpy HtoD"),
        work(30, 10, "gpu_memset", "Memset"),
    ]
    [row] = ask("temporal_breakdown", trace)["breakdown"]
    assert [row[name] for name in NAMES] == [40000, 30000, 10000, 10000, 10000, 18000, 5000, 5000, 15000]
    assert [row["idle_pct"], row["compute_pct"], row["exposed_mem_pct"]] == [25, 25, 37.5]
    [row] = ask("temporal_breakdown", trace, memset="comp")["breakdown"]
    assert (row["compute_ns"], row["mem_ns"]) == (20000, 8000)


def test_kernel_with_collective_metadata_communicates_under_any_name(ask: Ask) -> None:
    answer: dict[str, Any] = {"Collective name": "allreduce", "External id": 9}
    collective = call(0, 1, "record_param_comms") | {"cat": "cpu_op", "args": {"External id": 9}}
    trace = [collective, work(1, 5, name="multimem", **answer), work(6, 2, name="multimem")]
    [row] = ask("temporal_breakdown", trace)["breakdown"]
    assert (row["comm_ns"], row["compute_ns"]) == (5000, 2000)
    for events, selection in ((trace, Selection(categories=["kernel"])), (trace[1:], None)):
        [row] = ask("temporal_breakdown", events, selection=selection)["breakdown"]
        assert (row["comm_ns"], row["compute_ns"]) == (5000, 2000)
        [row] = ask("temporal_breakdown", events, selection=selection, memset="comp")["breakdown"]
        assert (row["comm_ns"], row["compute_ns"]) == (5000, 2000)
        assert {
            row["type"]: row["count"] for row in ask("kernel_breakdown", events, selection=selection)["kernels"]
        } == {
            "COMM": 1,
            "COMP": 1,
        }


def test_last_step_and_unlinked_work_can_be_left_out(ask: Ask) -> None:
    trace = [
        *(step(1, 0, 10), step(2, 10, 10)),
        *(call(1, 1), call(9, 2), call(10, 3), call(15, 4)),
        *(work(20, 5, correlation=1), work(40, 5, correlation=2), work(60, 5, correlation=3)),
        *(work(80, 5, correlation=4), work(90, 5, correlation=77), work(96, 5)),
    ]
    busy = {"keep": 30000, "drop": 10000}
    for chosen, length in busy.items():
        [row] = ask("temporal_breakdown", trace, last_step=chosen)["breakdown"]
        assert row["busy_ns"] == length
        [row] = ask("temporal_breakdown", trace, last_step=chosen, types="hta")["breakdown"]
        assert row["busy_ns"] == length
    [row] = ask("temporal_breakdown", trace, linked_only=True)["breakdown"]
    assert row["busy_ns"] == 20000
    [row] = ask("temporal_breakdown", trace[1:], last_step="drop")["breakdown"]
    assert row["busy_ns"] == 30000  # a single step is never left out


def test_devices_are_separate(ask: Ask) -> None:
    trace = [work(at, 1, device=device) for at, device in enumerate([1, 2, 1, 3, 2])]
    rows = ask("temporal_breakdown", trace)["breakdown"]
    assert [(row["device"], row["span_ns"]) for row in rows] == [(1, 3000), (2, 4000), (3, 1000)]
    [row] = ask("temporal_breakdown", trace, types="hta")["breakdown"]
    assert (row["device"], row["span_ns"]) == (None, 5000)


@pytest.mark.parametrize("types", ["exact", "hta"])
def test_hostile_values_yield_an_answer(types: str, ask: Ask) -> None:
    trace = [
        *(work(2**53 + at, at) for at in range(3)),
        *(work(-1, -5), work(9e14, 9e14), work(1, 1, device="a", stream=[1], correlation=1.5)),
        {"ph": "X", "cat": "kernel", "name": "no arguments", "ts": 5},
        {"ph": "X", "cat": "kernel", "name": "of a text", "ts": 5, "dur": 1, "args": "stream"},
        *(step(1, 0, 1), step(2, 5, 1)),
    ]
    rows = ask("temporal_breakdown", trace, types=types)["breakdown"]
    assert all(row["busy_ns"] + row["idle_ns"] == row["span_ns"] >= 0 for row in rows)
    if types == "exact":
        with pytest.raises(NotApplicable, match="this analysis counts is left"):
            ask("temporal_breakdown", trace, last_step="drop")


@pytest.mark.parametrize("types", ["exact", "hta"])
def test_trace_without_work_has_a_reason(types: str, ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="Nothing in this trace runs on a GPU"):
        ask("temporal_breakdown", [call(1, 1)], types=types)


KINDS = [("kernel", "gemm"), ("kernel", "ncclKernel"), ("gpu_memcpy", "Memcpy"), ("gpu_memset", "Memset")]


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from(KINDS)), min_size=1, max_size=12))
def test_parts_add_up_to_the_span_instant_by_instant(ask: Ask, parts: list[tuple[int, int, tuple[str, str]]]) -> None:
    [row] = ask("temporal_breakdown", [work(at, dur, *kind) for at, dur, kind in parts])["breakdown"]
    rows = dict.fromkeys(("compute", "overlap", "exposed_comm", "exposed_mem", "idle"), 0)
    first, last = min(at for at, _, _ in parts), max(at + dur for at, dur, _ in parts)
    for instant in range(first, last):
        names = {kind[1] for at, dur, kind in parts if at <= instant < at + dur}
        compute, comm = "gemm" in names, "ncclKernel" in names
        rows["compute"] += compute
        rows["overlap"] += compute and comm
        rows["exposed_comm"] += comm and not compute
        rows["exposed_mem"] += bool(names) and not comm and not compute
        rows["idle"] += not names
    assert {name: row[f"{name}_ns"] for name in rows} == {name: time * 1000 for name, time in rows.items()}
    assert row["span_ns"] == sum(row[f"{name}_ns"] for name in rows if name != "overlap") == (last - first) * 1000


@needs_shared
@pytest.mark.parametrize("memset", ["mem", "comp"])
@pytest.mark.parametrize("name", ["a100_nccl_3_steps", "mi300_resnet_rank0_of_8", "v100_resnet50_2021"])
def test_columns_equal_those_read_by_the_database(name: str, memset: str, ask: Ask) -> None:
    answer = ask("temporal_breakdown", real(name), memset=memset)
    assert answer == ask("temporal_breakdown", real(name), memset=memset, selection=Selection())
    narrow = Selection(
        categories=[category for category in ("Kernel", "Memcpy", "Memset") if name.endswith("2021")] or NARROW
    )
    assert answer == ask("temporal_breakdown", real(name), memset=memset, selection=narrow)


@settings(max_examples=scaled(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from(KINDS)), min_size=1, max_size=10),
    st.integers(1, 70),
    st.randoms(use_true_random=False),
)
def test_times_add_up_for_any_order_of_events(ask: Ask, parts: list[Any], border: int, random: Random) -> None:
    trace = [step(1, 0, border), step(2, border, 90 - border), *(work(at, dur, *kind) for at, dur, kind in parts)]
    row = ask("temporal_breakdown", trace)["breakdown"][0]
    assert ask("temporal_breakdown", random.sample(trace, len(trace)))["breakdown"] == [row]
    sums = dict.fromkeys(("busy", "compute", "comm", "mem", "overlap", "exposed_comm", "exposed_mem"), 0)
    for start, end in ((0, border), (border, 90)):
        window = Window(start_ns=start * 1000, end_ns=end * 1000)
        half = Selection(window=window, straddle="clip", closure=Closure(kernels=False, launches=False))
        with suppress(NotApplicable, NothingSelected):
            for name in sums:
                sums[name] += ask("temporal_breakdown", trace, selection=half)["breakdown"][0][f"{name}_ns"]
    assert sums == {name: row[f"{name}_ns"] for name in sums}


@needs_shared
def test_answers_do_not_depend_on_the_order_of_ranks(ask: Ask) -> None:
    traces = sorted(SHARED.glob("dlrm_8_ranks/*"))[:3]
    rows = ask("temporal_breakdown", *traces)["breakdown"]
    assert ask("temporal_breakdown", *reversed(traces))["breakdown"] == rows[::-1]


def test_hta_types_ignore_work_without_a_stream_argument(ask: Ask) -> None:
    """MTIA writes transfers without this argument; their tid is not a stream."""
    answer = {**work(0, 4, "mtia_ccp_events", "pe_exe", correlation=1), "tid": 7}
    untold = {**work(10, 5, "mtia_ccp_events", "dma_request", size=16), "tid": 801}
    del untold["args"]["stream"]
    odd = {**work(20, 1, "mtia_ccp_events", "dma_request", stream=None), "tid": 801}
    for types, busy, spans in (("exact", 10_000, 21_000), ("hta", 4_000, 4_000)):
        [row] = ask("temporal_breakdown", [answer, untold, odd], types=types)["breakdown"]
        assert (row["busy_ns"], row["span_ns"]) == (busy, spans)
        kernels = ask("kernel_breakdown", [answer, untold, odd], types=types)["kernels"]
        assert sum(row["count"] for row in kernels) == (3 if types == "exact" else 1)

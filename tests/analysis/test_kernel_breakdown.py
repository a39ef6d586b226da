"""Types and kernels, compared with an independent oracle, HTA, the TensorBoard plugin and plain Python."""

import json
import statistics
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, Rows, exact, golden, real
from tests.analysis.gpu import call, work
from tests.conftest import SHARED, needs_shared, scaled

SINGLE = [
    *("a100_nccl_3_steps", "b200_eager_rank0_of_8", "h100_bert_small", "h100_timesformer"),
    *("mi300_resnet_rank0_of_8", "v100_ddp_epoch_us", "v100_resnet50_2021"),
]
HTA = {"types": "hta", "last_step": "drop", "top": 1000}
TYPES = {"COMPUTATION": "COMP", "COMMUNICATION": "COMM", "MEMORY": "MEM"}


def combination(theirs: str) -> str:
    """Translate HTA's names of overlapping types to ours."""
    names = {TYPES[row] for row in theirs.split(" overlapping ")}
    return " + ".join(name for name in ("COMP", "COMM", "MEM") if name in names)


@needs_shared
@pytest.mark.parametrize("trace", SINGLE)
def test_kernels_are_exact(trace: str, ask: Ask) -> None:
    expected = exact(trace)
    answer = ask("kernel_breakdown", real(trace), top=1000)
    rows: dict[str, list[int]] = {}
    for row in answer["kernels"]:
        name = row["name"]
        had = rows.get(name, [0, 0, row["min_ns"], row["max_ns"]])
        rows[name] = [
            had[0] + row["count"],
            had[1] + row["sum_ns"],
            min(had[2], row["min_ns"]),
            max(had[3], row["max_ns"]),
        ]
        assert row["mean_ns"] == pytest.approx(row["sum_ns"] / row["count"])
    for entry in expected["kernels"]:
        [ours] = [values for name, values in rows.items() if name.startswith(entry["name"])][:1]
        assert ours == [entry["count"], entry["sum_ns"], entry["min_ns"], entry["max_ns"]]
    types: dict[str, int] = defaultdict(int)
    for row in answer["types"]:
        for type_ in row["types"].split(" + "):
            types[type_] += row["time_ns"]
    assert [types[type_] for type_ in ("COMP", "COMM", "MEM")] == [
        expected[f"{type_}_union_ns"] for type_ in ("comp", "comm", "mem")
    ]
    assert sum(row["time_ns"] for row in answer["types"]) == expected["busy_ns"]


def same_kernels(rows: Rows, expected: Rows, tolerance: float) -> None:
    """Assert that rows equal HTA's kernels, in µs."""
    ours = {(row["rank"] or 0, row["type"], row["name"]): row for row in rows}
    assert {(row["rank"], TYPES[row["kernel_type"]], row["name"]) for row in expected} == {
        key for key in ours if key[1] != "OTHER"
    }
    for entry in expected:
        row = ours[entry["rank"], TYPES[entry["kernel_type"]], entry["name"]]
        for column in ("sum_ns", "mean_ns", "min_ns", "max_ns", "stddev_ns"):
            theirs = entry["stddev" if column == "stddev_ns" else f"{column[:-3]} (us)"]
            assert row[column] / 1000 == pytest.approx(theirs, abs=tolerance), (row["name"], column)


@needs_shared
@pytest.mark.parametrize("name", [name for name in SINGLE if name != "v100_resnet50_2021"])
def test_kernels_equal_hta_with_its_filters(name: str, ask: Ask) -> None:
    expected = golden("hta_ns", name)["gpu_kernel_breakdown_full"]
    answer = ask("kernel_breakdown", real(name), **HTA)
    same_kernels(answer["kernels"], expected["kernels"], 0.5)
    times = {row["types"]: row["time_ns"] for row in answer["types"]}
    for entry in expected["types"]:
        # HTA truncates each piece to whole µs before the addition, so it loses up to 1 µs per piece; our sum is exact
        assert times[combination(entry["kernel_type"])] / 1000 >= entry["sum"] - 0.5
    assert sum(times.values()) / 1000 == pytest.approx(
        golden("hta_ns", name)["temporal_breakdown"][0]["kernel_time(us)"]
        - golden("hta_ns", name)["temporal_breakdown"][0]["idle_time(us)"],
        abs=0.5,
    )


@needs_shared
def test_kernels_equal_hta_for_whole_times(ask: Ask) -> None:
    for name, traces in {
        "v100_resnet50_2021": [real("v100_resnet50_2021")],
        "dlrm_8_ranks": sorted(SHARED.glob("dlrm_8_ranks/*")),
    }.items():
        expected = golden("hta_default", name)["gpu_kernel_breakdown_full"]
        answer = ask("kernel_breakdown", *traces, **HTA)
        same_kernels(answer["kernels"], expected["kernels"], 1e-6)
        times: dict[str, int] = defaultdict(int)  # HTA sums over ranks
        for row in answer["types"]:
            times[row["types"]] += row["time_ns"]
        assert times == {combination(row["kernel_type"]): row["sum"] * 1000 for row in expected["types"] if row["sum"]}


@needs_shared
@pytest.mark.parametrize("name", ["v100_resnet50_2021", "h100_timesformer", "v100_ddp_epoch_us", "dlrm_rank0"])
def test_kernels_equal_tensorboard(name: str, ask: Ask) -> None:
    trace = real(name) if name != "dlrm_rank0" else min(SHARED.glob("dlrm_8_ranks/*"))
    ours = {row["name"]: row for row in ask("kernel_breakdown", trace, top=1000)["kernels"] if row["type"] != "MEM"}
    rows = golden("tensorboard", name)["kernels"]["rows"]
    assert {row[0] for row in rows} == set(ours)
    for kernel, cores, calls, total, mean, longest, shortest, *metrics in rows:
        row = ours[kernel]
        assert row["count"] == calls
        if cores == "Yes" or "wmma_tensorop" in kernel:  # a category that TensorBoard does not know
            assert row["tensor_cores"] == "yes"
        else:
            assert row["tensor_cores"] == "no", "each of its names is classified"
        for column, value in {"sum_ns": total, "mean_ns": mean, "max_ns": longest, "min_ns": shortest}.items():
            assert row[column] / 1000 == pytest.approx(value, abs=1)
        assert [row["blocks_per_sm"] or 0, row["occupancy_pct"] or 0] == pytest.approx(metrics, abs=0.0051)


@needs_shared
def test_configurations_equal_tensorboard(ask: Ask) -> None:
    actual = ask("kernel_breakdown", real("v100_resnet50_2021"), top=1000)["configurations"]

    def key(name: str, op: str | None, grid: str, block: str, registers: Any, memory: Any) -> tuple[Any, ...]:
        return name, op or "N/A", *json.loads(grid), *json.loads(block), int(registers), int(memory)

    ours = {
        key(*(row[column] for column in ("name", "op", "grid", "block", "registers", "shared_memory_bytes"))): row
        for row in actual
    }
    rows = golden("tensorboard", "v100_resnet50_2021")["kernel_op"]["rows"]
    assert {key(*row[:6]) for row in rows} == set(ours)
    for expected in rows:
        row = ours[key(*expected[:6])]
        assert (row["tensor_cores"], row["count"]) == (expected[6].lower(), expected[8])
        for column, value in zip(("sum_ns", "mean_ns", "max_ns", "min_ns"), expected[9:13], strict=True):
            assert row[column] / 1000 == pytest.approx(value, abs=1)
        assert [row["blocks_per_sm"] or 0, row["occupancy_pct"] or 0] == pytest.approx(expected[13:], abs=0.0051)


@needs_shared
def test_row_of_others_holds_the_kernels_beyond_top(ask: Ask) -> None:
    kernels = golden("hta_default", "v100_resnet50_2021")["gpu_kernel_breakdown_default"]["kernels"]
    expected = {kernel["name"]: kernel for kernel in kernels if kernel["kernel_type"] == "COMPUTATION"}
    top = len(expected) - 1
    rows = ask("kernel_breakdown", real("v100_resnet50_2021"), types="hta", last_step="drop", top=top)["kernels"]
    ours = {row["name"]: row for row in rows if row["type"] == "COMP"}
    assert {name: row["sum_ns"] / 1000 for name, row in ours.items()} == {
        name: kernel["sum (us)"] for name, kernel in expected.items()
    }
    for name, kernel in expected.items():
        if name != "others":
            # HTA has a bug: if there is a row "others", a kernel's minimum, mean and maximum equal its sum
            assert (
                kernel["min (us)"]
                == kernel["mean (us)"]
                == kernel["max (us)"]
                == kernel["sum (us)"]
                != ours[name]["min_ns"] / 1000
            )
    full = golden("hta_default", "v100_resnet50_2021")["gpu_kernel_breakdown_full"]["kernels"]
    beyond_top = [entry for entry in full if entry["kernel_type"] == "COMPUTATION" and entry["name"] not in expected]
    assert ours["others"]["max_ns"] / 1000 == max(entry["max (us)"] for entry in beyond_top)
    assert ours["others"]["min_ns"] / 1000 == min(entry["min (us)"] for entry in beyond_top)


def test_simultaneous_types_are_listed(ask: Ask) -> None:
    trace = [
        *(work(0, 10), work(4, 10, name="ncclDevKernel_AllReduce", stream=9), work(8, 4, "gpu_memset", "Memset")),
        work(100, 5, "gpu_memcpy", "Memcpy HtoD"),
    ]
    rows = ask("kernel_breakdown", trace)["types"]
    assert [(row["types"], row["time_ns"], row["time_pct"]) for row in rows] == [
        ("MEM", 5000, pytest.approx(500 / 19)),
        ("COMP", 4000, pytest.approx(400 / 19)),
        ("COMP + COMM", 4000, pytest.approx(400 / 19)),
        ("COMM", 2000, pytest.approx(200 / 19)),
        ("COMM + MEM", 2000, pytest.approx(200 / 19)),
        ("COMP + COMM + MEM", 2000, pytest.approx(200 / 19)),
    ]


def ids(external: int) -> dict[str, Any]:
    return {"External id": external}


def op(external: int, name: str, start: float = 0) -> dict[str, Any]:
    return call(start, 0, name) | {"cat": "cpu_op", "args": ids(external)}


def test_configuration_behind_a_collective_is_read(ask: Ask) -> None:
    collective: dict[str, Any] = {"registers per thread": 8, "Collective name": "allreduce"}
    trace = [work(at, 1, name="nccl", **collective, grid=[at, 1, 1], block=[32, 1, 1]) for at in (1, 2, 3)]
    rows = ask("kernel_breakdown", trace)["configurations"]
    assert sorted(row["grid"] for row in rows) == ["[1,1,1]", "[2,1,1]", "[3,1,1]"]


def test_kernels_are_grouped_by_launch_configuration(ask: Ask) -> None:
    details: dict[str, Any] = {"grid": [2, 1, 1], "block": [32, 1, 1], "registers per thread": 8, "shared memory": 16}
    metrics: list[dict[str, Any]] = [
        {"blocks per SM": blocks, "est. achieved occupancy %": blocks * 10} for blocks in (1, 4)
    ]
    trace = [
        *(op(1, "aten::mm"), op(2, "aten::linear")),
        work(0, 1, name="a_s1688gemm", **ids(1), **details, **metrics[0]),
        work(1, 3, name="a_s1688gemm", **ids(1), **details, **metrics[1]),
        work(4, 2, name="a_s1688gemm", **ids(2), **details),
        work(6, 2, name="a_s1688gemm", **ids(2) | details | {"grid": [4, 1, 1]}),
        work(9, 1, name="b"),
    ]
    answer = ask("kernel_breakdown", trace)
    rows = [
        [
            row[column]
            for column in ("name", "op", "grid", "block", "registers", "shared_memory_bytes", "count", "sum_ns")
        ]
        for row in answer["configurations"]
    ]
    shape = ["[32,1,1]", 8, 16]
    assert rows == [
        ["a_s1688gemm", "aten::mm", "[2,1,1]", *shape, 2, 4000],
        ["a_s1688gemm", "aten::linear", "[2,1,1]", *shape, 1, 2000],
        ["a_s1688gemm", "aten::linear", "[4,1,1]", *shape, 1, 2000],
        ["b", None, None, None, None, None, 1, 1000],
    ]
    assert [answer["configurations"][0][column] for column in ("blocks_per_sm", "occupancy_pct")] == [3.25, 32.5]
    gemm, plain = answer["kernels"]
    assert (gemm["count"], gemm["tensor_cores"], plain["tensor_cores"]) == (4, "yes", "unknown")
    assert (gemm["min_ns"], gemm["max_ns"], gemm["mean_ns"]) == (1000, 3000, 2000)
    assert gemm["stddev_ns"] == pytest.approx(statistics.stdev([1000, 3000, 2000, 2000]))
    assert (gemm["blocks_per_sm"], plain["blocks_per_sm"], plain["stddev_ns"]) == (3.25, None, 0)


def test_work_has_no_op_if_several_ops_share_its_external_id(ask: Ask) -> None:
    trace = [op(1, "aten::linear"), op(1, "aten::mm", 1), work(2, 1, **ids(1)), work(4, 1)]
    answer = ask("kernel_breakdown", trace)
    assert [(row["op"], row["count"]) for row in answer["configurations"]] == [(None, 2)]
    assert [(row["rule"], row["work"]) for row in answer["attribution"]] == [("no_launch", 2)]


def test_work_has_the_op_around_its_launch_for_any_external_id(ask: Ask) -> None:
    trace = [
        op(1, "aten::linear", 0) | {"dur": 10},
        op(2, "aten::mm", 2) | {"dur": 4},
        call(3, 1),
        work(20, 1, correlation=1, **ids(1)),
    ]
    answer = ask("kernel_breakdown", trace)
    assert [(row["op"], row["count"]) for row in answer["configurations"]] == [("aten::mm", 1)]


@pytest.mark.parametrize("types", ["exact", "hta"])
def test_hostile_values_yield_an_answer(types: str, ask: Ask) -> None:
    odd: list[dict[str, Any]] = [
        {"grid": "a", "block": None, "registers per thread": "many", "blocks per SM": [1]},
        {"registers per thread": 1e300, "grid": {"a": [1]}, "block": 5, "blocks per SM": "NaN"},
    ]
    trace = [
        *(work(0, 9e14, name="x", **args) for args in odd),
        *(work(5, -5, name="y"), work(5, 0, name="y")),
        *({"ph": "X", "cat": "kernel", "ts": 1}, {"ph": "X", "cat": "kernel", "name": "z", "ts": 5, "args": [1]}),
    ]
    for row in ask("kernel_breakdown", trace, types=types)["kernels"]:
        assert 0 <= row["min_ns"] <= row["mean_ns"] <= row["max_ns"] <= row["sum_ns"]


def test_trace_without_work_has_a_reason(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="Nothing in this trace runs on a GPU"):
        ask("kernel_breakdown", [call(1, 1)])


KINDS = [("kernel", "a"), ("kernel", "b"), ("kernel", "c"), ("gpu_memcpy", "Memcpy"), ("gpu_memset", "Memset")]


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from(KINDS)), min_size=1, max_size=14),
    st.integers(1, 4),
)
def test_sums_by_name_equal_plain_python(ask: Ask, parts: list[tuple[int, int, tuple[str, str]]], top: int) -> None:
    durations: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for _, dur, (cat, name) in parts:
        durations["COMP" if cat == "kernel" else "MEM"][name].append(dur * 1000)
    expected = {}
    for type_, names in durations.items():
        order = sorted(names, key=lambda name: (-sum(names[name]), name))
        slots = {name: names[name] for name in order[:top]}
        if order[top:]:
            slots["others"] = [dur for name in order[top:] for dur in names[name]]
        for name, lasting in slots.items():
            expected[type_, name] = [
                *(len(lasting), sum(lasting), min(lasting), max(lasting)),
                pytest.approx(statistics.mean(lasting)),
                pytest.approx(statistics.stdev(lasting) if len(lasting) > 1 else 0),
            ]
    rows = ask("kernel_breakdown", [work(at, dur, *kind) for at, dur, kind in parts], top=top)["kernels"]
    columns = ("count", "sum_ns", "min_ns", "max_ns", "mean_ns", "stddev_ns")
    assert {(row["type"], row["name"]): [row[column] for column in columns] for row in rows} == expected

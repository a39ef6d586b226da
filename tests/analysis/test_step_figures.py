"""Figures of steps: computed by hand for a small trace, and equal to those of the other analyses for each step."""

from pathlib import Path
from typing import Any

import pytest

from service.trace.errors import NotApplicable
from service.trace.selection import Selection
from tests.analysis.conftest import Ask, Rows
from tests.analysis.gpu import call, step, work
from tests.conftest import DATA
from tests.docs.pages import EXAMPLES

REDUCE = "ncclDevKernel_AllReduce_Sum_f32"


def memory(at: float, total: int, change: int, device_type: int = 1, device: int = 0) -> dict[str, Any]:
    args = {"Total Allocated": total, "Bytes": change, "Device Type": device_type, "Device Id": device, "Addr": 1}
    return {
        "ph": "i",
        "s": "t",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": at,
        "args": args,
    }


def op(start: float, dur: float, name: str) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}


TRACE = [
    step(5, 100, 50),
    op(105, 20, "aten::mm"),
    call(110, 1),
    work(130, 10, correlation=1),
    call(126, 2),
    work(145, 15, name=REDUCE, correlation=2),  # until 160, after the step's annotation
    step(6, 150, 50),
    op(155, 30, "aten::mm"),
    op(160, 5, "aten::add"),
    call(161, 3),
    work(170, 4, correlation=3),
    call(170, 4),
    work(175, 6, correlation=4),
    memory(90, 500, 500),
    memory(120, 900, 400),
    memory(140, 500, -400),
    memory(160, 700, 200),
    memory(165, 9000, 9000, device_type=0),  # the host does not count beside a device
]


def test_steps_have_their_times_and_their_memory(ask: Ask) -> None:
    rows = ask("step_figures", TRACE)["steps"]
    names = ("step", "total_ns", "busy_ns", "idle_ns", "exposed_ns", "peak_bytes")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (5, 60_000, 25_000, 35_000, 15_000, 900),
        (6, 40_000, 10_000, 30_000, 0, 700),
    ]


def test_work_belongs_to_the_step_of_its_launch(ask: Ask) -> None:
    rows = ask("step_figures", TRACE)["work"]
    names = ("step", "type", "name", "count", "sum_ns", "max_ns")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (5, "COMM", REDUCE, 1, 15_000, 15_000),
        (5, "COMP", "gemm", 1, 10_000, 10_000),
        (6, "COMP", "gemm", 2, 10_000, 6_000),
    ]
    [collective] = ask("step_figures", TRACE)["collectives"]
    assert (collective["step"], collective["collective"], collective["sum_ns"]) == (5, "allreduce", 15_000)


def test_operators_belong_to_the_step_in_which_they_begin(ask: Ask) -> None:
    rows = [row for row in ask("step_figures", TRACE)["operators"] if row["kind"] == "op"]
    names = ("step", "name", "calls", "host_total_ns", "device_total_ns")
    assert {tuple(row[name] for name in names) for row in rows} == {
        (5, "aten::mm", 1, 20_000, 10_000),
        (6, "aten::mm", 1, 30_000, 10_000),
        (6, "aten::add", 1, 5_000, 4_000),
    }


@pytest.mark.parametrize("only", ["steps", "work", "operators", "collectives"])
def test_only_the_wanted_table_is_filled(ask: Ask, only: str) -> None:
    whole, part = ask("step_figures", TRACE), ask("step_figures", TRACE, only=only)
    assert {name for name, rows in part.items() if rows} == {"steps", only}
    assert part[only] == whole[only]


def test_what_is_not_recorded_is_unknown(ask: Ask) -> None:
    answer = ask("step_figures", [step(0, 0, 10), op(1, 5, "aten::mm"), step(1, 10, 10)])
    assert [(row["busy_ns"], row["idle_ns"], row["peak_bytes"]) for row in answer["steps"]] == [(None, None, None)] * 2
    assert answer["work"] == answer["collectives"] == []


def test_trace_without_steps_is_refused(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="No ProfilerStep"):
        ask("step_figures", [op(1, 5, "aten::mm"), work(3, 4)])


# -- agreement with the other analyses --------------------------------------------------------------------------------

TRACES = pytest.mark.parametrize(
    "trace",
    [*sorted(EXAMPLES.glob("*.json.gz")), DATA / "cpu_train_steps.pt.trace.json.gz"],
    ids=lambda path: path.stem,
)


def of_step(rows: Rows, number: int) -> Rows:
    return [row for row in rows if row["step"] == number]


def steps_of(ask: Ask, trace: Path) -> list[int]:
    return [row["step"] for row in ask("step_figures", trace)["steps"]]


@TRACES
def test_steps_agree_with_the_analysis_of_steps(ask: Ask, trace: Path) -> None:
    ours, steps = ask("step_figures", trace)["steps"], ask("steps", trace)
    for row, other, communication in zip(ours, steps["steps"], steps["communication"], strict=True):
        assert [row[name] for name in ("rank", "step", "start_ns", "end_ns", "total_ns")] == [
            other[name] for name in ("rank", "step", "start_ns", "end_ns", "total_ns")
        ]
        assert row["exposed_ns"] == communication["communication_ns"]


@TRACES
def test_kernels_agree_with_the_breakdown_of_each_selected_step(ask: Ask, trace: Path) -> None:
    work_rows = ask("step_figures", trace)["work"]
    for number in steps_of(ask, trace):
        ours = sorted(
            (row["type"], row["name"], row["count"], row["sum_ns"], row["max_ns"]) for row in of_step(work_rows, number)
        )
        if not work_rows:
            continue
        kernels = ask("kernel_breakdown", trace, selection=Selection(steps=[number]), top=10_000)["kernels"]
        assert ours == sorted((row["type"], row["name"], row["count"], row["sum_ns"], row["max_ns"]) for row in kernels)


@TRACES
def test_operators_agree_with_those_of_each_selected_step(ask: Ask, trace: Path) -> None:
    operators = ask("step_figures", trace)["operators"]
    for number in steps_of(ask, trace):
        names = ("kind", "name", "calls", "host_total_ns", "device_total_ns")
        ours = sorted(tuple(row[name] for name in names) for row in of_step(operators, number))
        rows = ask("operators", trace, selection=Selection(steps=[number]))["operators"]
        expected = sorted(tuple(row[name] for name in names) for row in rows if row["kind"] not in {"python", "memory"})
        assert ours == expected


@TRACES
def test_collectives_agree_with_those_of_each_selected_step(ask: Ask, trace: Path) -> None:
    collectives = ask("step_figures", trace)["collectives"]
    for number in steps_of(ask, trace) if collectives else []:
        rows = ask("collectives", trace, selection=Selection(steps=[number]))["kernels"]
        ours = of_step(collectives, number)
        assert sum(row["count"] for row in ours) == sum(row["count"] for row in rows)
        assert sum(row["sum_ns"] for row in ours) == sum(row["duration_ns"] for row in rows)


@TRACES
def test_highest_peak_of_the_steps_is_at_most_that_of_the_trace(ask: Ask, trace: Path) -> None:
    peaks = [row["peak_bytes"] for row in ask("step_figures", trace)["steps"]]
    if None in peaks:
        return
    devices = ask("memory", trace)["devices"]
    assert max(peaks) == max(row["peak_bytes"] for row in devices if row["device_type"] == "CUDA" or len(devices) == 1)

"""What to do next: what TensorBoard recommends, each with what was found and where to look."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.conftest import Ask, Rows, golden
from tests.analysis.test_steps import TRACES, event
from tests.conftest import DATA, needs_shared

SAID = {
    "dataloader": "high time cost on input data loading",
    "communication": "high time cost on communication",
    "utilization": "low utilization",
    "tensor_cores": "Tensor Cores eligible operators",
    "memory": "at the limit of device memory capacity",
    "data_parallel": "instead of DataParallel",
    "nccl": "Nccl backend is currently the fastest",
}


def rules(rows: Rows) -> list[str]:
    return [row["rule"] for row in rows]


@needs_shared
@pytest.mark.parametrize("name", TRACES)
def test_by_its_rules_it_is_what_tensorboard_recommends(name: str, ask: Ask) -> None:
    said = golden("tensorboard", name)["overview"]["recommendations"]
    found = ask("recommendations", TRACES[name], rules="tensorboard")["recommendations"]
    assert rules(found) == [rule for rule, text in SAID.items() if text in said]
    for row in found:
        if row["rule"] == "dataloader":
            assert f"{row['value']:.1f}% of the step time" in said
        if row["rule"] == "tensor_cores":
            assert f"Kernels with {row['value']:.0f}% time" in said
        assert all((row["advice"], row["reason"], row["name"]))
        assert row["start_ns"] < row["end_ns"]


@needs_shared
def test_what_it_found_is_to_the_digit(ask: Ask) -> None:
    """Of `h100_timesformer` TensorBoard knows no kernels that a driver launches: 8.8 % where it is 35.3 %."""
    for name, within in (("v100_resnet50_2021", 1e-9), ("v100_ddp_epoch_us", 0.001)):
        checks = {row["rule"]: row for row in ask("recommendations", TRACES[name])["checks"]}
        expected = golden("tensorboard", name)
        assert checks["tensor_cores"]["value"] == pytest.approx(
            100 * expected["tc_eligible_ops_kernel_ratio"], abs=within
        )
    checks = {row["rule"]: row for row in ask("recommendations", TRACES["h100_timesformer"])["checks"]}
    peak = golden("tensorboard", "h100_timesformer")["memory_peak"]["1:0"]
    assert checks["memory"]["value"] == pytest.approx(100 * peak / 85_018_279_936)
    assert (checks["memory"]["device"], checks["memory"]["found"]) == (0, "no")
    assert checks["tensor_cores"]["value"] == pytest.approx(35.3154, abs=1e-4)


@needs_shared
def test_exactly_communication_is_what_costs_most(ask: Ask) -> None:
    """To TensorBoard 0.4 % of the step is communication: it takes NCCL's kernels for computing."""
    told = ask("recommendations", TRACES["dlrm_rank0"])
    assert rules(told["recommendations"]) == ["dataloader", "communication", "utilization"]
    [row] = [row for row in told["recommendations"] if row["rule"] == "communication"]
    assert row["value"] == pytest.approx(39.68, abs=0.01)
    assert row["name"].startswith("ncclKernel_SendRecv")
    assert row["end_ns"] - row["start_ns"] == 2_146_000
    [cores] = [row for row in told["checks"] if row["rule"] == "tensor_cores"]
    assert (cores["found"], cores["value"]) == ("unknown", None), "its kernels' External ids are of no operator"


GPU = {"id": 0, "name": "V100", "totalGlobalMem": 1000, "computeMajor": 7, "computeMinor": 0}
STEP = event("user_annotation", "ProfilerStep#1", 0, 100)


def of(folder: Path, *events: dict[str, Any], gpu: dict[str, Any] = GPU, name: str = "trace") -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"deviceProperties": [gpu], "traceEvents": [STEP, *events]}))
    return path


def kernel(ts: float, dur: float, name: str = "gemm", device: int = 0, **args: Any) -> dict[str, Any]:
    return {**event("kernel", name, ts, dur, device=device, **args), "pid": device}


def found(ask: Ask, trace: Path, **parameters: Any) -> dict[str, tuple[float, str | None, int | None, int | None]]:
    rows = ask("recommendations", trace, **parameters)["recommendations"]
    return {row["rule"]: (row["value"], row["name"], row["start_ns"], row["end_ns"]) for row in rows}


LOADER = "enumerate(DataLoader)#X.__next__"


@pytest.mark.parametrize(("short", "applies"), [(5, False), (6, True)])
def test_waiting_for_data_is_too_long_beyond_5_percent(ask: Ask, tmp_path: Path, short: float, applies: bool) -> None:
    trace = of(tmp_path, event("user_annotation", LOADER, 60, short), kernel(0, 60), kernel(66, 34))
    told = found(ask, trace)
    assert told == ({"dataloader": (short, LOADER, 60_000, 66_000)} if applies else {})


@pytest.mark.parametrize(("long", "applies"), [(10, False), (11, True)])
def test_communication_is_too_long_beyond_10_percent(ask: Ask, tmp_path: Path, long: float, applies: bool) -> None:
    name = "ncclDevKernel_AllReduce"
    told = found(ask, of(tmp_path, kernel(0, 80), kernel(80, long, name), kernel(70, 5, name)))
    assert told == ({"communication": (long, name, 80_000, 91_000)} if applies else {})


def test_a_gpu_is_used_too_little_below_half(ask: Ask, tmp_path: Path) -> None:
    """And the place to look at is where it idles longest."""
    first = [kernel(0, 10), kernel(20, 20), kernel(90, 10)]
    told = ask("recommendations", of(tmp_path, *first, kernel(0, 60, device=1)))
    assert [(row["rule"], row["device"], row["value"]) for row in told["recommendations"]] == [("utilization", 0, 40)]
    [row] = told["recommendations"]
    assert (row["start_ns"], row["end_ns"]) == (40_000, 90_000)
    assert [row["found"] for row in told["checks"] if row["rule"] == "utilization"] == ["yes", "no"]


def test_tensor_cores_are_for_operators_that_could_use_them(ask: Ask, tmp_path: Path) -> None:
    could: dict[str, Any] = {"External id": 5}
    others: dict[str, Any] = {"External id": 6}
    ops = [event("cpu_op", "aten::mm", 0, 1, **could), event("cpu_op", "aten::add", 2, 1, **others)]
    work = [kernel(0, 30, "volta_sgemm_nt", **could), kernel(30, 60, "triton_poi_fused_add_0", **others)]
    told = found(ask, of(tmp_path, *ops, *work))
    assert told.keys() == {"tensor_cores"}
    assert told["tensor_cores"][0] == pytest.approx(100 / 3)
    assert told["tensor_cores"][1:] == ("volta_sgemm_nt", 0, 30_000)
    used = of(tmp_path, *ops, *work, kernel(95, 1, "volta_h884gemm"), name="used")
    assert found(ask, used) == {}
    assert found(ask, of(tmp_path, *ops, *work, gpu={**GPU, "computeMajor": 6}, name="old")) == {}
    unknown = of(tmp_path, *ops, *work, kernel(95, 1, "mine"), name="unknown")
    assert found(ask, unknown) == {}, "one kernel has a name that no pattern knows"
    assert found(ask, unknown, rules="tensorboard").keys() == {"tensor_cores"}


@pytest.mark.parametrize(("allocated", "applies"), [(900, False), (901, True)])
def test_memory_is_nearly_full_beyond_90_percent(ask: Ask, tmp_path: Path, allocated: int, applies: bool) -> None:
    changes = [
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 9, "tid": 9, "ts": at, "args": args}
        for at, args in (
            (3, {"Device Type": 1, "Device Id": 0, "Total Allocated": 17}),
            (4, {"Device Type": 1, "Device Id": 0, "Total Allocated": allocated}),
            (5, {"Device Type": 0, "Device Id": -1, "Total Allocated": 10**9}),
        )
    ]
    told = found(ask, of(tmp_path, kernel(0, 90), *changes))
    assert told == ({"memory": (allocated / 10, "[memory]", 4000, 4000)} if applies else {})


def test_data_parallel_is_for_one_gpu(ask: Ask, tmp_path: Path) -> None:
    forward = event("cpu_op", "DataParallel.forward", 10, 5)
    assert found(ask, of(tmp_path, forward, kernel(0, 90), kernel(0, 90, device=1))) == {
        "data_parallel": (2, "DataParallel.forward", 10_000, 15_000)
    }
    assert found(ask, of(tmp_path, forward, kernel(0, 90), name="alone")) == {}


def test_distributed_data_parallel_is_for_nccl(ask: Ask, tmp_path: Path) -> None:
    forward = event("user_annotation", "DistributedDataParallel.forward", 10, 5)
    assert [*found(ask, of(tmp_path, forward, kernel(0, 90)))] == ["nccl"]
    nccl = kernel(91, 1, "ncclDevKernel_AllReduce")
    assert found(ask, of(tmp_path, forward, kernel(0, 90), nccl, name="nccl")) == {}
    on_host = ask("recommendations", DATA / "cpu_gloo_rank0_of_2.pt.trace.json.gz")
    assert "nccl" not in rules(on_host["recommendations"])
    assert "communication" in rules(on_host["recommendations"])

"""Overlap of communication with computing, compared with an independent oracle and HTA."""

import pytest

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, golden, real
from tests.analysis.gpu import call, work
from tests.conftest import SHARED, needs_shared

COMMUNICATING = ["a100_nccl_3_steps", "mi300_resnet_rank0_of_8"]


@needs_shared
@pytest.mark.parametrize("name", COMMUNICATING)
def test_overlap_is_exact(name: str, ask: Ask) -> None:
    expected = golden("exact", name)["0"]
    [row] = ask("comm_overlap", real(name))["overlap"]
    assert row["overlap_ns"] == expected["overlap_comp_comm_ns"]
    assert row["comm_ns"] == expected["comm_union_ns"]
    assert row["compute_ns"] == expected["comp_union_ns"]
    assert row["exposed_comm_ns"] == expected["exposed_comm_ns"]
    assert row["overlap_pct"] == 100 * expected["overlap_comp_comm_ns"] / expected["comm_union_ns"]


@needs_shared
@pytest.mark.parametrize("name", COMMUNICATING)
def test_overlap_equals_hta_with_its_filters(name: str, ask: Ask) -> None:
    [expected] = golden("hta_ns", name)["comm_comp_overlap"]
    [row] = ask("comm_overlap", real(name), types="hta", last_step="drop")["overlap"]
    assert row["overlap_pct"] == pytest.approx(expected["comp_comm_overlap_pctg"], abs=0.006)


@needs_shared
def test_ranks_are_separate_as_in_hta(ask: Ask) -> None:
    rows = ask("comm_overlap", *sorted(SHARED.glob("dlrm_8_ranks/*")), types="hta", last_step="drop")["overlap"]
    expected = golden("hta_default", "dlrm_8_ranks")["comm_comp_overlap"]
    assert [round(row["overlap_pct"], 2) for row in rows] == [row["comp_comm_overlap_pctg"] for row in expected]
    assert (expected[0]["comp_comm_overlap_pctg"], expected[7]["comp_comm_overlap_pctg"]) == (4.5, 9.51)


def test_simultaneous_work_is_counted_once(ask: Ask) -> None:
    trace = [
        work(0, 10),
        work(2, 10, stream=8),
        work(5, 10, name="ncclDevKernel_AllReduce", stream=9),
        work(8, 12, name="rcclKernel", stream=10),
        work(0, 100, "gpu_memcpy", "Memcpy HtoD"),
    ]
    [row] = ask("comm_overlap", trace)["overlap"]
    assert [row[f"{name}_ns"] for name in ("compute", "comm", "overlap", "exposed_comm")] == [12000, 15000, 7000, 8000]
    assert row["overlap_pct"] == 100 * 7 / 15


def test_communication_without_duration_has_no_share(ask: Ask) -> None:
    [row] = ask("comm_overlap", [work(0, 10), work(5, 0, name="ncclDevKernel_AllReduce")])["overlap"]
    assert (row["overlap_ns"], row["overlap_pct"]) == (0, None)


def test_trace_without_communication_is_not_applicable(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="No NCCL kernels"):
        ask("comm_overlap", [work(0, 10)])
    with pytest.raises(NotApplicable, match="Nothing in this trace runs on a GPU"):
        ask("comm_overlap", [call(0, 10, name="ncclAllReduce")])

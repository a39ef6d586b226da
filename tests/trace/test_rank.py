"""Ranks come from the document or the file name; an unknown rank never becomes rank 0."""

from typing import Any

import pytest

from service.trace.rank import merged_ranks, rank_of, world_size_of


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0),
        ("rank7.json", 7),
        ("rank_12.json", 12),
        ("Rank.3.json", 3),
        ("worker3_step_12.1694128201557.pt.trace.json.gz", 3),
        ("b200_eager_rank0_of_8.pt.trace.json.gz", 0),
        ("gloo_cpu_rank34_of_300.pt.trace.json.gz", 34),
        ("trace-rank-0005.json", 5),
    ],
)
def test_file_name_contains_the_rank(name: str, rank: int) -> None:
    assert rank_of({}, name) == rank


@pytest.mark.parametrize(
    "name",
    [
        "trace.json",
        "profile-TP-0-DP-1-PP-0-EP-0.trace.json.gz",  # the ranks of each dimension, not the global rank
        "local_rank0.json",  # the rank on its machine
        "local-rank-2.json",
        "localrank1.json",
        "frank5.json",
        "coworker3.json",
        "rank.json",
        "ranks_8.json",
        "rank1234567.json",
        "host_2910.1694128201545.pt.trace.json",
        "",
    ],
)
def test_file_name_without_a_rank_leaves_it_unknown(name: str) -> None:
    assert rank_of({}, name) is None


def test_distributed_info_takes_precedence_over_the_file_name() -> None:
    assert rank_of({"distributedInfo": {"rank": 5}}, "rank0.json") == 5
    assert rank_of({"distributedInfo": {"rank": 0}}, "rank7.json") == 0


@pytest.mark.parametrize("info", [None, [], "nccl", 3, {}, *({"rank": r} for r in (None, -1, "0", True, 1 << 63, 0.0))])
def test_distributed_info_without_a_valid_rank_is_ignored(info: Any) -> None:
    assert rank_of({"distributedInfo": info}, "trace.json") is None
    assert rank_of({"distributedInfo": info}, "rank7.json") == 7


@pytest.mark.parametrize(("value", "size"), [(8, 8), (None, None), ("8", None), (-1, None), (1 << 64, None)])
def test_world_size_is_an_integer_or_unknown(value: Any, size: int | None) -> None:
    assert world_size_of({"distributedInfo": {"world_size": value}}) == size
    assert world_size_of({}) is None


BESIDE = {"kind": "memory_snapshot", "name": "m.pickle", "base_ns": 1, "shift_ns": 0, "pids": [[2000, 0]]}


@pytest.mark.parametrize(
    ("beside", "is_valid"),
    [
        ([], True),
        ([BESIDE], True),
        (None, False),
        (5, False),
        ([5], False),
        ([BESIDE | {"pids": 5}], False),
        ([BESIDE, {"kind": "trace"}], False),
    ],
)
def test_malformed_inputs_beside_a_rank_make_no_merged_trace(beside: Any, is_valid: bool) -> None:
    rank = {"rank": 0, "pids": [[1000, 0]], "beside": beside}

    assert merged_ranks({"tracedock": {"merged": [rank]}}) == ([rank] if is_valid else [])

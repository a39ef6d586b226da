"""Clock shifts are exact to the nanosecond for collectives that end on all ranks at once."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cutting.alignment import Collective, align_clocks, collective_ends
from service.cutting.merge import merge
from service.cutting.source import Source
from service.store.folder import EVENTS
from service.store.parts import Parts
from service.trace.piece import Align
from service.trace.process_groups import ProcessGroups
from tests.cutting.choices import text_of
from tests.cutting.test_cut import ingested

BASE = 1_735_689_600_000_000_000
GPU = {"pid": 0, "tid": 7}


def ends(*moments: int, group: str = "0", first: int = 0) -> dict[Collective, int]:
    """Return the given ends by collective, numbered from `first`."""
    return {("seq", (group, None), str(first + at), "allreduce"): moment for at, moment in enumerate(moments)}


def shifts(clocks: list[dict[Collective, int]], *, refine: bool = True, initial: list[int] | None = None) -> list[int]:
    return [alignment.shift_ns for alignment in align_clocks(clocks, initial or [0] * len(clocks), refine=refine)]


@given(
    st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=6),
    st.lists(st.integers(0, 10**12), min_size=1, max_size=9, unique=True),
)
def test_align_shifts_clocks_to_the_first_rank(offsets: list[int], moments: list[int]) -> None:
    alignments = align_clocks([ends(*(at + off for at in moments)) for off in offsets], [0] * len(offsets), refine=True)

    assert [alignment.shift_ns for alignment in alignments] == [offsets[0] - off for off in offsets]
    for alignment in alignments:
        several = len(offsets) > 1
        assert alignment.collectives == (len(moments) if several else 0)
        assert alignment.residual_ns == ({"median": 0, "p95": 0, "max": 0} if several else None)


def test_noise_shifts_a_clock_by_its_median_at_most_and_is_the_residual() -> None:
    random = Random(1)
    moments = [at * 10**6 for at in range(101)]
    noise = [round(random.gauss(0, 1000)) for _ in moments]
    noise[50] = 10**6  # an outlier does not move the median

    first, second = align_clocks(
        [ends(*moments), ends(*(at + 5000 + error for at, error in zip(moments, noise, strict=True)))],
        [0, 0],
        refine=True,
    )

    assert (first.shift_ns, second.shift_ns) == (0, -5000 - round(median(noise)))
    assert first.residual_ns is not None
    assert second.residual_ns is not None
    assert second.residual_ns["median"] < 500 < second.residual_ns["p95"] < 1500
    # half of the outlier, because residuals are distances from the mean of both clocks
    assert second.residual_ns["max"] == pytest.approx(500_000, abs=2000)


def test_collectives_only_yield_the_residual_without_refinement() -> None:
    alignments = align_clocks([ends(10, 20), ends(1010, 1020)], [0, -900], refine=False)

    assert [alignment.shift_ns for alignment in alignments] == [0, -900]
    assert [alignment.residual_ns for alignment in alignments] == [{"median": 50, "p95": 50, "max": 50}] * 2


def test_collectives_correct_shifts_that_are_known_beforehand() -> None:
    assert shifts([ends(10, 20), ends(1010, 1020)], initial=[7, -900]) == [7, -993]


def test_rank_without_common_collectives_keeps_its_clock() -> None:
    alignments = align_clocks([ends(10, 20), {}, ends(510, 520), ends(1, group="9")], [0, 3, 0, -4], refine=True)

    assert [alignment.shift_ns for alignment in alignments] == [0, 3, -500, -4]
    assert [alignment.residual_ns is None for alignment in alignments] == [False, True, False, True]


def test_rank_is_aligned_through_another_rank() -> None:
    rank_0, rank_2 = ends(10, 20), ends(7010, group="tp")
    middle = ends(110, 120) | ends(2110, group="tp")

    assert shifts([rank_0, rank_2, middle]) == [0, 2110 - 100 - 7010, -100]
    assert shifts([rank_0, middle, rank_2]) == [0, -100, 2110 - 100 - 7010]


def test_two_ranks_align_with_each_other_without_the_first() -> None:
    _, first, second = shifts([ends(10), ends(100, group="tp"), ends(900, group="tp")])

    assert first - second == 800


def test_collectives_by_name_count_only_if_all_ranks_have_the_same_number() -> None:
    def by_name(*moments: int) -> dict[Collective, int]:
        return {("name", "ncclAllReduce", at): moment for at, moment in enumerate(moments)}

    assert shifts([by_name(1, 2, 3), by_name(11, 12, 13)]) == [0, -10]
    assert shifts([by_name(1, 2, 3), by_name(11, 12)]) == [0, 0]
    assert shifts([by_name(1, 2), by_name(11, 12), {}]) == [0, -10, 0]


# -- traces -----------------------------------------------------------------------------------------------------


def kernel(name: str, ts: int, dur: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, **GPU, "ts": ts, "dur": dur, "args": args}


def reduced(
    ts: int, number: int, group: str = "0", name: str = "ncclDevKernel_AllReduce", ranks: str | None = None
) -> dict[str, Any]:
    """Return a collective of 5 µs."""
    arguments = {"Process Group Name": group, "Seq": number, "Collective name": "allreduce"}
    if ranks is not None:
        arguments["Process Group Ranks"] = ranks
    return kernel(name, ts, 5, **arguments)


def rank_of(
    folder: Path, rank: int, *events: dict[str, Any], base: int | None = BASE, groups: Sequence[dict[str, Any]] = ()
) -> Source:
    around = {"distributedInfo": {"rank": rank, "world_size": 2, "pg_config": [*groups]}}
    text = text_of(*events, **around, **({"baseTimeNanoseconds": base} if base is not None else {}))
    return ingested(text, folder / f"rank{rank}")


def found_in(source: Source) -> dict[Collective, int]:
    return collective_ends([Parts(source.columns / EVENTS)], ProcessGroups())


def test_collectives_match_by_group_and_number_in_any_order(tmp_path: Path) -> None:
    first = found_in(rank_of(tmp_path, 0, reduced(10, 1), reduced(20, 2), reduced(30, 1, "tp"), kernel("gemm", 1, 1)))
    second = found_in(rank_of(tmp_path, 1, reduced(1010, 1), reduced(1020, 2), reduced(1005, 1, "tp")))

    assert first.keys() == second.keys()
    assert sorted(first.values()) == [15_000, 25_000, 35_000]
    assert second["seq", ("tp", None), "1", "allreduce"] == 1_010_000


def test_collectives_without_a_number_match_by_name_and_order(tmp_path: Path) -> None:
    plain = [kernel("ncclKernel_AllReduce", ts, 5) for ts in (30, 10)]

    assert found_in(rank_of(tmp_path, 0, *plain)) == {
        ("name", "ncclKernel_AllReduce", 0): 15_000,
        ("name", "ncclKernel_AllReduce", 1): 35_000,
    }


def test_annotations_are_the_collectives_of_a_host_backend(tmp_path: Path) -> None:
    place = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**place, "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 5, "dur": 2},
        {**place, "cat": "user_annotation", "name": "forward", "ts": 9, "dur": 2},
        {**place, "cat": "cpu_op", "name": "gloo:all_reduce", "ts": 15, "dur": 2},
    ]
    assert found_in(rank_of(tmp_path, 0, *events)) == {("name", "gloo:all_reduce", 0): 7000}
    with_kernel = rank_of(tmp_path, 1, *events, reduced(50, 1))
    assert [*found_in(with_kernel)] == [("seq", ("0", None), "1", "allreduce")]


def test_event_in_several_parts_of_a_rank_counts_once(tmp_path: Path) -> None:
    source = rank_of(tmp_path, 0, *(kernel("ncclKernel", ts, 5) for ts in (10, 20, 30)))
    parts = [Parts(source.columns / EVENTS) for _ in range(2)]

    assert collective_ends(parts, ProcessGroups()) == found_in(source)


@pytest.mark.parametrize(
    ("align", "expected", "gap"),
    [("none", [0, 0], 500_000), ("base", [0, 3_000_000_000], 1_500_500_000), ("collectives", [0, -1_000_000], 0)],
)
def test_merge_shifts_times_by_the_requested_alignment(
    align: Align, expected: list[int], gap: int, tmp_path: Path
) -> None:
    mark = {"ph": "i", "pid": 1, "tid": 1, "name": "mark", "ts": 40}
    ranks = [
        rank_of(tmp_path, 0, reduced(10, 1), reduced(20, 2), mark),
        rank_of(tmp_path, 1, reduced(1010, 1), reduced(1020, 2), mark, base=BASE + 3_000_000_000),
    ]

    child = merge(ranks, tmp_path / "merged", name="merged", align=align, on_written=lambda *_: None)

    merged_ranks = child.summary.ranks
    assert [rank["shift_ns"] for rank in merged_ranks] == expected
    assert [rank["base_ns"] for rank in merged_ranks] == [BASE, BASE + 3_000_000_000]
    assert child.summary.base_ns == (BASE if align != "none" else None)
    assert [rank["collectives"] for rank in merged_ranks] == [2, 2]
    assert [rank["residual_ns"] for rank in merged_ranks] == [{"median": gap, "p95": gap, "max": gap}] * 2
    envelope = json.loads((tmp_path / "merged" / "envelope.json").read_bytes())
    assert envelope["tracedock"]["merged"] == merged_ranks
    assert envelope.get("baseTimeNanoseconds") == child.summary.base_ns


@pytest.mark.parametrize("by", ["kernel", "list"])
def test_groups_that_share_a_name_do_not_shift_each_other(by: str, tmp_path: Path) -> None:
    ranks = []
    for rank in range(4):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        recorded = str(pair) if by == "kernel" else None
        starts = [1000 * number + 5000 * (rank // 2) for number in (1, 2, 3)]
        events = [reduced(start, number, "1", ranks=recorded) for number, start in enumerate(starts, 1)]
        events.append(reduced(20_000, 1, ranks="[0, 1, 2, 3]" if rank != 3 else None))
        groups = [] if by == "kernel" else [{"pg_name": "1", "ranks": pair}]
        ranks.append(rank_of(tmp_path, rank, *events, groups=groups))

    child = merge(ranks, tmp_path / "merged", name="merged", align="collectives", on_written=lambda *_: None)

    assert [rank["shift_ns"] for rank in child.summary.ranks] == [0, 0, 0, 0]
    assert [rank["collectives"] for rank in child.summary.ranks] == [4, 4, 4, 4]
    assert {rank["residual_ns"]["max"] for rank in child.summary.ranks if rank["residual_ns"]} == {0}


def test_rank_with_epoch_times_has_base_zero(tmp_path: Path) -> None:
    start = BASE // 1000
    ranks = [
        rank_of(tmp_path, 0, kernel("a", 10, 5)),
        rank_of(tmp_path, 1, kernel("a", start + 10, 5), base=None),
    ]

    child = merge(ranks, tmp_path / "merged", name="merged", align="base", on_written=lambda *_: None)

    assert [rank["shift_ns"] for rank in child.summary.ranks] == [0, -BASE]
    assert child.summary.bounds == {"start_ns": 10_000, "end_ns": 15_000}

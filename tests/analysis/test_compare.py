"""What changed between two traces: what is counted in both, and when a difference counts."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trace.errors import BadQuestion
from tests.analysis.conftest import Ask, Rows, real
from tests.analysis.test_steps import event
from tests.conftest import DATA, SHARED, needs_shared

TRAIN, STACKS = (DATA / f"cpu_{name}.pt.trace.json.gz" for name in ("train_steps", "stack_memory"))


def by_name(rows: Rows) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def trace(*kernels: tuple[str, float], steps: int = 1) -> list[dict[str, Any]]:
    """Kernels one after the other, in µs, in steps of 100 µs."""
    events = [event("user_annotation", f"ProfilerStep#{at}", at * 100, 100) for at in range(steps)]
    return [*events, *(event("kernel", name, at * 10, dur) for at, (name, dur) in enumerate(kernels))]


kernels = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=8)


@settings(max_examples=12)
@given(kernels, kernels, st.integers(1, 3))
def test_each_name_is_counted_in_both(
    ask: Ask, base: list[tuple[str, float]], other: list[tuple[str, float]], steps: int
) -> None:
    rows = by_name(ask("compare", trace(*base), trace(*other, steps=steps))["kernels"])
    counts = [Counter(name for name, _ in side) for side in (base, other)]
    assert rows.keys() == {*counts[0], *counts[1]}
    for name, row in rows.items():
        sums = [sum(round(dur * 1000) for one, dur in side if one == name) for side in (base, other)]
        assert [row["base_count"], row["count"]] == [one[name] for one in counts]
        assert [row["base_duration_ns"], row["duration_ns"]] == sums
        assert row["duration_difference_ns"] == sums[1] - sums[0]
        assert [row["base_per_step_ns"], row["per_step_ns"]] == [sums[0], pytest.approx(sums[1] / steps)]
        if counts[0][name] and counts[1][name]:
            difference = sums[1] / steps - sums[0]
            changed = "slower" if difference > 0 else "faster"
            assert row["verdict"] == (changed if abs(difference) > max(1000, sums[0] * 0.05) else "same")
        else:
            assert row["verdict"] == ("gone" if counts[0][name] else "new")


def test_what_differs_most_is_first(ask: Ask) -> None:
    rows = ask("compare", trace(("a", 5), ("b", 5), ("c", 5)), trace(("a", 6), ("b", 1), ("c", 5)))["kernels"]
    assert [(row["name"], row["verdict"], row["difference_pct"]) for row in rows] == [
        ("b", "faster", pytest.approx(-80)),
        ("a", "same", pytest.approx(20)),
        ("c", "same", 0),
    ]


def verdict(ask: Ask, base: list[dict[str, Any]], other: list[dict[str, Any]], **parameters: Any) -> str:
    [row] = ask("compare", base, other, **parameters)["kernels"]
    told: str = row["verdict"]
    return told


def test_a_difference_counts_beyond_both_a_share_and_a_time(ask: Ask) -> None:
    base, other = trace(("a", 50)), trace(("a", 55))
    assert verdict(ask, base, other) == "slower"
    assert verdict(ask, other, base) == "faster"
    assert verdict(ask, base, other, threshold_pct=10) == "same"
    assert verdict(ask, base, other, threshold_pct=9.9) == "slower"
    assert verdict(ask, base, other, least_ns=5000) == "same"
    assert verdict(ask, base, other, least_ns=4999) == "slower"


def test_durations_are_compared_by_step_in_all_or_by_call(ask: Ask) -> None:
    base, other = trace(("a", 50)), trace(("a", 30), ("a", 30), steps=2)
    assert verdict(ask, base, other) == "faster"
    assert verdict(ask, base, other, by="total") == "slower"
    assert verdict(ask, base, other, by="mean") == "faster"


def test_steps_are_compared_by_what_they_spend_and_by_place(ask: Ask) -> None:
    told = ask("compare", trace(("a", 40)), trace(("a", 60), steps=2), bounds="host")
    rows = {row["category"]: row for row in told["steps"]}
    assert (rows["total"]["base_mean_ns"], rows["total"]["mean_ns"], rows["total"]["verdict"]) == (100e3, 100e3, "same")
    assert (rows["kernel"]["difference_ns"], rows["kernel"]["verdict"]) == (-10e3, "faster")
    assert rows["other"]["verdict"] == "slower"
    places = [(row["place"], row["base_step"], row["step"], row["verdict"]) for row in told["each_step"]]
    assert places == [(0, 0, 0, "same"), (1, None, 1, "new")]


def test_a_trace_is_the_same_as_itself(ask: Ask) -> None:
    told = ask("compare", TRAIN, TRAIN)
    assert {row["verdict"] for rows in told.values() for row in rows} == {"same"}
    assert told["kernels"] == []
    assert by_name(told["ops"])["aten::linear"]["kind"] == "op"
    assert by_name(told["ops"])["Optimizer.step#SGD.step"]["kind"] == "annotation"
    assert not any(row["name"].startswith("ProfilerStep") for row in told["ops"])


def test_the_other_way_round_new_is_gone_and_slower_faster(ask: Ask) -> None:
    back = {"new": "gone", "gone": "new", "same": "same"}
    there, again = (by_name(ask("compare", *pair, by="total", threshold_pct=0)["ops"])
                    for pair in ((TRAIN, STACKS), (STACKS, TRAIN)))  # fmt: skip
    assert there.keys() == again.keys()
    for name, row in there.items():
        assert row["duration_difference_ns"] == -again[name]["duration_difference_ns"]
        assert again[name]["verdict"] == back.get(row["verdict"], "slower" if row["verdict"] == "faster" else "faster")


@needs_shared
def test_ranks_of_two_jobs_are_compared_together(ask: Ask) -> None:
    ranks = sorted(SHARED.glob("dlrm_8_ranks/*"))[:2]
    alone = [by_name(ask("compare", rank, rank)["kernels"]) for rank in ranks]
    both = by_name(ask("compare", *ranks, *ranks)["kernels"])
    for name, row in both.items():
        assert row["verdict"] == "same"
        assert row["count"] == sum(one[name]["count"] for one in alone if name in one)


def test_it_takes_two(ask: Ask) -> None:
    with pytest.raises(BadQuestion, match="compare takes two traces"):
        ask("compare", TRAIN)


@needs_shared
def test_real_traces_differ(ask: Ask) -> None:
    told = ask("compare", real("h100_timesformer"), real("h100_bert_small"))
    assert {row["verdict"] for row in told["kernels"]} >= {"new", "gone"}
    total = sum(row["duration_difference_ns"] for row in told["kernels"])
    assert total == sum(row["duration_ns"] - row["base_duration_ns"] for row in told["kernels"]) != 0

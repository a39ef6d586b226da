"""Comparison of two sides: counts and durations of both, and the verdict on each difference."""

import gzip
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trace.errors import BadAnalysisRequest
from service.trace.selection import Selection
from tests.analysis.conftest import Ask, Rows, real
from tests.analysis.test_steps import event
from tests.conftest import DATA, SHARED, needs_shared, scaled

TRAIN, STACKS = (DATA / f"cpu_{name}.pt.trace.json.gz" for name in ("train_steps", "stack_memory"))


def by_name(rows: Rows) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def trace(*kernels: tuple[str, float], steps: int = 1) -> list[dict[str, Any]]:
    """Return steps of 100 µs, and kernels with names and durations in µs that start every 10 µs."""
    events = [event("user_annotation", f"ProfilerStep#{at}", at * 100, 100) for at in range(steps)]
    return [*events, *(event("kernel", name, at * 10, dur) for at, (name, dur) in enumerate(kernels))]


kernels = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=8)


@settings(max_examples=scaled(12))
@given(kernels, kernels, st.integers(1, 3))
def test_each_name_is_counted_on_both_sides(
    ask: Ask, base: list[tuple[str, float]], other: list[tuple[str, float]], steps: int
) -> None:
    rows = by_name(ask("compare", trace(*base), trace(*other, steps=steps))["kernels"])
    counts = [Counter(name for name, _ in side) for side in (base, other)]
    assert rows.keys() == {*counts[0], *counts[1]}
    for name, row in rows.items():
        sums = [sum(round(dur * 1000) for key, dur in side if key == name) for side in (base, other)]
        assert [row["base_count"], row["count"]] == [count[name] for count in counts]
        assert [row["base_duration_ns"], row["duration_ns"]] == sums
        assert row["duration_difference_ns"] == sums[1] - sums[0]
        assert [row["base_per_step_ns"], row["per_step_ns"]] == [sums[0], pytest.approx(sums[1] / steps)]
        difference = sums[1] / steps - sums[0]
        assert row["per_step_difference_ns"] == pytest.approx(difference)
        both = counts[0][name] and counts[1][name] and sums[0]
        assert row["ratio"] == (pytest.approx(sums[1] / steps / sums[0]) if both else None)
        if counts[0][name] and counts[1][name]:
            direction = "slower" if difference > 0 else "faster"
            assert row["verdict"] == (direction if abs(difference) > max(1000, sums[0] * 0.05) else "same")
        else:
            assert row["verdict"] == ("gone" if counts[0][name] else "new")


def test_largest_difference_comes_first(ask: Ask) -> None:
    rows = ask("compare", trace(("a", 5), ("b", 5), ("c", 5)), trace(("a", 6), ("b", 1), ("c", 5)))["kernels"]
    assert [(row["name"], row["verdict"], row["difference_pct"]) for row in rows] == [
        ("b", "faster", pytest.approx(-80)),
        ("a", "same", pytest.approx(20)),
        ("c", "same", 0),
    ]


def verdict(ask: Ask, base: list[dict[str, Any]], other: list[dict[str, Any]], **parameters: Any) -> str:
    [row] = ask("compare", base, other, **parameters)["kernels"]
    answer: str = row["verdict"]
    return answer


def test_difference_counts_beyond_both_a_share_and_a_time(ask: Ask) -> None:
    base, other = trace(("a", 50)), trace(("a", 55))
    assert verdict(ask, base, other) == "slower"
    assert verdict(ask, other, base) == "faster"
    assert verdict(ask, base, other, threshold_pct=10) == "same"
    assert verdict(ask, base, other, threshold_pct=9.9) == "slower"
    assert verdict(ask, base, other, least_ns=5000) == "same"
    assert verdict(ask, base, other, least_ns=4999) == "slower"


def test_durations_are_compared_per_step_in_total_or_per_call(ask: Ask) -> None:
    base, other = trace(("a", 50)), trace(("a", 30), ("a", 30), steps=2)
    assert verdict(ask, base, other) == "faster"
    assert verdict(ask, base, other, by="total") == "slower"
    assert verdict(ask, base, other, by="mean") == "faster"


def test_steps_are_compared_by_category_and_by_place(ask: Ask) -> None:
    answer = ask("compare", trace(("a", 40)), trace(("a", 60), steps=2), bounds="host")
    rows = {row["category"]: row for row in answer["steps"]}
    assert (rows["total"]["base_mean_ns"], rows["total"]["mean_ns"], rows["total"]["verdict"]) == (100e3, 100e3, "same")
    assert (rows["kernel"]["difference_ns"], rows["kernel"]["verdict"]) == (-10e3, "faster")
    assert rows["other"]["verdict"] == "slower"
    places = [(row["place"], row["base_step"], row["step"], row["verdict"]) for row in answer["each_step"]]
    assert places == [(0, 0, 0, "same"), (1, None, 1, "new")]


@settings(max_examples=scaled(12))
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=4), min_size=2, max_size=4),
    st.data(),
)
def test_two_steps_of_one_trace_are_compared(ask: Ask, steps: list[list[tuple[str, int]]], data: st.DataObject) -> None:
    base, other = (data.draw(st.integers(0, len(steps) - 1)) for _ in range(2))
    events = [event("user_annotation", f"ProfilerStep#{at}", at * 100, 100) for at in range(len(steps))]
    events += [
        event("kernel", name, at * 100 + place * 10, dur)
        for at, work in enumerate(steps)
        for place, (name, dur) in enumerate(work)
    ]
    selections = {"base_selection": Selection(steps=[base]), "selection": Selection(steps=[other])}
    answer = ask("compare", events, base=[events], bounds="host", **selections)
    sums = [{name: sum(dur * 1000 for key, dur in steps[at] if key == name) for name, _ in steps[at]}
            for at in (base, other)]  # fmt: skip
    assert {row["name"]: (row["base_duration_ns"], row["duration_ns"]) for row in answer["kernels"]} == {
        name: (sums[0].get(name, 0), sums[1].get(name, 0)) for name in {**sums[0], **sums[1]}
    }
    [step] = answer["each_step"]
    assert (step["base_step"], step["step"]) == (base, other)
    assert {(row["base_steps"], row["steps"]) for row in answer["steps"]} == {(1, 1)}


def test_trace_without_steps_counts_as_one_and_a_note_says_so(ask: Ask) -> None:
    bare, stepped = [event("kernel", "a", 0, 40)], trace(("a", 40), steps=2)
    answer = ask("compare", bare, stepped)
    assert {(row["base_steps"], row["steps"]) for row in answer["steps"]} == {(0, 2)}
    assert answer.answer.notes == ["The base has no steps: each of its traces counts as one step."]
    [row] = answer["kernels"]
    assert (row["per_step_difference_ns"], row["ratio"], row["verdict"]) == (-20_000, 0.5, "faster")
    assert ask("compare", stepped, bare).answer.notes == [
        "The other side has no steps: each of its traces counts as one step."
    ]
    assert ask("compare", bare, bare).answer.notes == ["Neither side has steps: each trace counts as one step."]


def test_parts_of_a_step_add_up_to_its_difference(ask: Ask) -> None:
    rows = ask("compare", TRAIN, STACKS)["steps"]
    total, *parts = [row["difference_ns"] for row in rows]
    assert sum(parts) == pytest.approx(total)
    assert [row["ratio"] for row in rows] == [
        pytest.approx(row["mean_ns"] / row["base_mean_ns"]) if row["base_mean_ns"] else None for row in rows
    ]


def test_trace_compared_with_itself_is_the_same(ask: Ask) -> None:
    answer = ask("compare", TRAIN, TRAIN)
    assert {row["verdict"] for rows in answer.values() for row in rows} == {"same"}
    assert answer["kernels"] == []
    assert by_name(answer["ops"])["aten::linear"]["kind"] == "op"
    assert by_name(answer["ops"])["Optimizer.step#SGD.step"]["kind"] == "annotation"
    assert not any(row["name"].startswith("ProfilerStep") for row in answer["ops"])


def test_swapped_sides_swap_the_verdicts(ask: Ask) -> None:
    back = {"new": "gone", "gone": "new", "same": "same"}
    forward, reverse = (by_name(ask("compare", *pair, by="total", threshold_pct=0)["ops"])
                    for pair in ((TRAIN, STACKS), (STACKS, TRAIN)))  # fmt: skip
    assert forward.keys() == reverse.keys()
    for name, row in forward.items():
        assert row["duration_difference_ns"] == -reverse[name]["duration_difference_ns"]
        assert reverse[name]["verdict"] == back.get(
            row["verdict"], "slower" if row["verdict"] == "faster" else "faster"
        )


@needs_shared
def test_ranks_of_two_jobs_are_compared_together(ask: Ask) -> None:
    ranks = sorted(SHARED.glob("dlrm_8_ranks/*"))[:2]
    single = [by_name(ask("compare", rank, rank)["kernels"]) for rank in ranks]
    joint = by_name(ask("compare", *ranks, base=ranks)["kernels"])
    for name, row in joint.items():
        assert row["verdict"] == "same"
        assert row["count"] == sum(rows[name]["count"] for rows in single if name in rows)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_comparison_without_exactly_two_sides_is_refused(ask: Ask, count: int) -> None:
    with pytest.raises(BadAnalysisRequest, match=rf"exactly two sides, and {count} traces? w.* given .*`base`"):
        ask("compare", *[TRAIN] * count)
    with pytest.raises(BadAnalysisRequest, match="only a base was given"):
        ask("compare", base=[TRAIN] * count)


def of_rank(rank: int | None, events: list[dict[str, Any]], **more: Any) -> str:
    """Return the document of a trace with a rank."""
    answer = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 8, "backend": "nccl"}}
    return json.dumps({**answer, **more, "traceEvents": events})


def test_ranks_without_a_counterpart_are_skipped_with_a_reason(ask: Ask) -> None:
    base = [of_rank(rank, trace(("a", 10 * (rank + 1)))) for rank in (0, 1, 2)]
    other = [of_rank(rank, trace(("a", 10 * (rank + 2)))) for rank in (2, 1, 3)]
    answer = ask("compare", *other, base=base)
    [row] = answer["kernels"]
    assert [row["base_duration_ns"], row["duration_ns"]] == [(20 + 30) * 1000, (30 + 40) * 1000]
    assert {(row["rank"], row["reason"]) for row in answer.answer.skipped} == {
        (0, "The other side has no rank 0."),
        (3, "The base has no rank 3."),
    }
    assert [(row["rank"], row["duration_difference_ns"]) for row in answer["each_step"]] == [(1, 0), (2, 0)]
    assert answer.answer.notes[0] == "The sides are matched by rank: ranks 1, 2."
    with pytest.raises(BadAnalysisRequest, match="the base has ranks 0, 1, the other side ranks 2, 3"):
        ask("compare", other[0], other[2], base=base[:2])


def test_cycles_of_a_rank_are_matched_by_their_order(ask: Ask) -> None:
    base = [of_rank(0, [event("user_annotation", f"ProfilerStep#{at}", 0, 100)]) for at in (3, 13)]
    other = [of_rank(0, [event("user_annotation", f"ProfilerStep#{at}", 0, dur)]) for at, dur in ((25, 300), (5, 200))]
    answer = ask("compare", *other, base=base, bounds="host")
    rows = [(row["cycle"], row["base_step"], row["step"], row["duration_ns"]) for row in answer["each_step"]]
    assert rows == [(0, 3, 5, 200_000), (1, 13, 25, 300_000)]


@pytest.mark.parametrize(
    ("swapped", "verdict", "beginning"), [(False, "new", "Only the other"), (True, "gone", "Only the")]
)
def test_comparison_of_gpu_with_cpu_has_a_note(ask: Ask, swapped: bool, verdict: str, beginning: str) -> None:
    sides = [trace(), trace(("a", 5))]
    answer = ask("compare", *(sides[::-1] if swapped else sides))
    assert {row["verdict"] for row in answer["kernels"]} == {verdict}
    [note] = answer.answer.notes
    assert note.startswith(beginning)
    assert "runs on the CPU alone" in note
    assert ask("compare", sides[1], sides[1]).answer.notes == []


def test_calls_of_runtime_and_driver_are_compared(ask: Ask) -> None:
    base = [event("cuda_runtime", "cudaLaunchKernel", at, 5) for at in (0, 10)]
    other = [event("cuda_runtime", "cudaLaunchKernel", 0, 5), event("cuda_driver", "cuLaunchKernelEx", 10, 2)]
    rows = by_name(ask("compare", base, other)["calls"])
    answer = {name: [row[key] for key in ("kind", "count_difference", "verdict")] for name, row in rows.items()}
    assert answer == {"cudaLaunchKernel": ["runtime", -1, "faster"], "cuLaunchKernelEx": ["driver", 1, "new"]}


# -- renamed kernels ------------------------------------------------------------------------------------------------


class Program:
    """Builder of a trace: ops on one thread that launch kernels."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 0

    def span(self, cat: str, name: str, within: list[Any], **args: Any) -> tuple[Any, ...]:
        return (cat, name, within, args)

    def run(self, *nodes: tuple[Any, ...]) -> list[dict[str, Any]]:
        for node in nodes:
            self._add(node)
        return self.events

    def _add(self, node: tuple[Any, ...]) -> None:
        if node[0] == "kernel":
            self.now += 1
            link = {"correlation": self.now}
            self.events.append(event("cuda_runtime", "cudaLaunchKernel", self.now, 1, **link))
            self.events.append(event("kernel", node[1], 10_000 + self.now * 20, node[2], **link))
            self.now += 2
            return
        cat, name, within, args = node
        start, self.now = self.now, self.now + 1
        for child in within:
            self._add(child)
        self.now += 1
        self.events.append(event(cat, name, start, self.now - start, **args))


def op(name: str, *within: tuple[Any, ...], shapes: list[list[int]] | None = None) -> tuple[Any, ...]:
    return ("cpu_op", name, [*within], {} if shapes is None else {"Input Dims": shapes})


def launch(name: str, dur: float = 5) -> tuple[Any, ...]:
    return ("kernel", name, dur)


def region(name: str, *within: tuple[Any, ...]) -> tuple[Any, ...]:
    return ("user_annotation", name, [*within], {})


def matches(answer: Any) -> set[tuple[Any, ...]]:
    keys = ("base_name", "name", "matched_by", "base_count", "count")
    return {tuple(row[key] for key in keys) for row in answer["kernels"]}


def test_renamed_kernels_are_matched_by_op_and_shapes(ask: Ask) -> None:
    def model(gemm: str, small: str, extra: tuple[Any, ...]) -> list[dict[str, Any]]:
        return Program().run(
            op("aten::linear", op("aten::mm", launch(gemm, 8), launch("split_k"), shapes=[[64, 64]])),
            op("aten::linear", op("aten::mm", launch(small), shapes=[[2, 2]])),
            extra,
        )

    base = model("sm80_gemm", "sm80_small", op("aten::add", launch("old_add")))
    other = model("sm90_gemm", "sm90_small", op("aten::mul", launch("new_mul")))
    answer = ask("compare", base, other)
    assert matches(answer) == {
        ("sm80_gemm", "sm90_gemm", "op", 1, 1),
        ("sm80_small", "sm90_small", "op", 1, 1),
        ("split_k", "split_k", "name", 1, 1),
        ("old_add", "old_add", None, 1, 0),
        (None, "new_mul", None, 0, 1),
    }
    assert any("op, input shapes and place" in note for note in answer.answer.notes)
    totals = [sum(event["dur"] * 1000 for event in events if event["cat"] == "kernel") for events in (base, other)]
    assert sum(row["duration_difference_ns"] for row in answer["kernels"]) == totals[1] - totals[0]


def test_order_among_siblings_decides_between_equal_ops_and_shapes(ask: Ask) -> None:
    def model(*names: str) -> list[dict[str, Any]]:
        layers = (op("aten::mm", launch(name), shapes=[[4, 4]]) for name in names)
        return Program().run(region("forward", *layers))

    answer = ask("compare", model("a1", "b1", "a1"), model("a2", "b2", "a2"))
    assert matches(answer) == {("a1", "a2", "op", 2, 2), ("b1", "b2", "op", 1, 1)}


def test_place_in_the_call_tree_decides_for_any_step_number(ask: Ask) -> None:
    def model(first: int, count: int, names: tuple[str, str]) -> list[dict[str, Any]]:
        def layer(module: str, name: str) -> tuple[Any, ...]:
            linear = op("aten::mm", launch(name), shapes=[[4, 4]])
            return ("python_function", f"nn.Module: {module}", [linear], {})

        steps = (
            region(f"ProfilerStep#{first + at}", layer("Head_0", names[0]), layer("Tail_0", names[1]))
            for at in range(count)
        )
        return Program().run(*steps)

    answer = ask("compare", model(3, 2, ("h1", "t1")), model(40, 3, ("h2", "t2")))
    assert matches(answer) == {("h1", "h2", "op", 2, 3), ("t1", "t2", "op", 2, 3)}


def test_work_without_an_op_or_with_other_shapes_is_not_matched(ask: Ask) -> None:
    base = Program().run(launch("a1"), op("aten::mm", launch("b1"), shapes=[[4, 4]]))
    other = Program().run(launch("a2"), op("aten::mm", launch("b2"), shapes=[[8, 8]]))
    assert {row["matched_by"] for row in ask("compare", base, other)["kernels"]} == {None}


@settings(max_examples=scaled(15))
@given(st.lists(st.tuples(st.sampled_from(["mm", "add", "relu"]), st.integers(1, 3)), min_size=1, max_size=12))
def test_run_with_all_kernels_renamed_matches_itself(ask: Ask, ops: list[tuple[str, int]]) -> None:
    def model(suffix: str) -> list[dict[str, Any]]:
        nodes = (
            op(f"aten::{name}", *(launch(f"{name}{size}_{piece}{suffix}") for piece in range(2)), shapes=[[size]])
            for name, size in ops
        )
        return Program().run(region("forward", *nodes))

    answer = ask("compare", model("_old"), model("_new"))
    counts = Counter(f"{name}{size}_{piece}" for name, size in ops for piece in range(2))
    assert matches(answer) == {(f"{name}_old", f"{name}_new", "op", count, count) for name, count in counts.items()}


@needs_shared
@pytest.mark.parametrize("name", ["a100_nccl_3_steps", "h100_timesformer"])
def test_real_trace_with_all_kernels_renamed_is_matched(ask: Ask, name: str) -> None:
    document = json.loads(gzip.decompress(real(name).read_bytes()))
    for entry in document["traceEvents"]:
        if entry.get("cat") == "kernel":
            entry["name"] += "_v2"
    rows = [row for row in ask("compare", real(name), json.dumps(document))["kernels"] if row["kind"] == "kernel"]
    matched = [row for row in rows if row["matched_by"] == "op" and row["name"] == f"{row['base_name']}_v2"]
    assert sum(row["base_count"] for row in matched) > 0.95 * sum(row["base_count"] for row in rows)
    assert all(row["base_count"] == row["count"] for row in matched)


@needs_shared
def test_real_traces_have_differences(ask: Ask) -> None:
    answer = ask("compare", real("h100_timesformer"), real("h100_bert_small"))
    assert {row["verdict"] for row in answer["kernels"]} >= {"new", "gone"}
    total = sum(row["duration_difference_ns"] for row in answer["kernels"])
    assert total == sum(row["duration_ns"] - row["base_duration_ns"] for row in answer["kernels"]) != 0

"""Annotations, compared with HTA and with plain Python."""

import statistics
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, Rows, golden, real
from tests.analysis.gpu import Event, step, work
from tests.conftest import DATA, SHARED, needs_shared, scaled

SINGLE = [
    *("a100_nccl_3_steps", "b200_eager_rank0_of_8", "h100_bert_small", "h100_timesformer"),
    *("mi300_resnet_rank0_of_8", "v100_ddp_epoch_us"),
]
HTA = {"types": "hta", "last_step": "drop"}


def check_rows(rows: Rows, side: str, expected: Rows | None, tolerance: float) -> None:
    """Assert that rows equal HTA's regions, in µs."""
    ours = {(row["rank"] or 0, row["name"]): row for row in rows if row["side"] == side}
    assert set(ours) == {(row["rank"], row["name"]) for row in expected or []}
    for entry in expected or []:
        row = ours[entry["rank"], entry["name"]]
        for column in ("sum", "mean", "min", "max"):
            assert row[f"{column}_ns"] / 1000 == pytest.approx(entry[f"{column} (us)"], abs=tolerance)
        assert row["stddev_ns"] / 1000 == pytest.approx(entry["stddev"], abs=tolerance)


@needs_shared
@pytest.mark.parametrize("name", SINGLE)
def test_annotations_equal_hta_with_its_filters(name: str, ask: Ask) -> None:
    expected = golden("hta_ns", name)
    rows = ask("annotations", real(name), **HTA)["annotations"]
    check_rows(rows, "gpu", expected["user_annotation_gpu"], 0.5)
    check_rows(rows, "host", expected["user_annotation_cpu"], 0.5)


@needs_shared
def test_annotations_equal_hta_for_whole_times(ask: Ask) -> None:
    expected = golden("hta_default", "dlrm_8_ranks")
    rows = ask("annotations", *sorted(SHARED.glob("dlrm_8_ranks/*")), **HTA)["annotations"]
    check_rows(rows, "gpu", expected["user_annotation_gpu"], 1e-6)
    check_rows(rows, "host", expected["user_annotation_cpu"], 1e-6)


def region(name: str, start: float, dur: float, tid: int = 1) -> Event:
    return step(0, start, dur) | {"name": name, "tid": tid}


def on_gpu(name: str, start: float, dur: float) -> Event:
    return {**work(start, dur, "gpu_user_annotation", name), "args": {"External id": 1}}


def test_regions_are_listed_with_their_nested_regions(ask: Ask) -> None:
    trace = [
        *(step(1, 0, 100), region("forward", 0, 40), region("layer", 10, 10), region("layer", 20, 15)),
        *(region("backward", 50, 30), region("layer", 60, 5), region("backward", 55, 99, tid=2)),
        *(on_gpu("forward", 20, 30), on_gpu("layer", 25, 10)),
    ]
    answer = ask("annotations", trace)
    rows = {(row["side"], row["name"]): row for row in answer["annotations"]}
    row = rows["host", "layer"]
    assert [row[f"{name}_ns"] for name in ("sum", "min", "max", "self")] == [30_000, 5_000, 15_000, 30_000]
    assert row["stddev_ns"] == pytest.approx(5_000)
    assert (rows["host", "forward"]["self_ns"], rows["gpu", "forward"]["self_ns"]) == (15_000, 20_000)
    paths = {
        (row["side"], row["path"]): (row["depth"], row["count"], row["sum_ns"], row["self_ns"], row["of_parent_pct"])
        for row in answer["nested"]
    }
    assert paths == {
        ("host", "ProfilerStep#1"): (0, 1, 100_000, 30_000, None),
        ("host", "ProfilerStep#1 > forward"): (1, 1, 40_000, 15_000, 40),
        ("host", "ProfilerStep#1 > forward > layer"): (2, 2, 25_000, 25_000, 62.5),
        ("host", "ProfilerStep#1 > backward"): (1, 1, 30_000, 25_000, 30),
        ("host", "ProfilerStep#1 > backward > layer"): (2, 1, 5_000, 5_000, pytest.approx(500 / 30)),
        ("host", "backward"): (0, 1, 99_000, 99_000, None),
        ("gpu", "forward"): (0, 1, 30_000, 20_000, None),
        ("gpu", "forward > layer"): (1, 1, 10_000, 10_000, pytest.approx(1000 / 30)),
    }
    top_rows = ask("annotations", trace, top=2)
    assert [row["name"] for row in top_rows["annotations"] if row["side"] == "host"] == [
        *("backward", "ProfilerStep#1", "others"),
    ]
    assert [row["path"] for row in top_rows["nested"]] == ["ProfilerStep#1", "backward"]


def test_last_step_drop_leaves_out_the_last_step(ask: Ask) -> None:
    trace = [step(1, 0, 10), region("a", 1, 2), step(2, 10, 10), region("a", 11, 3), on_gpu("ProfilerStep#2", 15, 5)]
    for types, names in {"exact": {"ProfilerStep#1": 1, "a": 1}, "hta": {"ProfilerStep#1": 1, "a": 2}}.items():
        rows = ask("annotations", trace, last_step="drop", types=types)["annotations"]
        counts = {row["name"]: row["count"] for row in rows if not row["name"].endswith("#2")}
        assert counts == names  # in HTA, the last step begins at its start on the GPU


def test_trace_without_regions_is_not_applicable(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="No regions"):
        ask("annotations", [work(0, 1)])


def test_cpu_trace_has_regions(ask: Ask) -> None:
    rows = ask("annotations", DATA / "cpu_train_steps.pt.trace.json.gz")["annotations"]
    assert any(row["name"].startswith("ProfilerStep#") for row in rows)
    assert {row["side"] for row in rows} == {"host"}


def test_hostile_values_yield_an_answer(ask: Ask) -> None:
    trace = [
        *(region("a", 0, -5), region("a", -9e14, 9e14), region("a", 9e14, 9e14), step(1, 2, 0)),
        *(region("a", 0, 10), region("b", 5, 10), {"ph": "X", "cat": "user_annotation", "ts": 1, "args": []}),
    ]
    for row in ask("annotations", trace)["annotations"]:
        assert 0 <= row["self_ns"] <= row["sum_ns"]


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=10))
def test_sums_by_name_equal_plain_python(ask: Ask, parts: list[tuple[str, int, int]]) -> None:
    durations: dict[str, list[int]] = {}
    for name, _, dur in parts:
        durations.setdefault(name, []).append(dur * 1000)
    expected: dict[str, Any] = {
        name: [len(lengths), sum(lengths), pytest.approx(statistics.mean(lengths)), min(lengths), max(lengths)]
        for name, lengths in durations.items()
    }
    answer = ask("annotations", [region(name, at, dur) for name, at, dur in parts])
    columns = ("count", "sum_ns", "mean_ns", "min_ns", "max_ns")
    assert {row["name"]: [row[column] for column in columns] for row in answer["annotations"]} == expected
    assert sum(row["count"] for row in answer["nested"]) == len(parts)
    outermost = sum(row["sum_ns"] for row in answer["nested"] if not row["depth"])
    assert sum(row["self_ns"] for row in answer["annotations"]) == outermost

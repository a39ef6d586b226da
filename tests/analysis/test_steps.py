"""Times of steps: TensorBoard's rules yield TensorBoard's times, our rules those of a loop over every nanosecond."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.analysis.answers import answer_question
from service.analysis.catalogue import question_of
from service.analysis.question import parameters_of
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.cutting.source import Source
from service.trace.errors import NotApplicable
from service.trace.selection import Selection, Window
from tests.analysis import gpu
from tests.analysis.conftest import Ask, golden, real
from tests.conftest import DATA, SHARED, needs_shared, scaled
from tests.cutting.test_merge import merged

CATEGORIES = ["kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec", "other"]
TITLES = ["Kernel", "Memcpy", "Memset", "Communication", "Runtime", "DataLoader", "CPU Exec", "Other"]
DLRM = sorted(SHARED.glob("dlrm_8_ranks/*"))
TRACES = {
    "dlrm_rank0": DLRM[0] if DLRM else real("none"),
    **{name: real(name) for name in ("v100_resnet50_2021", "h100_timesformer", "v100_ddp_epoch_us")},
}


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    lane = {"pid": 0, "tid": 7} if "kernel" in cat or "gpu_" in cat else {"pid": 9, "tid": 9}
    return {"ph": "X", "cat": cat, "name": name, **lane, "ts": ts, "dur": dur, "args": args}


def on_doubles(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a trace's slices with times rounded to doubles, as TensorBoard reads them, relative to the first start."""
    events = [entry for entry in trace["traceEvents"] if entry.get("ph") == "X"]
    first = min(float(event["ts"]) for event in events)
    starts = [float(event["ts"]) for event in events]
    return [
        {**event, "ts": start - first, "dur": (start + float(event["dur"])) - start}
        for event, start in zip(events, starts, strict=True)
    ]


@needs_shared
@pytest.mark.parametrize("name", TRACES)
def test_steps_by_tensorboard_rules_equal_those_of_tensorboard(name: str, ask: Ask) -> None:
    """TensorBoard reads `v100_ddp_epoch_us` as doubles with a resolution of 0.25 µs, and so does this test.

    Otherwise the sums would differ by up to 6 µs.
    """
    overview = golden("tensorboard", name)["overview"]
    is_coarse = name == "v100_ddp_epoch_us"
    trace = on_doubles(json.loads(gzip.decompress(TRACES[name].read_bytes()))) if is_coarse else TRACES[name]
    answer = ask("steps", trace, rules="tensorboard")
    tolerance = 1e-6 if is_coarse else 1
    for row, expected in zip(answer["steps"], overview["rows"], strict=True):
        values = dict(zip(overview["columns"], expected, strict=True))
        assert str(row["step"]) == values.pop("Step")
        ours = {title: row[f"{category}_ns"] / 1000 for category, title in zip(CATEGORIES, TITLES, strict=True)}
        assert {title: ours[title] for title in values} == {
            title: pytest.approx(time, abs=tolerance) for title, time in values.items()
        }
        assert all(ours[title] == 0 for title in TITLES if title not in values)
    [mean] = overview["performance"]
    average = {row["category"]: row for row in answer["average"]}
    assert average["total"]["mean_ns"] / 1000 == pytest.approx(mean["value"], abs=1)
    for child in mean["children"]:
        row = average[CATEGORIES[TITLES.index(child["name"])]]
        assert row["mean_ns"] / 1000 == pytest.approx(child["value"], abs=1)
        assert row["share_pct"] == pytest.approx(child["extra"], abs=0.0051)


@needs_shared
def test_exact_sums_of_doubles_differ_from_tensorboard(ask: Ask) -> None:
    [first, *_] = ask("steps", real("v100_ddp_epoch_us"), rules="tensorboard")["steps"]
    assert first["kernel_ns"] == 93_696_680, "TensorBoard: 93,700.25 µs"
    assert first["cpu_exec_ns"] == 4_404_515, "TensorBoard: 4,398.75 µs"


@needs_shared
def test_exact_rules_count_all_communicating_kernels(ask: Ask) -> None:
    """TensorBoard counts NCCL's kernels as computing: it reports 60 µs of communication; 5,537 µs are exposed."""
    answer = ask("steps", DLRM[0])
    [row] = answer["steps"]
    exact = golden("exact", "dlrm_8_ranks")["0"]
    assert row["kernel_ns"] == exact["comp_union_ns"] == 1_034_000
    assert row["communication_ns"] >= exact["exposed_comm_ns"]
    assert sum(row[f"{category}_ns"] for category in CATEGORIES) == row["total_ns"] == 14_455_000


@needs_shared
def test_hidden_communication_equals_tensorboard(ask: Ask) -> None:
    expected = golden("tensorboard", "dlrm_8_ranks_distributed")["steps_to_overlap"]["data"]["10"]
    rows = ask("steps", *DLRM, rules="tensorboard")["communication"]
    names = ("computation_ns", "overlap_ns", "communication_ns", "other_ns")
    assert {f"host_{row['rank']}": [row[name] / 1000 for name in names] for row in rows} == {
        host: [pytest.approx(value, abs=1) for value in values] for host, values in expected.items()
    }


WORK_EVENTS = {
    "kernel": ("kernel", "gemm"), "memcpy": ("gpu_memcpy", "Memcpy HtoD"), "memset": ("gpu_memset", "Memset"),
    "communication": ("kernel", "ncclKernel_AllReduce"),
}  # fmt: skip
HOST_EVENTS = {
    "communication": ("user_annotation", "gloo:all_reduce"), "runtime": ("cuda_driver", "cuLaunchKernel"),
    "dataloader": ("user_annotation", "enumerate(DataLoader)#X.__next__"), "cpu_exec": ("cpu_op", "aten::mm"),
}  # fmt: skip
LIMIT = 60
times = st.integers(0, LIMIT - 1)
activity_lists = st.lists(
    st.tuples(st.sampled_from([*WORK_EVENTS.items(), *HOST_EVENTS.items()]), times, st.integers(0, 20)), max_size=12
)


def time_by_category(activities: list[tuple[Any, int, int]], start: int, end: int) -> list[int]:
    """Return the nanoseconds of a window by category; each nanosecond counts for the first category that covers it."""
    times_ns = [0] * len(CATEGORIES)
    for time in range(start, end):
        covering = [CATEGORIES.index(kind) for (kind, _), begin, dur in activities if begin <= time < begin + dur]
        times_ns[min(covering, default=len(CATEGORIES) - 1)] += 1
    return times_ns


@settings(max_examples=scaled(25))
@given(activity_lists, st.lists(times, min_size=2, max_size=4, unique=True).map(sorted))
def test_each_nanosecond_counts_for_the_first_category(
    ask: Ask, activities: list[tuple[Any, int, int]], borders: list[int]
) -> None:
    windows = list(pairwise(borders))
    events = [event(cat, name, start / 1000, length / 1000) for (_, (cat, name)), start, length in activities]
    steps = [
        event("user_annotation", f"ProfilerStep#{number}", start / 1000, (end - start) / 1000)
        for number, (start, end) in enumerate(windows)
    ]
    rows = ask("steps", [*events, *steps], bounds="host")["steps"]
    assert [(row["step"], row["start_ns"], row["end_ns"]) for row in rows] == [
        (number, *window) for number, window in enumerate(windows)
    ]
    assert [[row[f"{category}_ns"] for category in CATEGORIES] for row in rows] == [
        time_by_category(activities, start, end) for start, end in windows
    ]


def two_steps(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """Return two steps of 10 µs; the work of the first step continues into the second step."""
    return [
        event("user_annotation", "ProfilerStep#3", 0, 10),
        event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1),
        event("kernel", "gemm", 5, 12, correlation=1),
        event("user_annotation", "ProfilerStep#4", 10, 10),
        event("cuda_runtime", "cudaLaunchKernel", 12, 1, correlation=2),
        event("kernel", "gemm", 17, 6, correlation=2),
        *more,
    ]


def bounds(ask: Ask, events: list[dict[str, Any]], **parameters: Any) -> list[tuple[int | None, int, int]]:
    rows = ask("steps", events, **parameters)["steps"]
    return [(row["step"], row["start_ns"] // 1000, row["end_ns"] // 1000) for row in rows]


def test_step_lasts_until_its_work_is_done_and_the_next_starts_there(ask: Ask) -> None:
    assert bounds(ask, two_steps()) == [(3, 0, 17), (4, 17, 23)]
    assert bounds(ask, two_steps(), bounds="host") == [(3, 0, 10), (4, 10, 20)]
    assert bounds(ask, two_steps(), last_step="drop") == [(3, 0, 17)]
    earlier = event("kernel", "warm up", 1, 2, correlation=9)
    launch = event("cuda_runtime", "cudaLaunchKernel", -3, 1, correlation=9)
    assert bounds(ask, two_steps(launch, earlier)) == [(3, 3, 17), (4, 17, 23)], "the first starts after earlier work"
    assert bounds(ask, two_steps(earlier)) == [(3, 0, 17), (4, 17, 23)], "work without a launch counts by its time"


def test_tensorboard_rules_drop_last_steps_with_few_launches(ask: Ask) -> None:
    third = event("user_annotation", "ProfilerStep#5", 30, 5)
    assert bounds(ask, two_steps(third)) == [(3, 0, 17), (4, 17, 23), (5, 30, 35)]
    assert bounds(ask, two_steps(third), rules="tensorboard") == [(3, 0, 17), (4, 17, 23)]
    second_kernel = event("kernel", "gemm", 6, 1, correlation=1)
    assert bounds(ask, two_steps(second_kernel), rules="tensorboard") == [(3, 0, 17)], "1 is less than 80 % of 2"


def test_gpu_annotations_of_steps_are_not_counted(ask: Ask) -> None:
    gpu_annotation = event("gpu_user_annotation", "ProfilerStep#3", 5, 12)
    for rules in ("exact", "tensorboard"):
        assert bounds(ask, two_steps(gpu_annotation), rules=rules) == [(3, 0, 17), (4, 17, 23)]


@pytest.mark.parametrize("name", ["steps", "overview", "collectives"])
def test_selection_of_everything_has_the_steps_of_the_trace(ask: Ask, name: str) -> None:
    events = two_steps(
        event("Operator", "ProfilerStep#5", 10, 2),
        event("python_function", "ProfilerStep#6", 12, 3),
        event("gpu_user_annotation", "ProfilerStep#7", 12, 3),
        event("kernel", "ncclDevKernel_AllReduce", 18, 1, correlation=2),
    )
    whole = ask(name, events)
    everything = ask(name, events, selection=Selection(window=Window(start_ns=-1000, end_ns=1_000_000)))
    assert whole["steps"]
    assert everything["steps"] == whole["steps"]


def test_trace_without_steps_is_one_step(ask: Ask) -> None:
    events = two_steps()
    assert bounds(ask, [event for event in events if "Step" not in event["name"]]) == [(None, 1, 23)]
    [row] = ask("steps", [event("kernel", "gemm", -5, 12)])["steps"]
    assert (row["step"], row["total_ns"], row["kernel_ns"], row["other_ns"]) == (None, 12_000, 12_000, 0)
    [row] = ask("steps", [event("cpu_op", "aten::mm", 1, 0)])["steps"]
    assert row["total_ns"] == 0


@pytest.mark.parametrize("rules", ["exact", "tensorboard"])
def test_host_computes_without_a_gpu(ask: Ask, rules: str) -> None:
    answer = ask("steps", DATA / "cpu_gloo_rank0_of_2.pt.trace.json.gz", rules=rules)
    assert [row["step"] for row in answer["steps"]] == [2, 3]
    for step, communication in zip(answer["steps"], answer["communication"], strict=True):
        assert step["kernel_ns"] == 0
        assert step["cpu_exec_ns"] > 0
        assert step["communication_ns"] > 0
        parts = ("computation_ns", "overlap_ns", "communication_ns", "other_ns")
        assert sum(communication[name] for name in parts) == step["total_ns"]
        assert communication["overlap_ns"] + communication["communication_ns"] == step["communication_ns"]


def test_odd_events_yield_an_answer(ask: Ask) -> None:
    events = two_steps(
        event("kernel", "gemm", 2, -3, correlation="x"),
        event("user_annotation", "ProfilerStep#x", 0, 3),
        event("user_annotation", "ProfilerStep#99999999999999999999", 0, 3),
        {"ph": "X", "cat": "kernel", "name": "no args", "ts": 2**53 + 3},
        {"ph": "X", "cat": "cpu_op", "name": None, "ts": 3, "dur": 1},
        {"ph": "X", "name": "no category", "ts": 3, "dur": 1},
        {"ph": "X", "cat": "cuda_runtime", "name": "no time"},
    )
    assert [row["step"] for row in ask("steps", events)["steps"]] == [3, 4]


@pytest.mark.parametrize("name", ["steps", "collectives", "recommendations"])
def test_ranks_of_a_merged_trace_equal_separate_ranks(
    name: str, ask: Ask, read_once: Callable[[Path | str], Source], tmp_path: Path
) -> None:
    paths = [DATA / f"cpu_gloo_rank{rank}_of_2.pt.trace.json.gz" for rank in range(2)]
    merged_trace = merged([read_once(path) for path in paths], tmp_path)
    question = question_of(name)
    for ranks in (None, [0, 1], [0], [1]):
        merged_answer = answer_question(
            question,
            parameters_of(question, {}),
            [
                AnalysisInput(
                    merged_trace.columns, merged_trace.summary, None if ranks is None else Selection(ranks=ranks)
                )
            ],
            ReadingCache(tmp_path / "spill"),
        )
        alone = ask(name, *(path for rank, path in enumerate(paths) if ranks is None or rank in ranks))
        assert {table: rows.to_pylist() for table, rows in merged_answer.tables.items()} == alone


@pytest.mark.parametrize("name", ["steps", "annotations"])
def test_selected_step_of_a_merged_rank_has_nothing_of_other_ranks(
    name: str, ask: Ask, read_once: Callable[[Path | str], Source], tmp_path: Path
) -> None:
    """The step of rank 0 encloses that of rank 1."""
    texts = [
        json.dumps(
            {
                "distributedInfo": {"rank": rank, "world_size": 2},
                "baseTimeNanoseconds": 10**18,
                "traceEvents": [
                    event("user_annotation", "ProfilerStep#1", start, dur),
                    event("cpu_op", "aten::mm", start + 1, 5),
                    event("user_annotation", "ProfilerStep#2", 200 + start, dur),
                ],
            }
        )
        for rank, (start, dur) in enumerate([(0, 100), (20, 40)])
    ]
    merged_trace = merged([read_once(text) for text in texts], tmp_path)
    selection = Selection(steps=[1])
    question = question_of(name)
    merged_answer = answer_question(
        question,
        parameters_of(question, {}),
        [AnalysisInput(merged_trace.columns, merged_trace.summary, selection)],
        ReadingCache(tmp_path / "spill"),
    )
    alone = ask(name, *texts, selection=selection)
    assert {table: rows.to_pylist() for table, rows in merged_answer.tables.items()} == alone


def test_selected_step_equals_the_step_of_the_whole_trace(ask: Ask) -> None:
    trace = DATA / "cpu_train_steps.pt.trace.json.gz"
    rows = ask("steps", trace, bounds="host")["steps"]
    for row in rows:
        selected = Selection.parsed({"steps": [row["step"]]})
        assert ask("steps", trace, bounds="host", selection=selected)["steps"] == [row]


GPU_TRACES = [
    *(DATA / f"cuda_{name}.pt.trace.json.gz" for name in ("train_steps", "nccl_rank0_of_1", "graph_replays")),
    *(pytest.param(real(name), marks=needs_shared) for name in ("v100_ddp_epoch_us", "mi300_resnet_rank0_of_8")),
]


@pytest.mark.parametrize("trace", GPU_TRACES)
def test_selected_step_lasts_as_long_as_in_the_whole_trace(ask: Ask, trace: Path) -> None:
    """The work of the steps before it, after which it starts, is not in the selection."""
    for row in ask("steps", trace)["steps"]:
        for name, table in (("steps", "steps"), ("step_figures", "steps")):
            [alone] = ask(name, trace, selection=Selection(steps=[row["step"]]))[table]
            assert [alone[key] for key in ("step", "start_ns", "end_ns")] == [
                row[key] for key in ("step", "start_ns", "end_ns")
            ]


@pytest.mark.parametrize("trace", GPU_TRACES)
@pytest.mark.parametrize("straddle", ["keep", "start", "clip"])
def test_parts_of_the_time_have_all_time_of_the_steps(ask: Ask, trace: Path, straddle: str) -> None:
    """Also a part in which a step has only work, since its annotation lies before."""
    whole = {row["step"]: row["total_ns"] for row in ask("steps", trace)["steps"]}
    rows = ask("steps", trace)["steps"]
    first, last = rows[0]["start_ns"], rows[-1]["end_ns"]
    edges = [first + (last - first) * part // 7 for part in range(8)]
    found: Counter[int] = Counter()
    for start, end in pairwise(edges):
        selection = Selection.parsed({"window": {"start_ns": start, "end_ns": end}, "straddle": straddle})
        for row in ask("steps", trace, selection=selection)["steps"]:
            found[row["step"]] += row["total_ns"]
    assert found == whole


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
@pytest.mark.parametrize("kernels", [True, False])
def test_annotations_that_launch_kernels_are_no_communication(ask: Ask, backend: str, kernels: bool) -> None:
    """Otherwise, the time of the host in `nccl:all_reduce` would count, too, while nothing is transferred."""
    trace = [
        event("user_annotation", "ProfilerStep#1", 0, 100),
        event("user_annotation", f"{backend}:all_reduce", 10, 20),
        *([event("kernel", "ncclDevKernel_AllReduce_Sum", 50, 30)] if kernels else []),
    ]
    [row] = ask("steps", trace)["steps"]
    on_host = 0 if kernels and backend == "nccl" else 20_000
    assert row["communication_ns"] == on_host + (30_000 if kernels else 0)
    assert row["cpu_exec_ns"] == 20_000 - on_host


def test_annotations_of_a_step_on_two_threads_are_one_step(ask: Ask) -> None:
    trace = [
        {**event("user_annotation", f"ProfilerStep#{number}", 100 * number + thread, 99 - 2 * thread), "tid": thread}
        for number in (0, 1)
        for thread in (0, 1)
    ]
    rows = ask("steps", [*trace, event("cpu_op", "aten::mm", 10, 20)])["steps"]
    assert [(row["step"], row["total_ns"]) for row in rows] == [(0, 99_000), (1, 99_000)]


def test_step_lasts_until_the_work_of_all_its_threads_is_done(ask: Ask) -> None:
    """The second thread launches work in its step 3 when the first one has begun step 4."""
    annotations = [
        gpu.step(3, 0, 10),
        gpu.step(4, 10, 10),
        {**gpu.step(3, 1, 11), "tid": 2},
        {**gpu.step(4, 12, 9), "tid": 2},
    ]
    launches = [{**gpu.call(11, 1), "tid": 2}, gpu.call(15, 2)]
    trace = [*annotations, *launches, gpu.work(13, 17, correlation=1), gpu.work(30, 10, correlation=2)]
    assert bounds(ask, trace) == [(3, 0, 30), (4, 30, 40)]
    assert bounds(ask, trace, selection=Selection(steps=[3])) == [(3, 0, 30)]
    figures = ask("step_figures", trace)["work"]
    assert [(row["step"], row["sum_ns"]) for row in figures] == [(3, 17_000), (4, 10_000)]


def test_repeated_number_of_a_step_is_that_of_the_last_one_to_begin(ask: Ask) -> None:
    trace = [gpu.step(3, 0, 10), gpu.step(4, 10, 10), gpu.step(3, 30, 10)]
    for number, (launch, start) in enumerate([(5, 12), (15, 22), (35, 50)], 1):
        trace += [gpu.call(launch, number), gpu.work(start, 5, correlation=number)]
    assert bounds(ask, trace) == [(3, 0, 17), (4, 17, 27), (3, 30, 55)]


@pytest.mark.parametrize("bounds", ["host", "device"])
@pytest.mark.parametrize("straddle", ["keep", "start", "clip"])
@pytest.mark.parametrize("rules", ["exact", "tensorboard"])
@given(at=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_steps_of_a_window_lie_in_it(ask: Ask, bounds: str, straddle: str, rules: str, at: tuple[float, float]) -> None:
    """Slices that cross an edge are whole, but what happens outside of the window is not known."""
    trace = DATA / "cuda_train_steps.pt.trace.json.gz"
    whole = ask("steps", trace)["steps"]
    first, last = whole[0]["start_ns"], whole[-1]["end_ns"]
    start, end = (first + int(share * (last - first)) for share in sorted(at))
    window = {"start_ns": start, "end_ns": max(end, start + 1)}
    try:
        selection = Selection.parsed({"window": window, "straddle": straddle})
        rows = ask("steps", trace, bounds=bounds, rules=rules, selection=selection)["steps"]
    except NotApplicable:  # nothing of a step, or nothing at all begins there
        return
    for row in rows:
        assert window["start_ns"] <= row["start_ns"] <= row["end_ns"] <= window["end_ns"]
        assert sum(row[f"{name}_ns"] for name in CATEGORIES) == row["total_ns"] == row["end_ns"] - row["start_ns"]


def test_window_in_a_step_has_its_part_of_the_step(ask: Ask) -> None:
    """The window is from 3 to 20 µs: it has a part of step 3, from 0 to 17, and of step 4, from 17 to 23."""
    trace = two_steps(event("cpu_op", "aten::mm", 10, 4))
    answer = ask("steps", trace, selection=Selection(window=Window(start_ns=3_000, end_ns=20_000)))["steps"]
    whole = ask("steps", trace)["steps"]
    assert [(row["step"], row["start_ns"], row["end_ns"]) for row in whole] == [(3, 0, 17_000), (4, 17_000, 23_000)]
    assert [(row["step"], row["start_ns"], row["end_ns"]) for row in answer] == [
        (3, 3_000, 17_000), (4, 17_000, 20_000),
    ]  # fmt: skip


def test_utilization_in_a_window_is_that_of_the_window(ask: Ask) -> None:
    """A step of 100 µs has a kernel from 40 to 60 µs: half of the window from 30 to 70 µs."""
    trace = [event("user_annotation", "ProfilerStep#1", 0, 100), event("kernel", "gemm", 40, 20)]
    window = Selection(window=Window(start_ns=30_000, end_ns=70_000))
    for name, value in (("gpu_summary", 50), ("recommendations", 50)):
        [row] = [
            row for row in ask(name, trace, selection=window)["gpus" if name == "gpu_summary" else "checks"]
            if row.get("rule", "utilization") == "utilization"
        ]  # fmt: skip
        assert row["utilization_pct" if name == "gpu_summary" else "value"] == value

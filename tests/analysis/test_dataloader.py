"""Time spent waiting for data, and its share without GPU work, compared with a loop over every nanosecond."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, real
from tests.analysis.test_steps import TRACES, event
from tests.conftest import DATA, needs_shared, scaled

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LIMIT = 60


def loading(start: float, dur: float, name: str = LOADER) -> dict[str, Any]:
    return event("user_annotation", name, start, dur)


times = st.tuples(st.integers(0, LIMIT - 1), st.integers(0, 20))


@settings(max_examples=scaled(20))
@given(st.lists(times, min_size=1, max_size=4), st.lists(times, max_size=4), st.integers(1, LIMIT - 1))
def test_exposed_time_is_loading_without_device_work(
    ask: Ask, loads: list[tuple[int, int]], works: list[tuple[int, int]], border: int
) -> None:
    windows = [(0, border), (border, LIMIT)]
    answer = ask(
        "dataloader",
        [
            *(loading(start / 1000, length / 1000) for start, length in loads),
            *(event("gpu_memcpy", "copy", start / 1000, length / 1000) for start, length in works),
            *(
                event("user_annotation", f"ProfilerStep#{number}", start / 1000, (end - start) / 1000)
                for number, (start, end) in enumerate(windows)
            ),
        ],
        bounds="host",
    )

    def lasts(intervals: list[tuple[int, int]], at: int) -> bool:
        return any(start <= at < start + length for start, length in intervals)

    for row, window in zip(answer["steps"], windows, strict=True):
        waits = [lasts(works, at) for at in range(*window) if lasts(loads, at)]
        assert (row["loading_ns"], row["hidden_ns"], row["exposed_ns"]) == (len(waits), sum(waits), waits.count(False))
        assert row["exposed_pct"] == pytest.approx(100 * waits.count(False) / (window[1] - window[0]))
    [loader] = answer["loaders"]
    assert (loader["calls"], loader["loading_ns"]) == (len(loads), sum(length for _, length in loads))
    idle = sum(not lasts(works, at) for start, length in loads for at in range(start, start + length))
    assert loader["exposed_ns"] == idle
    assert loader["max_ns"] == max(length for _, length in loads)


def test_loaders_are_listed_costliest_first(ask: Ask) -> None:
    pipe = "enumerate(DataPipe)#Batcher"
    actual = [loading(0, 5), loading(10, 2), loading(20, 30, pipe), event("kernel", "gemm", 19, 30)]
    rows = ask("dataloader", actual)["loaders"]
    assert [(row["loader"], row["calls"], row["exposed_ns"], row["longest_start_ns"]) for row in rows] == [
        (LOADER, 2, 7000, 0),
        (pipe, 1, 1000, 20_000),
    ]


@needs_shared
def test_resnet_waits_a_third_of_its_steps(ask: Ask) -> None:
    """The exposed times equal those of `steps`: here, no category of higher priority runs while the device is idle."""
    rows = ask("dataloader", TRACES["v100_resnet50_2021"])["steps"]
    assert [row["step"] for row in rows] == [5, 6, 7, 8, 9, 10]
    steps = ask("steps", TRACES["v100_resnet50_2021"])["steps"]
    assert [row["exposed_ns"] for row in rows] == [row["dataloader_ns"] for row in steps]
    assert sum(row["exposed_ns"] for row in rows) / sum(row["total_ns"] for row in rows) == pytest.approx(
        0.3337, abs=1e-4
    )


def test_loading_is_fully_exposed_without_a_gpu(ask: Ask) -> None:
    [row] = ask("dataloader", [loading(0, 5), event("cpu_op", "aten::mm", 4, 6)])["steps"]
    assert (row["step"], row["loading_ns"], row["exposed_ns"], row["exposed_pct"]) == (None, 5000, 5000, 50)


@needs_shared
def test_trace_without_a_loader_is_not_applicable(ask: Ask) -> None:
    for trace in (real("h100_timesformer"), DATA / "cpu_train_steps.pt.trace.json.gz"):
        with pytest.raises(NotApplicable, match="No step in this trace waits for a DataLoader"):
            ask("dataloader", trace)

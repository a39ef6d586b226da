"""The critical path, compared with the longest path of a graph that is built edge by edge."""

from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import AnswerRows, Ask, real
from tests.conftest import needs_shared, scaled

Event = dict[str, Any]
Point = tuple[str, int, str]
"""A point of the graph: "host" or "work", the index of the event, and "start" or "end"."""


def _slice(name: str, start: int, end: int, cat: str = "cpu_op", tid: object = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": end - start, "args": args}


def _call(name: str, start: int, end: int, correlation: int = 0, tid: int = 1) -> Event:
    return _slice(name, start, end, "cuda_runtime", tid, correlation=correlation)


def _work(start: int, end: int, correlation: int, stream: int = 7, name: str = "kernel") -> Event:
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return {**_slice(name, start, end, "kernel", stream, **args), "pid": 0}


def _edges(answer: AnswerRows) -> list[tuple[str, str | None, int, int, int]]:
    return [
        (row["kind"], row["name"], row["start_ns"] // 1000, row["end_ns"] // 1000, row["length_ns"] // 1000)
        for row in answer["path"]
    ]


def test_path_goes_from_host_to_work_and_back_at_a_waiting_call(ask: Ask) -> None:
    answer = ask(
        "critical_path",
        [
            _slice("aten::mm", 0, 20),
            _call("cudaLaunchKernel", 5, 10, 1),
            _work(15, 90, 1, name="gemm"),
            _work(95, 100, 1, name="gemm"),
            _call("cudaDeviceSynchronize", 30, 110),
            _slice("aten::add", 115, 130),
        ],
    )
    assert _edges(answer) == [
        ("host", "aten::mm", 0, 5, 5),
        ("launch", "cudaLaunchKernel", 5, 10, 5),
        ("delay", "gemm", 10, 15, 5),
        ("compute", "gemm", 15, 90, 75),
        ("queue", "gemm", 90, 95, 5),
        ("compute", "gemm", 95, 100, 5),
        ("return", "cudaDeviceSynchronize", 100, 110, 10),
        ("gap", None, 110, 115, 0),
        ("host", "aten::add", 115, 130, 15),
    ]
    assert answer["total"] == [
        {
            "rank": None, "span_ns": 130_000, "length_ns": 125_000, "length_pct": 100 * 125 / 130,
            "start_ns": 0, "end_ns": 130_000, "edges": 9,
        }
    ]  # fmt: skip
    assert [(row["kind"], row["edges"], row["length_ns"]) for row in answer["summary"]][:2] == [
        ("compute", 2, 80_000), ("host", 2, 20_000),
    ]  # fmt: skip


def test_call_that_did_not_wait_counts_as_host_time(ask: Ask) -> None:
    answer = ask(
        "critical_path",
        [_call("cudaLaunchKernel", 0, 5, 1), _work(6, 8, 1), _call("cudaStreamSynchronize", 20, 60)],
    )
    assert ("host", "cudaStreamSynchronize", 20, 60, 40) in _edges(answer)


def test_synchronous_copy_returns_to_its_call(ask: Ask) -> None:
    answer = ask("critical_path", [_call("cudaMemcpyAsync", 0, 50, 1), {**_work(10, 40, 1), "cat": "gpu_memcpy"}])
    assert [edge[0] for edge in _edges(answer)] == ["launch", "memory", "return"]
    assert answer["total"][0]["length_ns"] == 50_000


def test_stream_wait_orders_work_of_two_streams(ask: Ask) -> None:
    waits = {"stream": 8, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 11, "correlation": 12}
    answer = ask(
        "critical_path",
        [
            _call("cudaLaunchKernel", 0, 1, 1),
            _call("cudaEventRecord", 2, 3, 11),
            _call("cudaStreamWaitEvent", 4, 5, 12),
            _call("cudaLaunchKernel", 6, 7, 2),
            _work(10, 90, 1, stream=7),
            _work(95, 99, 2, stream=8),
            {**_slice("Stream Wait Event", 4, 5, "cuda_sync", 8, device=0, **waits), "pid": 0},
        ],
    )
    assert ("event", "kernel", 90, 95, 5) in _edges(answer)
    assert answer["total"][0]["length_ns"] == 99_000


def test_work_that_overlaps_the_work_before_it_counts_from_its_start(ask: Ask) -> None:
    """So does work of programmatic dependent launches, which begins before the work before it on its stream ends."""
    launches = [_call("cudaLaunchKernelExC", at, at + 1, at) for at in (1, 2, 3)]
    overlapping = [_work(5, 45, 1, name="first"), _work(40, 90, 2, name="second"), _work(95, 99, 3, name="third")]
    answer = ask("critical_path", [*launches, *overlapping])
    assert [(row["kind"], row["name"], row["length_ns"]) for row in answer["path"]] == [
        ("launch", "cudaLaunchKernelExC", 1_000),
        ("delay", "first", 3_000),
        ("compute", "first", 35_000),
        ("compute", "second", 50_000),
        ("queue", "third", 5_000),
        ("compute", "third", 4_000),
    ]
    assert answer["total"][0]["length_ns"] == answer["total"][0]["span_ns"] == 98_000


def test_work_starts_after_the_work_of_its_stream_that_ends_last(ask: Ask) -> None:
    """Of two kernels that start at once, the order in the file does not tell which one ends last."""
    launches = [_call("cudaLaunchKernel", at, at + 1, at) for at in (1, 2, 3)]
    long, empty, after = _work(10, 60, 1, name="long"), _work(10, 10, 2, name="empty"), _work(62, 70, 3, name="after")
    paths = [ask("critical_path", [*launches, *order, after])["path"] for order in ((long, empty), (empty, long))]
    assert paths[0] == paths[1]
    assert [(row["kind"], row["name"]) for row in paths[0][-3:]] == [
        ("compute", "long"),
        ("queue", "after"),
        ("compute", "after"),
    ]
    nested = ask("critical_path", [*launches, long, _work(20, 30, 2), after])["path"]
    assert [(row["name"], row["length_ns"]) for row in nested[-3:]] == [
        ("long", 50_000), ("after", 2_000), ("after", 8_000),
    ]  # fmt: skip


def test_stream_synchronization_waits_for_one_stream_if_recorded(ask: Ask) -> None:
    events = [
        _call("cudaLaunchKernel", 0, 1, 1),
        _call("cudaLaunchKernel", 1, 2, 2),
        _work(10, 30, 1, stream=7),
        _work(5, 50, 2, stream=8),
        _call("cudaStreamSynchronize", 8, 52, 9),
    ]
    assert ask("critical_path", events)["total"][0]["length_ns"] == 52_000 - 0
    answer = {**_slice("Stream Sync", 8, 52, "cuda_sync", 7, device=0, stream=7, correlation=9), "pid": 0}
    [edge] = [edge for edge in _edges(ask("critical_path", [*events, answer])) if edge[0] == "return"]
    assert edge == ("return", "cudaStreamSynchronize", 30, 52, 22)


def test_longest_edges_are_listed_by_time(ask: Ask) -> None:
    events = [_slice(f"a{number}", number * 10, number * 10 + number) for number in range(1, 9)]
    events += [_call("cudaLaunchKernel", 200, 201, 1), _work(205, 206, 1)]
    answer = ask("critical_path", events, edges=3)
    assert [row["name"] for row in answer["path"]] == ["a6", "a7", "a8"]
    assert sum(row["length_ns"] for row in answer["names"]) == answer["total"][0]["length_ns"]


def test_path_needs_host_and_device_events(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="GPU"):
        ask("critical_path", [_slice("a", 0, 1)])
    with pytest.raises(NotApplicable, match="Neither"):
        ask("critical_path", [_work(0, 1, 1)])


def test_odd_values_yield_an_answer(ask: Ask) -> None:
    answer = ask(
        "critical_path",
        [
            _call("cudaLaunchKernel", 50, 40, 1),
            _work(3, 4, 1),  # before its launch
            _work(5, 5, 1, stream="x"),  # type: ignore[arg-type]
            {"ph": "X", "cat": "kernel", "ts": 9},
            _slice("a", 0, 10),
            _slice("b", 5, 15),
            _slice("Stream Sync", 0, 1, "cuda_sync", 7, correlation="x"),
            _slice("Event Sync", 0, 1, "cuda_sync", 7, correlation=1, wait_on_stream=[], args=None),
            {"ph": "X", "cat": "cpu_op", "ts": 1 << 53},
        ],
    )
    assert answer["total"][0]["length_ns"] == 10_000


@needs_shared
@pytest.mark.parametrize(
    "name", ["a100_nccl_3_steps", "b200_eager_rank0_of_8", "v100_ddp_epoch_us", "h100_timesformer", "vllm_cuda_graphs"]
)
def test_real_paths_are_contiguous_and_no_longer_than_their_span(name: str, ask: Ask) -> None:
    _check(ask("critical_path", real(name), edges=10_000_000))


def _check(answer: AnswerRows) -> None:
    [total] = answer["total"]
    path = answer["path"]
    assert [row["number"] for row in path] == list(range(total["edges"]))
    assert all(earlier["end_ns"] == later["start_ns"] for earlier, later in pairwise(path))
    assert all(0 <= row["length_ns"] <= row["end_ns"] - row["start_ns"] for row in path)
    assert sum(row["length_ns"] for row in path) == total["length_ns"] <= total["span_ns"]
    for table in ("summary", "names"):
        assert sum(row["length_ns"] for row in answer[table]) == total["length_ns"]
        assert sum(row["edges"] for row in answer[table]) == total["edges"]


_HOST = st.builds(
    lambda name, tid, start, lasting, correlation: (
        _slice(name, start, start + lasting, tid=tid)
        if name == "op"
        else _call(name, start, start + lasting, correlation, tid)
    ),
    st.sampled_from(["op", "op", "cudaLaunchKernel", "cudaLaunchKernel", "cudaDeviceSynchronize"]),
    *(st.integers(1, 2), st.integers(0, 20), st.integers(0, 10), st.integers(1, 4)),
)
_WORKS = st.builds(
    lambda start, lasting, correlation, stream: _work(start, start + lasting, correlation, stream),
    *(st.integers(0, 24), st.integers(0, 9), st.integers(1, 5), st.integers(7, 8)),
)


@given(host=st.lists(_HOST, min_size=1, max_size=9), work=st.lists(_WORKS, min_size=1, max_size=6))
@settings(max_examples=scaled(20))
def test_critical_path_is_the_longest_of_all_paths(ask: Ask, host: list[Event], work: list[Event]) -> None:
    answer = ask("critical_path", [*host, *work])
    _check(answer)
    assert answer["total"][0]["length_ns"] == 1000 * _longest(host, work)


def _longest(host: list[Event], work: list[Event]) -> int:
    """Return the length of the longest path of a graph that is built edge by edge."""
    host = sorted(host, key=lambda event: (event["ts"], -event["dur"]))
    work = sorted(work, key=lambda event: (event["ts"], event["dur"]))
    edges: dict[Point, list[tuple[Point, int]]] = defaultdict(list)
    nested = _nesting(host)
    waited: dict[int, bool] = {}
    launch_of = _launches(host, work, nested)
    for index, event in enumerate(work):
        edges["work", index, "end"].append((("work", index, "start"), event["dur"]))
        sources: list[tuple[Point, int]] = []
        launch = launch_of[index]
        earlier = [place for place in range(index) if work[place]["tid"] == event["tid"]]
        ended = [place for place in earlier if _end(work[place]) <= event["ts"]]
        last = max((_end(work[place]) for place in ended), default=0)
        sources += [(("work", place, "end"), last) for place in ended if _end(work[place]) == last]
        latest = max([at for _, at in sources] + [host[launch]["ts"] if launch is not None else 0])
        if earlier and _end(before := work[earlier[-1]]) > event["ts"]:
            latest = event["ts"]
            edges["work", index, "start"].append((("work", earlier[-1], "start"), event["ts"] - before["ts"]))
        edges["work", index, "start"] += [
            (point, event["ts"] - at if launch is not None and at == latest else 0) for point, at in sources
        ]
        if launch is not None:
            own = min(_end(host[launch]), event["ts"]) if host[launch]["ts"] < latest else event["ts"]
            edges["work", index, "start"].append((("host", launch, "start"), own - host[launch]["ts"]))
    for index in nested:
        event = host[index]
        over = _awaited(index, host, work, launch_of)
        sources = [(("work", item, "end"), _end(work[item])) for item in over]
        waited[index] = any(at > event["ts"] for _, at in sources)
        edges["host", index, "end"] += _counted(sources, _end(event), counts=waited[index])
    for thread in (1, 2):
        _link([item for item in sorted(nested) if host[item]["tid"] == thread], host, waited, edges)

    @cache
    def length(point: Point) -> int:
        return max((length(source) + weight for source, weight in edges[point]), default=0)

    points = [("host", item, "end") for item in nested] + [("work", place, "end") for place in range(len(work))]
    return max(map(length, points))


def _nesting(host: list[Event]) -> list[int]:
    """Return the indices of the slices that nest with all earlier ones of their thread."""
    stacks: dict[int, list[Event]] = defaultdict(list)
    nested = []
    for index, event in enumerate(host):
        stack = stacks[event["tid"]]
        while stack and _end(stack[-1]) <= event["ts"]:
            stack.pop()
        if not stack or _end(event) <= _end(stack[-1]):
            stack.append(event)
            nested.append(index)
    return nested


def _launches(host: list[Event], work: list[Event], nested: list[int]) -> list[int | None]:
    """Return the index of the call that launched each piece of work."""
    calls: dict[int, int] = {}
    for index in nested:
        calls.setdefault(host[index]["args"].get("correlation", 0), index)
    rows = [calls.get(event["args"]["correlation"]) for event in work]
    return [
        None if index is None or host[index]["ts"] > event["ts"] else index
        for index, event in zip(rows, work, strict=True)
    ]


def _awaited(index: int, host: list[Event], work: list[Event], launch_of: list[int | None]) -> list[int]:
    """Return the indices of the work for which a call waits."""
    event = host[index]
    running = [place for place in range(len(work)) if work[place]["ts"] < _end(event)]
    over = []
    if event["name"] == "cudaDeviceSynchronize":
        earlier = [item for item in running if _launched_at(host, work, launch_of, item) < event["ts"]]
        for stream in (7, 8):
            over += [entry for entry in earlier if work[entry]["tid"] == stream][-1:]
    elif event["name"] != "op":
        over = [item for item in running if launch_of[item] == index and _end(work[item]) <= _end(event)][-1:]
    return [item for item in over if _end(work[item]) <= _end(event)]


def _launched_at(host: list[Event], work: list[Event], launch_of: list[int | None], index: int) -> int:
    """Return the time at which a piece of work was launched."""
    launch = launch_of[index]
    return int(work[index]["ts"] if launch is None else host[launch]["ts"])


def _counted(sources: list[tuple[Point, int]], at: int, *, counts: bool) -> list[tuple[Point, int]]:
    """Return the edges from the points to a point at the time `at`; only edges from the latest points add time."""
    latest = max((time for _, time in sources), default=0)
    return [(point, at - time if counts and time == latest else 0) for point, time in sources]


def _link(
    slices: list[int], host: list[Event], waited: dict[int, bool], edges: dict[Point, list[tuple[Point, int]]]
) -> None:
    """Add the edges of a thread from point to point to `edges`."""
    stack: list[int] = []
    last: tuple[Point, int] | None = None

    def step(point: Point, at: int, counts: bool) -> None:
        nonlocal last
        if last is not None:
            edges[point].append((last[0], at - last[1] if counts else 0))
        last = (point, at)

    for index in [*slices, None]:
        while stack and (index is None or _end(host[stack[-1]]) <= host[index]["ts"]):
            top = stack.pop()
            step(("host", top, "end"), _end(host[top]), not waited[top])
        if index is not None:
            step(("host", index, "start"), host[index]["ts"], bool(stack))
            stack.append(index)


def _end(event: Event) -> int:
    return int(event["ts"] + event["dur"])

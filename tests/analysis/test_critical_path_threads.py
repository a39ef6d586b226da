"""The critical path across threads and streams: the autograd engine's threads, events, and HTA's figures."""

import json
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trace.selection import Selection
from tests.analysis.conftest import Ask, real
from tests.analysis.test_critical_path import _call, _check, _edges, _end, _nesting, _slice, _work
from tests.analysis.test_hta import PYTHON, ROOT
from tests.analysis.training import ENGINE, MAIN, Training, on_one_thread, without_sync_events
from tests.conftest import needs_shared, scaled

Event = dict[str, Any]
Point = tuple[str, int]

A100_ON_ONE_THREAD = {4: 188_152_000, 5: 186_225_000, 6: 191_045_000}
"""HTA 0.5.0's lengths in ns of the steps of `a100_nccl_3_steps` with the autograd thread moved to the main thread."""
A100_ON_ONE_THREAD_NS = {4: 188_920_136, 5: 187_003_938, 6: 191_789_115}
"""The same lengths with `HTA_DISABLE_NS_ROUNDING=1`."""
A100_AS_IT_IS = {4: 101_646_000, 5: 101_398_000, 6: 101_203_000}
"""HTA's lengths for the unchanged trace, which cover only the main thread: HTA has no edges between host threads."""

needs_hta = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="HTA is not installed: run `make hta`"),
]
SHAPES: dict[str, Any] = {
    "host_bound": {"kernel_us": 6, "host_us": 20},
    "device_bound": {"kernel_us": 60, "host_us": 8},
    "balanced": {"kernel_us": 20, "host_us": 12},
}


def _flow(ph: str, tid: int, ts: int, number: int = 1) -> Event:
    return {"ph": ph, "cat": "fwdbwd", "name": "fwdbwd", "id": number, "pid": 1, "tid": tid, "ts": ts}


_DEVICE = [_call("cudaLaunchKernel", 1, 2, 99), _work(3, 4, 99)]
"""Work on a device, without which there is no critical path."""


def test_path_enters_the_autograd_thread_and_returns(ask: Ask) -> None:
    answer = ask(
        "critical_path",
        [
            *_DEVICE,
            _slice("aten::mm", 0, 20),
            _flow("s", 1, 0),
            _slice("autograd::engine::evaluate_function: MmBackward0", 30, 80, tid=2),
            _slice("MmBackward0", 35, 70, tid=2),
            _flow("f", 2, 30),
            _slice("aten::add_", 90, 100),
        ],
    )
    assert _edges(answer)[-6:] == [
        ("handover", None, 20, 30, 0),
        ("host", "autograd::engine::evaluate_function: MmBackward0", 30, 35, 5),
        ("host", "MmBackward0", 35, 70, 35),
        ("host", "autograd::engine::evaluate_function: MmBackward0", 70, 80, 10),
        ("handover", None, 80, 90, 0),
        ("host", "aten::add_", 90, 100, 10),
    ]
    assert [row["thread"] for row in answer["path"]][-6:] == [2, 2, 2, 2, 1, 1]
    assert answer["total"][0]["length_ns"] == 80_000


def test_calling_slice_counts_before_and_after_the_autograd_thread(ask: Ask) -> None:
    events = [*_DEVICE, _slice("backward", 0, 100), _slice("MmBackward0", 30, 80, tid=2), _slice("aten::mm", 0, 1)]
    answer = ask("critical_path", events)
    assert [edge for edge in _edges(answer) if edge[0] == "handover" or edge[1] == "MmBackward0"] == [
        ("handover", "backward", 2, 30, 28),
        ("host", "MmBackward0", 30, 80, 50),
        ("handover", "backward", 80, 100, 20),
    ]
    assert answer["total"][0]["length_ns"] == 100_000


def test_operator_names_identify_the_autograd_thread_without_flows(ask: Ask) -> None:
    events = [*_DEVICE, _slice("aten::mm", 0, 20), _slice("MmBackward0", 30, 80, tid=2), _slice("aten::add_", 90, 99)]
    assert ask("critical_path", events)["total"][0]["length_ns"] == 79_000
    other_process = [{**event, "pid": 3} if event["tid"] == 2 else event for event in events]
    assert ask("critical_path", other_process)["total"][0]["length_ns"] == 50_000


def test_operators_with_a_forward_thread_identify_the_autograd_thread(ask: Ask) -> None:
    answer: dict[str, Any] = {"Sequence number": 3, "Fwd thread id": 0}
    events = [
        *_DEVICE,
        _slice("aten::mm", 0, 20, **answer),
        _slice("aten::mul", 30, 80, tid=2, **{**answer, "Fwd thread id": 1}),
        _slice("aten::add_", 90, 99),
    ]
    assert ask("critical_path", events)["total"][0]["length_ns"] == 79_000


def test_recomputed_forward_pass_does_not_hide_the_caller(ask: Ask) -> None:
    """With activation checkpointing, most flows lead from the autograd thread to itself."""
    events = [
        *_DEVICE,
        _slice("aten::mm", 0, 20),
        *(_slice("aten::mul", 30 + 2 * place, 31 + 2 * place, tid=2) for place in range(4)),
        _slice("MulBackward0", 40, 80, tid=2),
        _slice("aten::add_", 90, 99),
        *(_flow(ph, 2, at, 2 + place) for place in range(4) for ph, at in (("s", 30 + 2 * place), ("f", 40))),
    ]
    for linked in ([], [_flow("s", 1, 0), _flow("f", 2, 40)]):
        assert ask("critical_path", [*events, *linked])["total"][0]["length_ns"] == (20 + 4 + 40 + 9) * 1000


def test_nested_backward_pass_belongs_to_the_first_caller(ask: Ask) -> None:
    events = [
        *_DEVICE,
        _slice("aten::mm", 0, 20),
        _slice("CheckpointBackward", 30, 40, tid=2),
        _slice("MulBackward0", 50, 80, tid=3),
        _slice("aten::add_", 90, 99),
        *(_flow(ph, tid, at, 1) for ph, tid, at in (("s", 1, 0), ("f", 2, 30))),
        *(_flow(ph, tid, at, number) for number in (2, 3) for ph, tid, at in (("s", 2, 31), ("f", 3, 50))),
    ]
    answer = ask("critical_path", events)
    assert [(row["kind"], row["thread"]) for row in answer["path"]][-3:] == [
        ("host", 3),
        ("handover", 1),
        ("host", 1),
    ]


def test_concurrent_threads_have_separate_paths(ask: Ask) -> None:
    events = [*_DEVICE, _slice("aten::mm", 0, 20), _slice("aten::add", 30, 80, tid=2), _slice("aten::mul", 90, 99)]
    assert ask("critical_path", events)["total"][0]["length_ns"] == 50_000


def test_autograd_thread_returns_only_at_rest(ask: Ask) -> None:
    events = [*_DEVICE, _slice("aten::mm", 0, 20), _slice("MmBackward0", 30, 95, tid=2), _slice("aten::add_", 90, 120)]
    edges = _edges(ask("critical_path", events))
    assert [edge[0] for edge in edges].count("handover") == 1
    assert edges[-1] == ("host", "MmBackward0", 30, 95, 65)


def test_launching_call_counts_while_work_waits_for_its_stream(ask: Ask) -> None:
    events = [
        _call("cudaLaunchKernel", 0, 10, 1),
        _call("cudaLaunchKernel", 20, 40, 2),
        _work(12, 30, 1),
        _work(60, 70, 2),
    ]
    answer = ask("critical_path", events)
    assert _edges(answer) == [
        ("launch", "cudaLaunchKernel", 0, 10, 10),
        ("delay", "kernel", 10, 12, 2),
        ("compute", "kernel", 12, 30, 18),
        ("queue", "kernel", 30, 60, 30),
        ("compute", "kernel", 60, 70, 10),
    ]


def test_stream_waits_for_the_last_recorded_event_without_sync_events(ask: Ask) -> None:
    events = [
        _call("cudaLaunchKernel", 0, 1, 1),
        _call("cudaEventRecord", 2, 3, 11),
        _call("cudaStreamWaitEvent", 4, 5, 12),
        _call("cudaLaunchKernel", 6, 7, 2),
        _work(10, 90, 1, stream=7),
        _work(95, 99, 2, stream=8),
    ]
    assert ("event", "kernel", 90, 95, 5) in _edges(ask("critical_path", events))
    for left_out in (1, 2):  # a wait without an event has no edge, and neither has an event without a wait
        answer = ask("critical_path", [*events[:left_out], *events[left_out + 1 :]])
        assert not any(edge[0] == "event" for edge in _edges(answer))
    elsewhere = [{**event, "tid": 3} if event["name"] == "cudaEventRecord" else event for event in events]
    assert not any(edge[0] == "event" for edge in _edges(ask("critical_path", elsewhere)))


@pytest.mark.parametrize("shape", SHAPES)
def test_path_of_generated_steps_uses_all_threads_and_streams(shape: str, ask: Ask) -> None:
    events = Training(**SHAPES[shape]).events
    answer = ask("critical_path", events)
    _check(answer)
    kinds = {row["kind"] for row in answer["summary"]}
    if shape == "host_bound":
        assert {row["thread"] for row in answer["path"]} >= {MAIN, ENGINE}
        assert "handover" in kinds
        assert answer["total"][0]["length_ns"] == ask("critical_path", on_one_thread(events))["total"][0]["length_ns"]
    else:
        assert {row["stream"] for row in answer["path"]} >= {7, 20, 24}
        assert {"event", "queue", "communication", "return"} <= kinds
        inferred = ask("critical_path", without_sync_events(events))["total"][0]["length_ns"]
        assert inferred == answer["total"][0]["length_ns"]


@needs_shared
@pytest.mark.parametrize("step", A100_ON_ONE_THREAD)
def test_path_of_a_real_step_includes_its_backward_pass(step: int, ask: Ask) -> None:
    answer = ask("critical_path", real("a100_nccl_3_steps"), selection=Selection(steps=(step,)), edges=1_000_000)
    _check(answer)
    length = answer["total"][0]["length_ns"]
    assert length == pytest.approx(A100_ON_ONE_THREAD[step], rel=0.03)
    assert length == pytest.approx(A100_ON_ONE_THREAD_NS[step], rel=0.03)
    assert length > 1.8 * A100_AS_IT_IS[step]
    backward = sum(row["length_ns"] for row in answer["path"] if row["thread"] == 2919752)
    assert 80_000_000 < backward < 95_000_000
    if step == 5:
        assert length == pytest.approx(188_900_000, rel=0.03)  # HTA's figure


class TestHta:
    """Comparison with HTA, run on the same traces."""

    pytestmark = needs_hta

    @pytest.mark.parametrize("shape", SHAPES)
    def test_paths_of_generated_steps_are_as_long_as_in_hta(self, shape: str, ask: Ask, tmp_path: Path) -> None:
        events = Training(**SHAPES[shape]).events
        for place, variant in enumerate((events, on_one_thread(events), without_sync_events(events))):
            steps = _hta(variant, tmp_path / f"{place}.json")
            assert [row["worked"] for row in steps] == [True, True]
            for number, step in enumerate(steps):
                answer = ask("critical_path", variant, selection=Selection(steps=(number,)))
                assert answer["total"][0]["length_ns"] == pytest.approx(1000 * step["length_us"], rel=0.03)

    def test_hta_does_not_cross_host_threads(self, ask: Ask, tmp_path: Path) -> None:
        """HTA's path covers only the longest thread, unless work connects the threads."""
        events = [
            _slice("ProfilerStep#0", 0, 400, "user_annotation"),
            *_DEVICE,
            _slice("aten::mm", 10, 110),
            _slice("MmBackward0", 120, 300, tid=2),
            _slice("aten::add_", 310, 340),
        ]
        on_one = [{**event, "tid": 1} if event["tid"] == 2 else event for event in events]
        answer = ask("critical_path", events, selection=Selection(steps=(0,)))
        assert answer["total"][0]["length_ns"] == (1 + 100 + 180 + 30) * 1000
        assert _hta(events, tmp_path / "0.json")[0]["length_us"] == 180
        assert _hta(on_one, tmp_path / "1.json")[0]["length_us"] == 1 + 100 + 180 + 30

    def test_hta_counts_no_time_of_a_copy_that_waits_for_nothing(self, ask: Ask, tmp_path: Path) -> None:
        events = [
            _slice("ProfilerStep#0", 0, 100, "user_annotation"),
            _slice("aten::copy_", 10, 90),
            _call("cudaMemcpyAsync", 20, 60, 1),
            {**_work(70, 72, 1), "cat": "gpu_memcpy"},
        ]
        to_the_copys_end, on_the_host = 10 + 50 + 2, 10 + 0 + 30
        assert _hta(events, tmp_path / "trace.json")[0]["length_us"] == max(to_the_copys_end, on_the_host)
        assert ask("critical_path", events)["total"][0]["length_ns"] == 80_000

    @needs_shared
    def test_real_trace_has_known_figures(self, tmp_path: Path) -> None:
        import gzip  # noqa: PLC0415 - only this test needs it

        events = json.loads(gzip.decompress(real("a100_nccl_3_steps").read_bytes()))["traceEvents"]
        for expected, tid in ((A100_AS_IT_IS, 2919752), (A100_ON_ONE_THREAD, 2910249)):
            rethreaded = [{**event, "tid": tid} if event.get("tid") == 2919752 else event for event in events]
            rows = _hta(rethreaded, tmp_path / "trace.json")
            assert {int(row["step"].partition("#")[2]): 1000 * row["length_us"] for row in rows} == expected
            assert all(row["tids"] == [2910249] for row in rows)


def _hta(events: list[Event], trace: Path) -> list[dict[str, Any]]:
    trace.write_text(json.dumps({"traceEvents": events}))
    answer = subprocess.run(
        [PYTHON, ROOT / "tests/data/ask_hta_path.py", trace], check=True, capture_output=True, timeout=120
    )
    answers: list[dict[str, Any]] = json.loads(answer.stdout)
    return answers


_TURNS = st.builds(
    lambda tid, start, lasting: _slice("aten::mm" if tid == 1 else "MmBackward0", start, start + lasting, tid=tid),
    *(st.integers(1, 2), st.integers(0, 24), st.integers(0, 8)),
)


@given(host=st.lists(_TURNS, min_size=1, max_size=12))
@settings(max_examples=scaled(40))
def test_path_of_alternating_threads_is_the_longest(ask: Ask, host: list[Event]) -> None:
    """A flow identifies the autograd thread and its caller; the work has no duration."""
    far = [_slice("aten::mm", -30, -29), _slice("MmBackward0", -28, -27, tid=2)]
    linked = [_flow("s", 1, -30), _flow("f", 2, -28), _work(-40, -40, 5)]
    answer = ask("critical_path", [*far, *host, *linked])
    _check(answer)
    assert answer["total"][0]["length_ns"] == 1000 * _longest([*far, *host])


def _longest(host: list[Event]) -> int:
    """Return the length of the longest path through thread 1, the caller, and thread 2, the autograd thread."""
    host = sorted(host, key=lambda event: (event["ts"], -event["dur"]))
    edges: dict[Point, list[tuple[Point, int]]] = defaultdict(list)
    stacks: dict[int, list[int]] = {1: [], 2: []}
    latest: dict[int, tuple[Point, int] | None] = {1: None, 2: None}
    called_from: Point | None = None

    def reach(thread: int, point: Point, at: int) -> None:
        nonlocal called_from
        own, caller = latest[thread], latest[3 - thread]
        counts = bool(stacks[thread])
        acted = caller is not None and (own is None or caller[1] > own[1]) and caller[1] <= at
        if thread == 1 and acted and caller and not stacks[2] and (not counts or (own and called_from == own[0])):
            edges[point].append((caller[0], (at - caller[1]) * counts))
            own = None if counts else own  # the thread waited
        if thread == 2 and acted and caller and not counts:
            called_from = caller[0]
            edges[point].append((caller[0], (at - caller[1]) * bool(stacks[1])))
        if own is not None:
            edges[point].append((own[0], (at - own[1]) * counts))
        latest[thread] = (point, at)

    def close(until: int) -> None:
        for thread in (2, 1):
            while stacks[thread] and _end(host[stacks[thread][-1]]) <= until:
                index = stacks[thread][-1]
                reach(thread, ("end", index), _end(host[index]))
                stacks[thread].pop()

    for index in _nesting(host):
        close(host[index]["ts"])
        reach(host[index]["tid"], ("start", index), host[index]["ts"])
        stacks[host[index]["tid"]].append(index)
    close(1 << 40)

    @cache
    def length(point: Point) -> int:
        return max((length(source) + weight for source, weight in edges[point]), default=0)

    return max(length(point) for point in list(edges))

"""Operators, compared with torch's key_averages and TensorBoard's Operator view."""

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trace.errors import NotApplicable
from tests.analysis.conftest import Ask, golden, real
from tests.brute import Document
from tests.conftest import DATA, SHARED, needs_shared, scaled

TORCH = ["plain", "sched_stack_modules", "shapes_mem_flops", "threads"]
TENSORBOARD = {
    "v100_resnet50_2021": real("v100_resnet50_2021"),
    "v100_ddp_epoch_us": real("v100_ddp_epoch_us"),
    "h100_timesformer": real("h100_timesformer"),
    "dlrm_rank0": SHARED / "dlrm_8_ranks/worker0_step_12.1694128201545.pt.trace.json.gz",
}
CAPTURES = ["cuda_train_steps", "cuda_stack_memory", "cuda_graph_replays", "cuda_nccl_rank0_of_1"]
FIGURES = {
    "host_self_ns": "self_cpu", "host_total_ns": "cpu_total",
    "device_self_ns": "self_device", "device_total_ns": "device_total",
    "host_memory_self_bytes": "self_cpu_mem", "host_memory_total_bytes": "cpu_mem",
    "device_memory_self_bytes": "self_device_mem", "device_memory_total_bytes": "device_mem",
}  # fmt: skip
NCCL_ANNOTATIONS = {"nccl:all_reduce", "nccl:all_gather", "nccl:all_reduce_barrier"}
GOLDEN_US = {
    "host_self_ns": "host_self_duration", "host_total_ns": "host_total_duration",
    "device_self_ns": "device_self_duration", "device_total_ns": "device_total_duration",
}  # fmt: skip

Event = dict[str, Any]


@needs_shared
@pytest.mark.parametrize("group_by", ["name", "shapes"])
@pytest.mark.parametrize("name", TORCH)
def test_operators_equal_torch_key_averages(name: str, group_by: str, ask: Ask) -> None:
    answer = golden("key_averages", name)
    expected = answer.get("by_name" if group_by == "name" else "by_shape")
    if expected is None:
        pytest.skip("there is no result of torch for it")
    rows = ask("operators", SHARED / f"torch213_cpu/{name}.pt.trace.json", group_by=group_by)
    assert Counter(
        (
            *(row["name"], row["shapes"] or "", row["kind"] == "annotation", row["calls"], row["host_self_ns"]),
            *(row["host_total_ns"], row["host_memory_self_bytes"], row["host_memory_total_bytes"]),
        )
        for row in rows["operators"]
    ) == Counter(
        (
            *(row["key"], row["input_shapes"], row["is_user_annotation"], row["count"], round(row["self_cpu"] * 1000)),
            *(round(row["cpu_total"] * 1000), row["self_cpu_mem"], row["cpu_mem"]),
        )
        for row in expected
    )
    if "total" in answer:
        [totals] = rows["totals"]
        assert totals["host_ns"] == round(answer["total"]["self_cpu_time_total"] * 1000)
        assert totals["calls"] == answer["total"]["n_events"]


@pytest.mark.parametrize("name", CAPTURES)
def test_operators_on_a_gpu_equal_torch_key_averages(name: str, ask: Ask) -> None:
    listed = json.loads(gzip.decompress((DATA / f"figures/{name}.key_averages.json.gz").read_bytes()))
    expected = {row["key"]: row for row in listed if not row["is_of_a_device"]}
    rows = {row["name"]: row for row in ask("operators", DATA / f"{name}.pt.trace.json.gz")["operators"]}

    assert {name for name, row in rows.items() if row["kind"] != "python"} == expected.keys()
    different = {
        (key, ours)
        for key, row in expected.items()
        for ours, theirs in FIGURES.items()
        if rows[key][ours] != round(row[theirs] * (1000 if ours.endswith("_ns") else 1))
    }
    assert all(rows[key]["calls"] == row["count"] for key, row in expected.items())
    assert different <= _known_differences(name, rows)


def _known_differences(name: str, rows: dict[str, dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the names and figures for which torch 2.11 knows less than the trace says, or more."""
    if name == "cuda_stack_memory":  # it leaves out Python functions, which lie between annotations and operators
        annotations = [key for key, row in rows.items() if row["kind"] == "annotation"]
        return {(key, ours) for key in annotations for ours in FIGURES if "self" in ours}
    if name == "cuda_graph_replays":  # it links no call to the kernels of a graph
        launches = {("cudaGraphLaunch", "device_self_ns"), ("cudaGraphLaunch", "device_total_ns")}
        return launches | {("ProfilerStep*", "device_total_ns")}
    if name == "cuda_nccl_rank0_of_1":  # it knows which annotations end on another thread, and does not nest these
        around = {("record_param_comms", "host_self_ns"), ("## backward ##", "host_self_ns")}
        return around | {(key, ours) for key in NCCL_ANNOTATIONS for ours in ("host_self_ns", "device_total_ns")}
    return set()


def test_kernels_of_a_replayed_graph_belong_to_its_launch(ask: Ask) -> None:
    path = DATA / "cuda_graph_replays.pt.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    launches = {event["args"]["correlation"] for event in events if event["name"] == "cudaGraphLaunch"}
    kernels = [event for event in events if event.get("cat") == "kernel"]
    replayed = sum(int(event["dur"] * 1000) for event in kernels if event["args"]["correlation"] in launches)

    [row] = [row for row in ask("operators", path)["operators"] if row["name"] == "cudaGraphLaunch"]

    assert len(launches) == row["calls"] == 9
    assert row["device_self_ns"] == row["device_total_ns"] == replayed > 0


@needs_shared
@pytest.mark.parametrize("name", TENSORBOARD)
def test_operators_equal_tensorboards_operator_view(name: str, ask: Ask) -> None:
    answer = golden("tensorboard", name)
    for group_by, key in (("name", "operators"), ("shapes", "operators_by_input")):
        if answer[key] is None:
            continue
        rows = ask("operators", TENSORBOARD[name], nesting="tensorboard", group_by=group_by)["operators"]
        by_key = {(row["name"], row["shapes"]): row for row in rows}
        assert len(by_key) == len(rows) == len(answer[key])
        for expected in answer[key]:
            row = by_key[expected["name"], expected.get("input_shape")]
            assert row["calls"] == expected["calls"]
            assert row["tensor_cores_eligible"] == expected["tc_eligible"].lower()
            for ours, theirs in GOLDEN_US.items():
                assert row[ours] / 1000 == pytest.approx(expected[theirs], abs=0.5)
            for kind in ("self", "total"):
                share = 100 * row[f"tensor_cores_{kind}_ns"] / max(row[f"device_{kind}_ns"], 1)
                assert share == pytest.approx(expected[f"tc_{kind}_ratio"], abs=0.0051)


def _slice(name: str, start: int, end: int, **more: Any) -> Event:
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start,
        "args": {}, **more,
    }  # fmt: skip


def test_self_time_excludes_children_and_an_only_child_of_the_same_name_is_no_call(ask: Ask) -> None:
    events = [
        _slice("a", 0, 10, args={"External id": 5}),
        _slice("a", 1, 9),
        _slice("b", 2, 4, args={"External id": 7}),
        _slice("kernel", 20, 26, cat="kernel", pid=0, args={"External id": 7}),
        _slice("s1688gemm kernel", 30, 31, cat="kernel", pid=0, args={"External id": 5}),
        _slice("another", 40, 41, cat="kernel", pid=0),
    ]
    answer = ask("operators", events)
    a, b = (next(row for row in answer["operators"] if row["name"] == name) for name in "ab")
    assert (a["calls"], a["host_self_ns"], a["host_total_ns"]) == (1, 8_000, 10_000)
    assert (a["device_self_ns"], a["device_total_ns"], a["tensor_cores_total_ns"]) == (1_000, 7_000, 1_000)
    assert (b["calls"], b["host_self_ns"], b["device_self_ns"]) == (1, 2_000, 6_000)
    assert [row["tensor_cores_unknown_self_ns"] for row in (a, b)] == [0, 6_000]
    assert [row["tensor_cores_unknown_total_ns"] for row in (a, b)] == [6_000, 6_000]
    assert answer["totals"] == [
        {"rank": None, "calls": 2, "host_ns": 10_000, "device_ns": 8_000, "unattributed_ns": 1_000}
    ]


def test_overlapping_slice_is_a_sibling_for_torch_and_ignored_by_tensorboard(ask: Ask) -> None:
    events = [_slice("a", 0, 10), _slice("b", 5, 15), _slice("c", 6, 8)]
    own = {row["name"]: row["host_self_ns"] for row in ask("operators", events)["operators"]}
    assert own == {"a": 10_000, "b": 8_000, "c": 2_000}
    own = {row["name"]: row["host_self_ns"] for row in ask("operators", events, nesting="tensorboard")["operators"]}
    assert own == {"a": 8_000, "c": 2_000}


def test_tensorboard_nesting_keeps_its_rounding_of_epoch_times(ask: Ask) -> None:
    """Doubles of epoch µs are 250 ns apart, so a slice ends after its parent and is left out."""
    # Kineto writes one decimal of these times: …689.8 and …690.2
    events = [_slice("a", 0, 0), _slice("b", 0, 0)]
    events[0] |= {"ts": 1712195495519689.75, "dur": 10.07}
    events[1] |= {"ts": 1712195495519690.25, "dur": 9.66}
    exact = {row["name"]: row["host_self_ns"] for row in ask("operators", events)["operators"]}
    assert exact == {"a": 410, "b": 9_660}
    theirs = {row["name"]: row["host_self_ns"] for row in ask("operators", events, nesting="tensorboard")["operators"]}
    assert theirs == {"a": 10_000}


def test_tensorboard_self_time_excludes_runtime_calls(ask: Ask) -> None:
    events = [
        _slice("a", 0, 10, args={"External id": 5}),
        _slice("cudaLaunchKernel", 1, 4, cat="cuda_runtime", args={"External id": 5, "correlation": 8}),
        _slice("cuLaunchKernel", 5, 6, cat="cuda_driver", args={"External id": 5, "correlation": 9}),
        _slice("kernel", 20, 26, cat="kernel", pid=0, args={"External id": 5, "correlation": 8}),
        _slice("kernel", 30, 31, cat="kernel", pid=0, args={"External id": 5, "correlation": 9}),
    ]
    [row] = ask("operators", events, nesting="tensorboard")["operators"]
    assert (row["host_self_ns"], row["device_self_ns"]) == (7_000, 6_000)
    row = ask("operators", events)["operators"][0]
    assert (row["host_self_ns"], row["device_self_ns"]) == (6_000, 7_000)


def test_work_without_an_external_id_counts_for_the_operator_of_its_launch(ask: Ask) -> None:
    events = [
        _slice("a", 0, 10, args={"External id": 5}),
        _slice("hipLaunchKernel", 1, 4, cat="cuda_runtime", args={"External id": 5, "correlation": 8}),
        _slice("kernel", 20, 26, cat="kernel", pid=0, args={"correlation": 8}),
        _slice("kernel", 30, 31, cat="kernel", pid=0, args={"correlation": 9}),
    ]
    for nesting in ("torch", "tensorboard"):
        answer = ask("operators", events, nesting=nesting)
        assert answer["operators"][0]["device_self_ns"] == 6_000
        assert answer["totals"][0]["unattributed_ns"] == 1_000


def test_shapes_are_grouped_for_any_spelling(ask: Ask) -> None:
    events = [
        _slice("a", 0, 1, args={"Input Dims": [[2, 3], []], "Input type": ["float", ""]}),
        _slice("a", 1, 2, args={"Input dims": [[2, 3], []]}),
        _slice("a", 2, 3, args={"Input Dims": [[[1], [4, -1]]]}),
        _slice("a", 3, 4, args={"Input Dims": "none"}),
    ]
    rows = ask("operators", events, group_by="shapes")["operators"]
    assert {row["shapes"]: row["calls"] for row in rows} == {"[[2, 3], []]": 2, "[[[1], [4, -1]]]": 1, "[]": 1}


def test_steps_are_one_row_and_names_that_torch_leaves_out_have_none(ask: Ask) -> None:
    events = [
        *(_slice(f"ProfilerStep#{number}", number * 10, number * 10 + 9, cat="user_annotation") for number in range(3)),
        _slice("profiler::_record_function_exit", 2, 3),
        _slice("aten::mm", 4, 5),
        _slice("aten::mm", 6, 7, cat="user_annotation"),
    ]
    rows = ask("operators", events)["operators"]
    assert {(row["name"], row["kind"]): row["calls"] for row in rows} == {
        ("ProfilerStep*", "annotation"): 3, ("aten::mm", "op"): 1, ("aten::mm", "annotation"): 1,
    }  # fmt: skip


@needs_shared
def test_rows_are_ordered_by_device_time_then_host_time(ask: Ask) -> None:
    rows = ask("operators", real("v100_resnet50_2021"))["operators"]
    costs = [(-row["device_self_ns"], -row["host_self_ns"]) for row in rows]
    assert costs == sorted(costs)


def test_trace_without_operators_has_a_reason(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="has no operators"):
        ask("operators", [_slice("kernel", 0, 1, cat="kernel")])
    with pytest.raises(NotApplicable, match="has no operators"):
        ask("operators", [{"ph": "X", "cat": "cpu_op", "name": "that has no time"}])


@pytest.mark.parametrize("nesting", ["torch", "tensorboard"])
def test_odd_values_yield_an_answer(nesting: str, ask: Ask) -> None:
    events = [
        _slice("a", 0, -5, args={"External id": "x"}),
        _slice("a", 1 << 53, (1 << 53) + 1, tid="worker"),
        {"ph": "X", "cat": "cpu_op", "name": "b", "ts": 3, "args": [1]},
        {"ph": "X", "cat": "cpu_op", "ts": 4, "dur": 0, "pid": None, "tid": None, "args": None},
        _slice("n", 5, 6, args={"Input Dims": None, "External id": -4}),
        _slice("k", 5, 6, cat="kernel", args={"External id": -4, "correlation": "x"}),
        {"ph": "i", "name": "[memory]", "ts": 1, "args": {"Bytes": "x", "Device Type": 1}},
        {"ph": "i", "name": "[memory]", "ts": 1, "args": {"Bytes": 1 << 62, "Device Type": 0}},
        {"ph": "i", "name": "[memory]", "ts": 2},
    ]
    rows = ask("operators", events, nesting=nesting, group_by="shapes")["operators"]
    assert sum(row["calls"] for row in rows if row["kind"] == "op") == 4  # the event at 2^53 µs has no time
    assert all(row["host_self_ns"] >= 0 for row in rows)


def test_overflowing_times_have_a_reason(ask: Ask) -> None:
    events = [_slice(f"a{number}", number, number + 900_000_000_000_000) for number in range(20)]
    with pytest.raises(NotApplicable, match="64 bits"):
        ask("operators", events)


def _linked(cat: str, number: int) -> Event:
    return {"correlation" if cat == "cuda_runtime" else "External id": number} if number else {}


_NAMES = st.sampled_from(["a", "b", "c"])
_HOST = st.builds(
    lambda name, cat, tid, start, lasting, number: _slice(
        name, start, start + lasting, cat=cat, tid=tid, args=_linked(cat, number)
    ),
    _NAMES, st.sampled_from(["cpu_op", "cpu_op", "user_annotation", "cuda_runtime"]), st.integers(1, 2),
    st.integers(0, 12), st.integers(0, 8), st.integers(0, 4),
)  # fmt: skip
_WORK = st.builds(
    lambda start, lasting, number, id_: _slice(
        "kernel", start, start + lasting, cat="kernel", pid=0, args={"correlation": number, "External id": id_}
    ),
    st.integers(0, 20), st.integers(0, 8), st.integers(0, 5), st.integers(0, 5),
)  # fmt: skip
_MEMORY = st.builds(
    lambda at, size, kind: {
        "ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "args": {"Bytes": size, "Device Type": kind},
    },
    st.integers(0, 25), st.integers(-9, 9), st.integers(0, 1),
)  # fmt: skip


@given(
    host=st.lists(_HOST, min_size=1, max_size=12),
    work=st.lists(_WORK, max_size=4),
    memory=st.lists(_MEMORY, max_size=5),
)
@settings(max_examples=scaled(30))
def test_operators_follow_the_definition(ask: Ask, host: list[Event], work: list[Event], memory: list[Event]) -> None:
    host = [_slice("first", 0, 1, tid=9), *host]
    rows = ask("operators", [*host, *work, *memory])["operators"]
    assert {(row["name"], row["kind"] == "annotation"): _numbers(row) for row in rows} == _oracle(host, work, memory)


def _numbers(row: Event) -> tuple[int, ...]:
    return (
        *(row["calls"], row["host_self_ns"], row["host_total_ns"], row["device_self_ns"], row["device_total_ns"]),
        *(row["host_memory_self_bytes"], row["host_memory_total_bytes"]),
        *(row["device_memory_self_bytes"], row["device_memory_total_bytes"]),
    )


class _Node:
    def __init__(self, event: Event) -> None:
        self.name, self.start, self.end = event["name"], event["ts"], event["ts"] + event["dur"]
        self.annotation = event["cat"] == "user_annotation"
        self.children: list[_Node] = []
        self.device = 0
        self.memory = [0, 0]

    def device_total(self) -> int:
        return self.device + sum(child.device_total() for child in self.children)


def _nested(host: list[Event], of_events: dict[int, _Node]) -> list[_Node]:
    """Return all nodes in order of time, with their children, and add each to `of_events` under its event's index."""
    stacks: dict[int, list[_Node]] = defaultdict(list)
    nodes = []
    for place, event in sorted(enumerate(host), key=lambda item: (item[1]["ts"], -item[1]["dur"])):
        node, stack = _Node(event), stacks[event["tid"]]
        of_events[place] = node
        while stack and (node.start >= stack[-1].end or node.end > stack[-1].end):
            stack.pop()
        if stack:
            stack[-1].children.append(node)
        stack.append(node)
        nodes.append(node)
    return nodes


def _merged(nodes: list[_Node]) -> list[_Node]:
    """Merge each only child that has its parent's name, and return the nodes that are left."""
    for node in nodes:
        if len(node.children) == 1 and node.children[0].name == node.name:
            [child] = node.children
            node.device += child.device
            node.children = child.children
            return _merged([item for item in nodes if item is not child])
    return nodes


def _oracle(host: list[Event], work: list[Event], memory: list[Event]) -> dict[tuple[str, bool], tuple[int, ...]]:
    document = Document(json.dumps([*host, *work]))
    of_events: dict[int, _Node] = {}
    nodes = _nested(host, of_events)
    for piece in document.attributed.work:
        owner = document.attributed.operator(piece) or document.attributed.launch(piece)
        if owner:
            of_events[owner.index].device += piece.lasts // 1000
    lonely = []
    for event in memory:
        inside = [node for node in nodes if node.start <= event["ts"] <= node.end]
        for node in inside:
            node.memory[event["args"]["Device Type"]] += event["args"]["Bytes"]
        if not inside:
            lonely.append(event)
    rows: dict[tuple[str, bool], list[int]] = defaultdict(lambda: [0] * 9)
    for node in _merged(nodes):
        lasting = (node.end - node.start) * 1000
        values = [
            *(1, lasting - sum(child.end - child.start for child in node.children) * 1000, lasting),
            *(node.device * 1000, node.device_total() * 1000),
            *(node.memory[0] - sum(child.memory[0] for child in node.children), node.memory[0]),
            *(node.memory[1] - sum(child.memory[1] for child in node.children), node.memory[1]),
        ]
        key = (node.name, node.annotation)
        rows[key] = [old + new for old, new in zip(rows[key], values, strict=True)]
    if lonely:
        sizes = [sum(e["args"]["Bytes"] for e in lonely if e["args"]["Device Type"] == kind) for kind in (0, 1)]
        rows["[memory]", False] = [len(lonely), 0, 0, 0, 0, sizes[0], sizes[0], sizes[1], sizes[1]]
    return {key: tuple(values) for key, values in rows.items()}


def _launches(external: dict[str, int]) -> list[Event]:
    """Return ten operators, each with a nested one that launches a kernel.

    `external` has the factor and offset of the kernels' External ids; they have none if it is empty.
    """
    events = []
    for number in range(1, 11):
        at, ids = number * 20, {"correlation": 100 + number}
        ids |= {"External id": external["factor"] * number + external["offset"]} if external else {}
        events += [
            _slice(f"aten::outer{number % 3}", at, at + 18, args={"External id": 2 * number - 1}),
            _slice(f"aten::inner{number % 2}", at + 1, at + 9, args={"External id": 2 * number}),
            _slice("cudaLaunchKernel", at + 2, at + 4, cat="cuda_runtime", args=ids),
            _slice("volta_sgemm_nt", at + 6, at + 6 + number, cat="kernel", pid=0, tid=7, args=ids),
        ]
    return events


def test_operators_do_not_depend_on_external_ids_or_unique_correlations(ask: Ask) -> None:
    kinds: dict[str, dict[str, int]] = {
        "right": {"factor": 2, "offset": 0},
        "missing": {},
        "equal to correlations": {"factor": 1, "offset": 100},
        "colliding": {"factor": 1, "offset": 0},
    }
    result = {kind: ask("operators", _launches(external)) for kind, external in kinds.items()}

    assert sum(row["device_self_ns"] for row in result["right"]["operators"] if "inner" in row["name"]) == 55_000
    assert all(answer == result["right"] for answer in result.values())

"""Memory, compared with TensorBoard's memory view and with a plain loop over the changes."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.analysis.memory import notes
from service.trace.errors import NotApplicable
from service.trace.selection import Selection
from tests.analysis.conftest import Ask, golden, real
from tests.conftest import needs_shared, scaled

CAPTURED = Path(__file__).parent.parent / "data/cpu_stack_memory.pt.trace.json.gz"
Event = dict[str, Any]


@needs_shared
@pytest.mark.parametrize("name", ["h100_timesformer", "v100_resnet50_2021"])
def test_memory_equals_tensorboards_memory_view(name: str, ask: Ask) -> None:
    answer = golden("tensorboard", name)
    rows = ask("memory", real(name))["operators"]
    for device, expected in answer["memory_stats_KB"]["rows"].items():
        # TensorBoard has no rows for annotations; in 2021, annotations had the category of operators
        ours = {
            row["operator"]: row
            for row in rows
            if (row["device_type"] == "CPU") == (device == "CPU")
            and row["kind"] == "op"
            and not row["operator"].startswith(("Optimizer.", "ProfilerStep*", "enumerate(DataLoader)#"))
        }
        assert ours.keys() == {row[0] for row in expected}
        for operator, calls, *numbers in expected:
            row = ours[operator]
            assert row["calls"] == calls
            assert [
                *(row["increase_total_bytes"] / 1024, row["increase_self_bytes"] / 1024, row["allocations_total"]),
                *(row["allocations_self"], row["allocated_total_bytes"] / 1024, row["allocated_self_bytes"] / 1024),
            ] == pytest.approx(numbers, abs=0.0051)


@needs_shared
def test_peaks_and_blocks_equal_tensorboard(ask: Ask) -> None:
    result = golden("tensorboard", "h100_timesformer")
    answer = ask("memory", real("h100_timesformer"))
    names = {"CPU": "0", "CUDA": "1"}
    peaks = {f"{names[row['device_type']]}:{row['device']}": row["peak_bytes"] for row in answer["devices"]}
    assert peaks == result["memory_peak"]
    blocks = [("CPU" if row["device_type"] == "CPU" else f"GPU{row['device']}") for row in answer["blocks"]]
    assert {device: blocks.count(device) for device in blocks} == result["n_memory_events"]


@needs_shared
def test_trace_of_2021_has_growth_but_no_peak_and_no_blocks(ask: Ask) -> None:
    answer = ask("memory", real("v100_resnet50_2021"))
    assert not answer["blocks"]
    for row in answer["devices"]:
        assert row["peak_bytes"] is row["unfreed_bytes"] is None
        assert row["peak_growth_bytes"] > 0


def test_note_says_why_there_are_no_blocks(ask: Ask) -> None:
    for trace, is_noted in (([_change(1, 8, None)], True), ([_change(1, 8, 1)], False)):
        answer = ask("memory", trace)
        tables = {name: pa.Table.from_pylist(answer[name]) for name in ("devices", "categories")}
        assert bool(notes(tables)) == is_noted


def test_captured_trace_agrees_with_its_own_totals(ask: Ask) -> None:
    answer = ask("memory", CAPTURED, points=1_000_000)
    [device] = answer["devices"]
    curve = answer["curve"]
    assert len(curve) == device["allocations"] + device["frees"] > 10
    assert len({row["allocated_bytes"] - row["growth_bytes"] for row in curve}) == 1
    assert device["peak_bytes"] == max(row["allocated_bytes"] for row in curve)


def _op(name: str, start: int, end: int, **more: Any) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, **more}


def _change(at: int, size: object, address: object = 1, tid: object = 1, **more: Any) -> Event:
    args = {"Bytes": size, "Addr": address, "Device Type": 1, "Device Id": 0, **more}
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": tid, "ts": at, "args": args}


def test_change_counts_for_the_innermost_operator_and_those_around_it(ask: Ask) -> None:
    answer = ask(
        "memory",
        [
            _op("outer", 0, 100),
            _op("inner", 10, 50),
            _change(20, 64, 1),
            _change(50, 8, 2),  # inner has ended
            _change(60, -64, 1),
            _change(70, -5, 3),  # allocated before the trace
            _change(80, 1, 4, tid=2),
            _change(200, 2, 5),
        ],
    )
    rows = {row["operator"]: row for row in answer["operators"]}
    assert (rows["inner"]["increase_self_bytes"], rows["inner"]["allocations_total"]) == (64, 1)
    assert (rows["outer"]["increase_self_bytes"], rows["outer"]["increase_total_bytes"]) == (-61, 3)
    assert (rows["outer"]["allocated_self_bytes"], rows["outer"]["allocated_total_bytes"]) == (8, 72)
    [device] = answer["devices"]
    assert (device["peak_growth_bytes"], device["peak_growth_at_ns"]) == (72, 50_000)
    assert (device["unfreed_bytes"], device["unfreed_allocations"]) == (11, 3)
    assert (device["before_bytes"], device["before_frees"]) == (5, 1)
    assert [(row["operator"], row["caller"], row["held_bytes"]) for row in answer["at_peak"]] == [
        ("inner", "outer", 64), ("outer", None, 8), (None, None, 5),
    ]  # fmt: skip
    block = answer["blocks"][0]
    assert (block["allocated_at_ns"], block["freed_at_ns"], block["lasting_ns"]) == (20_000, 60_000, 40_000)


def test_reduced_curve_keeps_minima_and_maxima(ask: Ask) -> None:
    changes = [_change(at, 5 if at % 3 else -7, at) for at in range(2_000)]
    changes[777]["args"]["Bytes"] = 1_000_000
    changes[778]["args"]["Bytes"] = -1_000_000
    thin, full = (ask("memory", changes, points=points)["curve"] for points in (100, 1_000_000))
    assert len(thin) < 105 < len(full) == 2_000
    growths = [row["growth_bytes"] for row in thin]
    assert max(growths) == max(row["growth_bytes"] for row in full)
    assert min(growths) == min(row["growth_bytes"] for row in full)
    assert thin[-1] == full[-1]
    assert [row["at_ns"] for row in thin] == sorted(row["at_ns"] for row in thin)


def test_listed_blocks_are_the_largest(ask: Ask) -> None:
    changes = [_change(at, at + 1, at) for at in range(50)]
    assert [row["size_bytes"] for row in ask("memory", changes, top=3)["blocks"]] == [50, 49, 48]
    assert ask("memory", changes, top=0)["blocks"] == []


def test_odd_values_yield_an_answer(ask: Ask) -> None:
    events = [
        _change(0, "x"),
        _change(1, 5, None),
        _change(2, 5, 1, **{"Device Type": 99, "Device Id": "one"}),
        _change(3, 0, 1),
        {"ph": "i", "name": "[memory]", "ts": 4, "args": [1]},
        {"ph": "i", "name": "[memory]", "ts": 5},
        _change(6, -5, 1, **{"Total Allocated": 1 << 70, "Total Reserved": float("nan")}),
    ]
    answer = ask("memory", events)
    assert sum(row["allocated_bytes"] for row in answer["devices"]) == 10
    assert {row["device_type"] for row in answer["devices"]} >= {"CUDA", "99"}


def test_overflowing_sizes_have_a_reason(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="64 bits"):
        ask("memory", [_change(at, 1 << 62, at) for at in range(4)])


def test_trace_without_memory_has_a_reason(ask: Ask) -> None:
    with pytest.raises(NotApplicable, match="profile_memory"):
        ask("memory", [_op("a", 0, 1)])
    with pytest.raises(NotApplicable, match=r"No memory event is in this selection\."):
        ask("memory", CAPTURED, selection=Selection(categories=["cpu_op"]))


_OPS = st.builds(
    lambda name, tid, start, lasting: _op(name, start, start + lasting, tid=tid),
    st.sampled_from("abc"), st.integers(1, 2), st.integers(0, 20), st.integers(1, 10),
)  # fmt: skip
_CHANGES = st.builds(
    lambda at, size, address, tid, device: _change(at, size, address, tid, **{"Device Id": device}),
    *(st.integers(0, 32), st.integers(-9, 9), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1)),
)


@given(operators=st.lists(_OPS, max_size=8), changes=st.lists(_CHANGES, min_size=1, max_size=12))
@settings(max_examples=scaled(15))
def test_memory_follows_the_definition(ask: Ask, operators: list[Event], changes: list[Event]) -> None:
    answer = ask("memory", [*operators, *changes])
    changes = sorted(changes, key=lambda change: change["ts"])
    running: dict[int, int] = defaultdict(int)
    peaks: dict[int, int] = {}
    open_: dict[tuple[int, int], Event] = {}
    blocks: list[tuple[object, ...]] = []
    for change in changes:
        args = change["args"]
        device, size, key = args["Device Id"], args["Bytes"], (args["Device Id"], args["Addr"])
        running[device] += size
        peaks[device] = max(peaks.get(device, running[device]), running[device])
        if size > 0:
            if key in open_:
                blocks.append((device, open_[key]["args"]["Bytes"], open_[key]["ts"], None))
            open_[key] = change
        elif size < 0:
            allocation = open_.pop(key, None)
            blocks.append(
                (
                    device,
                    allocation["args"]["Bytes"] if allocation else -size,
                    allocation and allocation["ts"],
                    change["ts"],
                )
            )
    blocks += [(key[0], change["args"]["Bytes"], change["ts"], None) for key, change in open_.items()]
    assert {row["device"]: row["peak_growth_bytes"] for row in answer["devices"]} == peaks
    assert sorted(map(str, blocks)) == sorted(
        str((row["device"], row["size_bytes"], _us(row["allocated_at_ns"]), _us(row["freed_at_ns"])))
        for row in answer["blocks"]
    )
    own: dict[tuple[int, str], int] = defaultdict(int)
    for change in changes:
        if (name := _innermost(operators, change)) is not None:
            own[change["args"]["Device Id"], name] += change["args"]["Bytes"]
    rows = {(row["device"], row["operator"]): row["increase_self_bytes"] for row in answer["operators"]}
    assert {key: size for key, size in own.items() if size} == {key: size for key, size in rows.items() if size}


def _us(time: int | None) -> int | None:
    return None if time is None else time // 1000


def _innermost(operators: list[Event], change: Event) -> str | None:
    stack: list[Event] = []
    for entry in sorted(operators, key=lambda event: (event["ts"], -event["dur"])):
        if entry["tid"] == change["tid"] and entry["ts"] <= change["ts"]:
            end = entry["ts"] + entry["dur"]
            while stack and (entry["ts"] >= _end(stack[-1]) or end > _end(stack[-1])):
                stack.pop()
            stack.append(entry)
    while stack and _end(stack[-1]) <= change["ts"]:
        stack.pop()
    return stack[-1]["name"] if stack else None


def _end(event: Event) -> int:
    return int(event["ts"] + event["dur"])

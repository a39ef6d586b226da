"""Memory categories agree with torch's own memory timeline of the same run, and follow each rule."""

import gzip
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.analysis.facts.memory_categories import CATEGORIES
from tests.analysis.conftest import Ask
from tests.conftest import SHARED, needs_shared, scaled

Event = dict[str, Any]
TORCH_CATEGORIES = (
    "parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", None,
)  # fmt: skip
"""torch's categories; a category's index is its number in the raw timeline."""
CREATE = 2
"""Number of the action that allocates a block in the raw timeline."""


@needs_shared
def test_categories_agree_with_torch_for_the_same_run(ask: Ask) -> None:
    """torch tracks tensors, which a trace lacks, so it finds more activations and fewer temporaries."""
    folder = SHARED / "torch213_cpu"
    raw = json.loads(gzip.decompress((folder / "memory_timeline.raw.json.gz").read_bytes()))
    torch_blocks = [(size, TORCH_CATEGORIES[category]) for _, action, size, category in raw if action == CREATE]
    answer = ask("memory", folder / "shapes_mem_flops.pt.trace.json", top=1_000_000)
    blocks = sorted(answer["blocks"], key=lambda row: row["allocated_at_ns"])
    assert [row["size_bytes"] for row in blocks] == [size for size, _ in torch_blocks]
    pairs = Counter((row["category"], category) for row, (_, category) in zip(blocks, torch_blocks, strict=True))
    assert pairs == {
        ("gradient", "gradient"): 24,
        ("autograd_detail", "autograd_detail"): 21,
        ("activation", "activation"): 21,
        (None, "activation"): 15,
        (None, None): 3,
        ("temporary", None): 36,
        ("temporary", "temporary"): 24,
        ("temporary", "input"): 24,  # allocated and freed in an optimizer step
    }
    held_bytes = sum(row["held_at_peak_bytes"] for row in answer["categories"])
    assert held_bytes == answer["devices"][0]["peak_bytes"]


def op(name: str, start: float, dur: float, cat: str = "cpu_op", tid: int = 1) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": dur, "args": {}}


def memory_event(time: float, size: int, address: int, total: int | None = None, tid: int = 1) -> Event:
    args = {"Bytes": size, "Addr": address, "Device Type": 1, "Device Id": 0, "Total Allocated": total}
    return {
        "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": tid, "ts": time, "s": "t",
        "args": {name: value for name, value in args.items() if value is not None},
    }  # fmt: skip


STEP = [
    op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 10, "user_annotation"),
    op("aten::linear", 20, 10),
    op("aten::addmm", 21, 8),
    op("autograd::engine::evaluate_function: AddmmBackward0", 40, 10, tid=2),
    op("autograd::engine::evaluate_function: TBackward0", 50, 10, tid=2),
    op("Optimizer.step#Adam.step", 70, 10, "user_annotation"),
    op("aten::add_", 72, 1),
]


@pytest.mark.parametrize(
    ("allocated", "freed", "category"),  # time and thread of the allocation and of the free
    [
        ((5, 1), (90, 1), "input"),
        ((22, 1), (23, 1), "temporary"),
        ((22, 1), (29.5, 1), "temporary"),  # within aten::linear
        ((22, 1), (45, 2), "activation"),
        ((35, 1), (45, 2), "activation"),  # allocated under no operator
        ((22, 1), (35, 1), None),
        ((22, 1), None, None),
        ((41, 2), (42, 2), "temporary"),
        ((41, 2), (55, 2), "autograd_detail"),
        ((41, 2), (65, 1), "gradient"),
        ((41, 2), (71, 1), "gradient"),
        ((41, 2), None, "gradient"),  # an optimizer follows
        ((71, 1), (75, 1), "temporary"),
        ((72.5, 1), (90, 1), "optimizer_state"),
        ((71, 1), None, "optimizer_state"),
        (None, (45, 2), None),
        (None, (90, 1), None),
    ],
)
def test_block_category_follows_from_where_it_is_allocated_and_freed(
    ask: Ask, allocated: tuple[float, int] | None, freed: tuple[float, int] | None, category: str | None
) -> None:
    changes = []
    for time_and_tid, size in ((allocated, 512), (freed, -512)):
        if time_and_tid:
            time, tid = time_and_tid
            changes.append(memory_event(time, size, 64, tid=tid))
    answer = ask("memory", [*STEP, *changes])
    [block], [row] = answer["blocks"], answer["categories"]
    assert block["category"] == row["category"] == category
    assert (row["blocks"], row["size_bytes"]) == (1, 512)
    assert (row["reason"] is None) == (category is not None)


def test_memory_left_by_backward_is_no_gradient_without_an_optimizer(ask: Ask) -> None:
    without_optimizer = STEP[:5]
    [row] = ask("memory", [*without_optimizer, memory_event(41, 512, 64, tid=2)])["categories"]
    assert row["category"] is None
    assert row["reason"].startswith("Allocated in backward and not freed, and no optimizer runs after it")


def test_memory_from_before_the_trace_counts_at_the_peak_with_a_reason(ask: Ask) -> None:
    changes = [memory_event(22, 512, 64, total=4608), memory_event(45, -512, 64, total=4096, tid=2)]
    unknown, activation = ask("memory", [*STEP, *changes])["categories"]
    assert (unknown["category"], unknown["blocks"], unknown["held_at_peak_bytes"]) == (None, None, 4096)
    assert unknown["reason"].startswith("Allocated before the trace and not freed in it")
    assert (activation["category"], activation["held_at_peak_bytes"]) == ("activation", 512)


BLOCKS = st.lists(  # start, duration (0: never freed), size and thread of each block
    st.tuples(st.integers(0, 89), st.integers(0, 30), st.integers(1, 9), st.sampled_from([1, 2])),
    min_size=1,
    max_size=9,
)


@settings(max_examples=scaled(40))
@given(BLOCKS)
def test_categories_add_up_to_all_blocks_and_to_the_peak(ask: Ask, blocks: list[tuple[int, int, int, int]]) -> None:
    changes = []
    for address, (start, duration, size, tid) in enumerate(blocks, 1):
        distinct_start = start + address / 16
        changes.append((distinct_start, size, address, tid))
        if duration:
            changes.append((distinct_start + duration, -size, address, tid))
    events, total, peak = list(STEP), 0, 0
    for time, size, address, tid in sorted(changes):
        total += size
        peak = max(peak, total)
        events.append(memory_event(time, size, address, total, tid))
    answer = ask("memory", events)
    rows = answer["categories"]
    assert sum(row["blocks"] for row in rows) == len(blocks)
    assert sum(row["size_bytes"] for row in rows) == sum(size for _, _, size, _ in blocks)
    assert sum(row["held_at_peak_bytes"] for row in rows) == peak == answer["devices"][0]["peak_bytes"]
    assert Counter(row["category"] for row in answer["blocks"]) == {
        category: count
        for category in (*CATEGORIES, None)
        if (count := sum(row["blocks"] for row in rows if row["category"] == category))
    }

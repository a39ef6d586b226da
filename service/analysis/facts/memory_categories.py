"""Categories of memory blocks, inferred from the slices in which they are allocated and freed."""

import re
from typing import Any

import numpy as np

from service.analysis.facts.activity import LOADING
from service.analysis.facts.host import OP
from service.analysis.facts.intervals import Ints
from service.analysis.facts.memory_use import MemoryUse, Table
from service.attribution.nesting import (
    NONE,
    Indices,
    count_by_key,
    factorize,
    first_indices,
    nearest_marked,
    sum_by_key,
)

TEMPORARY, INPUT, ACTIVATION, AUTOGRAD_DETAIL, GRADIENT, OPTIMIZER_STATE, BEFORE, UNKNOWN, LAST, OLDEST = range(10)
CATEGORIES = ("temporary", "input", "activation", "autograd_detail", "gradient", "optimizer_state")
"""Names of the known categories by their codes, as in torch's memory timeline."""

REASONS = {
    BEFORE: "Allocated before the trace and freed in it: parameters, buffers, or memory left by an earlier step.",
    UNKNOWN: "Allocated outside of backward and optimizer, and not freed in backward: the trace does not show which"
    " tensor it is.",
    LAST: "Allocated in backward and not freed, and no optimizer runs after it in the trace.",
    OLDEST: "Allocated before the trace and not freed in it: parameters, optimizer state, buffers.",
}
"""Reasons why the category of other blocks is unknown."""

_BACKWARD = re.compile(r"autograd::engine::evaluate_function: |.*Backward\d*$")
_STEP, _ZERO = re.compile(r"Optimizer\.step#"), re.compile(r"Optimizer\.zero_grad#")
_LOADING = re.compile(LOADING)


def categories_of(use: MemoryUse) -> Any:
    """Return the code of each block's category, or of the reason why it has none."""
    loading, backward, step, zero = (_innermost(use, pattern) for pattern in (_LOADING, _BACKWARD, _STEP, _ZERO))
    root = _outermost_ops(use)
    allocated, freed = (
        np.where(changes >= 0, np.append(use.slices, NONE)[changes], NONE) for changes in (use.begin, use.end)
    )

    def within(enclosing: Indices, slices: Indices) -> Any:
        return enclosing[slices] != NONE

    def same(enclosing: Indices) -> Any:
        return within(enclosing, allocated) & (enclosing[allocated] == enclosing[freed])

    optimizer_follows = np.append(use.at, 0)[use.begin] < _last_start(use, _STEP, _ZERO)
    conditions = {
        BEFORE: use.begin < 0,
        TEMPORARY: (same(root) | same(step)) & (use.end >= 0),
        INPUT: within(loading, allocated),
        AUTOGRAD_DETAIL: within(backward, allocated) & within(backward, freed),
        GRADIENT: within(backward, allocated) & ((use.end >= 0) | optimizer_follows),
        LAST: within(backward, allocated),
        OPTIMIZER_STATE: within(step, allocated) & ~within(zero, allocated),
        ACTIVATION: within(backward, freed),
    }
    return np.select([*conditions.values()], [*conditions], UNKNOWN)


def largest_block_categories(use: MemoryUse, top: int) -> list[str | None]:
    """Return the category of each of the largest blocks; None if it is unknown."""
    codes = categories_of(use)[use.largest(top)].tolist()
    return [CATEGORIES[code] if code < len(CATEGORIES) else None for code in codes]


def category_table(use: MemoryUse) -> Table:
    """Return the count and size of blocks by device and category, and the size held at the peak."""
    category = categories_of(use)
    device = use.device_of[use.change_of]
    keys, count = factorize(device.astype(np.int64) * (OLDEST + 1) + category)
    held, firsts = use.held_at_peak(), first_indices(keys, count)
    sums = (
        count_by_key(keys, count),
        sum_by_key(keys, use.size, count),
        sum_by_key(keys, np.where(held, use.size, 0), count),
    )
    rows = list(zip(*(column.tolist() for column in (device[firsts], category[firsts], *sums)), strict=True))
    rows += [(number, OLDEST, None, None, size) for number, size in _unseen_at_peak(use, held).items() if size > 0]
    rows.sort(key=lambda row: (row[0], -row[4], row[1]))
    devices = np.array([row[0] for row in rows], np.int64)
    return {
        **use.device_columns(devices),
        "category": [CATEGORIES[row[1]] if row[1] < len(CATEGORIES) else None for row in rows],
        "reason": [REASONS.get(row[1]) for row in rows],
        "blocks": [row[2] for row in rows],
        "size_bytes": [row[3] for row in rows],
        "held_at_peak_bytes": [row[4] for row in rows],
    }


def _unseen_at_peak(use: MemoryUse, held: Any) -> dict[int, int]:
    """Return the bytes allocated at each device's peak beyond the blocks in the trace, if the peak is known."""
    block_bytes = sum_by_key(use.device_of[use.change_of], np.where(held, use.size, 0), use.count)
    peaks = dict(zip(range(use.count), use.devices()["peak_bytes"], strict=True))
    addressed = set(use.device_of[use.change_of].tolist())
    return {
        device: peak - int(block_bytes[device])
        for device, peak in peaks.items()
        if peak is not None and device in addressed
    }


def _innermost(use: MemoryUse, pattern: "re.Pattern[str]") -> Indices:
    """Return the innermost matching slice around each slice (or the slice itself), or `NONE`.

    The array has one more `NONE` at its end, which the index `NONE`, -1, reads.
    """
    rows = use.rows
    matching = np.array([pattern.match(word) is not None for word in rows.words], bool)
    return np.append(nearest_marked(rows.parents, matching[rows.codes][rows.host.names]), np.int32(NONE))


def _outermost_ops(use: MemoryUse) -> Indices:
    """Return the outermost operator around each slice (or the slice itself), or `NONE`.

    The array has one more `NONE` at its end, as that of `_innermost`.
    """
    parents, is_op = use.rows.parents, use.rows.host.kinds == OP
    inner = np.append(nearest_marked(parents, is_op), np.int32(NONE))
    return np.append(nearest_marked(parents, is_op & (inner[parents] == NONE)), np.int32(NONE))


def _last_start(use: MemoryUse, *patterns: "re.Pattern[str]") -> int:
    """Return the latest start of the slices whose names match one of the patterns; the least integer if none does."""
    rows = use.rows
    matching = np.array([any(pattern.match(word) for pattern in patterns) for word in rows.words], bool)
    starts: Ints = rows.host.starts[matching[rows.codes][rows.host.names]]
    return int(starts.max(initial=np.iinfo(np.int64).min))

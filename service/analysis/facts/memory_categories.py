"""What blocks of memory are for, as far as the places tell at which they are allocated and freed."""

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

TEMPORARY, INPUT, ACTIVATION, AUTOGRAD_DETAIL, GRADIENT, OPTIMIZER_STATE, BEFORE, UNTOLD, LAST, OLDEST = range(10)
CATEGORIES = ("temporary", "input", "activation", "autograd_detail", "gradient", "optimizer_state")
"""The categories that can be told, by their numbers, as torch's memory timeline calls them."""

REASONS = {
    BEFORE: "Allocated before the trace and freed in it: parameters, buffers, or what an earlier step left.",
    UNTOLD: "Allocated in no backward and no optimizer, and freed in none: the trace does not tell which tensor it is.",
    LAST: "Allocated in backward and not freed, and no optimizer runs after it in the trace.",
    OLDEST: "Allocated before the trace and not freed in it: parameters, optimizer state, buffers.",
}
"""Why the category of other blocks is not known."""

_BACKWARD = re.compile(r"autograd::engine::evaluate_function: |.*Backward\d*$")
_STEP, _ZERO = re.compile(r"Optimizer\.step#"), re.compile(r"Optimizer\.zero_grad#")
_LOADING = re.compile(LOADING)


def categories_of(use: MemoryUse) -> Any:
    """The number of the category of each block, or of the reason why it has none."""
    loading, backward, step, zero = (_around(use, pattern) for pattern in (_LOADING, _BACKWARD, _STEP, _ZERO))
    root = _outermost_ops(use)
    begun, freed = (np.where(one >= 0, np.append(use.slices, NONE)[one], NONE) for one in (use.begin, use.end))

    def within(around: Indices, slices: Indices) -> Any:
        return around[slices] != NONE

    def same(around: Indices) -> Any:
        return within(around, begun) & (around[begun] == around[freed])

    followed = np.append(use.at, 0)[use.begin] < _last_start(use, _STEP, _ZERO)
    conditions = {
        BEFORE: use.begin < 0,
        TEMPORARY: (same(root) | same(step)) & (use.end >= 0),
        INPUT: within(loading, begun),
        AUTOGRAD_DETAIL: within(backward, begun) & within(backward, freed),
        GRADIENT: within(backward, begun) & ((use.end >= 0) | followed),
        LAST: within(backward, begun),
        OPTIMIZER_STATE: within(step, begun) & ~within(zero, begun),
        ACTIVATION: within(backward, freed),
    }
    return np.select([*conditions.values()], [*conditions], UNTOLD)


def told_of(use: MemoryUse, top: int) -> list[str | None]:
    """The categories of the largest blocks, None where it is not known."""
    chosen = categories_of(use)[use.largest(top)].tolist()
    return [CATEGORIES[one] if one < len(CATEGORIES) else None for one in chosen]


def by_category(use: MemoryUse) -> Table:
    """The blocks of each device and category: how many, how large, and how much was held at the peak."""
    category = categories_of(use)
    device = use.device_of[use.of]
    numbers, count = factorize(device.astype(np.int64) * (OLDEST + 1) + category)
    held, firsts = use.held_at_peak(), first_indices(numbers, count)
    sums = (
        count_by_key(numbers, count),
        sum_by_key(numbers, use.size, count),
        sum_by_key(numbers, np.where(held, use.size, 0), count),
    )
    rows = list(zip(*(each.tolist() for each in (device[firsts], category[firsts], *sums)), strict=True))
    rows += [(one, OLDEST, None, None, untold) for one, untold in _untold_at_peak(use, held).items() if untold > 0]
    rows.sort(key=lambda row: (row[0], -row[4], row[1]))
    numbers_of = np.array([row[0] for row in rows], np.int64)
    return {
        **use.named_devices(numbers_of),
        "category": [CATEGORIES[row[1]] if row[1] < len(CATEGORIES) else None for row in rows],
        "reason": [REASONS.get(row[1]) for row in rows],
        "blocks": [row[2] for row in rows],
        "size_bytes": [row[3] for row in rows],
        "held_at_peak_bytes": [row[4] for row in rows],
    }


def _untold_at_peak(use: MemoryUse, held: Any) -> dict[int, int]:
    """What each device had allocated at its peak beyond the blocks that the trace shows, where it tells a peak."""
    seen = sum_by_key(use.device_of[use.of], np.where(held, use.size, 0), use.count)
    found = dict(zip(range(use.count), use.devices()["peak_bytes"], strict=True))
    addressed = set(use.device_of[use.of].tolist())
    return {one: peak - int(seen[one]) for one, peak in found.items() if peak is not None and one in addressed}


def _around(use: MemoryUse, pattern: "re.Pattern[str]") -> Indices:
    """The innermost slice of some names that encloses each, or is it; and `NONE` at the end, for what is in none."""
    rows = use.rows
    named = np.array([pattern.match(word) is not None for word in rows.words], bool)
    return np.append(nearest_marked(rows.parents, named[rows.host.names]), np.int32(NONE))


def _outermost_ops(use: MemoryUse) -> Indices:
    """The outermost operator that encloses each slice, likewise."""
    parents, is_op = use.rows.parents, use.rows.host.kinds == OP
    inner = np.append(nearest_marked(parents, is_op), np.int32(NONE))
    return np.append(nearest_marked(parents, is_op & (inner[parents] == NONE)), np.int32(NONE))


def _last_start(use: MemoryUse, *patterns: "re.Pattern[str]") -> int:
    """When the last slice of some names starts."""
    rows = use.rows
    named = np.array([any(one.match(word) for one in patterns) for word in rows.words], bool)
    starts: Ints = rows.host.starts[named[rows.host.names]]
    return int(starts.max(initial=np.iinfo(np.int64).min))

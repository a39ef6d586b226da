"""The choice and the places of the events of a memory snapshot that are shown."""

import heapq
from collections.abc import Sequence

import numpy as np

from service.formats.memory_snapshot.layout import Ints


def lanes_of(starts: Sequence[int], ends: Sequence[int]) -> Ints:
    """Return a lane for each slice, by start, so that the slices of a lane do not overlap."""
    lanes, free, busy = [], list[int](), list[tuple[int, int]]()
    for start, end in zip(starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (max(end, start + 1), lane))
        lanes.append(lane)
    return np.array(lanes, np.int64)


def thinned(values: Ints, points: int) -> Ints:
    """Return the rows of all values or, if there are more than `points`, of the extremes of equal intervals."""
    if len(values) <= points:
        return np.arange(len(values))
    borders = np.linspace(0, len(values), points // 2, endpoint=False).astype(np.int64)
    rows = [len(values) - 1]
    for first, end in zip(borders.tolist(), [*borders[1:].tolist(), len(values)], strict=True):
        part = values[first:end]
        rows += (first + int(part.argmin()), first + int(part.argmax()))
    return np.unique(rows)

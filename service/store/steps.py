"""Steps of a trace: its host annotations ``ProfilerStep#N``."""

import re
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from service.store.database import END
from service.trace.summary import GPU_CATEGORIES, Step, key_of

if TYPE_CHECKING:
    import duckdb

Ints = npt.NDArray[np.int64]

_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_ON_DEVICES = frozenset({"gpu_user_annotation", *GPU_CATEGORIES})
_STEPS = f"""
SELECT name, ts_ns, {END}, cat, pid, pid_text, tid, tid_text FROM events
WHERE ph = 'X' AND starts_with(name, 'ProfilerStep#') AND ts_ns NOTNULL
ORDER BY ts_ns, {END} DESC, position
"""  # noqa: S608 - made of constants


def steps_in(db: "duckdb.DuckDBPyConnection") -> list[Step]:
    """Return the steps that host annotations in ``events`` mark, by start; of equal starts the longest comes first."""
    return steps_of(db.execute(_STEPS).fetchall())


def steps_of(rows: Iterable[tuple[Any, ...]]) -> list[Step]:
    """Return the steps among slices, given as rows of the columns of `_STEPS`."""
    return [
        {
            "number": number,
            "name": name,
            "start_ns": start,
            "end_ns": end,
            "pid": key_of(pid, pid_text),
            "tid": key_of(tid, tid_text),
        }
        for name, start, end, category, pid, pid_text, tid, tid_text in rows
        if is_on_host(category) and (number := step_number(name)) is not None
    ]


def step_number(name: str | None) -> int | None:
    """Return the number of the step that a slice of this name marks; None if it marks none."""
    match = _STEP.fullmatch(name or "")
    return int(match[1]) if match else None


def is_on_host(category: str | None) -> bool:
    """Return whether slices of a category may mark steps: those on devices do not."""
    return category not in _ON_DEVICES


def merged_steps(steps: Iterable[Step]) -> tuple[Ints, Ints, Ints]:
    """Return numbers, starts and ends of steps, by start; annotations of a step that overlap, on threads, are one."""
    listed = [*steps]
    keys = ("number", "start_ns", "end_ns")
    columns = [np.fromiter(map(itemgetter(key), listed), np.int64, len(listed)) for key in keys]
    order = np.lexsort((~columns[2], columns[1]))  # of equal starts, the last end is the first
    numbers, starts, ends = (column[order] for column in columns)
    if len(np.unique(numbers)) == len(numbers):
        return numbers, starts, ends
    merged: list[list[int]] = []
    latest: dict[int, list[int]] = {}
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if number in latest and start < max(latest[number][2], latest[number][1] + 1):
            latest[number][2] = max(latest[number][2], end)
        else:
            latest[number] = [number, start, end]
            merged.append(latest[number])
    numbers, starts, ends = np.ascontiguousarray(np.array(merged, np.int64).T)  # compiled code has no form for others
    return numbers, starts, ends

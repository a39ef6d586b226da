"""Steps of the ranks of a trace, by their annotations and with their work on devices."""

from typing import Any, NamedTuple

import numpy as np
import orjson

from service.store.steps import Ints, merged_steps
from service.trace.rank import ranks_by_pid
from service.trace.summary import Summary

NEVER = np.iinfo(np.int64).min
"""End of the work of a step that has none."""

NO_PID = -1
"""Pid of work whose pid is no integer; no process of a merged trace has it."""


class RankSteps(NamedTuple):
    """The steps of a rank, in order of time; times are in ns.

    Attributes:
        numbers: number of each step.
        starts: start of each step's annotation.
        ends: end of each step's annotation.
        device_starts: start of each step's annotation or, if it is later, end of the steps before and their work.
        device_ends: end of each step's annotation and of all work that it launches.
    """

    numbers: Ints
    starts: Ints
    ends: Ints
    device_starts: Ints
    device_ends: Ints

    def only(self, chosen: Any) -> "RankSteps":
        """Return the steps at some indices, or those that a mask flags."""
        return RankSteps(*(column[chosen] for column in self))


class WorkTimes(NamedTuple):
    """Work on devices: its pid or `NO_PID`, the start of its launch or else of itself, its start, its end and its step.

    The step is a number, or `service.attribution.steps.NO_STEP`.
    """

    pids: Ints
    launches: Ints
    starts: Ints
    ends: Ints
    steps: Ints

    def only(self, chosen: Any) -> "WorkTimes":
        """Return the work at some indices, or that which a mask flags."""
        return WorkTimes(*(column[chosen] for column in self))


StepsByRank = dict[int | None, RankSteps]
"""The steps of each rank of a merged trace. Those of another trace have the key None, even if its rank is known."""


def annotated_steps(summary: Summary) -> StepsByRank:
    """Return the steps of each rank by their annotations alone.

    Args:
        summary: the trace's summary with complete lists.
    """
    pids = _pids_by_rank(summary)
    steps = {
        rank: merged_steps(step for step in summary.steps if rank is None or step["pid"] in pids[rank]) for rank in pids
    }
    return {rank: RankSteps(*columns, *columns[1:]) for rank, columns in steps.items()}


class StepsWithWork:
    """The steps of each rank with their work, which is added some at a time, in order of its starts.

    Args:
        summary: the trace's summary with complete lists.
    """

    def __init__(self, summary: Summary) -> None:
        self._steps = annotated_steps(summary)
        self._pids = _pids_by_rank(summary)
        self._bounds = {rank: DeviceBounds(*steps[:3]) for rank, steps in self._steps.items() if len(steps.numbers)}

    def add(self, work: WorkTimes) -> None:
        """Add the next work of the trace."""
        for rank, bounds in self._bounds.items():
            bounds.add(work if rank is None else work.only(np.isin(work.pids, self._pids[rank])))

    def by_rank(self) -> StepsByRank:
        """Return the steps, once all work is added."""
        on_devices = {rank: bounds.on_devices() for rank, bounds in self._bounds.items()}
        return {
            rank: RankSteps(*steps[:3], *on_devices[rank]) if rank in on_devices else steps
            for rank, steps in self._steps.items()
        }


def _pids_by_rank(summary: Summary) -> dict[int | None, list[int]]:
    """Return the pids of each rank of a merged trace; only the key None for another trace."""
    ranks = ranks_by_pid(summary.ranks)
    if not ranks:
        return {None: []}
    return {rank: [pid for pid in ranks if ranks[pid] == rank] for rank in dict.fromkeys(ranks.values())}


class DeviceBounds:
    """Bounds of the steps of a rank; takes their work some at a time, in order of its starts.

    Args:
        numbers: number of each step.
        starts: start of each step's annotation, in order.
        ends: end of each step's annotation.
    """

    def __init__(self, numbers: Ints, starts: Ints, ends: Ints) -> None:
        self._numbers, self._starts, self._ends = numbers, starts, ends
        self._work_ends = np.full(len(starts), NEVER)
        self._before = NEVER  # end of the last work before that of the first step
        self._outside: list[Ints] | None = []  # ends of work outside of steps; None once the first step has work

    def add(self, work: WorkTimes) -> None:
        """Add work, which belongs to the step of its number."""
        steps = steps_of_numbers(self._numbers, self._starts, work.steps, work.launches)
        self.add_of_steps(steps, work.starts, work.ends)

    def add_of_steps(self, steps: Ints, starts: Ints, ends: Ints) -> None:
        """Add work from `starts` to `ends`, each piece with the index of its step, or -1."""
        inside = steps >= 0
        np.maximum.at(self._work_ends, steps[inside], ends[inside])
        if self._outside is not None:
            self._outside.append(ends[~inside])
            of_first = starts[steps == 0]
            if len(of_first):
                outside = np.concatenate(self._outside)
                self._before = int(outside[outside < of_first.min()].max(initial=NEVER))
                self._outside = None

    def on_devices(self) -> tuple[Ints, Ints]:
        """Return the starts and the ends of the steps.

        A step ends with its work; the next one starts then, or later. Without work, steps are as annotated.
        """
        if not (self._work_ends != NEVER).any():
            return self._starts, self._ends
        over = np.maximum.accumulate(np.maximum.reduce([self._starts, self._ends, self._work_ends]))
        ends = np.maximum(over, self._before)
        return np.maximum(self._starts, np.append(self._before, ends[:-1])), ends


def steps_of_numbers(numbers: Ints, starts: Ints, chosen: Ints, times: Ints) -> Ints:
    """Return the index of the step with each chosen number; -1 for none.

    Of several, it is the last that began by its time or, if none did, the first.

    Args:
        numbers: number of each step.
        starts: start of each step, in order.
        chosen: numbers to look up.
        times: a time for each of them.
    """
    from service.attribution.nesting import ascending_indices  # noqa: PLC0415 - loads numba, which the server does without

    count = len(numbers)
    if not count:
        return np.full(len(chosen), -1)
    if (numbers[1:] > numbers[:-1]).all():  # so each number has one step at most, as in most traces
        return ascending_indices(numbers, chosen)
    distinct, codes = np.unique(numbers, return_inverse=True)
    code = np.minimum(np.searchsorted(distinct, chosen), len(distinct) - 1)
    keys = codes * count + np.arange(count)
    order = np.argsort(keys)
    begun = np.searchsorted(starts, times, "right") - 1
    firsts, lasts = np.searchsorted(keys[order], [code * count, code * count + begun + 1])
    return np.where(distinct[code] == chosen, order[np.maximum(lasts - 1, firsts)], -1)


def steps_at(starts: Ints, ends: Ints, times: Ints) -> Ints:
    """Return the index of the step at each time, or -1: the last one that began, if it is not over."""
    steps = np.searchsorted(starts, times, side="right") - 1
    return np.where((steps >= 0) & (times < ends[steps]), steps, -1)


def encoded(steps: StepsByRank) -> bytes:
    """Return the bounds on devices as text, for the metadata of a file."""
    return orjson.dumps(
        [[rank, of_rank.device_starts.tolist(), of_rank.device_ends.tolist()] for rank, of_rank in steps.items()]
    )


def decoded(text: bytes, summary: Summary) -> StepsByRank:
    """Return the steps of the ranks with the bounds from the text.

    Args:
        text: from `encoded`.
        summary: the trace's summary with complete lists.
    """
    steps = annotated_steps(summary)
    bounds = {rank: [np.array(column, np.int64) for column in columns] for rank, *columns in orjson.loads(text)}
    return {rank: RankSteps(*of_rank[:3], *bounds[rank]) for rank, of_rank in steps.items()}

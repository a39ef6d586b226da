"""Steps of a whole rank, with the ends of their work: a selection of the rank may lack the work of other steps."""

from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.store.folder import EVENTS
from service.store.steps import merged_steps
from service.trace.rank import ranks_by_pid
from service.trace.summary import Summary

_KEPT_MAX = 64
"""Number of ranks whose steps are kept: the selections of a trace, such as windows that are dragged, share them."""

NEVER = np.iinfo(np.int64).min
"""End of the work of a step that has none."""


class RankSteps(NamedTuple):
    """The steps of a rank, in order of time.

    Attributes:
        numbers: number of each step.
        starts: start of each step's annotation in ns.
        ends: end of each step's annotation.
        work_ends: end of the last work on devices that each step launches; `NEVER` for none.
        work_before: end of the last work before that of the first step; `NEVER` for none.
    """

    numbers: Ints
    starts: Ints
    ends: Ints
    work_ends: Ints
    work_before: int


def rank_steps(scope: Scope) -> RankSteps:
    """Return the steps of the rank of a selection, whatever the selection leaves out.

    Raises:
        ExportFailed: the columns can't be read.
    """
    return _read(_Rank(scope.columns, scope.rank, scope.summary))


@dataclass(frozen=True)
class _Rank:
    """A rank of a trace; its summary, which belongs to the columns, is not compared."""

    columns: Path
    rank: int | None
    summary: Summary = field(compare=False)


def steps_at(starts: Ints, ends: Ints, times: Ints) -> Ints:
    """Return the index of the step at each time, or -1: the last one that began, if it is not over."""
    steps = np.searchsorted(starts, times, side="right") - 1
    return np.where((steps >= 0) & (times < ends[steps]), steps, -1)


def ends_of_work(steps: Ints, count: int, starts: Ints, ends: Ints) -> tuple[Ints, int]:
    """Return the end of the last work of each step, and of the last work before that of the first step.

    Args:
        steps: index of the step of each piece of work, or -1.
        count: number of steps.
        starts: start of each piece of work.
        ends: end of each piece of work.
    """
    inside = steps >= 0
    lasts = np.full(count, NEVER)
    np.maximum.at(lasts, steps[inside], ends[inside])
    of_first = starts[steps == 0]
    before = ends[~inside & (ends < of_first.min())] if len(of_first) else of_first
    return lasts, int(before.max(initial=NEVER))


@lru_cache(maxsize=_KEPT_MAX)
def _read(of: _Rank) -> RankSteps:
    from service.attribution.file import links_of  # noqa: PLC0415 - loads numba, which the server does without

    summary = of.summary
    own_pids = [pid for pid, rank in ranks_by_pid(summary.ranks).items() if rank == of.rank]
    steps = [step for step in summary.steps if not summary.ranks or step["pid"] in own_pids]
    numbers, starts, ends = merged_steps(steps)
    if not len(numbers):
        return RankSteps(numbers, starts, ends, numbers, NEVER)
    links = links_of(of.columns, summary).of_work()
    launches = np.where(links.launches >= 0, links.launches, links.rows)
    events = _events_at(of.columns, links.rows, launches)
    work, launches = events.places[links.rows], events.places[launches]
    if summary.ranks:
        own = np.isin(events.pids[work], own_pids)
        work, launches = work[own], launches[own]
    at = steps_at(starts, ends, events.starts[launches])
    return RankSteps(numbers, starts, ends, *ends_of_work(at, len(numbers), events.starts[work], events.ends[work]))


class _Events(NamedTuple):
    """The times in ns and the pids of some events, and the index of each by its row."""

    starts: Ints
    ends: Ints
    pids: Ints
    places: npt.NDArray[np.int32]


def _events_at(columns: Path, *groups: Ints) -> _Events:
    """Read the events at the rows of some groups; events without a time are at `UNTIMED`."""
    from service.store.parts import Parts  # noqa: PLC0415 - loads pyarrow.parquet, which the server does without

    with closing(Parts(columns / EVENTS)) as parts:
        needed = np.zeros(parts.rows, np.bool_)
        for rows in groups:
            needed[rows] = True
        places = np.cumsum(needed, dtype=np.int32) - 1
        starts, ends, pids = (np.zeros(places[-1] + 1, np.int64) for _ in range(3))
        for part in parts.read(("ph", "ts_ns", "dur_ns", "pid"), parts.holding(needed)):
            at = np.flatnonzero(needed[part.rows])
            own = places[part.first + at]
            starts[own], ends[own], pids[own] = part.starts[at], part.ends[at], part.ints("pid")[at]
    return _Events(starts, ends, pids, places)

"""Cycles of a run: a cycle is the traces that its ranks write in one repetition of the profiler's schedule.

``schedule(active=1, repeat=2)`` makes each rank write two traces, which belong to two cycles.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from service.trace.summary import Summary

Rule = Literal["rank", "steps", "time", "order"]
Span = tuple[int, int]


@dataclass(frozen=True)
class Cycles:
    """Cycle of each trace, from 0, and the rule that determined it.

    ``rank``: no rank has two traces, so all belong to one cycle. ``steps`` and ``time``: the steps or times of
    traces overlap within a cycle, but not between cycles. ``order``: the first traces of all ranks are one cycle, the
    second traces the next.
    """

    numbers: list[int]
    rule: Rule

    @property
    def count(self) -> int:
        """The number of cycles."""
        return max(self.numbers, default=-1) + 1


def cycles_of(summaries: Sequence[Summary]) -> Cycles:
    """Return the cycles of traces, from their summaries.

    Memory snapshots and timelines are numbered among themselves: they do not repeat the schedule of traces beside them.
    """
    histories = [place for place, summary in enumerate(summaries) if summary.is_memory_history]
    traces = [place for place, summary in enumerate(summaries) if not summary.is_memory_history]
    numbers = [0] * len(summaries)
    rule: Rule = "rank"
    for places in (histories, traces):
        cycles = _cycles_of([summaries[place] for place in places])
        rule = cycles.rule if places else rule
        for place, number in zip(places, cycles.numbers, strict=True):
            numbers[place] = number
    return Cycles(numbers, rule)


def _cycles_of(summaries: Sequence[Summary]) -> Cycles:
    processes = [_process_of(summary, place) for place, summary in enumerate(summaries)]
    if len(set(processes)) == len(processes):
        return Cycles([0] * len(processes), "rank")
    if numbers := _overlapping(processes, [_steps_of(summary) for summary in summaries]):
        return Cycles(numbers, "steps")
    times = [_time_of(summary) for summary in summaries]
    if numbers := _overlapping(processes, times):
        return Cycles(numbers, "time")
    return Cycles(_in_order(processes, times), "order")


def _process_of(summary: Summary, place: int) -> Hashable:
    """Return the rank, else the process on its host; a trace without either counts as a process of its own."""
    if summary.rank is not None:
        return summary.rank
    pids = tuple(str(process["pid"]) for process in summary.processes if process["labels"] == "CPU")
    return (summary.host, pids) if summary.host and pids else ("trace", place)


def _steps_of(summary: Summary) -> Span | None:
    numbers = [step["number"] for step in summary.steps]
    return (min(numbers), max(numbers) + 1) if numbers else None


def _time_of(summary: Summary) -> Span | None:
    """Return the span of the trace since the epoch."""
    bounds, base = summary.bounds, summary.base_ns or 0
    return (base + bounds["start_ns"], base + bounds["end_ns"]) if bounds else None


def _overlapping(processes: Sequence[Hashable], spans: Sequence[Span | None]) -> list[int] | None:
    """Number the sets of overlapping spans; return None if a span is unknown or a set has two spans of a process."""
    known_spans = [span for span in spans if span]
    if len(known_spans) < len(spans):
        return None
    numbers, cycle, reach = [0] * len(known_spans), -1, 0
    for place in sorted(range(len(known_spans)), key=known_spans.__getitem__):
        start, end = known_spans[place]
        if cycle < 0 or start >= reach:
            cycle, reach = cycle + 1, end
        numbers[place], reach = cycle, max(reach, end)
    return numbers if len(set(zip(processes, numbers, strict=True))) == len(numbers) else None


def _in_order(processes: Sequence[Hashable], times: Sequence[Span | None]) -> list[int]:
    """Number the traces of each process by their times."""
    numbers, counts = [0] * len(processes), dict[Hashable, int]()
    for place in sorted(range(len(processes)), key=lambda index: (times[index] or (0, 0), index)):
        numbers[place] = counts.get(processes[place], 0)
        counts[processes[place]] = numbers[place] + 1
    return numbers

"""Cycles of a run: a cycle is the traces that its ranks write in one repetition of the profiler's schedule.

``schedule(active=1, repeat=2)`` makes each rank write two traces, which belong to two cycles.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from service.trace.errors import BadAnalysisRequest, UnknownCycle
from service.trace.summary import Summary

Rule = Literal["rank", "steps", "time", "order"]
Span = tuple[int, int]
Processes = Sequence[Hashable]
Item = TypeVar("Item")
"""A trace, in any form."""
SummaryOf = Callable[[Item], Summary]
"""Returns the summary of a trace, with all its steps."""

DEFAULT_CYCLE = 0
"""The cycle that is shown unless another one is chosen: the first, which later cycles do not change."""
_NAMED_MAX = 8
"""Maximum number of cycles that an error message names."""


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


@dataclass(frozen=True)
class Cycle(Generic[Item]):
    """The traces of one cycle.

    Attributes:
        number: its number, from 0.
        name: its number, and its steps if they are known, like ``0 (steps 3 to 5)``.
        traces: its traces, in the order in which they were given.
    """

    number: int
    name: str
    traces: list[Item]


def by_cycle(traces: Sequence[Item], summary_of: SummaryOf[Item]) -> list[Cycle[Item]]:
    """Return the cycles of traces, in order."""
    summaries = [*map(summary_of, traces)]
    cycles = cycles_of(summaries)
    places: list[list[int]] = [[] for _ in range(cycles.count)]
    for place, number in enumerate(cycles.numbers):
        places[number].append(place)
    return [
        Cycle(number, _name(number, [summaries[place] for place in those]), [traces[place] for place in those])
        for number, those in enumerate(places)
    ]


def chosen_cycle(cycles: Sequence[Cycle[Item]], number: int, whose: str = "") -> Cycle[Item]:
    """Return the cycle of a number.

    Args:
        cycles: the cycles.
        number: number of the chosen cycle.
        whose: for the message, what the traces belong to, like ``of the base``.

    Raises:
        UnknownCycle: there is no such cycle; the error lists those that there are.
    """
    if not 0 <= number < len(cycles):
        detail = f"There is no cycle {number}. {listed(cycles, whose)}"
        raise UnknownCycle(detail, known=[cycle.number for cycle in cycles])
    return cycles[number]


def listed(cycles: Sequence[Cycle[Item]], whose: str = "") -> str:
    """Return a sentence that lists the cycles, up to `_NAMED_MAX`; for `whose`, see `chosen_cycle`."""
    names = ", ".join(cycle.name for cycle in cycles[:_NAMED_MAX])
    more = f" and {len(cycles) - _NAMED_MAX} more" if len(cycles) > _NAMED_MAX else ""
    return f"{f'The traces {whose}'.strip()} are of the cycle{'s' * (len(cycles) > 1)} {names}{more}."


def of_cycles(
    traces: Sequence[Item], base: Sequence[Item], cycle: int | None, base_cycle: int | None, summary_of: SummaryOf[Item]
) -> tuple[list[Item], list[Item]]:
    """Return the traces of an analysis that are of the chosen cycles, and those of its base.

    Without any choice, these are all traces. In a comparison with a choice, each side is of one cycle: the chosen one,
    the only one or, of the base, that of the other side.

    Args:
        traces: the traces, at least one.
        base: for comparisons, the traces to compare them with.
        cycle: the cycle of the traces; None if none is chosen.
        base_cycle: the cycle of the base; None if none is chosen.
        summary_of: returns the summary of a trace.

    Raises:
        BadAnalysisRequest: a cycle of the base is chosen, and there is no base, or the other side is of several cycles.
        UnknownCycle: a side does not have the cycle.
    """
    if base_cycle is not None and not base:
        raise BadAnalysisRequest("`base_cycle` chooses a cycle of the base: name the base with `base`.")
    if cycle is None and base_cycle is None:
        return [*traces], [*base]
    cycles, base_cycles = by_cycle(traces, summary_of), by_cycle(base, summary_of)
    if cycle is not None and not base:
        return chosen_cycle(cycles, cycle).traces, []
    if cycle is None and len(cycles) > 1:
        raise BadAnalysisRequest(f"{listed(cycles)} Choose the one to compare with the base's with `cycle`.")
    if base_cycle is None and len(base_cycles) > 1:
        base_cycle = cycle
    side = chosen_cycle(cycles, cycle or 0)
    base_side = chosen_cycle(base_cycles, base_cycle or 0, "of the base")
    return side.traces, base_side.traces


def _name(number: int, summaries: Sequence[Summary]) -> str:
    steps = {step["number"] for summary in summaries for step in summary.steps}
    if not steps:
        return str(number)
    first, last = min(steps), max(steps)
    return f"{number} (step {first})" if first == last else f"{number} (steps {first} to {last})"


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
    processes = [_processes_of(summary, place) for place, summary in enumerate(summaries)]
    if _are_distinct([process for those in processes for process in those]):
        return Cycles([0] * len(processes), "rank")
    if numbers := _overlapping(processes, [_steps_of(summary) for summary in summaries]):
        return Cycles(numbers, "steps")
    times = [_time_of(summary) for summary in summaries]
    if numbers := _overlapping(processes, times):
        return Cycles(numbers, "time")
    return Cycles(_in_order(processes, times), "order")


def _processes_of(summary: Summary, place: int) -> Processes:
    """Return the ranks, else the process on its host; a trace without either counts as a process of its own."""
    if ranks := summary.known_ranks:
        return ranks
    pids = tuple(str(process["pid"]) for process in summary.processes if process["labels"] == "CPU")
    return [(summary.host, pids) if summary.host and pids else ("trace", place)]


def _are_distinct(values: Processes) -> bool:
    return len(set(values)) == len(values)


def _steps_of(summary: Summary) -> Span | None:
    numbers = [step["number"] for step in summary.steps]
    return (min(numbers), max(numbers) + 1) if numbers else None


def _time_of(summary: Summary) -> Span | None:
    """Return the span of the trace since the epoch."""
    bounds, base = summary.bounds, summary.base_ns or 0
    return (base + bounds["start_ns"], base + bounds["end_ns"]) if bounds else None


def _overlapping(processes: Sequence[Processes], spans: Sequence[Span | None]) -> list[int] | None:
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
    pairs = [(process, number) for those, number in zip(processes, numbers, strict=True) for process in those]
    return numbers if _are_distinct(pairs) else None


def _in_order(processes: Sequence[Processes], times: Sequence[Span | None]) -> list[int]:
    """Number the traces of each process by their times."""
    numbers, counts = [0] * len(processes), dict[Hashable, int]()
    for place in sorted(range(len(processes)), key=lambda index: (times[index] or (0, 0), index)):
        numbers[place] = max(counts.get(process, 0) for process in processes[place])
        counts |= dict.fromkeys(processes[place], numbers[place] + 1)
    return numbers

"""The traces of a run that can be merged into one trace: those of one cycle, or the parts of one trace."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from service.cutting.source import Source
from service.store.lists import whole_summary
from service.trace.cycles import by_cycle, chosen_cycle, listed
from service.trace.errors import CannotMerge
from service.trace.summary import Summary

Item = TypeVar("Item")
"""A trace, in any form."""


def mergeable(traces: Sequence[Item], cycle: int | None, source_of: Callable[[Item], Source]) -> list[Item]:
    """Return the traces of a cycle; without a number all traces, which must be of one cycle.

    Parts of one trace count as one trace, since a merge joins them.

    Args:
        traces: the traces, at least one.
        cycle: number of the cycle; None if none is chosen.
        source_of: returns the source of a trace.

    Raises:
        UnknownCycle: there is no such cycle.
        CannotMerge: none is chosen, and the traces are of several cycles.
        ExportFailed: the summary or the envelope of a trace can't be read.
    """

    def summary_of(trace: Item) -> Summary:
        source = source_of(trace)
        summary = whole_summary(source.summary, source.columns)
        return summary if source.rank is None else replace(summary, rank=source.rank)

    cycles = by_cycle(traces, summary_of)
    if cycle is not None:
        return chosen_cycle(cycles, cycle).traces
    if len(cycles) > 1:
        first_parts = {source_of(trace).whole_id or place: trace for place, trace in reversed([*enumerate(traces)])}
        cycles = by_cycle([*first_parts.values()], summary_of)
    if len(cycles) > 1:
        raise CannotMerge(
            f"Some ranks have several traces. {listed(cycles)} Choose one with `cycle`, or give the rank of each trace"
            " as `ranks` if the traces do not have it.",
            known=[each.number for each in cycles],
        )
    return [*traces]

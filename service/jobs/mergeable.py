"""The traces of a run that can be merged into one trace: those of one cycle, inputs of several kinds, or parts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from service.cutting.inputs import kind_of
from service.cutting.source import Source
from service.store.lists import whole_summary
from service.trace.cycles import SummaryOf, by_cycle, chosen_cycle, listed
from service.trace.errors import CannotMerge
from service.trace.summary import InputKind, Summary

Item = TypeVar("Item")
"""A trace, in any form."""


def mergeable(traces: Sequence[Item], cycle: int | None, source_of: Callable[[Item], Source]) -> list[Item]:
    """Return the traces of a cycle; without a number all traces, of which those of each kind must be of one cycle.

    A merge joins parts of one trace, so they count as one trace. It puts inputs of other kinds beside the trace of
    their rank, so that they are no cycle of their own.

    Args:
        traces: the traces, at least one.
        cycle: number of the cycle; None if none is chosen.
        source_of: returns the source of a trace.

    Raises:
        UnknownCycle: there is no such cycle.
        CannotMerge: none is chosen, and the traces of a kind are of several cycles.
        ExportFailed: the summary or the envelope of a trace can't be read.
    """

    def summary_of(trace: Item) -> Summary:
        source = source_of(trace)
        summary = whole_summary(source.summary, source.columns)
        return summary if source.rank is None else replace(summary, rank=source.rank)

    cycles = by_cycle(traces, summary_of)
    if cycle is not None:
        return chosen_cycle(cycles, cycle).traces
    if len(cycles) > 1 and _are_of_several_cycles(traces, source_of, summary_of):
        raise CannotMerge(
            f"Some ranks have several traces. {listed(cycles)} Choose one with `cycle`, or give the rank of each trace"
            " as `ranks` if the traces do not have it.",
            known=[each.number for each in cycles],
        )
    return [*traces]


def _are_of_several_cycles(
    traces: Sequence[Item], source_of: Callable[[Item], Source], summary_of: SummaryOf[Item]
) -> bool:
    """Return whether the traces of a kind are of several cycles; parts of a trace count as one."""
    first_parts = {source_of(trace).whole_id or place: trace for place, trace in reversed([*enumerate(traces)])}
    kinds: dict[InputKind, list[Item]] = {}
    for trace in first_parts.values():
        kinds.setdefault(kind_of(summary_of(trace)), []).append(trace)
    return any(len(by_cycle(those, summary_of)) > 1 for those in kinds.values())

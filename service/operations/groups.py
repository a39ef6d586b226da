"""Operations on groups of traces: their members, ranks and cycles."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from service.operations.traces import TraceOperations
from service.store.catalog import Catalog, State, Trace
from service.store.folder import Folder
from service.store.groups import Group, Groups
from service.store.lists import whole_summary
from service.trace.cycles import Rule, cycles_of
from service.trace.errors import NotReady, UnknownGroup, UnknownTrace

MEMBERS_MAX = 4096
"""Maximum number of traces of a group, and of a merge."""
_LISTED_MAX = 8
"""Maximum number of traces that an error message names."""


@dataclass(frozen=True)
class Cycle:
    """The traces of a group from one cycle of the profiler's schedule.

    Attributes:
        cycle: the number of the cycle, from 0.
        traces: the number of the cycle's traces.
        ranks: the ranks that have a trace.
        missing: the ranks of the world that have no trace.
        first_step: the lowest step number; None without steps.
        last_step: the highest step number; None without steps.
        start_ns: the earliest time in a trace, in ns since the epoch if the traces have base times.
        end_ns: the latest time in a trace, on the same clock.
    """

    cycle: int
    traces: int
    ranks: list[int]
    missing: list[int]
    first_step: int | None
    last_step: int | None
    start_ns: int | None
    end_ns: int | None


@dataclass(frozen=True)
class Membership:
    """A trace of a group, and the number of its cycle; the number is None until the trace has been read."""

    trace: Trace
    cycle: int | None


@dataclass(frozen=True)
class RankReport:
    """The ranks of a group, its cycles, and the missing ranks.

    Attributes:
        world_size: the number of ranks, if all traces that record it agree; otherwise None.
        missing: the ranks that have no trace in at least one of the cycles; all ranks if there is no cycle.
        cycles: the cycles, in order.
        cycles_by: the rule that separates the cycles.
        members: the traces, by cycle and rank.
    """

    world_size: int | None
    missing: list[int]
    cycles: list[Cycle]
    cycles_by: Rule
    members: list[Membership]


class GroupOperations:
    """Operations on groups of traces.

    Args:
        groups: the records of groups.
        catalog: the records of traces.
        folder: the data folder.
        traces: operations on single traces.
    """

    def __init__(self, groups: Groups, catalog: Catalog, folder: Folder, traces: TraceOperations) -> None:
        self._groups = groups
        self._catalog = catalog
        self._folder = folder
        self._traces = traces

    def members(self, group_id: str) -> list[Trace]:
        """Return the traces of a group by rank, then by age; unknown ranks come last. Raises `UnknownGroup`."""
        self._groups.get(group_id)
        members = self._catalog.page(limit=MEMBERS_MAX, group=group_id)
        return sorted(members, key=_by_rank)

    def ready_members(self, group_id: str) -> tuple[list[str], list[str]]:
        """Return the ids of the ready traces of a group, and of those that could not be read.

        Raises:
            UnknownGroup: no group has that id.
            NotReady: some of its traces are still being read, or none is ready.
        """
        members = self.members(group_id)
        pending = [trace for trace in members if not trace.state.settled]
        if pending:
            for trace in pending:
                self._traces.prioritize(trace)
            raise NotReady(
                f"Of the {len(members)} traces of the group, {len(pending)} are not ready: {_listed(pending)}."
                " `wait=SECONDS` waits for them.",
                state=pending[0].state, traces=[_brief(trace) for trace in pending], retry_after_s=1,
            )  # fmt: skip
        ready = [trace.id for trace in members if trace.state is not State.FAILED]
        if not ready:
            reason = f": {_listed(members)}" if members else ", for it has none"
            raise NotReady(
                f"No trace of the group is ready{reason}.", state=None, traces=[_brief(trace) for trace in members]
            )
        return ready, [trace.id for trace in members if trace.state is State.FAILED]

    def members_to_merge(self, group_id: str) -> list[Trace]:
        """Return the traces of a group by rank, all of which are ready.

        Raises:
            UnknownGroup: no group has that id.
            NotReady: some of its traces are still being read, or could not be read.
        """
        _, failed = self.ready_members(group_id)
        members = self.members(group_id)
        unread = [trace for trace in members if trace.id in failed]
        if unread:
            raise NotReady(
                f"Of the {len(members)} traces of the group, {len(unread)} could not be read: {_listed(unread)}."
                " Delete these, move them out of the group, or merge the others by their ids.",
                state=State.FAILED, traces=[_brief(trace) for trace in unread],
            )  # fmt: skip
        return members

    def side(self, trace_or_group: str) -> list[str]:
        """Return the ids of the traces on a side of a comparison: a group's ready traces, or a single trace.

        Raises:
            UnknownTrace: neither a group nor a trace has that id.
            NotReady: see `ready_members`.
        """
        try:
            return self.ready_members(trace_or_group)[0]
        except UnknownGroup:
            return [self._catalog.get(trace_or_group).id]

    async def settle(self, traces_or_groups: Sequence[str], within_s: float) -> None:
        """Return once these traces, and all traces of these groups, are ready or failed, or after `within_s` seconds.

        Raises:
            UnknownTrace: neither a group nor a trace has one of the ids.
        """
        trace_ids: list[str] = []
        for trace_or_group in traces_or_groups:
            try:
                trace_ids += [trace.id for trace in self.members(trace_or_group)]
            except UnknownGroup:
                trace_ids.append(trace_or_group)
        await self._traces.settle(trace_ids, within_s)

    async def remove_traces(self, group_id: str) -> None:
        """Remove all traces of a group; raises `UnknownGroup`."""
        while members := self.members(group_id):
            for trace in members:
                with suppress(UnknownTrace):  # another request has removed it
                    await self._traces.remove(trace.id)

    def ranks(self, group: Group) -> RankReport:
        """Report the ranks of a group, its cycles, and the missing ranks."""
        members = self.members(group.id)
        read = [self._with_all_steps(trace) for trace in members if trace.summary]
        cycles = cycles_of([trace.summary_or_empty for trace in read])
        numbers = dict(zip((trace.id for trace in read), cycles.numbers, strict=True))
        world_sizes = {trace.summary_or_empty.world_size for trace in members} - {None}
        world_size = world_sizes.pop() if len(world_sizes) == 1 else None
        world = range(min(world_size or 0, MEMBERS_MAX))
        by_cycle = [
            _cycle(number, [trace for trace in read if numbers[trace.id] == number], world)
            for number in range(cycles.count)
        ]
        missing = {rank for cycle in by_cycle for rank in cycle.missing} if by_cycle else {*world}
        memberships = [Membership(trace, numbers.get(trace.id)) for trace in members]
        return RankReport(
            world_size=world_size,
            missing=sorted(missing),
            cycles=by_cycle,
            cycles_by=cycles.rule,
            members=sorted(memberships, key=lambda membership: membership.cycle or 0),
        )

    def _with_all_steps(self, trace: Trace) -> Trace:
        """Return the trace with all steps and ranks in its summary; that of the catalog may list only the first."""
        if trace.summary is None or trace.summary.totals.keys().isdisjoint({"steps", "ranks"}):
            return trace
        return replace(trace, summary=whole_summary(trace.summary, self._folder.columns_of(trace.id)))


def _by_rank(trace: Trace) -> tuple[bool, int, bool, int]:
    """Sort traces by rank; a memory snapshot follows the other traces of its rank."""
    summary = trace.summary_or_empty
    return summary.rank is None, summary.rank or 0, summary.is_memory_history, trace.created_ns


def _cycle(number: int, traces: list[Trace], world: range) -> Cycle:
    summaries = [trace.summary_or_empty for trace in traces]
    ranks = {rank for summary in summaries for rank in summary.known_ranks}
    steps = {step["number"] for summary in summaries for step in summary.steps}
    bounds = [(summary.bounds, summary.base_ns or 0) for summary in summaries if summary.bounds]
    return Cycle(
        cycle=number,
        traces=len(traces),
        ranks=sorted(ranks),
        missing=[rank for rank in world if rank not in ranks],
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        start_ns=min((base_ns + span["start_ns"] for span, base_ns in bounds), default=None),
        end_ns=max((base_ns + span["end_ns"] for span, base_ns in bounds), default=None),
    )


def _brief(trace: Trace) -> dict[str, str]:
    return {"id": trace.id, "name": trace.name, "state": trace.state}


def _listed(traces: Sequence[Trace]) -> str:
    """Return the names and states of traces as text; beyond `_LISTED_MAX` traces, only the number of the others."""
    names = ", ".join(f"{trace.name} ({trace.state})" for trace in traces[:_LISTED_MAX])
    return names + (f" and {len(traces) - _LISTED_MAX} more" if len(traces) > _LISTED_MAX else "")

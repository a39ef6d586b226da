"""The traces of a group that a request is about, once they can be asked."""

import asyncio
from collections.abc import Sequence
from typing import Any

from service.http.routes.derived_traces import MERGED_MAX
from service.http.services import Services
from service.store.catalog import State, Trace
from service.trace.errors import NotReady, UnknownGroup

_NAMED_MAX = 8


def members_of(parts: Services, group_id: str) -> list[Trace]:
    """The traces of a group by rank, those of no rank last, the oldest first; raises `UnknownGroup`."""
    parts.groups.get(group_id)
    found = parts.catalog.page(limit=MERGED_MAX, group=group_id)
    return sorted(found, key=lambda one: (told(one, "rank") is None, told(one, "rank") or 0, one.created_ns))


def told(trace: Trace, what: str) -> Any:
    """A fact of a trace's summary, None where there is none yet."""
    return (trace.summary or {}).get(what)


def asked_of(parts: Services, group_id: str) -> tuple[list[str], list[str]]:
    """The traces of a group that are asked, and those that are left out as they could not be read.

    Raises:
        UnknownGroup: there is none.
        NotReady: some of its traces are still being read, or all could not be.
    """
    members = members_of(parts, group_id)
    late = [one for one in members if not one.state.settled]
    if late:
        for one in late:
            parts.ask_for(one)
        raise NotReady(
            f"Of the {len(members)} traces of the group, {len(late)} are not ready: {_listed(late)}."
            " `wait=SECONDS` waits for them.",
            state=late[0].state, traces=[_brief(one) for one in late], retry_after_s=1,
        )  # fmt: skip
    asked = [one.id for one in members if one.state is not State.FAILED]
    if not asked:
        why = f": {_listed(members)}" if members else ", for it has none"
        raise NotReady(
            f"No trace of the group is ready{why}.", state=None, traces=[_brief(one) for one in members]
        )  # fmt: skip
    return asked, [one.id for one in members if one.state is State.FAILED]


def side_of(parts: Services, trace_or_group: str) -> list[str]:
    """The ids of a group's traces, or that of the trace.

    Raises:
        UnknownTrace: there is neither a group nor a trace of that id.
        NotReady: see `asked_of`.
    """
    try:
        return asked_of(parts, trace_or_group)[0]
    except UnknownGroup:
        return [parts.catalog.get(trace_or_group).id]


async def settle(parts: Services, ids: Sequence[str], wait: float) -> None:
    """Return once all of these traces are ready or failed, or after so many seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    for one in ids:
        rest = deadline - loop.time()
        if rest > 0 and not parts.catalog.get(one).state.settled:
            await parts.runner.settled(one, within_s=rest)


async def settle_all(parts: Services, traces_or_groups: Sequence[str], wait: float) -> None:
    """Likewise of traces, and all traces of groups."""
    ids: list[str] = []
    for one in traces_or_groups:
        try:
            ids += [trace.id for trace in members_of(parts, one)]
        except UnknownGroup:
            ids.append(one)
    await settle(parts, ids, wait)


def _brief(trace: Trace) -> dict[str, Any]:
    return {"id": trace.id, "name": trace.name, "state": trace.state}


def _listed(traces: Sequence[Trace]) -> str:
    """The names and states of traces, of many the first ones."""
    some = ", ".join(f"{one.name} ({one.state})" for one in traces[:_NAMED_MAX])
    return some + (f" and {len(traces) - _NAMED_MAX} more" if len(traces) > _NAMED_MAX else "")

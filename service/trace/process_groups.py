"""Process groups of a job: as a trace's ``distributedInfo`` lists them, and how those of several ranks match."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

RecordedGroup = tuple[str | None, str | None]
"""Name and ranks of a process group, as a rank records them; None if they are unknown."""

GroupIdentity = tuple[str | None, int | None]
"""Name and first rank of a process group; the first rank is None if it is unknown."""


@dataclass(frozen=True)
class ProcessGroup:
    """A process group of a job.

    Args:
        size: number of its ranks.
        description: the program's description of the group.
        ranks: the ranks as text, like `[0, 1]`.
        assumed: whether the size is only assumed to be that of the job.
    """

    size: int | None = None
    description: str | None = None
    ranks: str | None = None
    assumed: bool = False


@dataclass(frozen=True)
class ProcessGroups:
    """Process groups that a trace lists.

    Args:
        by_name: the groups by name.
        world_size: number of ranks of the job, if known.
    """

    by_name: Mapping[str, ProcessGroup] = field(default_factory=dict)
    world_size: int | None = None

    @classmethod
    def listed(cls, envelope: Mapping[str, Any], rank: int | None, world_size: object) -> "ProcessGroups":
        """Parse the groups of a rank.

        Args:
            envelope: the document without its events.
            rank: rank whose groups to parse, in a merged trace.
            world_size: number of ranks of the job, as in the trace's summary.
        """
        info = member_of_rank(envelope, rank, "distributedInfo")
        configs = info.get("pg_config") if isinstance(info, Mapping) else None
        groups = [group for group in configs if isinstance(group, Mapping)] if isinstance(configs, list) else []
        size = world_size if isinstance(world_size, int) and world_size > 0 else None
        return cls({str(group.get("pg_name")): _parsed(group) for group in groups}, size)

    def of(self, name: str | None, *, any_recorded: bool) -> ProcessGroup:
        """Return the group of a communication.

        Args:
            name: the group's name, if known.
            any_recorded: whether the trace names the group of any communication.
        """
        if name is not None:
            return self.by_name.get(name, ProcessGroup())
        return ProcessGroup() if self.unnamed.assumed and any_recorded else self.unnamed

    @property
    def unnamed(self) -> ProcessGroup:
        """The group of communications without a group name.

        It has the size that all listed groups share. Without listed groups it is assumed to be the default group, which
        has the size of the job.
        """
        if not self.by_name:
            return ProcessGroup(self.world_size, assumed=self.world_size is not None)
        sizes = {group.size for group in self.by_name.values()}
        return ProcessGroup(sizes.pop() if len(sizes) == 1 else None)


def identities(groups: Collection[RecordedGroup]) -> dict[RecordedGroup, GroupIdentity]:
    """Return the identity of each process group that the ranks of a job record.

    Disjoint groups may have the same name, so that the first rank is part of the identity. It is compared in place of
    all ranks, because PyTorch abbreviates long lists of them. If a rank does not record the ranks of a group, but other
    ranks record only one group of that name, it is that one.
    """
    first_ranks = {group: _first_rank(group) for group in groups}
    known: dict[str | None, set[int]] = defaultdict(set)
    for (name, _), first in first_ranks.items():
        if first is not None:
            known[name].add(first)
    only = {name: firsts.pop() for name, firsts in known.items() if len(firsts) == 1}
    return {group: (group[0], only.get(group[0]) if first is None else first) for group, first in first_ranks.items()}


def _first_rank(group: RecordedGroup) -> int | None:
    first = re.search(r"\d+", group[1] or "")
    return int(first[0][:18]) if first else None


def member_of_rank(envelope: Mapping[str, Any], rank: int | None, key: str) -> Any:
    """Return a list or an object from a rank's envelope, else from the merged envelope, else None."""
    envelopes = envelope.get("envelopes")
    own = envelopes.get(str(rank)) if isinstance(envelopes, Mapping) else None
    for document in (own, envelope):
        if isinstance(document, Mapping) and isinstance(document.get(key), list | Mapping):
            return document[key]
    return None


def _parsed(group: Mapping[str, Any]) -> ProcessGroup:
    size, description, ranks = (group.get(key) for key in ("pg_size", "pg_desc", "ranks"))
    members = [int(rank) for rank in ranks if _is_number(rank)] if isinstance(ranks, list) else []
    return ProcessGroup(
        int(size) if isinstance(size, int | float) and _is_number(size) and size >= 1 else len(members) or None,
        description if isinstance(description, str) else None,
        str(members) if members else None,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < 1 << 53

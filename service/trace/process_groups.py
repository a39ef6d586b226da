"""Process groups of a job, as a trace's ``distributedInfo`` lists them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ProcessGroup:
    """What is known of a process group.

    Args:
        size: number of its ranks.
        description: what the program says it is for.
        ranks: as text, `[0, 1]`.
        assumed: whether the size is only assumed to be that of the job.
    """

    size: int | None = None
    description: str | None = None
    ranks: str | None = None
    assumed: bool = False


@dataclass(frozen=True)
class ProcessGroups:
    """The process groups that a trace lists.

    Args:
        by_name: each of them.
        world_size: number of ranks of the job, if the trace tells it.
    """

    by_name: Mapping[str, ProcessGroup] = field(default_factory=dict)
    world_size: int | None = None

    @classmethod
    def listed(cls, envelope: Mapping[str, Any], rank: int | None, world_size: object) -> "ProcessGroups":
        """Those that a rank lists.

        Args:
            envelope: the document without its events.
            rank: whose groups, of a merged trace.
            world_size: as the trace's summary has it.
        """
        info = told_by_rank(envelope, rank, "distributedInfo")
        configs = info.get("pg_config") if isinstance(info, Mapping) else None
        known = [one for one in configs if isinstance(one, Mapping)] if isinstance(configs, list) else []
        size = world_size if isinstance(world_size, int) and world_size > 0 else None
        return cls({str(one.get("pg_name")): _described(one) for one in known}, size)

    def of(self, name: str | None, *, any_told: bool) -> ProcessGroup:
        """What is known of the group of a communication.

        Args:
            name: of the group, if it is told.
            any_told: whether the trace tells the group of any communication.
        """
        if name is not None:
            return self.by_name.get(name, ProcessGroup())
        return ProcessGroup() if self.unnamed.assumed and any_told else self.unnamed

    @property
    def unnamed(self) -> ProcessGroup:
        """The group of communications that name none.

        It has the size that all listed groups have; where none is listed, it is assumed to be the default group, which
        has the size of the job.
        """
        if not self.by_name:
            return ProcessGroup(self.world_size, assumed=self.world_size is not None)
        sizes = {one.size for one in self.by_name.values()}
        return ProcessGroup(sizes.pop() if len(sizes) == 1 else None)


def told_by_rank(envelope: Mapping[str, Any], rank: int | None, key: str) -> Any:
    """What a rank's document, or else the merged one, has under a key beside its events; None of nothing."""
    of_ranks = envelope.get("envelopes")
    own = of_ranks.get(str(rank)) if isinstance(of_ranks, Mapping) else None
    for document in (own, envelope):
        if isinstance(document, Mapping) and isinstance(document.get(key), list | Mapping):
            return document[key]
    return None


def _described(group: Mapping[str, Any]) -> ProcessGroup:
    size, description, ranks = (group.get(key) for key in ("pg_size", "pg_desc", "ranks"))
    members = [int(one) for one in ranks if _is_number(one)] if isinstance(ranks, list) else []
    return ProcessGroup(
        int(size) if isinstance(size, int | float) and _is_number(size) and size >= 1 else len(members) or None,
        description if isinstance(description, str) else None,
        str(members) if members else None,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < 1 << 53

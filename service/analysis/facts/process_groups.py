"""Process groups of the job, as the trace's `distributedInfo` lists them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.analysis.facts.device_properties import told_by_rank
from service.analysis.facts.scope import Scope

Described = dict[str, Any]


@dataclass(frozen=True)
class ProcessGroups:
    """What the trace lists.

    Args:
        by_name: ``group_size``, ``group_description`` and ``group_ranks`` of each group.
        world_size: number of ranks of the job, if the trace tells it.
    """

    by_name: Mapping[str, Described] = field(default_factory=dict)
    world_size: int | None = None

    def described(self, name: str | None, *, any_told: bool) -> Described:
        """What is known of a group, and whether its size is only assumed to be that of the job.

        A communication without a group has the size that all listed groups have. Where the trace neither lists nor
        names any group, that is the size of the job, as of the default group.

        Args:
            name: of the group, if it is told.
            any_told: whether the trace tells the group of any communication.
        """
        unknown = {"group_size": None, "group_description": None, "group_ranks": None, "assumed_size": 0}
        if name is not None:
            return unknown | self.by_name.get(name, {})
        sizes = {each["group_size"] for each in self.by_name.values()}
        if self.by_name:
            return unknown | {"group_size": sizes.pop() if len(sizes) == 1 else None}
        return unknown if any_told or not self.world_size else unknown | {
            "group_size": self.world_size, "assumed_size": 1
        }  # fmt: skip


def process_groups_of(scope: Scope) -> ProcessGroups:
    """The process groups that a trace lists."""
    world_size = scope.summary.get("world_size")
    info = told_by_rank(scope, "distributedInfo")
    listed = info.get("pg_config") if isinstance(info, Mapping) else None
    found = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    by_name = {str(one.get("pg_name")): _described(one) for one in found}
    return ProcessGroups(by_name, world_size if isinstance(world_size, int) and world_size > 0 else None)


def _described(group: Mapping[str, Any]) -> Described:
    size, description, ranks = (group.get(key) for key in ("pg_size", "pg_desc", "ranks"))
    members = [int(one) for one in ranks if isinstance(one, int | float)] if isinstance(ranks, list) else []
    return {
        "group_size": int(size) if isinstance(size, int | float) and size > 0 else len(members) or None,
        "group_description": description if isinstance(description, str) else None,
        "group_ranks": str(members) if members else None,
    }

"""The member of a trace's document that describes a memory snapshot."""

from collections.abc import Mapping
from typing import Any

from service.analysis.facts.scope import Scope
from service.trace.process_groups import member_of_rank

MEMBER = "memorySnapshot"
"""Member of the document of a snapshot that has its stacks and segments."""
NO_SNAPSHOT = "This trace is not a memory snapshot, as torch.cuda.memory._dump_snapshot writes."


def snapshot_member(scope: Scope) -> Mapping[str, Any] | None:
    """Return that member; None if the trace is no memory snapshot."""
    member = member_of_rank(scope.envelope, scope.rank, MEMBER)
    return member if isinstance(member, Mapping) and {"frames", "stacks", "segments"} <= member.keys() else None


def is_snapshot(scope: Scope) -> bool:
    """Return whether a trace is a memory snapshot, or one is merged into it."""
    return snapshot_member(scope) is not None

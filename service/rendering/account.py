"""The account of a rendering: what of a trace its document holds, to be held against what the engine then has."""

from collections import Counter
from dataclasses import dataclass, field

from service.rendering.tracks import Shown
from service.trace.process_groups import ProcessGroup


@dataclass(frozen=True)
class GroupOfRank:
    """A process group that a rank lists; without a name, that of communications that name none."""

    rank: int | None
    name: str | None
    group: ProcessGroup


@dataclass
class Rendered:
    """What was made of a trace's events.

    Attributes:
        base_ns: the time in the trace's own clock that is the engine's 0.
        events: that came; of these `metadata` were replaced by names of our own, and left out are those that are
            `untimed` and the `loose_ends` of arrows that have no start.
        phases: of all others, as the document has them.
        as_instants: phases that the engine passes over, shown as instants instead.
        moved: events that begin, or last, beyond what the engine holds, shown at its edge.
        negative: slices that end before they begin, shown with no duration.
        numbers: values of counters; `no_numbers` is what was left out of them.
        tracks: the engine's threads.
        external_ids: what External ids are in the trace; see `service.attribution.links`.
        groups: the process groups that each rank lists, and the one of communications that name none.
    """

    base_ns: int = 0
    events: int = 0
    metadata: int = 0
    untimed: int = 0
    loose_ends: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    as_instants: Counter[str] = field(default_factory=Counter)
    moved: int = 0
    negative: int = 0
    numbers: int = 0
    no_numbers: int = 0
    tracks: list[Shown] = field(default_factory=list)
    external_ids: str = "unknown"
    groups: list[GroupOfRank] = field(default_factory=list)

"""The report on a rendering: the events in the document of a trace, for comparison with those that the engine loads.

This module imports no compiled code: the server reads reports that other processes write.
"""

from collections import Counter
from dataclasses import dataclass, field

from service.trace.process_groups import ProcessGroup
from service.trace.summary import Key


@dataclass(frozen=True)
class EngineTrack:
    """A thread in the engine, and the lane of the trace's track that it shows.

    Attributes:
        pid: the engine's process.
        tid: the engine's thread.
        name: the name of the thread, if it has one.
        process: the name of the process, if it has one.
        own_pid: the track's process in the trace.
        own_tid: the track's thread in the trace.
        rank: the rank of the process, if it is known.
        device: the device whose work the track shows, or None.
        stream: the stream whose work the track shows, or None.
        lane: number of the lane, from 1.
    """

    pid: int
    tid: int
    name: str | None
    process: str | None
    own_pid: Key
    own_tid: Key
    rank: int | None
    device: int | None
    stream: int | None
    lane: int

    @property
    def thread_title(self) -> str:
        """The name of the thread, or else its number in the trace: Perfetto's UI shows a missing name as NULL."""
        return self.name or _numbered("thread", self.own_tid)

    @property
    def process_title(self) -> str:
        """The name of the process, or else its number in the trace and its rank."""
        rank = "" if self.rank is None else f" · rank {self.rank}"
        return self.process or f"{_numbered('process', self.own_pid)}{rank}"


def _numbered(kind: str, number: Key) -> str:
    """Return a name for a process or a thread that has none."""
    return f"{kind} {number}" if isinstance(number, int) else number.strip() or f"no {kind}"


@dataclass(frozen=True)
class RankGroup:
    """A process group that a rank lists. If `name` is None, it is the group of communications that name no group."""

    rank: int | None
    name: str | None
    group: ProcessGroup


@dataclass
class RenderReport:
    """Counts of a trace's events by their treatment in the document, and the document's tracks and groups.

    Attributes:
        base_ns: the time on the trace's own clock at which the engine's time is 0.
        events: all events of the trace.
        metadata: metadata events; names that the rendering chooses replace them.
        untimed: events without a time, which are left out.
        loose_ends: ends of arrows that no event begins, which are left out.
        phases: all other events by phase, as the document has them.
        as_instants: events of phases that the engine ignores, by phase; they are shown as instants.
        moved: events that begin or last beyond the engine's range; they are shown at its edge.
        negative: slices that end before they begin; they are shown without a duration.
        numbers: values of counters.
        no_numbers: values of counters that are left out because they are not finite numbers.
        tracks: the engine's threads.
        external_ids: the meaning of External ids in the trace; see `service.attribution.links`.
        groups: the process groups that each rank lists, and the group of communications that name no group.
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
    tracks: list[EngineTrack] = field(default_factory=list)
    external_ids: str = "unknown"
    groups: list[RankGroup] = field(default_factory=list)

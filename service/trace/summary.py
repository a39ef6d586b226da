"""The summary of a trace, and the categories of events that define it."""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import orjson

from service.trace.text import decoded

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "Kernel", "Memcpy", "Memset"})
"""Categories of work on a device; capitalised ones were written before April 2022."""

LAUNCH_PATTERN = "Runtime|.*_(runtime|driver)"
"""Regular expression of the categories of runtime and driver calls that launch device work."""

OP_CATEGORIES = frozenset({"cpu_op", "Operator", "user_annotation", "User"})
"""Categories of host work that can cause a launch."""

PYTHON_CATEGORY = "python_function"
"""Category of Python functions, which can outnumber all other slices many times."""

HOST_CATEGORIES = OP_CATEGORIES | {PYTHON_CATEGORY}
"""Categories of host work, except the calls that launch device work."""

ANNOTATION_CATEGORIES = frozenset({"user_annotation", "User"})
"""Categories of regions on the host that a program names."""

OPERATOR_CATEGORIES = OP_CATEGORIES - ANNOTATION_CATEGORIES
"""Categories of operators alone."""

NOT_OPERATORS = frozenset(
    {
        *("[memory]", "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new"),
        *("profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version"),
    }
)
"""Names of operators that torch's own tables leave out."""

SNAPSHOT_CATEGORY, BLOCK_CATEGORY = "memory_snapshot", "memory_block"
"""Categories of a memory snapshot's entries that PyTorch's profiler does not have, and of its largest blocks."""
TIMELINE_CATEGORY = "memory_timeline"
"""Category of the counters of a memory timeline."""

STEP_PREFIX = "ProfilerStep#"
"""Prefix of the names of steps."""

RECORD_WINDOW_END = "Record Window End"
"""Name of the instant at which Kineto has stopped, milliseconds behind the last event that it recorded."""

FLOW_PHASES = frozenset({"s", "t", "f"})
"""Phases of flow events."""

TIMELESS_PHASES = FLOW_PHASES | {"M", "C"}
"""Phases that do not extend a trace's bounds: metadata, flows and counters."""

NESTABLE_PHASES = frozenset({"B", "E", "b", "n", "e"})
"""Phases whose slices are not one event on a thread: two events make one, or it is on a track of its own."""

Key = str | int
"""A pid or a tid."""


def is_launch(category: str | None) -> bool:
    """Return whether a category is that of runtime or driver calls; see `LAUNCH_PATTERN`."""
    return category is not None and re.fullmatch(LAUNCH_PATTERN, category) is not None


def key_of(number: int | None, text: str | None) -> Key:
    """Return a pid or tid as an integer or a string. Other JSON values become their text, and a missing value "".

    Args:
        number: the value, if it is a 64-bit integer.
        text: the JSON text of any other value; None if the value is missing.
    """
    if number is not None:
        return number
    if text is None:
        return ""
    return decoded(text[1:-1].encode()) if text.startswith('"') else text


class Bounds(TypedDict):
    """First start and last end of some events, in ns."""

    start_ns: int
    end_ns: int


EventCounts = TypedDict("EventCounts", {"in": int, "kept": int, "refused": int}, total=False)
"""Numbers of elements that the file has, of events that were kept, and of elements that were refused."""


class Process(TypedDict):
    """A process of a trace."""

    pid: Key
    name: str | None
    labels: str | None
    events: int


class Thread(TypedDict):
    """A thread of a trace; `device` is the one whose work it shows, and `host` is true if it shows host work."""

    pid: Key
    tid: Key
    name: str | None
    events: int
    device: int | None
    host: bool


class Device(TypedDict):
    """A device of a trace, with the bounds of its work."""

    id: int
    name: str | None
    memory_bytes: int | None
    events: int
    bounds: Bounds | None


class Step(TypedDict):
    """A step that the program annotates on the host."""

    number: int
    name: str
    start_ns: int
    end_ns: int
    pid: Key
    tid: Key


class HealthExample(TypedDict):
    """Occurrence of a defect: its text, and its offset in the plain document (for `bad_compression`, in the file)."""

    offset: int | None
    text: str | None


class HealthNote(TypedDict):
    """A defect of a trace, with the number of its occurrences and the first of them."""

    code: str
    kind: Literal["refused", "repaired", "oddity"]
    detail: str
    count: int
    examples: list[HealthExample]


class HealthReport(TypedDict, total=False):
    """The defects of a trace, worst first, with the numbers of repairs and of refused elements."""

    repaired: int
    refused: int
    notes: list[HealthNote]


ExternalIdKind = Literal["operators", "other", "unknown"]
"""Meaning of the External ids of work on devices."""


class Attribution(TypedDict, total=False):
    """The meaning of External ids, and the number of work events by the rule that assigned their operator."""

    external_ids: ExternalIdKind
    rules: dict[str, int]


class Residual(TypedDict):
    """Distances in ns between the ends of collectives on a rank and the median of their ends on all ranks."""

    median: int
    p95: int
    max: int


InputKind = Literal["trace", "nsight_systems", "perfetto", "memory_snapshot", "memory_timeline"]
"""The kind of an input of a rank, by the tool that recorded it."""


class MergedInput(TypedDict):
    """An input beside the trace of its rank in a merged trace; `pids` are as in `MergedRank`.

    Its events belong to no rank, so that analyses of the rank count nothing twice.
    """

    kind: InputKind
    name: str
    base_ns: int | None
    shift_ns: int
    pids: list[list[Key]]


class MergedRank(TypedDict):
    """A rank of a merged trace, and its alignment to the common clock.

    `pids` are pairs: the pid in the merged trace, and in the trace of the rank. `beside` is absent without such inputs,
    and the other fields if another program left them out of the document.
    """

    rank: int
    name: NotRequired[str]
    base_ns: NotRequired[int | None]
    shift_ns: NotRequired[int]
    collectives: NotRequired[int]
    residual_ns: NotRequired[Residual | None]
    pids: list[list[Key]]
    beside: NotRequired[list[MergedInput]]


@dataclass
class Summary:
    """The summary of a trace, made by its ingest; empty until the trace is ready.

    Times are in ns of the trace's own clock.

    Attributes:
        format: format of its file with the suffix of the compression, like ``json.gz``; None if it has no file.
        base_ns: zero of the trace's clock, in ns since 1970.
        events: numbers of events that were read, kept and refused.
        counts: numbers of events by ``phase|category``.
        streams: its streams, as ``device/stream``.
        health: its health report; see `service.trace.health`.
        attribution: how its work was assigned to operators; see `service.attribution.links`.
        ranks: of a merged trace, the ranks that it was merged from.
        totals: the lengths of lists that are cut; see `service.store.lists`.
    """

    format: str | None = None
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    bounds: Bounds | None = None
    base_ns: int | None = None
    events: EventCounts = field(default_factory=EventCounts)
    counts: dict[str, int] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    health: HealthReport = field(default_factory=HealthReport)
    attribution: Attribution = field(default_factory=Attribution)
    ranks: list[MergedRank] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)

    @property
    def phases(self) -> set[str]:
        """The phases of its events."""
        return {key.partition("|")[0] for key in self.counts}

    @property
    def categories(self) -> set[str]:
        """The categories of its events."""
        return {key.partition("|")[2] for key in self.counts}

    @property
    def is_memory_history(self) -> bool:
        """True for a memory snapshot, a memory timeline and a part of one, unless it is merged with GPU work."""
        of_memory = {SNAPSHOT_CATEGORY, BLOCK_CATEGORY, TIMELINE_CATEGORY}
        return not self.streams and not self.categories.isdisjoint(of_memory)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> "CoreSchema":
        """Make pydantic build summaries without validation: they are the output of the ingest."""
        from pydantic_core.core_schema import no_info_plain_validator_function  # noqa: PLC0415 - only children validate summaries

        return no_info_plain_validator_function(lambda fields: cls(**fields))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Summary":
        """Parse a text that this or another version's `as_json` wrote.

        Missing fields get their defaults; unknown fields are dropped. List entries are neither checked nor copied.
        """
        values = orjson.loads(text)
        for name in values.keys() - cls.__dataclass_fields__.keys():
            del values[name]
        return cls(**values)

    def as_json(self) -> str:
        """Return the summary as JSON text."""
        return orjson.dumps(self).decode()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, as JSON values. The values are not copies."""
        return dict(vars(self))

    @property
    def known_ranks(self) -> list[int]:
        """The rank of the trace, or those that it was merged from; empty if unknown."""
        return [merged["rank"] for merged in self.ranks] if self.rank is None else [self.rank]

    @property
    def kept_events(self) -> int:
        """The number of events that were kept."""
        return self.events.get("kept", 0)

    @property
    def steps_count(self) -> int:
        """The number of steps, of which `steps` may list only the first ones, or none."""
        return self.totals.get("steps", len(self.steps))

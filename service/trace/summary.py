"""What is told of a trace before anyone asks a question of its own."""

from dataclasses import dataclass, field
from typing import Any

GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "Kernel", "Memcpy", "Memset"})
"""Categories of work on a device; the capital ones were written before April 2022."""

LAUNCH_PATTERN = "Runtime|.*_(runtime|driver)"
"""A regular expression of the categories of calls that launch such work, of CUDA's or another runtime."""

OP_CATEGORIES = frozenset({"cpu_op", "Operator", "user_annotation", "User"})
"""Categories of what the host does that can be the cause of a launch."""

HOST_CATEGORIES = OP_CATEGORIES | {"python_function"}
"""Categories of what is done on the host, beside the calls that launch work."""

ANNOTATION_CATEGORIES = frozenset({"user_annotation", "User"})
"""Categories of the regions that a program names, on the host."""

OPERATOR_CATEGORIES = OP_CATEGORIES - ANNOTATION_CATEGORIES
"""Categories of operators alone."""

NOT_OPERATORS = frozenset(
    {
        *("[memory]", "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new"),
        *("profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version"),
    }
)
"""Names in the categories of operators that torch's own tables leave out."""

STEP_PREFIX = "ProfilerStep#"
"""How the names of steps begin."""

FLOW_PHASES = frozenset({"s", "t", "f"})
"""The ends of arrows, and what lies on their way."""

TIMELESS_PHASES = FLOW_PHASES | {"M", "C"}
"""Metadata, flows and counters: they describe or join what happened, and do not stretch a trace's bounds."""

Key = str | int
"""A pid or a tid."""


@dataclass
class Summary:
    """What ingest found in a trace; times in ns, in the trace's own clock (`base_ns` is its zero since the epoch)."""

    format: str | None
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    bounds: dict[str, int] | None = None
    base_ns: int | None = None
    events: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    processes: list[dict[str, Any]] = field(default_factory=list)
    threads: list[dict[str, Any]] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    health: dict[str, Any] = field(default_factory=dict)
    attribution: dict[str, Any] = field(default_factory=dict)
    """What External ids are, and how much work each rule gives an operator; see `service.attribution.links`."""
    ranks: list[dict[str, Any]] = field(default_factory=list)
    """Of a merged trace: of what it was made."""
    totals: dict[str, int] = field(default_factory=dict)
    """Of the lists that are not whole, how many entries there are; see `service.store.lists`."""

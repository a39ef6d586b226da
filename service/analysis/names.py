"""The names of the analyses, without their modules, which load slowly."""

NAMES = (
    "temporal_breakdown", "idle_breakdown", "comm_overlap", "kernel_breakdown", "kernel_sequences", "launch_stats",
    "queue_length", "memory_bandwidth", "operators", "steps", "gpu_summary", "counters", "annotations", "modules",
    "call_stacks", "memory", "memory_snapshot", "collectives", "dataloader", "recommendations", "compare",
    "compare_snapshots", "step_figures", "critical_path", "overview",
)  # fmt: skip
"""In the order of lists. Each is also the name of its module in this folder."""

COMPARISONS = frozenset({"compare", "compare_snapshots"})
"""The analyses of two sides."""
OF_SNAPSHOTS = frozenset({"memory_snapshot", "compare_snapshots"})
"""The analyses of memory snapshots; all others are of traces with times of work."""

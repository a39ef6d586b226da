"""The sections of a report: what each analysis says, in a few figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.report.answers import Answer, Row
from service.report.document import CODE, Advice, Bar, Bars, Block, Column, Fact, Sentence, Series, Table
from service.report.units import readable

ROWS_MAX = 25
"""Maximum number of rows of a table."""
BARS_MAX = 64
_MENTIONED_MIN = 0.005
"""Smallest share of the time at which the first sentence mentions a wait; the bars show shorter waits, too."""

DEVICE_SERIES = (
    Series("compute", "computing"),
    Series("overlap", "computing and communicating"),
    Series("comm", "communicating only"),
    Series("mem", "copying only"),
    Series("idle", "idle"),
)
_STEP_COLUMNS = {
    "kernel_ns": Series("compute", "computing"),
    "memcpy_ns": Series("mem", "copying"),
    "memset_ns": Series("c5", "memset"),
    "communication_ns": Series("comm", "communication"),
    "runtime_ns": Series("c3", "runtime calls"),
    "dataloader_ns": Series("alarm", "waiting for data"),
    "cpu_exec_ns": Series("host", "operators on the host"),
    "other_ns": Series("idle", "other"),
}
_CAUSES = {
    "host_wait": Series("host", "waiting for the host"),
    "kernel_wait": Series("mem", "between kernels"),
    "other": Series("idle", "other"),
}


@dataclass(frozen=True)
class SectionPlan:
    """A section to make.

    Attributes:
        title: its heading.
        analysis: the analysis that answers it.
        blocks: the function that makes its content.
        if_known: whether the section is left out if the analysis does not apply; otherwise it gives the reason.
    """

    title: str
    analysis: str
    blocks: Callable[[Answer], Sequence[Block]]
    if_known: bool = False


def _gpu_label(row: Row) -> str:
    rank, device = row["rank"], row["device"]
    return f"GPU {device}" if rank is None else f"rank {rank}, GPU {device}"


def device_time(answer: Answer) -> Sequence[Block]:
    """Show the time of each GPU; the parts of a bar do not overlap, and their sum is the span."""
    rows = answer.rows("breakdown")
    bars = [
        Bar(
            _gpu_label(row),
            [
                row["compute_ns"] - row["overlap_ns"],
                *(row[name] for name in ("overlap_ns", "exposed_comm_ns", "exposed_mem_ns", "idle_ns")),
            ],
        )
        for row in rows
    ]
    title = "Time of each GPU, from its first work to its last"
    return [
        Sentence(_verdict(rows)),
        Bars(title, DEVICE_SERIES, bars[:BARS_MAX], max(0, len(bars) - BARS_MAX)),
        _table("Shares of the time", answer, "breakdown", {
            "rank": "Rank", "device": "GPU", "span_ns": "Time", "compute_pct": "Computing", "idle_pct": "Idle",
            "exposed_comm_pct": "Exposed communication", "exposed_mem_pct": "Exposed copying",
        }),
    ]  # fmt: skip


def _verdict(rows: Sequence[Row]) -> str:
    def total(column: str) -> int:
        return sum(row[column] for row in rows)

    def share(column: str) -> str:
        return readable(100 * total(column) / span if span else 0.0, "%")

    span = total("span_ns")
    if len(rows) == 1:
        subject, length = "The GPU is", readable(span, "ns")
    else:
        subject, length = f"The {len(rows)} GPUs are", f"{readable(span / len(rows), 'ns')} on average"
    sentence = f"{subject} idle {share('idle_ns')} of {length}, and computing {share('compute_ns')}"
    waits = [
        f"{share(column)} is exposed {activity}"
        for column, activity in (("exposed_comm_ns", "communication"), ("exposed_mem_ns", "copying"))
        if total(column) >= span * _MENTIONED_MIN
    ]
    return f"{sentence}; {', and '.join(waits)}." if waits else f"{sentence}."


def advice(answer: Answer) -> Sequence[Block]:
    """Show what to try first, with its figures."""
    evidence = answer.rows("evidence")
    blocks: list[Block] = []
    for row in answer.rows("recommendations"):
        rows = [
            figure for figure in evidence
            if figure["rule"] == row["rule"] and row["device"] in {None, figure["device"]}
        ]  # fmt: skip
        has_several_ranks = len({figure["rank"] for figure in rows}) > 1
        figures = [
            Fact(
                f"{_rank_label(figure['rank'])}: {figure['measure']}" if has_several_ranks else figure["measure"],
                figure["value"],
                figure["unit"],
            )
            for figure in rows
        ]
        blocks.append(Advice(row["advice"], row["reason"], figures))
    return blocks or [Sentence("No check found anything to improve.")]


def step_times(answer: Answer) -> Sequence[Block]:
    """Show each step if there is only one rank, else the mean step of each rank."""
    rows = answer.rows("steps")
    ranks = {row["rank"] for row in rows}
    blocks: list[Block] = []
    if len(ranks) == 1:
        bars = [
            Bar(
                "the whole trace" if row["step"] is None else f"step {row['step']}",
                [row[column] for column in _STEP_COLUMNS],
            )
            for row in rows
        ]
        title = "Time of each step"
    else:
        means = {(row["rank"], f"{row['category']}_ns"): row["mean_ns"] for row in answer.rows("average")}
        bars = [
            Bar(_rank_label(rank), [round(means.get((rank, column), 0)) for column in _STEP_COLUMNS])
            for rank in dict.fromkeys(row["rank"] for row in rows)
        ]
        title = "Time of the mean step of each rank"
    blocks.append(Bars(title, [*_STEP_COLUMNS.values()], bars[:BARS_MAX], max(0, len(bars) - BARS_MAX)))
    longest = max(rows, key=lambda row: row["total_ns"])
    if len(rows) > 1:
        of_rank = f" of {_rank_label(longest['rank'])}" if len(ranks) > 1 else ""
        maximum = readable(longest["total_ns"], "ns")
        mean = readable(sum(row["total_ns"] for row in rows) / len(rows), "ns")
        text = f"Step {longest['step']}{of_rank} is the longest of {len(rows)}: {maximum}; the mean is {mean}."
        blocks.insert(0, Sentence(text))
    return blocks


def _rank_label(rank: int | None) -> str:
    return "rank unknown" if rank is None else f"rank {rank}"


def kernels(answer: Answer) -> Sequence[Block]:
    """Show the kernels that take the most time."""
    columns = {
        "rank": "Rank", "device": "GPU", "name": "Kernel", "count": "Launches", "sum_ns": "Time", "mean_ns": "Mean",
        "tensor_cores": "Matrix cores", "occupancy_pct": "Occupancy",
    }  # fmt: skip
    return [_table("Kernels with the most time", answer, "kernels", columns, by="sum_ns")]


def kernels_of_run(answer: Answer) -> Sequence[Block]:
    """Show the kernels that take the most time on all ranks together."""
    columns = {
        "name": "Kernel", "ranks": "Ranks", "count": "Launches", "sum_ns": "Time", "sum_pct": "Share",
        "mean_rank_sum_ns": "Mean of the ranks", "max_rank_sum_ns": "Most on a rank",
    }  # fmt: skip
    return [_table("Kernels with the most time on all ranks", answer, "total_kernels", columns, by="sum_ns")]


def operators(answer: Answer) -> Sequence[Block]:
    """Show the operators with the most time of their own: on devices if work was linked to them, else on the host."""
    rows = answer.rows("operators")
    by = "device_self_ns" if any(row["device_self_ns"] for row in rows) else "host_self_ns"
    columns = {
        "rank": "Rank", "name": "Operator", "calls": "Calls", "host_self_ns": "Own time on the host",
        "host_total_ns": "Total on the host", "device_self_ns": "Own time on GPUs", "device_total_ns": "Total on GPUs",
    }  # fmt: skip
    return [_table("Operators with the most time of their own", answer, "operators", columns, by=by)]


def overlap(answer: Answer) -> Sequence[Block]:
    """Show how much communication is hidden."""
    columns = {
        "rank": "Rank", "device": "GPU", "comm_ns": "Communication", "overlap_ns": "Hidden behind computing",
        "overlap_pct": "Hidden", "exposed_comm_ns": "Not hidden",
    }  # fmt: skip
    return [_table("Communication of each GPU", answer, "overlap", columns)]


def idle_causes(answer: Answer) -> Sequence[Block]:
    """Show why the streams are idle."""
    lengths: dict[str, dict[str, int]] = {}
    for row in answer.rows("breakdown"):
        label = f"{_gpu_label(row)}, stream {row['stream']}"
        lengths.setdefault(label, dict.fromkeys(_CAUSES, 0))[row["category"]] = row["idle_ns"]
    bars = [Bar(label, [*causes.values()]) for label, causes in lengths.items()]
    title = "Idle time of each stream, between its first work and its last"
    return [Bars(title, [*_CAUSES.values()], bars[:BARS_MAX], max(0, len(bars) - BARS_MAX))]


def gpu_use(answer: Answer) -> Sequence[Block]:
    """Show how well each GPU is used."""
    columns = {
        "rank": "Rank", "device": "GPU", "name": "Name", "memory_bytes": "Memory", "utilization_pct": "A kernel runs",
        "busy_pct": "Any work runs", "sm_efficiency_pct": "SM efficiency", "occupancy_pct": "Occupancy",
        "tensor_core_pct": "Kernels on matrix cores", "tensor_core_unknown_pct": "Kernels of unknown kind",
    }  # fmt: skip
    return [_table("Use of each GPU during the steps", answer, "gpus", columns)]


def memory(answer: Answer) -> Sequence[Block]:
    """Show the peak memory of each device."""
    columns = {
        "rank": "Rank", "device_type": "Device", "device": "Number", "peak_bytes": "Peak",
        "peak_reserved_bytes": "Peak reserved", "peak_growth_bytes": "Largest growth",
        "unfreed_bytes": "Not freed in the trace", "allocations": "Allocations",
    }  # fmt: skip
    return [_table("Memory of each device", answer, "devices", columns)]


def snapshot_memory(answer: Answer) -> Sequence[Block]:
    """Show the peak of each device of a memory snapshot, who held it, and what is left behind step after step."""
    device_columns = {
        "rank": "Rank", "device": "GPU", "peak_bytes": "Peak", "peak_reserved_then_bytes": "Reserved then",
        "end_bytes": "At the end", "segments_bytes": "Segments", "unused_bytes": "Unused in them",
        "allocations": "Allocations", "ooms": "Out of memory",
    }  # fmt: skip
    stack_columns = {
        "rank": "Rank", "device": "GPU", "site": "Allocated at", "blocks": "Blocks", "held_bytes": "Held",
        "held_pct": "Share",
    }  # fmt: skip
    leak_columns = {
        "rank": "Rank", "device": "GPU", "site": "Allocated at", "steps": "Steps that leave blocks",
        "of_steps": "Of steps", "left_bytes": "Left", "left_per_step_bytes": "Per step",
    }  # fmt: skip
    step_columns = {
        "rank": "Rank", "device": "GPU", "name": "Step", "start_bytes": "At its start", "peak_bytes": "Peak",
        "end_bytes": "At its end", "allocated_bytes": "Allocated", "kept_bytes": "Of these, never freed",
    }  # fmt: skip
    blocks = [
        _table("Memory of each GPU", answer, "devices", device_columns),
        _table("What held memory at the peak", answer, "peak_stacks", stack_columns, by="held_bytes"),
    ]
    if answer.rows("steps"):
        blocks.append(_table("Memory of each step", answer, "steps", step_columns))
    if answer.rows("leaks"):
        title = "Stacks that leave memory behind in several steps"
        blocks.append(_table(title, answer, "leaks", leak_columns, by="left_bytes"))
    return blocks


def data_loading(answer: Answer) -> Sequence[Block]:
    """Show the time spent waiting for data."""
    columns = {
        "rank": "Rank", "loader": "Loader", "calls": "Calls", "loading_ns": "Waiting",
        "exposed_ns": "With no work on a device", "mean_ns": "Mean", "max_ns": "Longest",
    }  # fmt: skip
    return [_table("Waiting for data loaders", answer, "loaders", columns, by="loading_ns")]


def late_ranks(answer: Answer) -> Sequence[Block]:
    """Show which ranks are late, why, and which collectives wait the longest."""
    rank_columns = {
        "rank": "Rank", "straggler": "Straggler", "late_ns": "Late", "late_cause": "Main cause",
        "waited_for_ns": "Others wait for it", "wait_ns": "It waits for others", "transfer_ns": "Transfer",
        "times_last": "Times last", "collectives": "Collectives",
    }  # fmt: skip
    collective_columns = {
        "step": "Step", "collective": "Collective", "size_bytes": "Size", "duration_ns": "Duration",
        "mean_wait_ns": "Mean wait of a rank", "last_rank": "Last rank", "late_cause": "Its cause",
        "bus_gb_per_s": "Bus bandwidth",
    }  # fmt: skip
    late = [row for row in answer.rows("ranks") if row["straggler"] == "yes" and row["waited_for_ns"] != 0]
    blocks: list[Block] = []
    if late:
        names = ", ".join(_rank_label(row["rank"]) for row in late)
        waits = readable(sum(row["waited_for_ns"] or 0 for row in late), "ns")
        causes = ", ".join(sorted({row["late_cause"] for row in late if row["late_cause"]})) or "unknown"
        blocks.append(Sentence(f"Stragglers: {names}. Other ranks wait {waits} for them. Main cause: {causes}."))
    return [
        *blocks,
        _table("Ranks, the latest first", answer, "ranks", rank_columns, by="late_ns"),
        _table(
            "Collectives with the longest waits", answer, "collectives", collective_columns, by="mean_wait_ns"
        ),
    ]  # fmt: skip


TRACE_SECTIONS = (
    SectionPlan("What holds memory", "memory_snapshot", snapshot_memory, if_known=True),
    SectionPlan("Where the time goes", "temporal_breakdown", device_time),
    SectionPlan("What to try first", "recommendations", advice),
    SectionPlan("Steps", "steps", step_times),
    SectionPlan("Kernels", "kernel_breakdown", kernels),
    SectionPlan("Operators", "operators", operators),
    SectionPlan("Idle time", "idle_breakdown", idle_causes),
    SectionPlan("Communication", "comm_overlap", overlap),
    SectionPlan("Loading of data", "dataloader", data_loading),
    SectionPlan("Memory", "memory", memory),
    SectionPlan("Use of GPUs", "gpu_summary", gpu_use),
)
"""The sections of the report of a trace."""

RUN_SECTIONS = (
    SectionPlan("Where the time goes", "temporal_breakdown", device_time),
    SectionPlan("What to try first", "recommendations", advice),
    SectionPlan("Late ranks", "collectives", late_ranks),
    SectionPlan("Steps", "steps", step_times),
    SectionPlan("Kernels", "kernel_breakdown", kernels_of_run),
    SectionPlan("Communication", "comm_overlap", overlap),
    SectionPlan("Use of GPUs", "gpu_summary", gpu_use),
)
"""The sections of the report of a run."""


def _table(title: str, answer: Answer, table: str, columns: Mapping[str, str], by: str = "") -> Table:
    """Return the first rows of a table of an answer.

    Columns without values are left out, and so are the columns of ranks and GPUs if all rows have the same value.

    Args:
        title: what the rows are.
        answer: the answer.
        table: the table's name.
        columns: titles of the columns to show, by their names.
        by: column whose largest values come first; if empty, the order stays.
    """
    rows, units = answer.rows(table), answer.units(table)
    if by:
        rows.sort(key=lambda row: -(row[by] or 0))
    shown = rows[:ROWS_MAX]
    values = {name: {row[name] for row in rows} - {None} for name in columns}
    filled = [name for name in columns if len(values[name]) >= (2 if name in _PLACE_COLUMNS else 1)]
    return Table(
        title,
        [Column(columns[name], CODE if (table, name) in _NAME_COLUMNS else units[name]) for name in filled],
        [[row[name] for name in filled] for row in shown],
        len(rows) - len(shown),
    )


_NAME_COLUMNS = frozenset(
    {
        ("kernels", "name"), ("total_kernels", "name"), ("operators", "name"), ("loaders", "loader"),
        ("collectives", "collective"), ("peak_stacks", "site"), ("leaks", "site"),
    }
)  # fmt: skip
"""Columns that hold names from the trace; each is a pair of its table and its name."""
_PLACE_COLUMNS = frozenset({"rank", "device"})
"""Columns that a table leaves out if all of its rows have the same value in them."""

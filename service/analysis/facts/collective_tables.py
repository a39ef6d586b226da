"""Tables of the analysis of collectives, and their columns."""

from service.analysis.table import RANK, Column, Columns, count, ns, number, pct, word

GROUP = word("process_group", "name of the process group; empty where it is not told")
_DESCRIPTION = word("group_description", "what the program says the process group is for")
_SEQ = count("seq", "number that the process group gave it; empty where it is not told")
_INDEX = count("index", "place among those of the process group on its rank, from 0")
_SIZE = Column(
    "size_bytes",
    "int",
    "bytes",
    "by nccl-tests' definition: of an all-gather or gather the whole output, else what a rank gives",
)
KIND = (
    word("collective", "what is done, as the program tells it or, where it does not, the kernel's name"),
    word("dtype", "of the elements"),
    count("group_size", "ranks in the process group"),
    count("in_elements", "that a rank gives"),
    count("out_elements", "that a rank gets"),
    _SIZE,
)
_BUS = (
    "algorithm bandwidth by nccl-tests' factor: of an all-reduce 2 (n - 1) / n; of a reduce-scatter, all-gather,"
    " gather, scatter or all-to-all (as if its parts were even) (n - 1) / n; of a broadcast, reduce, send or receive 1"
)
_BANDWIDTH = (
    number("algorithm_gb_per_s", "size by duration, of 10^9 bytes", "GB/s"),
    number("bus_gb_per_s", _BUS, "GB/s"),
)
_OWN_BANDWIDTH = (
    number("algorithm_gb_per_s", "size by the rank's own duration, which includes its waiting", "GB/s"),
    number("bus_gb_per_s", f"likewise: {_BUS}", "GB/s"),
)
_NOTE = word("note", "why something is unknown or only assumed")
_CAUSE = (
    "before it launched, `before the trace` began, `data loading`, `synchronizing` (its host waited for its device) or"
    " `host`; after that `compute` or copies of its device, other `communication`, or `launch delay`; else `unknown`"
)
COLLECTIVES = (
    GROUP,
    _DESCRIPTION,
    word("group_ranks", "ranks of the process group, as the trace has them"),
    _SEQ,
    _INDEX,
    *KIND,
    count("step", "in which it was launched"),
    count("ranks", "that are known to take part"),
    word("consistent", "whether all of them tell the same of it: `no` if they may be different collectives"),
    ns("start", "of the first rank"),
    ns("end", "of the last rank"),
    ns("duration", "the shortest of a rank that is seen"),
    ns("latency", "the same, if all ranks are seen: the last rank to start waits for none"),
    ns("start_skew", "from the start of the first rank to that of the last"),
    ns("end_skew", "from the end of the first rank to that of the last"),
    number("mean_wait_ns", "of the ranks, for the last one to start", "ns"),
    count("first_rank", "that started first"),
    count("last_rank", "that started last: for it the others waited"),
    word("late_cause", f"what delayed that rank most: {_CAUSE}"),
    word("spent", "what its ranks spend most of its time on: `waiting` for the last one, or `transfer`"),
    *_BANDWIDTH,
    _NOTE,
)
RANKS = (
    RANK,
    word("straggler", "`yes` of those that are late the most"),
    count("collectives", "that it takes part in"),
    count("complete", "of these, of which all ranks are seen: only these tell who waits"),
    ns("wait", "for the last rank to start"),
    number("mean_wait_ns", "likewise, of a collective", "ns"),
    ns("transfer", "in collectives, after the last rank has started"),
    count("times_first", "it started first"),
    count("times_last", "it started last"),
    pct("last", "of all collectives"),
    ns("waited_for", "that the others waited, together, for this one to start"),
    ns("late", "after the first rank started, of all collectives"),
    ns("late_at_launch", "of that, before this rank launched the collective"),
    word("late_cause", f"what delayed it most, in all: {_CAUSE}"),
    ns("communication", "in all that communicates, one by one"),
    _NOTE,
)
LATENESS = (
    RANK,
    word("cause", _CAUSE),
    ns("late", "of the starts of the rank after the first ones, by this cause"),
    count("times_last", "it started last, and this delayed it most"),
    ns("late_as_last", "of the starts of the rank where it was the last, by this cause"),
)
WAITS = (
    RANK,
    GROUP,
    _DESCRIPTION,
    _SEQ,
    _INDEX,
    *KIND,
    word("source", "what tells of it: `kernel`, `launch` (the host around it), `annotation`, or only the `name`"),
    count("stream", "on which it ran"),
    count("step", "in which it was launched"),
    ns("launch", "when the host launched it, by the first rank's clock"),
    ns("start", "on this rank, by the first one's clock"),
    ns("duration", "on this rank, with its waiting"),
    ns("wait", "until the last rank started"),
    ns("transfer", "after the last rank started"),
    ns("late", "after the first rank started"),
    ns("late_at_launch", "of that, before this rank launched it"),
    word("late_cause", f"what delayed it most: {_CAUSE}"),
    *_OWN_BANDWIDTH,
)
OPERATIONS = (
    RANK,
    word("collective", "what is done"),
    count("calls", "of it"),
    Column("size_bytes", "int", "bytes", "of all calls of which it is known"),
    ns("latency", "with any of it"),
    ns("transfer", "of that, with the shortest duration of any rank at the end of each; empty unless all are seen"),
)
STEPS = (
    RANK,
    count("step", "in which it was launched; empty for none"),
    ns("communication", "with any collective"),
    ns("transfer", "of that, with the shortest duration of any rank at the end of each; empty unless all are seen"),
    ns("synchronizing", "the rest of it: waiting for other ranks; likewise"),
)
_SPREAD = (
    count("count", "of collectives"),
    ns("latency", "of all of which it is known"),
    number("mean_latency_ns", "of one", "ns"),
    number("stddev_latency_ns", "of the sample", "ns"),
    number("mean_start_skew_ns", "from the first start to the last", "ns"),
    number("stddev_start_skew_ns", "of the sample", "ns"),
    number("mean_end_skew_ns", "from the first end to the last", "ns"),
    number("stddev_end_skew_ns", "of the sample", "ns"),
    number("mean_algorithm_gb_per_s", "of one", "GB/s"),
    number("stddev_algorithm_gb_per_s", "of the sample", "GB/s"),
    number("mean_bus_gb_per_s", "of one", "GB/s"),
    number("stddev_bus_gb_per_s", "of the sample", "GB/s"),
)
SIZES = (GROUP, *KIND, *_SPREAD)
KERNELS = (
    RANK,
    GROUP,
    *KIND,
    count("stream", "on which they ran"),
    count("count", "of kernels"),
    ns("duration", "of all"),
    number("mean_duration_ns", "of one", "ns"),
    number("stddev_duration_ns", "of the sample", "ns"),
    ns("min_duration", "of one"),
    ns("max_duration", "of one"),
    number("mean_algorithm_gb_per_s", "of one: size by its own duration, which includes waiting", "GB/s"),
    number("mean_bus_gb_per_s", "likewise", "GB/s"),
)
TABLES: dict[str, Columns] = {
    "collectives": COLLECTIVES,
    "ranks": RANKS,
    "waits": WAITS,
    "lateness": LATENESS,
    "operations": OPERATIONS,
    "steps": STEPS,
    "sizes": SIZES,
    "kernels": KERNELS,
}

"""Tables of the analysis of collectives, and their columns."""

from service.analysis.table import RANK, Column, Columns, count, ns, number, pct, word

GROUP = word("process_group", "name of the process group; empty if it is not recorded")
_DESCRIPTION = word("group_description", "description that the program gives the process group")
_SEQ = count("seq", "sequence number within the process group; empty if it is not recorded")
_INDEX = count("index", "index among those of the process group on its rank, from 0")
_SIZE = Column(
    "size_bytes",
    "int",
    "bytes",
    "by nccl-tests' definition: the whole output of an all-gather or gather, else the input of a rank",
)
KIND = (
    word("collective", "operation that the program records or, failing that, the kernel's name shows"),
    word("dtype", "type of the elements"),
    count("group_size", "ranks in the process group"),
    count("in_elements", "elements that a rank sends"),
    count("out_elements", "elements that a rank receives"),
    _SIZE,
)
_BUS = (
    "algorithm bandwidth times nccl-tests' factor: for an all-reduce 2 (n - 1) / n; for a reduce-scatter, all-gather,"
    " gather, scatter or all-to-all (as if its parts were equal) (n - 1) / n; for a broadcast, reduce, send or receive"
    " 1"
)
_BANDWIDTH = (
    number("algorithm_gb_per_s", "size divided by duration, in 10^9 bytes per second", "GB/s"),
    number("bus_gb_per_s", _BUS, "GB/s"),
)
_OWN_BANDWIDTH = (
    number("algorithm_gb_per_s", "size divided by the rank's own duration, which includes its waiting", "GB/s"),
    number("bus_gb_per_s", f"by the rank's own duration: {_BUS}", "GB/s"),
)
_NOTE = word("note", "reasons why values are unknown or only assumed")
_CAUSE = (
    "before the launch: `before the trace` began, `data loading`, `synchronizing` (its host waits for its device) or"
    " `host`; after the launch: `compute` or copies of its device, other `communication`, or `launch delay`; else"
    " `unknown`"
)
COLLECTIVES = (
    GROUP,
    _DESCRIPTION,
    word("group_ranks", "ranks of the process group, as recorded in the trace"),
    _SEQ,
    _INDEX,
    *KIND,
    count("step", "step in which it was launched"),
    count("ranks", "ranks whose traces show it"),
    word("consistent", "whether all of these record the same operation: `no` if they may be different collectives"),
    ns("start", "start on the first rank"),
    ns("end", "end on the last rank"),
    ns("duration", "shortest duration of a rank whose trace is present"),
    ns("latency", "the same, if the traces of all ranks are present: the last rank to start waits for none"),
    ns("start_skew", "from the first rank's start to the last rank's start"),
    ns("end_skew", "from the first rank's end to the last rank's end"),
    number("mean_wait_ns", "mean over ranks of waiting for the last rank to start", "ns"),
    count("first_rank", "rank that started first"),
    count("last_rank", "rank that started last, for which the others waited"),
    word("late_cause", f"main cause of that rank's delay: {_CAUSE}"),
    word("spent", "where its ranks spend most of its time: `waiting` for the last one, or `transfer`"),
    *_BANDWIDTH,
    _NOTE,
)
RANKS = (
    RANK,
    word("straggler", "`yes` for the ranks that are late the most"),
    count("collectives", "collectives in which it takes part"),
    count("complete", "collectives for which the traces of all ranks are present: only these show waiting"),
    ns("wait", "waiting for the last rank to start"),
    number("mean_wait_ns", "the same, per collective", "ns"),
    ns("transfer", "time in collectives after the last rank has started"),
    count("times_first", "number of collectives that it started first"),
    count("times_last", "number of collectives that it started last"),
    pct("last", "these, as a share of all collectives"),
    ns("waited_for", "waiting of all other ranks together for this one to start"),
    ns("late", "delay after the first rank's start, over all collectives"),
    ns("late_at_launch", "part of this delay before the rank launched the collective"),
    word("late_cause", f"main cause of the whole delay: {_CAUSE}"),
    ns("communication", "sum of the durations of all communication"),
    _NOTE,
)
LATENESS = (
    RANK,
    word("cause", _CAUSE),
    ns("late", "delay of the rank's starts after the first rank's, by this cause"),
    count("times_last", "number of collectives that it started last, mainly by this cause"),
    ns("late_as_last", "delay by this cause in the collectives that it started last"),
)
WAITS = (
    RANK,
    GROUP,
    _DESCRIPTION,
    _SEQ,
    _INDEX,
    *KIND,
    word("source", "source of the metadata: `kernel`, `launch` (the host around it), `annotation`, or only the `name`"),
    count("stream", "stream on which it ran"),
    count("step", "step in which it was launched"),
    ns("launch", "time of its launch on the host, by the first rank's clock"),
    ns("start", "start on this rank, by the first rank's clock"),
    ns("duration", "duration on this rank, including its waiting"),
    ns("wait", "waiting for the last rank to start"),
    ns("transfer", "time after the last rank started"),
    ns("late", "delay after the first rank's start"),
    ns("late_at_launch", "part of this delay before the rank launched it"),
    word("late_cause", f"main cause of the delay: {_CAUSE}"),
    *_OWN_BANDWIDTH,
)
OPERATIONS = (
    RANK,
    word("collective", "name of the operation"),
    count("calls", "calls of the operation"),
    Column("size_bytes", "int", "bytes", "sum over the calls whose size is known"),
    ns("latency", "time in which any of its calls runs"),
    ns("transfer", "the same, if each call lasted as on the fastest rank; empty unless the traces of all are present"),
)
STEPS = (
    RANK,
    count("step", "step in which it was launched; empty for none"),
    ns("communication", "time in which any collective runs"),
    ns("transfer", "the same, if each lasted as on the fastest rank; empty unless the traces of all ranks are present"),
    ns("synchronizing", "the rest of the communication: waiting for other ranks; empty like `transfer_ns`"),
)
_SPREAD = (
    count("count", "number of collectives"),
    ns("latency", "sum of the known latencies"),
    number("mean_latency_ns", "mean latency", "ns"),
    number("stddev_latency_ns", "sample standard deviation of latencies", "ns"),
    number("mean_start_skew_ns", "mean time from the first start to the last", "ns"),
    number("stddev_start_skew_ns", "sample standard deviation of these", "ns"),
    number("mean_end_skew_ns", "mean time from the first end to the last", "ns"),
    number("stddev_end_skew_ns", "sample standard deviation of these", "ns"),
    number("mean_algorithm_gb_per_s", "mean algorithm bandwidth", "GB/s"),
    number("stddev_algorithm_gb_per_s", "sample standard deviation of these", "GB/s"),
    number("mean_bus_gb_per_s", "mean bus bandwidth", "GB/s"),
    number("stddev_bus_gb_per_s", "sample standard deviation of these", "GB/s"),
)
SIZES = (GROUP, *KIND, *_SPREAD)
KERNELS = (
    RANK,
    GROUP,
    *KIND,
    count("stream", "stream on which they ran"),
    count("count", "number of kernels"),
    ns("duration", "sum of durations"),
    number("mean_duration_ns", "mean duration", "ns"),
    number("stddev_duration_ns", "sample standard deviation of durations", "ns"),
    ns("min_duration", "shortest duration"),
    ns("max_duration", "longest duration"),
    number("mean_algorithm_gb_per_s", "mean of size divided by the kernel's own duration, with its waiting", "GB/s"),
    number("mean_bus_gb_per_s", "mean bus bandwidth by the same duration", "GB/s"),
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

"""Print HolisticTraceAnalysis's answers about a trace as JSON. `make hta` installs it.

.hta/bin/python tests/data/ask_hta.py TRACE.json
"""

import json
import sys
import warnings

warnings.filterwarnings("ignore")

from hta.trace_analysis import TraceAnalysis  # noqa: E402 - the import emits warnings


def rows(table):
    """Return a table's rows as JSON values. The names of columns with two levels are joined with a slash."""
    if table is None:
        return []
    table = table.copy()
    table.columns = ["/".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in table.columns]
    return json.loads(table.reset_index().to_json(orient="records", double_precision=15))


def answers(path):
    """Return HTA's answers by the names of our questions."""
    hta = TraceAnalysis(trace_files={0: path})
    idle, intervals = hta.get_idle_time_breakdown(ranks=[0], visualize=False, show_idle_interval_stats=True)
    types, kernels = hta.get_gpu_kernel_breakdown(
        visualize=False, duration_ratio=1.0, num_kernels=100_000, include_memory_kernels=True
    )
    queues = hta.get_queue_length_time_series(ranks=[0])
    bandwidths = hta.get_memory_bw_time_series(ranks=[0])
    return {
        "start_us": int(hta.t.min_ts),
        "temporal_breakdown": rows(hta.get_temporal_breakdown(visualize=False)),
        "comm_overlap": rows(hta.get_comm_comp_overlap(visualize=False)),
        "idle": rows(idle),
        "intervals": rows(intervals),
        "types": rows(types),
        "kernels": rows(kernels),
        "launches": rows(hta.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]),
        "queue_series": rows(queues.get(0)),
        "queue_summary": rows(hta.get_queue_length_summary(ranks=[0])),
        "bandwidth_series": rows(bandwidths.get(0)),
        "bandwidth_summary": rows(hta.get_memory_bw_summary(ranks=[0])),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answers(sys.argv[1])))

"""Print HolisticTraceAnalysis's critical path of each step as JSON. `make hta` installs it.

.hta/bin/python tests/data/ask_hta_path.py /ABSOLUTE/TRACE.json
"""

import json
import sys
import warnings

warnings.filterwarnings("ignore")

from hta.trace_analysis import TraceAnalysis  # noqa: E402 - the import emits warnings


def answers(path):
    """Yield each step's name, the length of its path in µs, in total and by type of edge, and the tids on the path."""
    hta = TraceAnalysis(trace_files={0: path}, include_last_profiler_step=True)
    events, names = hta.t.get_trace(0), hta.t.symbol_table.get_sym_table()
    steps = [name for name in events["name"].map(names.__getitem__) if name.startswith("ProfilerStep")]
    for place, step in enumerate(steps):
        graph, worked = hta.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=place)
        edges = graph.critical_path_edges_set
        types = {}
        for edge in edges:
            types[edge.type.value] = types.get(edge.type.value, 0) + float(edge.weight)
        tids = {int(events.loc[graph.node_list[node].ev_idx, "tid"]) for node in graph.critical_path_nodes}
        yield {
            "step": step,
            "worked": bool(worked),
            "length_us": float(sum(edge.weight for edge in edges)),
            "types": types,
            "tids": sorted(tids),
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps([*answers(sys.argv[1])]))

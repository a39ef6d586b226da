"""Built-in analyses of one trace and of many ranks, next to Holistic Trace Analysis where it is installed."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from service.analysis.kept_answers import KEPT
from service.store.folder import ANSWERS
from tests.bench.figures import Row, drain, run_alone, served, settle, timed
from tests.bench.pages import measure_pages, measure_run
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import until

ANALYSIS, ALL = "analysis: ", "all of one trace, at once"
HTA, OURS = "HTA: load and five analyses", "the same here: PUT, ingest, analyses"
RANKS = "temporal breakdown of the ranks"
HTA_PYTHON = Path(".hta", "bin", "python")  # `make hta` installs it
HEADLINES = ("temporal_breakdown", "idle_breakdown", "comm_overlap", "kernel_breakdown", "launch_stats")
_HTA = (
    "from hta.trace_analysis import TraceAnalysis; import sys\n"
    "one = TraceAnalysis(trace_files={0: sys.argv[1]})\n"
    "one.get_temporal_breakdown(visualize=False)\n"
    "one.get_idle_time_breakdown(visualize=False)\n"
    "one.get_comm_comp_overlap(visualize=False)\n"
    "one.get_gpu_kernel_breakdown(visualize=False)\n"
    "one.get_cuda_kernel_launch_stats(visualize=False)\n"
)


def measure_analyses(server: Server, trace: dict[str, Any], folder: Path) -> list[Row]:
    """Measure each answer, all answers at once, and the pages, each time in a process that has not read the trace."""
    path, rows = f"/traces/{trace['id']}/analysis", list[Row]()
    small = server.upload(write_trace(folder / "small.json", TraceShape(steps=3)), wait=3600)
    listed = server.api.get(path).json()["analyses"]
    names = [analysis["name"] for analysis in listed if analysis["applies"] or analysis["name"] == "compare"]
    excluded = {analysis["name"] for analysis in listed} - {*names}
    sys.stdout.write(f"analyses that do not apply: {', '.join(sorted(excluded)) or 'none'}\n")
    settle(server)
    for name in names:
        _forget(server, small)
        with timed(ANALYSIS + name, server, rows):
            drain(server, f"{path}/{name}{_query(name, trace)}")
    names.remove("compare")
    _forget(server, small)
    with timed(ALL, server, rows), ThreadPoolExecutor(len(names)) as clients:
        list(clients.map(lambda name: drain(server, f"{path}/{name}{_query(name, trace)}"), names))
    return rows + measure_pages(server, str(trace["id"]), lambda: _forget(server, small))


def _forget(server: Server, small: dict[str, Any]) -> None:
    """Replace the analysis process by one that has read only a small trace, and remove all kept answers."""
    for process in server.children("tracedock analysis"):
        process.kill()
        process.wait()
    for name in ("operators", "critical_path"):
        while server.api.get(f"/traces/{small['id']}/analysis/{name}").status_code != 200:
            pass  # the server has not yet noticed that the process ended
    for answers in server.data.glob(f"columns/*/{ANSWERS}"):
        shutil.rmtree(answers)


def _query(name: str, trace: dict[str, Any]) -> str:
    """Return the URL query of a question: `compare` gets the same trace twice, and no sequence is too short."""
    return {"compare": f"?traces={trace['id']}", "kernel_sequences": "?min_length=1"}.get(name, "")


def measure_hta(folder: Path, path: Path | None) -> list[Row]:
    """Measure HTA's main analyses in HTA and here, each from the file; without a path, generate a trace of 108 MB."""
    if not HTA_PYTHON.exists():
        sys.stdout.write(f"{HTA_PYTHON} is missing: `make hta` installs Holistic Trace Analysis\n")
        return []
    if path is None:
        shape = sized(TraceShape(rank=0, steps=10), 108 * 10**6)
        path = write_trace(folder / "rank-0.json.gz", shape, compress="gzip")
    rows = [run_alone(HTA, [str(HTA_PYTHON), "-c", _HTA, str(path)])]
    with served(folder / "headlines", keep_ready=True) as server:
        small = server.upload(write_trace(folder / "small.json", TraceShape(steps=3)), wait=3600)  # warms up the server
        drain(server, f"/traces/{small['id']}/analysis/operators")
        settle(server)
        with timed(OURS, server, rows):
            trace = server.upload(path, wait=3600)["id"]
            answers = [server.api.get(f"/traces/{trace}/analysis/{name}") for name in HEADLINES]
        # 422: the analysis does not apply
        if odd := [answer for answer in answers if answer.status_code not in {200, 422}]:
            sys.exit(f"{odd[0].url}: {odd[0].text}")
    return rows


def measure_ranks(folder: Path, ranks: int, megabytes: int) -> list[Row]:
    """Measure one question about many ranks, each with a trace of the given size, and the page of their run.

    The page is prepared while the traces arrive, as that of any run is.
    """
    rows: list[Row] = []
    with served(folder / "many", keep_ready=True, prepare_pages=True) as server:
        traces = []
        for rank in range(ranks):
            shape = sized(TraceShape(rank=rank, world_size=ranks, seed=rank), megabytes * 10**6)
            path = write_trace(folder / f"rank{rank}.json.gz", shape, compress="gzip")
            trace = server.upload(path, wait=3600, group="run")
            traces.append(str(trace["id"]))
            path.unlink()
        parameters = "&".join(f"traces={trace_id}" for trace_id in traces[1:])
        question = f"/traces/{traces[0]}/analysis/temporal_breakdown?{parameters}"
        until(lambda: len([*server.data.glob(f"columns/*/{ANSWERS}/{KEPT[-1]}.arrow")]) == ranks)
        drain(server, question)  # starts the analysis process
        settle(server)
        with timed(f"{RANKS}: {ranks} of {megabytes} MB", server, rows):
            drain(server, question)
        rows += measure_run(server, str(trace["group"]["id"]))
    return rows

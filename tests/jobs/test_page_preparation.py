"""Pages are prepared once a trace is ready, and nothing depends on it."""

from collections.abc import Callable
from pathlib import Path

import psutil

from service.analysis.kept_answers import KEPT
from service.jobs.children.priority import NICE
from service.store.folder import ANSWERS
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import until

PREPARING = "tracedock prepare"


def kept_by(server: Server, trace_id: str) -> set[str]:
    """Return the names of the questions whose answers about a trace are kept."""
    return {file.name.split(".")[0] for file in (server.data / "columns" / trace_id / ANSWERS).glob("*.arrow")}


def trace_of(folder: Path, rank: int = 0, megabytes: float = 1) -> Path:
    shape = sized(TraceShape(rank=rank, world_size=2, seed=rank), round(megabytes * 10**6))
    return write_trace(folder / f"rank{rank}.json.gz", shape, compress="gzip")


def run_on(server: Server, folder: Path) -> tuple[list[str], str]:
    """Upload the two ranks of a run, and return the ids of the traces and of the run."""
    traces = [server.upload(trace_of(folder, rank), group="run") for rank in range(2)]
    return [trace["id"] for trace in traces], traces[0]["group"]["id"]


def test_answers_of_each_trace_are_kept_once_it_is_ready(start_server: Callable[..., Server], tmp_path: Path) -> None:
    prepared, plain = start_server(prepare_pages=True), start_server()
    traces, run = run_on(prepared, tmp_path)
    until(lambda: all(kept_by(prepared, trace) == {*KEPT} for trace in traces))
    other_traces, other_run = run_on(plain, tmp_path)
    assert not any(kept_by(plain, trace) for trace in other_traces)
    for name in KEPT:
        answer = prepared.api.get(f"/groups/{run}/analysis/{name}").json()
        assert answer["tables"] == plain.api.get(f"/groups/{other_run}/analysis/{name}").json()["tables"]


def test_removing_a_trace_ends_its_preparation(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(prepare_pages=True)
    trace = server.upload(trace_of(tmp_path, megabytes=30))
    until(lambda: bool(server.children(PREPARING)))
    [child] = server.children(PREPARING)
    assert server.api.delete(f"/traces/{trace['id']}").status_code == 204
    assert not child.is_running()
    assert not (server.data / "columns" / trace["id"]).exists()
    following = server.upload(trace_of(tmp_path, rank=1))
    until(lambda: kept_by(server, following["id"]) == {*KEPT})


def test_killed_preparation_changes_no_answer(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(prepare_pages=True)
    trace = server.upload(trace_of(tmp_path, megabytes=30))
    until(lambda: bool(server.children(PREPARING)))
    [child] = server.children(PREPARING)
    child.kill()
    until(lambda: "are not prepared" in server.log_text())
    answer = server.api.get(f"/traces/{trace['id']}/analysis/steps")
    assert answer.status_code == 200
    assert answer.json()["tables"]["steps"]["rows"]


def test_preparation_has_a_lower_priority_than_the_server(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(prepare_pages=True)
    server.upload(trace_of(tmp_path, megabytes=30))
    until(lambda: bool(server.children(PREPARING)))
    [child] = server.children(PREPARING)
    own = psutil.Process(server.pid).nice()
    until(lambda: not child.is_running() or child.nice() == min(own + NICE, 19))

"""Pages are prepared once a trace is ready, and nothing depends on it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.analysis.kept_answers import KEPT
from service.jobs import page_preparation
from service.jobs.children.kinds import Kind
from service.jobs.children.priority import NICE
from service.jobs.children.task_process import Outcome
from service.jobs.children.tasks.questions import PrepareTask
from service.store.catalog import Catalog
from service.store.folder import ANSWERS, Folder
from service.trace.errors import InsufficientStorage
from service.trace.summary import Summary
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


def preparing(server: Server) -> psutil.Process:
    """Return the child that prepares pages, once there is one."""
    children: list[psutil.Process] = []

    def look() -> bool:
        children.extend(server.children(PREPARING))
        return bool(children)

    until(look)
    return children[0]


def test_removing_a_trace_ends_its_preparation(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(prepare_pages=True)
    trace = server.upload(trace_of(tmp_path, megabytes=30))
    child = preparing(server)
    assert server.api.delete(f"/traces/{trace['id']}").status_code == 204
    assert not child.is_running()
    assert not (server.data / "columns" / trace["id"]).exists()
    following = server.upload(trace_of(tmp_path, rank=1))
    until(lambda: kept_by(server, following["id"]) == {*KEPT})
    until(lambda: not server.children(PREPARING) and not [*server.data.glob("*.spill-*")])


def test_killed_preparation_changes_no_answer(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(prepare_pages=True)
    trace = server.upload(trace_of(tmp_path, megabytes=30))
    preparing(server).kill()
    until(lambda: "are not prepared" in server.log_text())
    until(lambda: not [*server.data.glob("*.spill-*")])
    answer = server.api.get(f"/traces/{trace['id']}/analysis/steps")
    assert answer.status_code == 200
    assert answer.json()["tables"]["steps"]["rows"]


def test_preparation_has_a_lower_priority_than_the_server(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(prepare_pages=True)
    server.upload(trace_of(tmp_path, megabytes=30))
    child, own = preparing(server), psutil.Process(server.pid).nice()
    until(lambda: child.nice() == min(own + NICE, 19))


def test_full_disk_ends_all_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, folder = Catalog(tmp_path / "catalog.sqlite"), Folder(tmp_path / "data")
    folder.open()
    for trace_id in ("a", "b", "c"):
        catalog.add(trace_id, name=trace_id, size=1, sha256=trace_id, summary=Summary())
    started: list[str] = []

    class Refused:
        def __init__(self) -> None:
            self.ended = asyncio.create_task(self._refuse())

        async def _refuse(self) -> Outcome[int]:
            return Outcome("was ended", error=InsufficientStorage("The disk is full."))

    class Refusing:
        def run(self, _: Kind, task: PrepareTask) -> Refused:
            started.append(task.columns.name)
            return Refused()

    runner: Any = Refusing()

    async def scenario() -> None:
        preparation = page_preparation.PagePreparation(catalog, folder, runner, enabled=True, deadline_s=60)
        for trace_id in ("a", "b"):
            preparation.add(trace_id)
        await preparation.settled()
        assert started == ["a"]
        preparation.add("c")
        await preparation.settled()
        assert started == ["a", "c"]

    asyncio.run(scenario())
    catalog.close()
    folder.close()

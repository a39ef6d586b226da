"""Workers, the scheduler, S3 and the server are killed at random during an import: each rank is there once, whole."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from service.store.locations.location import location_of
from tests.fleet.test_random_kills import KILLS, LONGEST_S, SHORTEST_S, Processes, cluster, s3, write_run
from tests.ports import free_port
from tests.server import Server
from tests.store.s3 import S3Server, program
from tests.traces import TraceShape, expected

__all__ = ["s3"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(program() is None, reason="weed is not installed: run .ci/programs"),
]
RUN = "s3://traces/run-7"


def test_each_rank_is_imported_once_whatever_is_killed(s3: S3Server, tmp_path: Path) -> None:
    chance = random.Random(0)
    shapes = write_run(location_of(RUN), tmp_path)
    port, killed, rounds = free_port(), Counter[str](), 0
    with cluster(port) as processes:
        while sum(killed.values()) < KILLS:
            server = Server(
                tmp_path / f"data{rounds}",
                dask_scheduler=f"tcp://127.0.0.1:{port}",
                dask_wait_s=120,
                ingest_attempts=100,
                import_roots=RUN,
            ).start()
            try:
                _import(server, processes, s3, chance, killed)
                _check(server, shapes)
            finally:
                server.stop()
            rounds += 1
    assert {"scheduler", "worker 0", "worker 1", "s3", "server", "connection"} <= killed.keys()


def _import(
    server: Server,
    processes: Processes,
    s3: S3Server,
    chance: random.Random,
    killed: Counter[str],
) -> None:
    """Import a run, with kills until all of it is read."""
    assert server.api.post("/traces/import", json={"path": RUN}).status_code == 202
    while not _is_settled(server):
        deadline = time.monotonic() + chance.uniform(SHORTEST_S, LONGEST_S)
        while time.monotonic() < deadline and not _is_settled(server):
            processes.revive()
        if sum(killed.values()) >= KILLS:
            continue
        victim = chance.choice(["scheduler", "worker 0", "worker 1", "s3", "server", "connection"])
        killed[victim] += 1
        if victim == "server":
            server.kill()
            server.start()
        elif victim == "s3":
            s3.kill()
            s3.start()
        elif victim == "connection":
            for child in server.children("tracedock cluster"):
                child.kill()
        else:
            processes.kill_and_start(victim)


def _is_settled(server: Server) -> bool:
    jobs = server.api.get("/jobs", params={"limit": 100}).json()["jobs"]
    return all(job["state"] in {"done", "failed", "cancelled"} for job in jobs)


def _check(server: Server, shapes: dict[str, TraceShape]) -> None:
    """Check that each file is a ready trace once, whole, and that nothing else is left."""
    traces = server.api.get("/traces", params={"limit": 100}).json()["traces"]
    assert Counter(trace["name"] for trace in traces) == Counter(shapes.keys())
    assert [(trace["name"], trace["error"]) for trace in traces if trace["state"] != "ready"] == []
    for trace in traces:
        counts = server.api.get(f"/traces/{trace['id']}").json()["counts"]
        assert counts == expected(shapes[trace["name"]]).counts
    assert {path.name for path in (server.data / "columns").iterdir()} == {trace["id"] for trace in traces}

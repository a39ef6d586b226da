"""After a kill of any process at any moment, all acknowledged work exists and no half-done work is left."""

import hashlib
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.system

PROCESSES = {
    "ingest": "tracedock ingest",
    "derive": "tracedock derive",
    "export": "tracedock export",
    "analysis": "tracedock analysis",
    "fork server": "tracedock fork server",
    "engine": "--stdiod",
}
"""Kinds of processes that a server starts, each with a part of its command line."""

ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that takes about a second to read: time enough to be killed in."""
    return write_trace(tmp_path_factory.mktemp("trace") / "a.json", sized(TraceShape(), 15 * 10**6))


@pytest.fixture(scope="module")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that takes some tenths of a second to read."""
    return write_trace(tmp_path_factory.mktemp("small") / "a.json", sized(TraceShape(), 3 * 10**6))


def put_part(server: Server, body: bytes, count: int) -> socket.socket:
    """Begin to upload `body`, and stop after `count` bytes."""
    host, port = urlsplit(server.url).netloc.split(":")
    wire = socket.create_connection((host, int(port)))
    wire.sendall(
        f"PUT /api/v1/traces/cut.json HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    )
    wire.sendall(body[:count])
    return wire


def in_thread(server: Server, method: str, path: str, body: dict[str, object] | None = None) -> Thread:
    """Start a thread that sends a request and accepts every outcome: its server may be killed."""

    def send() -> None:
        with httpx.Client(timeout=PATIENCE_S, trust_env=False) as client, suppress(httpx.TransportError):
            client.request(method, f"{server.url}/api/v1{path}", json=body)

    thread = Thread(target=send)
    thread.start()
    return thread


class Round:
    """One round: begin some work, kill a process at a random moment, and check the outcome."""

    def __init__(self, server: Server, trace: Path, chance: random.Random) -> None:
        self.server = server
        self.trace = trace
        self.body = trace.read_bytes()
        self.chance = chance
        self.acknowledged: set[str] = set()
        self.jobs: list[str] = []
        self.cleanup: list[Callable[[], object]] = []

    def upload(self) -> None:
        """Stop in the middle of an upload; ingest follows it once enough bytes are received."""
        part = put_part(self.server, self.body, self.chance.randrange(len(self.body)))
        self.cleanup.append(part.close)

    def ingest(self) -> None:
        """Stop in the middle of an ingest."""
        trace = self.server.upload(self.trace, wait=0)
        self.acknowledged.add(str(trace["id"]))
        until = self.chance.random()
        while trace["state"] not in ("ready", "failed"):
            progress = trace["progress"]
            assert isinstance(progress, dict)
            if progress["bytes"] >= until * progress["bytes_total"]:
                break
            trace = self.server.api.get(f"/traces/{trace['id']}", params={"wait": 0.02}).json()

    def split(self) -> None:
        """Stop in the middle of a split."""
        trace = self.server.upload(self.trace)
        self.acknowledged.add(str(trace["id"]))
        self.begin(f"/traces/{trace['id']}/split", {"by": "parts", "value": 3})

    def merge(self) -> None:
        """Stop in the middle of a merge."""
        ids = [str(self.server.upload(self.trace)["id"]) for _ in range(2)]
        self.acknowledged.update(ids)
        self.begin("/traces/merge", {"traces": ids, "ranks": [0, 1]})

    def overlay(self) -> None:
        """Stop in the middle of an overlay."""
        trace_id = str(self.server.upload(self.trace)["id"])
        self.acknowledged.add(trace_id)
        self.begin(f"/traces/{trace_id}/overlay", {"analysis": "critical_path"})

    def export(self) -> None:
        """Stop in the middle of a download that is written from the columns."""
        trace_id = str(self.server.upload(self.trace)["id"])
        self.acknowledged.add(trace_id)
        download = in_thread(self.server, "GET", f"/traces/{trace_id}/download?format=parquet&order=original")
        self.cleanup.append(download.join)
        self.some_moment("tracedock export")

    def analysis(self) -> None:
        """Stop in the middle of an analysis."""
        trace_id = str(self.server.upload(self.trace)["id"])
        self.acknowledged.add(trace_id)
        analysis = in_thread(self.server, "GET", f"/traces/{trace_id}/analysis/critical_path")
        self.cleanup.append(analysis.join)
        self.some_moment("tracedock analysis")

    def deletion(self) -> None:
        """Delete a trace while another is ingested, and stop at once: an acknowledged deletion is final."""
        trace_id = str(self.server.upload(self.trace)["id"])
        self.ingest()
        self.server.api.delete(f"/traces/{trace_id}").raise_for_status()

    def some_moment(self, module: str) -> None:
        """Return once a child of the server has worked for a random time or has ended."""
        until = self.chance.random() * 0.3
        for process in self.server.children(module):
            with suppress(psutil.NoSuchProcess):
                start = sum(process.cpu_times()[:2])
                deadline = time.monotonic() + until
                while sum(process.cpu_times()[:2]) < start + until and time.monotonic() < deadline:
                    pass

    def begin(self, path: str, body: dict[str, object]) -> None:
        """Begin a job, and stop at a random point of its progress."""
        job = self.server.api.post(path, json=body).raise_for_status().json()
        self.jobs.append(job["id"])
        until = self.chance.random()
        while job["state"] in ("queued", "running"):
            if job["progress"]["events"] >= until * max(job["progress"]["events_total"], 1):
                break
            job = self.server.api.get(f"/jobs/{job['id']}", params={"wait": 0.02}).json()

    def query(self) -> None:
        """Stop while an engine loads, or in the middle of a query."""
        trace = self.server.upload(self.trace)
        self.acknowledged.add(str(trace["id"]))
        waits = self.chance.choice([True, False])
        self.server.api.post(f"/traces/{trace['id']}/session", params={"wait": 30 if waits else 0})
        endless = in_thread(self.server, "POST", f"/traces/{trace['id']}/query", {"sql": ENDLESS, "timeout_s": 2})
        self.cleanup.append(endless.join)

    def kill(self, target: str) -> None:
        """`kill -9` the server, or its workers or engines if any run."""
        if target == "server":
            children = self.server.children()
            self.server.kill()
            _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
            assert not alive, f"left behind: {alive}"
            self.server.start()
            return
        for child in self.server.children(PROCESSES[target]):
            with suppress(psutil.NoSuchProcess):  # the child has ended meanwhile
                child.kill()

    def check(self, label: str) -> None:
        """Check that all acknowledged work becomes ready, and that the data folder holds nothing else."""
        children = set()
        for job_id in self.jobs:
            job = self.server.api.get(f"/jobs/{job_id}", params={"wait": PATIENCE_S}).json()
            assert (job["state"], job["error"]) == ("done", None), label
            children |= set(job["result"]["traces"])
        folder, digest = self.server.data, hashlib.sha256(self.body).hexdigest()
        listed = self.server.api.get("/traces", params={"limit": 500}).json()["traces"]
        ids = {trace["id"] for trace in listed}
        assert ids == self.acknowledged | children, label
        assert list((folder / "making").iterdir()) == []
        for trace_id in children:
            assert self.server.api.get(f"/traces/{trace_id}/download").status_code == 200
            self.server.api.delete(f"/traces/{trace_id}").raise_for_status()
        ids -= children
        for trace_id in ids:
            trace = self.server.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json()
            assert (trace["state"], trace["sha256"], trace["error"]) == ("ready", digest, None), label
            assert (folder / "originals" / trace_id).stat().st_size == len(self.body)
        for close in self.cleanup:
            close()
        self.cleanup.clear()
        assert {path.name for path in (folder / "originals").iterdir()} == ids
        until(lambda: {path.name for path in (folder / "columns").iterdir()} == ids)
        for trace_id in ids:
            self.server.api.delete(f"/traces/{trace_id}").raise_for_status()
        self.acknowledged.clear()
        self.jobs.clear()


def survive(server: Server, trace: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    kill_round = Round(server, trace, chance)
    stages = [
        kill_round.upload,
        kill_round.ingest,
        kill_round.query,
        kill_round.split,
        kill_round.merge,
        kill_round.overlay,
        kill_round.export,
        kill_round.analysis,
        kill_round.deletion,
    ]
    for number in range(rounds):
        stage = chance.choice(stages)
        target = chance.choice(["server", *PROCESSES])
        label = f"round {number}: the {target} killed during {stage.__name__}"
        stage()
        kill_round.kill(target)
        kill_round.check(label)
    server.kill()
    server.start()
    assert list((server.data / "incoming").iterdir()) == []
    assert list(server.data.glob("*.spill-*")) == []


@pytest.mark.timeout(300)
def test_four_kills_at_random_moments_lose_nothing_and_leave_nothing(
    start_server: Callable[..., Server], trace: Path
) -> None:
    survive(start_server(ingest_attempts=5), trace, 4, seed=1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", ["server", "the process that works"])
@pytest.mark.parametrize("stage", ["ingest", "split", "merge"])
def test_kill_during_each_kind_of_job_loses_nothing_and_leaves_nothing(
    start_server: Callable[..., Server], trace: Path, stage: str, target: str
) -> None:
    kill_round = Round(start_server(ingest_attempts=5), trace, random.Random(3))
    getattr(kill_round, stage)()
    kill_round.kill("server" if target == "server" else "ingest" if stage == "ingest" else "derive")
    kill_round.check(f"{target} killed during {stage}")


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_thousand_kills_at_random_moments_lose_nothing_and_leave_nothing(
    start_server: Callable[..., Server], small_trace: Path, seed: int
) -> None:
    survive(start_server(ingest_attempts=8), small_trace, 250, seed=seed)

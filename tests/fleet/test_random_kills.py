"""Workers, schedulers, the S3 server and the ingest itself are killed at random: each rank is there once, and whole."""

import io
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from service.fleet.dataset import Dataset
from service.store.locations.location import Location, location_of
from tests.fleet.test_workers import DASK, listens
from tests.ports import free_port
from tests.store.s3 import S3Server, program, until_it_has_room
from tests.traces import TraceShape, write_trace
from tests.waiting import until

RANKS, KILLS = 64, 50
SHORTEST_S, LONGEST_S = 0.3, 3.0
"""Limits of the time between two kills."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(program() is None, reason="weed is not installed: run .ci/programs"),
]


class Processes:
    """The processes of a cluster, each with the function that starts it anew."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}

    def start(self, name: str, command: list[str]) -> None:
        self._commands[name] = command
        self._running[name] = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def kill(self, name: str) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._running[name].pid, signal.SIGKILL)
        self._running[name].wait()

    def kill_and_start(self, name: str) -> None:
        self.kill(name)
        self.start(name, self._commands[name])

    def revive(self) -> None:
        """Start what has ended by itself: workers end without their scheduler."""
        for name, process in [*self._running.items()]:
            if process.poll() is not None:
                self.start(name, self._commands[name])

    def kill_all(self) -> None:
        for name in self._running:
            self.kill(name)


@contextmanager
def cluster(port: int) -> Iterator[Processes]:
    processes = Processes()
    loopback = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    processes.start("scheduler", [str(DASK), "scheduler", *loopback, "--port", str(port)])
    for number in range(2):
        worker = [str(DASK), "worker", f"tcp://127.0.0.1:{port}", *loopback, "--nthreads", "1", "--death-timeout", "20"]
        processes.start(f"worker {number}", worker)
    try:
        until(lambda: listens(port))
        yield processes
    finally:
        processes.kill_all()


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    (tmp_path / "s3").mkdir()
    server = S3Server(tmp_path / "s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def test_each_rank_is_there_once_whatever_is_killed(s3: S3Server, tmp_path: Path) -> None:
    chance = random.Random(0)
    source = location_of("s3://traces/run-7")
    write_run(source, tmp_path)
    port, killed, rounds = free_port(), Counter[str](), 0
    with cluster(port) as processes:
        while sum(killed.values()) < KILLS:
            store = f"s3://traces/dataset-{rounds}"
            _ingest(store, port, processes, s3, chance, killed)
            _check(Dataset.open(store))
            rounds += 1
    assert {"scheduler", "worker 0", "worker 1", "s3", "ingest"} <= killed.keys()


def write_run(source: Location, folder: Path) -> dict[str, TraceShape]:
    """Write the trace of each rank into a bucket, and return their shapes by name."""
    until_it_has_room(source)
    shapes = {f"rank{rank}.json": TraceShape(rank=rank, world_size=RANKS, steps=1, seed=rank) for rank in range(RANKS)}
    for name, shape in shapes.items():
        source.write(name, write_trace(folder / name, shape).read_bytes())
    return shapes


def _ingest(
    store: str,
    port: int,
    processes: Processes,
    s3: S3Server,
    chance: random.Random,
    killed: Counter[str],
) -> None:
    """Ingest into a store, with kills until it is done."""
    command = [
        str(Path(sys.executable).parent / "tracedock"), "fleet", "ingest", "s3://traces/run-7", "--to", store,
        "--mode", "dask", "--scheduler", f"tcp://127.0.0.1:{port}", "--wait", "120",
    ]  # fmt: skip
    while True:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as ingest:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    _, errors = ingest.communicate(timeout=chance.uniform(SHORTEST_S, LONGEST_S))
                    assert ingest.returncode == 0, errors.decode()
                    return
                processes.revive()
                if sum(killed.values()) >= KILLS:
                    continue
                victim = chance.choice(["scheduler", "worker 0", "worker 1", "s3", "ingest"])
                killed[victim] += 1
                if victim == "s3":
                    s3.kill()
                    s3.start()
                elif victim == "ingest":
                    ingest.kill()
                    break
                else:
                    processes.kill_and_start(victim)


def _check(dataset: Dataset) -> None:
    """Check that each rank is in the records, the traces and the facts once, and each trace is whole."""
    records = [*dataset.records().values()]
    assert Counter(record.rank for record in records) == Counter(range(RANKS))
    assert {record.state for record in records} == {"done"}
    complete = {record.trace for record in records}
    for record in records:
        assert dataset.summary(record.trace).kept_events == record.events
    seen = {entry.name.split("/")[1] for entry in dataset.location.entries("traces")}
    assert seen == complete
    ranks = [rank for part in dataset.parts() for rank in _ranks(dataset, part.name)]
    assert Counter(ranks) == Counter(range(RANKS))


def _ranks(dataset: Dataset, part: str) -> list[int]:
    content = dataset.location.read(f"facts/devices/{part}.parquet")
    assert content is not None
    found: list[int] = pq.read_table(io.BytesIO(content))["rank"].to_pylist()
    return found

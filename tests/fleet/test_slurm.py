"""A cluster on Slurm is started, reads all traces, replaces what dies, and ends."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.fleet.dataset import Dataset
from service.fleet.ingesting import ingest_sources
from service.fleet.sources import find_sources
from service.fleet.workers.request import Slurm, WorkersRequest
from service.fleet.workers.start import workers_of
from service.store.locations.location import Location
from tests.fleet import slurm
from tests.fleet.work import Kills, Square
from tests.ports import free_ports
from tests.traces import TraceShape, write_trace
from tests.waiting import until

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not slurm.is_installed(), reason="Slurm is not installed, or this is not root"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RANKS = 12


@pytest.fixture(scope="module")
def on_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkersRequest]:
    folder = tmp_path_factory.mktemp("slurm")
    with slurm.running(folder, free_ports(4)) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        (folder / "jobs").mkdir()
        yield WorkersRequest(
            mode="slurm", count=2, patience_s=120, slurm=Slurm(memory="1900MB", folder=folder / "jobs")
        )


def jobs() -> list[str]:
    listed = subprocess.run(["squeue", "--noheader", "--format=%i"], stdout=subprocess.PIPE, check=True)
    return listed.stdout.decode().split()


def test_traces_are_read_by_jobs_which_end(on_slurm: WorkersRequest, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for rank in range(RANKS):
        write_trace(tmp_path / "run" / f"rank{rank}.json", TraceShape(rank=rank, world_size=RANKS, steps=1, seed=rank))
    dataset = Dataset.create(str(tmp_path / "dataset"))
    sources = find_sources([str(tmp_path / "run")], None, dataset.location.url)
    with workers_of(on_slurm) as workers:
        progress = ingest_sources(dataset, sources, workers)
        assert jobs()
    assert (progress.done, progress.failed) == (RANKS, 0)
    assert sorted(str(record.rank) for record in dataset.records().values()) == sorted(map(str, range(RANKS)))
    until(lambda: not jobs())


def test_traces_of_a_bucket_are_read_by_jobs_into_a_bucket(
    on_slurm: WorkersRequest, bucket: Location, tmp_path: Path
) -> None:
    ranks = 64
    text = write_trace(tmp_path / "trace.json", TraceShape(rank=None, steps=1)).read_bytes()
    for rank in range(ranks):  # the file name tells the rank
        bucket.write(f"run/rank{rank}.json", text)
    dataset = Dataset.create(f"{bucket.url}/dataset")
    sources = find_sources([f"{bucket.url}/run/*.json"], None, dataset.location.url)
    with workers_of(on_slurm) as workers:
        progress = ingest_sources(dataset, sources, workers)
    assert (progress.done, progress.failed) == (ranks, 0)
    records = [*dataset.records().values()]
    assert {record.rank for record in records} == {*range(ranks)}
    assert {record.events for record in records} == {dataset.summary(records[0].trace).kept_events}
    assert len(records) == ranks


def test_killed_worker_and_cancelled_job_lose_nothing(on_slurm: WorkersRequest, tmp_path: Path) -> None:
    with workers_of(on_slurm) as workers:
        results = workers.results({"kills": Kills(1, str(tmp_path)), **{str(n): Square(n) for n in range(200)}})
        first = [next(results) for _ in range(20)]
        subprocess.run(["scancel", "--signal=KILL", jobs()[0]], check=True)
        found = dict([*first, *results])
    assert found == {"kills": "survived", **{str(number): number**2 for number in range(200)}}


def test_nothing_of_a_cluster_listens_to_other_machines_without_tls(on_slurm: WorkersRequest) -> None:
    with workers_of(on_slurm) as workers:
        assert dict(workers.results({"square": Square(2)})) == {"square": 4}
        sockets = subprocess.run(["ss", "-tlnpH"], stdout=subprocess.PIPE, check=True).stdout.decode()
    own = [line.split() for line in sockets.splitlines() if f"pid={os.getpid()}," in line or '"dask' in line]
    assert own
    open_ports = [line[3] for line in own if not line[3].startswith(("127.0.0.1:", "[::1]:"))]
    for port in {address.rpartition(":")[2] for address in open_ports}:
        plain = subprocess.run(
            ["curl", "-s", "-m", "3", f"http://127.0.0.1:{port}/health"], stdout=subprocess.PIPE, check=False
        )
        assert plain.stdout == b"", f"port {port} answers without TLS"

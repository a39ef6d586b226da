"""A server with a cluster answers like one without, and no death on the cluster loses a job."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.analysis.names import COMPARISONS, NAMES
from tests.fleet.serving.conftest import LoopbackCluster
from tests.server import Server, bytes_read
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until

RANKS = 3

pytestmark = [pytest.mark.system, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


@contextmanager
def serving(data: Path, cluster: LoopbackCluster | None, **settings: object) -> Iterator[Server]:
    """Run a server, with a cluster or without."""
    used = {} if cluster is None else {"dask_scheduler": cluster.address, **settings}
    server = Server(data, **used).start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "small.json", TraceShape(steps=1))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A trace that takes seconds to read."""
    path = write_trace(tmp_path_factory.mktemp("traces") / "large.json", sized(TraceShape(), 500 * 10**6))
    yield path
    path.unlink()


def begin(server: Server, path: Path) -> str:
    """Upload a trace, and return its id once a worker has reported progress."""
    trace_id: str = server.upload(path, wait=0)["id"]
    until(lambda: (server.api.get(f"/traces/{trace_id}").json()["progress"] or {}).get("events", 0) > 0)
    return trace_id


def settled(server: Server, trace_id: str) -> Any:
    return server.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json()


def deaths(log: Path) -> list[int]:
    """Return the ids of the workers' processes that were killed, from the log of their nanny."""
    return [int(pid) for pid in re.findall(r"Worker process (\d+) was killed by signal 9", log.read_text())]


def without_time(answer: Any) -> Any:
    """Return an answer without what depends on the run."""
    answer.pop("elapsed_ms", None)
    return answer


def test_traces_answers_and_pieces_are_those_of_a_server_without_a_cluster(
    cluster: LoopbackCluster, tmp_path: Path
) -> None:
    for _ in range(2):
        cluster.add_worker()
    files = [
        write_trace(tmp_path / f"rank{rank}.json", TraceShape(rank=rank, world_size=RANKS, steps=2, seed=rank))
        for rank in range(RANKS)
    ]
    answers, documents, pieces = [], [], []
    for number, used in enumerate((cluster, None)):
        with serving(tmp_path / f"data{number}", used) as server:
            ids = [server.upload(file)["id"] for file in files]
            documents.append([server.api.get(f"/traces/{trace_id}/download").content for trace_id in ids])
            answers.append(
                {
                    name: without_time(
                        server.api.get(f"/traces/{ids[0]}/analysis/{name}", params={"traces": ids[1:]}).json()
                    )
                    for name in NAMES
                    if name not in COMPARISONS
                }
            )
            jobs = [
                server.api.post(f"/traces/{ids[0]}/split", json={"by": "step"}, params={"wait": PATIENCE_S}),
                server.api.post("/traces/merge", json={"traces": ids, "align": "none"}, params={"wait": PATIENCE_S}),
                server.api.post(
                    f"/traces/{ids[0]}/overlay", json={"analysis": "critical_path"}, params={"wait": PATIENCE_S}
                ),
            ]
            made = [trace_id for job in jobs for trace_id in job.json()["result"]["traces"]]
            pieces.append([server.api.get(f"/traces/{trace_id}/download").content for trace_id in made])
            assert not [*(server.data / "making").iterdir()]
            if used:
                finished = cluster.finished()
                assert finished["ServerTask"] == RANKS + len(jobs)
                assert finished["AnswerRanks"] > 0
                assert not server.children("tracedock ingest")
    assert documents[0] == documents[1]
    assert answers[0] == answers[1]
    assert pieces[0] == pieces[1]
    assert len(pieces[0]) > RANKS


def test_comparison_of_two_runs_is_that_of_a_server_without_a_cluster(cluster: LoopbackCluster, tmp_path: Path) -> None:
    cluster.add_worker()
    files = [write_trace(tmp_path / f"{seed}.json", TraceShape(rank=seed % 2, steps=2, seed=seed)) for seed in range(4)]
    with serving(tmp_path / "data", cluster) as server:
        ids = [server.upload(file)["id"] for file in files]
        query = {"traces": ids[1:2], "base": ids[2:]}
        ours = without_time(server.api.get(f"/traces/{ids[0]}/analysis/compare", params=query).json())
        assert cluster.finished()["AnswerRanks"] > 0
    with serving(tmp_path / "data", None) as server:
        assert without_time(server.api.get(f"/traces/{ids[0]}/analysis/compare", params=query).json()) == ours


def test_job_whose_scheduler_dies_goes_on_with_its_successor(
    cluster: LoopbackCluster, large: Path, tmp_path: Path
) -> None:
    cluster.add_worker()
    with serving(tmp_path / "data", cluster, ingest_attempts=1) as server:
        trace_id = begin(server, large)
        cluster.kill_scheduler()
        cluster.start_scheduler()
        cluster.add_worker()
        trace = settled(server, trace_id)
        assert (trace["state"], trace["error"]) == ("ready", None)
        assert server.api.get(f"/jobs/{trace['job']}").json()["attempts"] == 1, "the attempt does not count"
        until(lambda: not [*(server.data / "making").iterdir()])


def test_cancelled_job_frees_its_worker_and_leaves_nothing(
    cluster: LoopbackCluster, large: Path, small: Path, tmp_path: Path
) -> None:
    cluster.add_worker()
    with serving(tmp_path / "data", cluster) as server:
        trace_id = begin(server, large)
        job = server.api.get(f"/traces/{trace_id}").json()["job"]
        assert server.api.delete(f"/jobs/{job}").json()["state"] == "cancelled"
        until(cluster.is_idle)
        assert not [*(server.data / "making").iterdir()]
        assert server.upload(small)["state"] == "ready"


def test_killed_server_reads_its_traces_again_once(cluster: LoopbackCluster, large: Path, tmp_path: Path) -> None:
    cluster.add_worker()
    with serving(tmp_path / "data", cluster) as server:
        trace_id = begin(server, large)
        server.kill()
        server.start()
        assert settled(server, trace_id)["state"] == "ready"
        assert [trace["id"] for trace in server.api.get("/traces").json()["traces"]] == [trace_id]
        assert [path.name for path in (server.data / "columns").iterdir()] == [trace_id]


def test_killed_connection_is_made_anew(cluster: LoopbackCluster, large: Path, tmp_path: Path) -> None:
    cluster.add_worker()
    with serving(tmp_path / "data", cluster) as server:
        trace_id = begin(server, large)
        (child,) = server.children("tracedock cluster")
        child.kill()
        trace = settled(server, trace_id)
        assert trace["state"] == "ready"
        assert server.api.get(f"/jobs/{trace['job']}").json()["attempts"] == 2


def test_jobs_wait_for_a_worker(cluster: LoopbackCluster, small: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "data", cluster) as server:
        trace_id = server.upload(small, wait=0)["id"]
        until(lambda: server.api.get(f"/traces/{trace_id}").json()["state"] == "ingesting")
        cluster.add_worker()
        assert settled(server, trace_id)["state"] == "ready"


@pytest.mark.parametrize("missing", ["worker", "scheduler"])
def test_jobs_fail_without_a_cluster_and_the_server_answers(
    missing: str, cluster: LoopbackCluster, small: Path, tmp_path: Path
) -> None:
    with serving(tmp_path / "data", None) as server:
        ids = [server.upload(small, f"rank{rank}.json")["id"] for rank in range(2)]
    if missing == "scheduler":
        cluster.kill_scheduler()
    with serving(tmp_path / "data", cluster, dask_wait_s=1) as server:
        trace = server.upload(small, "late.json")
        assert trace["state"] == "failed"
        assert trace["error"]["code"] == "cluster_unavailable"
        answer = server.api.get(f"/traces/{ids[0]}/analysis/kernel_breakdown", params={"traces": ids[1:]})
        assert answer.status_code == 200, answer.text


def test_server_answers_while_jobs_wait_for_the_scheduler(
    cluster: LoopbackCluster, small: Path, tmp_path: Path
) -> None:
    with serving(tmp_path / "data", None) as server:
        ids = [server.upload(small, f"rank{rank}.json")["id"] for rank in range(2)]
    cluster.kill_scheduler()
    with serving(tmp_path / "data", cluster, dask_wait_s=PATIENCE_S) as server:
        waiting = server.upload(small, "late.json", wait=0)["id"]
        until(lambda: server.api.get(f"/traces/{waiting}").json()["state"] == "ingesting")
        answer = server.api.get(f"/traces/{ids[0]}/analysis/kernel_breakdown", params={"traces": ids[1:]})
        assert answer.status_code == 200, answer.text
        assert server.api.get(f"/traces/{waiting}").json()["state"] == "ingesting"


def test_trace_that_kills_its_workers_fails_alone(
    cluster: LoopbackCluster, large: Path, small: Path, tmp_path: Path
) -> None:
    log = tmp_path / "nanny.log"
    nanny = cluster.add_worker(log)
    with serving(tmp_path / "data", cluster, ingest_attempts=1) as server:
        trace_id = server.upload(large, wait=0)["id"]
        killed = set[int]()
        while server.api.get(f"/traces/{trace_id}").json()["state"] != "failed":
            reading = [
                process
                for process in psutil.Process(nanny.pid).children(recursive=True)
                if bytes_read(process, trace_id) and process.pid not in killed
            ]
            for process in reading:
                process.kill()
                killed.add(process.pid)
        error = settled(server, trace_id)["error"]
        assert (error["code"], error["attempts"]) == ("worker_died", 1)
        until(lambda: killed <= {*deaths(log)})
        assert f"{len(deaths(log))} workers died at it" in error["detail"], log.read_text()
        assert server.upload(small)["state"] == "ready"


def test_file_that_is_no_trace_fails_with_the_reason(cluster: LoopbackCluster, tmp_path: Path) -> None:
    cluster.add_worker()
    (tmp_path / "no.json").write_bytes(b"PK\x03\x04 a zip archive")
    with serving(tmp_path / "data", cluster) as server:
        error = server.upload(tmp_path / "no.json")["error"]
    assert (error["code"], error["offset"]) == ("not_json", 0)

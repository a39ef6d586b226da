"""Jobs over HTTP: listed, followed over interrupted connections, cancelled and completed."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from service.jobs.slots import SMALL_BYTES
from tests.conftest import DATA
from tests.http.conftest import connected
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until

SMALL = DATA / "cpu_train_steps.pt.trace.json.gz"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes seconds to read and to split."""
    return write_trace(tmp_path_factory.mktemp("large") / "large.json", sized(TraceShape(), 60_000_000))


@pytest.fixture(scope="module")
def large_id(server: Server, large: Path) -> str:
    """The id of a trace of the large file."""
    return str(server.upload(large)["id"])


def split(server: Server, trace_id: object, parts: int = 20, **params: Any) -> dict[str, Any]:
    answer = server.api.post(f"/traces/{trace_id}/split", params=params, json={"by": "parts", "value": parts})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def job_of(server: Server, job_id: object, **params: Any) -> dict[str, Any]:
    job: dict[str, Any] = server.api.get(f"/jobs/{job_id}", params=params).json()
    return job


def list_jobs(server: Server, **params: Any) -> list[dict[str, Any]]:
    page = server.api.get("/jobs", params=params)
    assert page.status_code == 200, page.text
    jobs: list[dict[str, Any]] = page.json()["jobs"]
    return jobs


class Events:
    """The events of a job, read from a real socket."""

    def __init__(self, server: Server, job_id: object, last: str | None = None) -> None:
        self._socket = connected(server)
        self._socket.settimeout(60)
        field = f"Last-Event-ID: {last}\r\n" if last else ""
        head = f"GET /api/v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\n{field}\r\n"
        self._socket.sendall(head.encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers = dict(line.decode().strip().split(": ", 1) for line in iter(self._file.readline, b"\r\n"))

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each event's id and job, up to the end of the stream."""
        id_, data = "", ""
        for line in self._lines():
            field, _, value = line.partition(": ")
            if field == "id":
                id_ = value
            elif field == "data":
                data = value
            elif not line and data:
                yield id_, json.loads(data)
                data = ""

    def _lines(self) -> Iterator[str]:
        partial = ""
        while size := int(self._file.readline() or b"0", 16):
            partial += self._file.read(size).decode()
            self._file.readline()
            *lines, partial = partial.split("\n")
            yield from lines


# -- state and list ---------------------------------------------------------------------------------------------


def test_job_of_an_ingest_outlives_its_trace(server: Server) -> None:
    trace = server.upload(SMALL, "of job.json.gz")
    failed = server.api.put("/traces/of other job.json", content=b"{", params={"wait": PATIENCE_S}).json()
    job = job_of(server, failed["job"])
    assert (job["id"], job["kind"], job["state"], job["trace"]) == (failed["job"], "ingest", "failed", failed["id"])
    assert (job["error"], job["result"]) == (failed["error"], None)
    if trace["job"]:  # None if another test has uploaded the same bytes: nothing is ingested
        job = job_of(server, trace["job"])
        assert (job["state"], job["result"], job["attempts"]) == ("done", {"traces": [trace["id"]]}, 1)
        assert job["progress"] == {
            "bytes": SMALL.stat().st_size, "bytes_total": SMALL.stat().st_size,
            "events": trace["events"]["kept"], "events_total": trace["events"]["kept"],
        }  # fmt: skip
        assert job["created_at"] <= job["started_at"] <= job["ended_at"]
        assert job["eta_s"] is None
    server.api.delete(f"/traces/{failed['id']}")
    assert job_of(server, failed["job"])["state"] == "failed"  # the deletion leaves the ended job unchanged


def test_jobs_are_listed_newest_first_and_filtered(server: Server, large_id: str) -> None:
    jobs = [split(server, large_id, 2, wait=60) for _ in range(3)]
    page = list_jobs(server, trace=large_id, kind="split", limit=3)
    assert [job["id"] for job in page] == [job["id"] for job in jobs[::-1]]
    child = page[0]["result"]["traces"][0]
    assert [job["id"] for job in list_jobs(server, trace=child)] == [page[0]["id"]]
    assert list_jobs(server, state="running") == []
    assert {job["state"] for job in list_jobs(server, state=["done", "failed"])} <= {"done", "failed"}
    assert server.api.get("/jobs", params={"state": "lost"}).status_code == 422
    assert server.api.get("/jobs", params={"cursor": "x"}).json()["code"] == "bad_cursor"


def test_list_of_thousands_of_jobs_is_paged(start_server: Callable[..., Server]) -> None:
    server = start_server()
    server.stop()
    fill = """
import sys
from pathlib import Path
from service.store.catalog import Catalog
from service.store.jobs import Jobs
catalog = Catalog(Path(sys.argv[1]))
jobs = Jobs(catalog.connection)
with catalog.connection.transaction() as db:
    db.executemany("INSERT INTO job (kind, state, created_ns, ended_ns) VALUES ('merge', 'cancelled', ?, 1)",
                   [(number,) for number in range(1, 5001)])
"""
    subprocess.run([sys.executable, "-c", fill, str(server.data / "catalog.sqlite")], check=True)
    server.api = httpx.Client(timeout=PATIENCE_S, trust_env=False)
    server.start()
    ids: list[int] = []
    cursor: str | None = None
    while not ids or cursor:
        page = server.api.get("/jobs", params={"limit": 500} | ({"cursor": cursor} if cursor else {})).json()
        ids += [int(job["id"]) for job in page["jobs"]]
        cursor = page["next"]
    assert ids == list(range(5000, 0, -1))


# -- cancel -----------------------------------------------------------------------------------------------------


def test_cancelled_ingest_leaves_a_failed_trace_with_the_reason(server: Server, large: Path) -> None:
    content = large.read_bytes().replace(b"{", b" {", 1)  # bytes that no other test uploads
    trace = server.api.put("/traces/cancelled.json", content=content).json()
    cancelled = server.api.delete(f"/jobs/{trace['job']}")
    assert cancelled.json()["state"] == "cancelled", cancelled.text
    trace = server.api.get(f"/traces/{trace['id']}").json()
    assert (trace["state"], trace["error"]["code"]) == ("failed", "cancelled")
    assert not (server.data / "columns" / trace["id"]).exists()
    assert server.api.get(f"/traces/{trace['id']}/download").content == content
    assert server.children("tracedock ingest") == []
    assert server.api.delete(f"/jobs/{trace['job']}").json()["state"] == "cancelled"


def test_queued_job_can_be_cancelled_or_fail(server: Server, large_id: str) -> None:
    busy = [split(server, large_id) for _ in range(2)]  # as many as run at once
    waiting = split(server, large_id)
    assert waiting["state"] == "queued"
    failing = server.api.post(f"/traces/{large_id}/split", json={"selection": {"steps": [77777]}}).json()
    assert failing["state"] == "queued"  # its selection is not checked yet
    assert server.api.delete(f"/jobs/{waiting['id']}").json()["state"] == "cancelled"
    for job in busy:
        assert server.api.delete(f"/jobs/{job['id']}").json()["state"] == "cancelled"
    failed = job_of(server, failing["id"], wait=60)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "unknown_choice")


# -- priorities -------------------------------------------------------------------------------------------------


def test_interactive_jobs_start_before_bulk_jobs(server: Server, large_id: str) -> None:
    busy = [split(server, large_id) for _ in range(2)]
    bulk = [split(server, large_id, 2, priority="bulk") for _ in range(2)]
    urgent = [split(server, large_id, 2) for _ in range(2)]
    assert [job["priority"] for job in (*bulk, *urgent)] == ["bulk"] * 2 + ["interactive"] * 2
    for job in busy:
        server.api.delete(f"/jobs/{job['id']}")
    done = over(server, [job["id"] for job in (*bulk, *urgent)])
    assert [job["state"] for job in done] == ["done"] * 4
    assert max(job["started_at"] for job in done[2:]) < min(job["started_at"] for job in done[:2])


def test_uploads_are_ingested_in_order_of_priority(server: Server, large: Path) -> None:
    first = server.api.put("/traces/first.json", content=b" " + large.read_bytes()).json()
    content = SMALL.read_bytes()
    second = server.api.put("/traces/second.json.gz", content=content + bytes(9)).json()
    until(lambda: len(server.children("tracedock ingest")) == 2)  # all that may run
    reading = server.children("tracedock ingest")
    for worker in reading:
        worker.suspend()
    later = []
    for number, priority in enumerate(("bulk", "bulk", "interactive")):
        params = {"priority": priority}
        new_content = content + bytes(number + 1)  # bytes that are not ingested yet
        later.append(server.api.put(f"/traces/{number}.json.gz", content=new_content, params=params).json())
    for worker in reading:
        worker.resume()
    jobs = over(server, [trace["job"] for trace in later])
    assert [job["priority"] for job in jobs] == ["bulk", "bulk", "interactive"]
    assert jobs[2]["started_at"] < jobs[0]["started_at"] < jobs[1]["started_at"]
    for trace in (first, second):
        assert job_of(server, trace["job"], wait=60)["state"] == "done"


def over(server: Server, ids: list[str]) -> list[dict[str, Any]]:
    """Return jobs once they have ended. Polls without `wait`, because a waiting client would raise their priority."""
    until(lambda: all(job_of(server, job_id)["ended_at"] for job_id in ids), within_s=150)
    return [job_of(server, job_id) for job_id in ids]


def test_job_with_a_waiting_client_starts_before_others(server: Server, large_id: str) -> None:
    busy = [split(server, large_id) for _ in range(2)]
    ahead = [split(server, large_id, 2) for _ in range(2)]
    bulk = split(server, large_id, 2, priority="bulk")
    events = Events(server, bulk["id"])
    for job in busy:
        server.api.delete(f"/jobs/{job['id']}")
    [*_, (_, awaited)] = events
    events.close()
    jobs_ahead = over(server, [job["id"] for job in ahead])
    assert [job["state"] for job in (awaited, *jobs_ahead)] == ["done"] * 3
    assert awaited["started_at"] < max(job["started_at"] for job in jobs_ahead)


def test_a_small_upload_does_not_wait_for_a_large_one(start_server: Callable[..., Server], large: Path) -> None:
    server = start_server(ingest_workers=1)
    stopped: list[psutil.Process] = []

    def pieces() -> Iterator[bytes]:
        """Yield the large file, and suspend the worker that reads it halfway."""
        content = large.read_bytes()
        yield content[: len(content) // 2]
        until(lambda: bool(server.children("tracedock ingest")))
        stopped.extend(server.children("tracedock ingest"))
        for worker in stopped:
            worker.suspend()
        yield content[len(content) // 2 :]

    slow = server.api.put("/traces/large.json", content=pieces()).json()
    small = server.api.put("/traces/small.json", params={"wait": PATIENCE_S}, content=SMALL.read_bytes()).json()
    assert small["state"] == "ready"
    assert server.api.get(f"/traces/{slow['id']}").json()["state"] == "ingesting"
    for worker in stopped:
        worker.resume()
    assert server.api.get(f"/traces/{slow['id']}", params={"wait": PATIENCE_S}).json()["state"] == "ready"


def test_events_follow_a_job_to_its_end(server: Server, large_id: str) -> None:
    job = split(server, large_id, 4)
    events = Events(server, job["id"])
    assert (events.status, events.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert events.headers["cache-control"] == "no-store"
    received = list(events)
    events.close()
    ids = [id_ for id_, _ in received]
    assert len(set(ids)) == len(ids)
    written = [event["progress"]["events"] for _, event in received]
    assert written == sorted(written)
    assert [event["state"] for _, event in received[:-1]] == ["running"] * (len(received) - 1)
    assert received[-1][1] == job_of(server, job["id"])
    assert received[-1][1]["state"] == "done"


def test_reconnecting_client_receives_only_new_events(server: Server, large_id: str) -> None:
    job = split(server, large_id)
    first = Events(server, job["id"])
    last_id = next(iter(first))[0]
    first.close()  # the connection breaks

    second = Events(server, job["id"], last=last_id)
    received = list(second)
    second.close()
    assert last_id not in [id_ for id_, _ in received]
    assert received[-1][1]["state"] == "done"

    third = Events(server, job["id"], last=received[-1][0])
    assert third.status == 204  # so that a browser does not reconnect
    third.close()
    fourth = Events(server, job["id"], last="of another server")
    assert [event["state"] for _, event in fourth] == ["done"]
    fourth.close()


def test_events_continue_after_a_kill_of_the_server(start_server: Callable[..., Server], large: Path) -> None:
    server = start_server()
    trace = server.upload(large)
    job = split(server, trace["id"], 4)
    events = Events(server, job["id"])
    last_id = next(iter(events))[0]
    server.kill()
    events.close()
    server.start()

    again = Events(server, job["id"], last=last_id)
    received = [event for _, event in again]
    again.close()
    assert received[-1]["state"] == "done"
    assert received[-1]["attempts"] == 1  # the kill of the server does not count as an attempt


def test_events_end_when_the_server_stops(start_server: Callable[..., Server], large: Path) -> None:
    server = start_server()
    job = split(server, server.upload(large)["id"], 60)
    events = Events(server, job["id"])
    assert next(iter(events))[1]["state"] == "running"
    assert server.stop() == 0
    assert all(event["state"] == "running" for _, event in events)
    events.close()


def test_events_of_an_ingest_report_its_bytes_and_then_its_trace(server: Server, large: Path) -> None:
    trace = server.api.put("/traces/received-by-events.json", content=b"  " + large.read_bytes()).json()
    events = Events(server, trace["job"])
    received = [event for _, event in events]
    events.close()
    assert received[-1]["result"] == {"traces": [trace["id"]]}
    assert received[-1]["progress"]["bytes"] == received[-1]["progress"]["bytes_total"] == trace["size"]
    assert all(event["progress"]["bytes_total"] == trace["size"] for event in received)


def test_ingest_is_cancelled_when_its_trace_is_deleted(server: Server, large: Path) -> None:
    trace = server.api.put("/traces/deleted.json", content=b"   " + large.read_bytes()).json()
    events = Events(server, trace["job"])
    received = iter(events)
    assert next(received)[1]["state"] in ("queued", "running")
    assert server.api.delete(f"/traces/{trace['id']}").status_code == 204
    assert [event["state"] for _, event in received][-1] == "cancelled"
    events.close()


def test_events_of_a_queued_ingest_end_when_its_trace_is_deleted(server: Server, large: Path) -> None:
    busy = server.api.put("/traces/busy.json", content=b"    " + large.read_bytes()).json()
    [worker] = server.children("tracedock ingest")
    worker.suspend()
    waits = server.api.put("/traces/waits.json", content=b" " * SMALL_BYTES + b"{}").json()
    events = Events(server, waits["job"])
    received = iter(events)
    assert next(received)[1]["state"] == "queued"
    server.api.delete(f"/traces/{waits['id']}")
    assert [event["state"] for _, event in received] == ["cancelled"]
    events.close()
    server.api.delete(f"/traces/{busy['id']}")


def test_unknown_job_has_no_events(server: Server) -> None:
    answer = server.api.get("/jobs/123456/events")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_job")


# -- dying workers ----------------------------------------------------------------------------------------------


def test_ingest_whose_workers_die_fails_after_the_allowed_attempts(
    start_server: Callable[..., Server], large: Path
) -> None:
    server = start_server(ingest_attempts=2)
    trace = server.api.put("/traces/a.json", content=large.read_bytes()).json()
    killed: set[psutil.Process] = set()

    def kill_another() -> bool:
        for worker in server.children("tracedock ingest"):
            if worker not in killed:
                killed.add(worker)
                worker.kill()
        return len(killed) == 2

    until(kill_another)
    job = job_of(server, trace["job"], wait=60)
    assert (job["state"], job["attempts"], job["error"]["code"]) == ("failed", 2, "worker_died")
    assert "was killed by SIGKILL, 2 times" in job["error"]["detail"]
    assert server.api.get(f"/traces/{trace['id']}").json()["error"] == job["error"]

"""On a full disk, work fails clearly and leaves no files, the server answers, and work resumes once space is free."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.store import database
from service.store.export import document
from service.trace.errors import DiskFull
from tests import tus
from tests.columns import write_columns
from tests.server import Server
from tests.traces import TraceShape, sized, trace_chunks, write_trace
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.system

CODES = ("disk_full", "no_room")
TRACE_BYTES = 6_000_000
PAGE = 4096
SMALL_TRACE = b'{"traceEvents":[{"ph":"X","name":"one","pid":1,"tid":1,"ts":1,"dur":1}]}'
LARGE_QUERY = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 30000) SELECT hex(zeroblob(1000)) FROM c"
)


class Disk:
    """A small disk at `root`. The file `ballast` fills it, except for the free space that a test asks for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ballast = root / "ballast"

    def leave_free(self, size: int) -> None:
        """Fill the disk until only `size` bytes are free."""
        self.ballast.unlink(missing_ok=True)
        with self.ballast.open("wb", buffering=0) as file, suppress(OSError):  # the server may fill the disk first
            while shutil.disk_usage(self.root).free > size:
                file.write(bytes(PAGE))

    def remove_ballast(self) -> None:
        self.ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of 48 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount") or ""
    command = [mount, "-t", "tmpfs", "-o", "size=48m", "none", str(folder)]
    if not mount or os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can't be mounted here")
    yield Disk(folder)
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def server(disk: Disk, tmp_path: Path) -> Iterator[Server]:
    """A server with its data on the small disk and its log elsewhere; at the end, the log must have no traceback."""
    data = tmp_path / "data"
    data.symlink_to(disk.root / "data")
    server = Server(data).start()
    yield server
    disk.remove_ballast()
    assert server.stop() == 0
    assert "Traceback" not in server.log_text(), server.log_text()


@pytest.fixture(scope="session")
def body(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The text of a trace of about `TRACE_BYTES`."""
    path = tmp_path_factory.mktemp("full") / "trace.json"
    return write_trace(path, sized(TraceShape(), TRACE_BYTES)).read_bytes()


def put(server: Server, content: bytes, name: str = "t.json", **params: object) -> httpx.Response:
    return server.api.put(f"/traces/{name}", params={"wait": PATIENCE_S} | params, content=content)  # type: ignore[arg-type]


def ready_trace_id(server: Server, content: bytes, name: str = "t.json") -> str:
    """Upload a trace, and return its id once it is ready."""
    trace = put(server, content, name).json()
    assert (trace["state"], trace["error"]) == ("ready", None)
    return str(trace["id"])


def names_below(server: Server, *parts: str) -> set[str]:
    return {path.name for part in parts for path in (server.data / part).iterdir()}


def columns_bytes(server: Server, trace: str) -> int:
    return sum(path.stat().st_size for path in (server.data / "columns" / trace).iterdir())


def is_refused(answer: httpx.Response) -> bool:
    return answer.status_code == 507 and answer.json()["code"] in CODES


# -- jobs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_ingest_on_a_full_disk_fails_clearly_and_a_new_upload_succeeds(
    server: Server, disk: Disk, body: bytes, share: float
) -> None:
    first = ready_trace_id(server, body)
    size = columns_bytes(server, first)
    server.api.delete(f"/traces/{first}").raise_for_status()
    disk.leave_free(len(body) + round(size * share))

    answer = put(server, body)

    if answer.status_code == 201:
        trace = answer.json()
        assert trace["state"] == "failed", trace
        assert trace["error"]["code"] in CODES, trace
        assert names_below(server, "originals") == {trace["id"]}
        assert server.api.get(f"/traces/{trace['id']}/download").content == body
    else:
        assert is_refused(answer), answer.text
        assert names_below(server, "originals") == set()
    until(lambda: not names_below(server, "columns", "incoming"))
    disk.remove_ballast()
    assert columns_bytes(server, ready_trace_id(server, body)) == size


@pytest.mark.parametrize("kind", ["split", "merge"])
@pytest.mark.parametrize("share", [0.05, 0.6])
def test_split_and_merge_on_a_full_disk_fail_clearly_and_leave_their_sources(
    server: Server, disk: Disk, body: bytes, kind: str, share: float
) -> None:
    ranks = range(2 if kind == "merge" else 1)
    traces = [ready_trace_id(server, body + b" " * rank, f"rank{rank}.json") for rank in ranks]
    size = columns_bytes(server, traces[0]) * len(traces)
    path, request = {
        "split": (f"/traces/{traces[0]}/split", {}),
        "merge": ("/traces/merge", {"traces": traces, "ranks": [0, 1]}),
    }[kind]
    disk.leave_free(size + 200_000)  # room for the request is checked before the disk fills
    server.api.get("/traces")
    accepted = server.api.post(path, json=request)
    disk.leave_free(round(size * share))
    assert accepted.status_code == 202, accepted.text

    job = server.api.get(f"/jobs/{accepted.json()['id']}", params={"wait": PATIENCE_S}).json()

    children = set(job["result"]["traces"]) if job["result"] else set()
    if not children:  # else the job ended before the disk was full
        assert job["state"] == "failed", job
        assert job["error"]["code"] in CODES, job
    until(lambda: not names_below(server, "making"))
    assert names_below(server, "columns") == {*traces, *children}
    assert server.api.get(f"/traces/{traces[0]}/download").content == body
    disk.remove_ballast()
    retried_job = server.api.post(path, params={"wait": PATIENCE_S}, json=request).json()
    assert retried_job["state"] == "done"


# -- downloads and results ------------------------------------------------------------------------------------------


def response_if_complete(server: Server, method: str, path: str, **options: Any) -> httpx.Response | None:
    """Return the response, or None if its transfer broke."""
    try:
        return server.api.request(method, path, **options)
    except httpx.RemoteProtocolError:
        return None


@pytest.mark.parametrize("free", [0, 300_000])
@pytest.mark.parametrize("cut", [False, True])
def test_downloads_on_a_full_disk_are_complete_or_refused_or_broken(
    server: Server, disk: Disk, body: bytes, free: int, cut: bool
) -> None:
    trace = ready_trace_id(server, body)
    params: dict[str, Any] = {"format": "json"} | ({"steps": 10} if cut else {"order": "original"})
    complete = server.api.get(f"/traces/{trace}/download", params=params)
    assert complete.status_code == 200, complete.text
    disk.leave_free(free)

    answer = response_if_complete(server, "GET", f"/traces/{trace}/download", params=params)

    assert answer is None or is_refused(answer) or answer.content == complete.content
    until(lambda: names_below(server, "columns", "incoming") == {trace})


@pytest.mark.parametrize(
    "media_type", ["application/json", "text/csv", "application/x-ndjson", "application/vnd.apache.arrow.stream"]
)
def test_query_results_on_a_full_disk_are_refused_or_broken(
    server: Server, disk: Disk, body: bytes, media_type: str
) -> None:
    trace = ready_trace_id(server, body)
    server.rows(trace, "SELECT 1")
    disk.leave_free(2_000_000)

    query = {"sql": LARGE_QUERY, "limit": None}
    answer = response_if_complete(server, "POST", f"/traces/{trace}/query", json=query, headers={"Accept": media_type})

    assert answer is None or is_refused(answer)
    disk.leave_free(0)
    assert server.rows(trace, "SELECT 1") == [[1]]


@pytest.mark.parametrize("name", ["temporal_breakdown", "kernel_breakdown", "critical_path"])
def test_analyses_on_a_full_disk_answer_or_are_refused(server: Server, disk: Disk, body: bytes, name: str) -> None:
    trace = ready_trace_id(server, body)
    disk.leave_free(0)

    answer = server.api.get(f"/traces/{trace}/analysis/{name}")

    assert answer.status_code == 200 or is_refused(answer), answer.text


# -- the catalog ------------------------------------------------------------------------------------------------------


def test_changes_on_a_full_disk_succeed_or_are_refused_and_a_trace_can_be_deleted(
    server: Server, disk: Disk, body: bytes
) -> None:
    trace = ready_trace_id(server, body)
    disk.leave_free(0)
    statuses = []
    for number in range(50):
        group = f"group {number}"
        answer = server.api.patch(f"/traces/{trace}", json={"group": group})
        assert answer.status_code == 200 or is_refused(answer), answer.text
        statuses.append(answer.status_code)
        is_changed = (server.api.get(f"/traces/{trace}").json()["group"] or {}).get("name") == group
        assert is_changed is (answer.status_code == 200)
    assert 507 in statuses
    for path, request in (("/traces/merge", {"traces": [trace, trace]}), (f"/traces/{trace}/split", {})):
        answer = server.api.post(path, json=request)
        assert answer.status_code == 422 or is_refused(answer), answer.text
    assert server.api.get(f"{server.url}/healthz").status_code == 200

    assert server.api.delete(f"/traces/{trace}").status_code == 204

    assert names_below(server, "originals", "columns", "incoming") == set()
    assert server.api.get("/traces").json()["traces"] == []
    assert ready_trace_id(server, SMALL_TRACE)


def test_tokens_on_a_full_disk_are_created_or_refused(server: Server, disk: Disk) -> None:
    def add(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "service", "token", "add", name, "--scope", "read", "--data", str(server.data)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert add("first").returncode == 0
    disk.leave_free(0)
    for number in range(3):
        process = add(f"t{number}")
        assert "Traceback" not in process.stderr
        assert process.returncode == 0 or "room" in process.stderr, process.stderr
    disk.remove_ballast()
    assert add("last").returncode == 0


# -- uploads and restarts -------------------------------------------------------------------------------------------


def test_resumable_upload_on_a_full_disk_continues_once_space_is_free(server: Server, disk: Disk, body: bytes) -> None:
    upload = tus.begin(server, len(body))
    disk.leave_free(len(body) // 2)

    assert is_refused(tus.send(server, upload, 0, body))

    received = tus.offset(server, upload)
    disk.remove_ballast()
    response = tus.send(server, upload, received, body[received:])
    trace = server.api.get(f"/traces/{response.headers['Tracedock-Trace']}", params={"wait": PATIENCE_S}).json()
    assert (trace["state"], trace["size"]) == ("ready", len(body))


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_server_starts_reads_and_deletes_on_a_full_disk(server: Server, disk: Disk, body: bytes, end: str) -> None:
    kept_id = ready_trace_id(server, body, "a.json")
    deleted_id = ready_trace_id(server, body + b" ", "b.json")
    if end == "kill":
        job = server.api.post(f"/traces/{kept_id}/split", json={"by": "step"}).json()
        disk.leave_free(0)
        server.kill()
    else:
        assert server.stop() == 0
        server.api = httpx.Client(timeout=PATIENCE_S, trust_env=False)
        disk.leave_free(0)

    server.start()

    assert server.api.get(f"{server.url}/healthz").status_code == 200
    assert server.api.get(f"/traces/{kept_id}").json()["state"] == "ready"
    assert server.api.get(f"/traces/{kept_id}/download").content == body
    assert server.api.delete(f"/traces/{deleted_id}").status_code == 204
    assert json.loads((server.data / "audit.log").read_text().splitlines()[-1])["trace"] == deleted_id
    disk.remove_ballast()
    if end == "kill":
        job = server.api.get(f"/jobs/{job['id']}", params={"wait": PATIENCE_S}).json()
        assert job["state"] in ("done", "failed"), job
    assert server.rows(kept_id, "SELECT 1") == [[1]]


# -- the budget while jobs write --------------------------------------------------------------------------------------


def test_an_ingest_beyond_the_quota_is_ended_and_leaves_its_original(tmp_path: Path, body: bytes) -> None:
    server = Server(tmp_path / "data", quota_bytes=len(body) + 10_000_000).start()
    try:

        def pieces() -> Iterator[bytes]:
            """Yield the body; suspend the ingest midway, so that it still runs when the quota is full."""
            yield body[: len(body) // 2]
            until(lambda: bool(server.children("tracedock ingest")))
            server.children("tracedock ingest")[0].suspend()
            yield body[len(body) // 2 :]

        trace_id = server.api.put("/traces/t.json", content=pieces()).json()["id"]
        partial_columns = server.data / "columns" / f"{trace_id}.partial"
        partial_columns.mkdir(exist_ok=True)
        (partial_columns / "events.parquet").write_bytes(bytes(11_000_000))

        trace = server.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json()

        assert (trace["state"], trace["error"]["code"]) == ("failed", "no_room")
        assert trace["error"]["quota"] == len(body) + 10_000_000
        assert names_below(server, "columns") == set()
        assert server.api.get(f"/traces/{trace_id}/download").content == body
        assert "Traceback" not in server.log_text()
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("bound", ["disk", "budget"])
def test_sort_without_room_to_spill_fails_clearly(disk: Disk, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    columns = write_columns(disk.root / "columns", b"".join(trace_chunks(sized(TraceShape(), 40_000_000))))
    monkeypatch.setattr(database, "MEMORY_MAX", 32 << 20)
    if bound == "disk":
        disk.leave_free(0)
    else:
        monkeypatch.setattr(database, "_spill_limit", {})
        database.limit_spill(0)

    with pytest.raises(DiskFull, match="does not fit into memory"):
        list(document(columns, order="original"))

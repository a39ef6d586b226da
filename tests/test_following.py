"""Ingest follows an upload: the trace is read while it is received. If either fails, no data is lost."""

import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.processes import has_reaped, living
from tests.server import Server, bytes_read
from tests.traces import TraceShape, expected, sized, write_trace
from tests.tus import begin, id_of, send
from tests.waiting import PATIENCE_S, until

StartServer = Callable[..., Server]
BLOCK = 1 << 20  # bytes of an upload; the worker is notified after each block
TAIL = 1000  # bytes that `send_all_but_the_end` leaves unsent


@pytest.fixture(scope="module")
def shape() -> TraceShape:
    return sized(TraceShape(kernels=300), 15 * 10**6)


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory, shape: TraceShape) -> bytes:
    return write_trace(tmp_path_factory.mktemp("trace") / "a.json", shape).read_bytes()


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server()


class Sender:
    """An upload whose pieces the test sends one by one."""

    def __init__(self, server: Server, body: bytes, *, wait: float = 0, digest: str = "") -> None:
        host, port = urlsplit(server.url).netloc.split(":")
        earlier_ids = set(incoming_ids(server))
        self._unsent = body
        self.sent = 0
        self._connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        head = f"PUT /api/v1/traces/slow.json?wait={wait} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        head += f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n"
        head += f"Repr-Digest: sha-256=:{digest}:\r\n" if digest else ""
        self._connection.sendall(f"{head}\r\n".encode())
        assert self._connection.recv(100).startswith(b"HTTP/1.1 100 ")
        (self.id,) = set(incoming_ids(server)) - earlier_ids

    def send(self, count: int) -> None:
        piece, self._unsent = self._unsent[:count], self._unsent[count:]
        self._connection.sendall(piece)
        self.sent += len(piece)

    def send_all_but_the_end(self) -> None:
        self.send(len(self._unsent) - TAIL)

    def answer(self) -> tuple[int, dict[str, object]]:
        """Send all unsent bytes, and return the status and the content of the answer."""
        self.send(len(self._unsent))
        response = b"".join(iter(lambda: self._connection.recv(1 << 16), b""))
        self._connection.close()
        head, _, content = response.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(content)

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def incoming_ids(server: Server) -> list[str]:
    """Return the ids of the uploads that the server is receiving."""
    return [path.name for path in (server.data / "incoming").iterdir()]


def stored_names(server: Server) -> set[str]:
    """Return the names of all files and folders of traces in the data folder, complete or not."""
    return {path.name for folder in ("incoming", "originals", "columns") for path in (server.data / folder).iterdir()}


def ingest_workers(server: Server) -> list[psutil.Process]:
    return living("tracedock ingest", server.pid)


def wait_for_follower(server: Server, *uploads: Sender) -> psutil.Process:
    """Wait until a worker has read all but the last two blocks that one of these uploads sent; return the worker."""

    def followers() -> Iterator[psutil.Process]:
        return (
            worker
            for worker in ingest_workers(server)
            for upload in uploads
            if bytes_read(worker, upload.id) > upload.sent - 2 * BLOCK
        )

    until(lambda: any(followers()))
    return next(followers())


def get_trace(server: Server, trace_id: str, wait: float = 60) -> dict[str, object]:
    """Return a trace once it is ingested, or as it is after `wait` seconds."""
    trace: dict[str, object] = server.api.get(f"/traces/{trace_id}", params={"wait": wait}).json()
    return trace


def test_trace_is_read_while_it_is_received_and_ready_right_after(
    server: Server, body: bytes, shape: TraceShape
) -> None:
    with Sender(server, body, wait=60) as upload:
        upload.send(3 * BLOCK)
        worker = wait_for_follower(server, upload)
        upload.send_all_but_the_end()
        assert wait_for_follower(server, upload) == worker  # only the last bytes are left to read

        status, trace = upload.answer()

    assert (status, trace["state"], trace["id"]) == (201, "ready", upload.id)
    assert trace["counts"] == expected(shape).counts
    assert not worker.is_running()
    assert stored_names(server) == {upload.id}


def test_worker_has_a_lower_priority_than_the_server(server: Server, body: bytes) -> None:
    with Sender(server, body) as upload:
        upload.send(3 * BLOCK)
        assert wait_for_follower(server, upload).nice() > psutil.Process(server.pid).nice()


def test_incomplete_upload_is_not_a_trace(server: Server, body: bytes) -> None:
    with Sender(server, body) as upload:
        upload.send_all_but_the_end()
        wait_for_follower(server, upload)

        assert server.api.get("/traces").json()["traces"] == []
        assert server.api.get(f"/traces/{upload.id}").status_code == 404
        assert not (server.data / "columns" / upload.id).exists()


def test_an_upload_of_less_than_a_block_is_not_followed(server: Server) -> None:
    content = b'{"traceEvents":[{"ph":"X","ts":1,"dur":1}]}'.ljust(BLOCK - 1)
    with Sender(server, content, wait=60) as upload:
        upload.send(BLOCK - 2)
        assert ingest_workers(server) == []

        assert upload.answer()[1]["state"] == "ready"


def test_trace_uploaded_in_chunks_is_read_while_it_is_received(server: Server, body: bytes, shape: TraceShape) -> None:
    upload_url = begin(server, len(body), "chunks.json")
    upload_id = id_of(upload_url)
    send(server, upload_url, 0, body[: 3 * BLOCK])
    until(lambda: ingest_workers(server) != [])
    (worker,) = ingest_workers(server)
    send(server, upload_url, 3 * BLOCK, body[3 * BLOCK : -TAIL])
    until(lambda: bytes_read(worker, upload_id) > len(body) - TAIL - 2 * BLOCK)
    assert ingest_workers(server) == [worker]
    assert server.api.get("/traces").json()["traces"] == []

    send(server, upload_url, len(body) - TAIL, body[-TAIL:])

    trace = get_trace(server, upload_id)
    assert (trace["state"], trace["counts"]) == ("ready", expected(shape).counts)
    assert stored_names(server) == {upload_id, f"{upload_id}.done"}


# -- uploads that fail ---------------------------------------------------------------------------------------------


def test_upload_with_a_wrong_digest_leaves_nothing(server: Server, body: bytes) -> None:
    with Sender(server, body, digest="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=") as upload:
        upload.send_all_but_the_end()
        worker = wait_for_follower(server, upload)

        status, problem = upload.answer()

    assert (status, problem["code"]) == (400, "digest_mismatch")
    assert not worker.is_running()
    assert stored_names(server) == set()
    assert server.api.get("/traces").json()["traces"] == []


def test_disconnected_client_leaves_nothing(server: Server, body: bytes) -> None:
    with Sender(server, body) as upload:
        upload.send_all_but_the_end()
        worker = wait_for_follower(server, upload)

    until(lambda: not worker.is_running())
    until(lambda: stored_names(server) == set())
    assert server.api.get("/traces").json()["traces"] == []


# -- damaged traces ------------------------------------------------------------------------------------------------


def test_damage_at_the_beginning_is_reported_once_the_upload_ends(server: Server, body: bytes) -> None:
    damaged = b"PK\x03\x04" + body
    with Sender(server, damaged, wait=60) as upload:
        upload.send(3 * BLOCK)
        until(lambda: any(map(has_reaped, server.children("fork"))))  # the worker has refused the trace
        upload.send_all_but_the_end()

        status, trace = upload.answer()

    error = trace["error"]
    assert isinstance(error, dict)
    assert (status, trace["state"], error["code"], error["offset"]) == (201, "failed", "not_json", 0)
    assert server.api.get(f"/traces/{upload.id}/download").content == damaged
    assert stored_names(server) == {upload.id}


@pytest.mark.parametrize("missing_bytes", [0, 10, 10**6])
def test_followed_trace_is_read_like_a_complete_file(
    server: Server, body: bytes, missing_bytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "slow.json"
    path.write_bytes(body[: len(body) - missing_bytes])
    with Sender(server, path.read_bytes(), wait=60) as upload:
        upload.send_all_but_the_end()
        wait_for_follower(server, upload)

        followed = upload.answer()[1]
    server.api.delete(f"/traces/{upload.id}").raise_for_status()  # a second trace of the same bytes would not be read

    complete = server.upload(path)
    assert {key for key in complete if followed[key] != complete[key]} == {"id", "created_at", "job"}


# -- killed workers ------------------------------------------------------------------------------------------------


def test_killed_worker_loses_no_trace(start_server: StartServer, body: bytes, shape: TraceShape) -> None:
    server = start_server(ingest_attempts=1)
    with Sender(server, body, wait=60) as upload:
        upload.send(3 * BLOCK)
        worker = wait_for_follower(server, upload)
        worker.kill()
        until(lambda: not worker.is_running())
        upload.send_all_but_the_end()

        status, trace = upload.answer()

    assert (status, trace["state"]) == (201, "ready")
    assert trace["counts"] == expected(shape).counts
    assert f"the upload {upload.id} is no longer followed" in server.log_text()
    assert stored_names(server) == {upload.id}


def test_suspended_worker_does_not_delay_the_upload(server: Server, body: bytes) -> None:
    with Sender(server, body) as upload:
        upload.send(3 * BLOCK)
        worker = wait_for_follower(server, upload)
        worker.suspend()

        status, _ = upload.answer()

        assert (status, get_trace(server, upload.id, wait=0)["state"]) == (201, "ingesting")
        worker.resume()
    assert get_trace(server, upload.id)["state"] == "ready"


# -- server shutdown -----------------------------------------------------------------------------------------------


def test_killed_server_ends_its_worker_and_leaves_nothing(server: Server, body: bytes) -> None:
    with Sender(server, body) as upload:
        upload.send_all_but_the_end()
        worker = wait_for_follower(server, upload)

        server.kill()

        psutil.wait_procs([worker], timeout=PATIENCE_S)
        assert not worker.is_running()
    server.start()
    assert stored_names(server) == set()
    assert server.api.get("/traces").json()["traces"] == []


def test_stopped_server_ends_although_an_upload_is_unfinished(start_server: StartServer, body: bytes) -> None:
    server = start_server(shutdown_s=1)
    with Sender(server, body) as upload:
        upload.send_all_but_the_end()
        worker = wait_for_follower(server, upload)

        psutil.Process(server.pid).send_signal(signal.SIGTERM)

        psutil.wait_procs([worker], timeout=PATIENCE_S)
        assert not worker.is_running()
        assert server._process
        assert server._process.wait(timeout=PATIENCE_S) == 0
    assert stored_names(server) == set()


# -- concurrency ---------------------------------------------------------------------------------------------------


def test_two_uploads_become_ready_though_only_one_is_followed(start_server: StartServer, body: bytes) -> None:
    server = start_server(ingest_workers=1)
    with Sender(server, body, wait=60) as first, Sender(server, body, wait=60) as second:
        for upload in (first, second):
            upload.send(3 * BLOCK)
        worker = wait_for_follower(server, first, second)
        for upload in (first, second):
            upload.send_all_but_the_end()
        assert ingest_workers(server) == [worker]

        answers = [upload.answer() for upload in (first, second)]

    assert [(status, trace["state"]) for status, trace in answers] == [(201, "ready")] * 2
    assert stored_names(server) == {first.id, second.id}


def test_slow_upload_does_not_delay_other_traces(start_server: StartServer, body: bytes, step_trace: Path) -> None:
    server = start_server(ingest_workers=1)
    with Sender(server, body) as slow:
        slow.send(3 * BLOCK)
        wait_for_follower(server, slow)

        assert server.upload(step_trace)["state"] == "ready"
        assert slow.answer()[0] == 201
    assert get_trace(server, slow.id)["state"] == "ready"


def test_upload_is_followed_once_a_worker_is_free(start_server: StartServer, body: bytes) -> None:
    server = start_server(ingest_workers=1)
    with Sender(server, body) as waiting, Sender(server, body, wait=60) as followed:
        followed.send(3 * BLOCK)
        wait_for_follower(server, followed)
        waiting.send(3 * BLOCK)
        assert followed.answer()[1]["state"] == "ready"

        waiting.send_all_but_the_end()
        wait_for_follower(server, waiting)

        assert waiting.answer()[0] == 201
    assert get_trace(server, waiting.id)["state"] == "ready"


def test_a_trace_can_be_deleted_right_after_its_last_byte(server: Server, body: bytes) -> None:
    with Sender(server, body) as upload:
        upload.send(3 * BLOCK)
        worker = wait_for_follower(server, upload)
        worker.suspend()  # the worker has not read the remaining bytes
        assert upload.answer()[0] == 201
        assert get_trace(server, upload.id, wait=0)["state"] == "ingesting"

        assert server.api.delete(f"/traces/{upload.id}").status_code == 204

    assert not worker.is_running()
    assert stored_names(server) == set()

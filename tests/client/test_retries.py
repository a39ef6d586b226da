from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tracedock import Retries, errors
from tracedock.errors import ApiError, UnreachableError
from tracedock.retries import Pauses

from tests.cli.double import Answer, Server, job, json_answer, problem, trace
from tests.client.conftest import Connect, Driven
from tests.conftest import DATA
from tests.server import Server as RealServer

BUSY = {"code": "engine_busy", "title": "Busy", "detail": "Later."}
TABLE: dict[str, Any] = {"columns": [], "rows": [], "truncated": False, "elapsed_ms": 1.0}


def busy(status: int = 503, after: str | None = "0") -> Answer:
    answer = problem(status, "engine_busy", "Busy", "Later.")
    return Answer(status, answer.body, answer.media, {} if after is None else {"Retry-After": after})


def refused(status: int, retry_after_s: float | None = 0.0, code: str = "engine_busy") -> ApiError:
    extras = {} if retry_after_s is None else {"retry_after_s": retry_after_s}
    return ApiError.of_problem({**BUSY, **extras, "code": code}, status)


def unreached(*, connected: bool) -> UnreachableError:
    return UnreachableError("http://somewhere", "reset", connected=connected)


@pytest.mark.parametrize("status", [429, 503])
def test_refusal_with_retry_after_is_repeated(connect: Connect, server: Server, status: int) -> None:
    server.script("GET", "/traces/a", busy(status), busy(status), json_answer(trace("a", "a.json")))
    assert connect(server.url).trace("a")["name"] == "a.json"
    assert len(server.sent("GET")) == 3


@pytest.mark.parametrize("after", [None, "Wed, 21 Oct 2026 07:28:00 GMT", "3600"])
def test_refusal_without_a_near_retry_after_is_an_error_at_once(
    connect: Connect, server: Server, after: str | None
) -> None:
    server.script("GET", "/traces/a", busy(after=after))
    with pytest.raises(errors.BusyError):
        connect(server.url).trace("a")
    assert len(server.sent("GET")) == 1


def test_retries_end_after_the_last_attempt(connect: Connect, server: Server) -> None:
    server.script("GET", "/traces/a", *[busy()] * 9)
    with pytest.raises(errors.BusyError):
        connect(server.url, retries=Retries(attempts=3)).trace("a")
    assert len(server.sent("GET")) == 3


def test_query_is_repeated(connect: Connect, server: Server) -> None:
    server.script("POST", "/traces/a/query", busy(), json_answer(TABLE))
    assert list(connect(server.url).sql("a", "SELECT 1", arrow=False)) == []


def test_deletion_is_repeated_if_it_was_refused_for_now(connect: Connect, server: Server) -> None:
    server.script("DELETE", "/traces/a", busy(), Answer(204))
    connect(server.url).delete("a")
    assert len(server.sent("DELETE")) == 2


CREATIONS: list[tuple[str, Callable[[Driven], object]]] = [
    ("/traces/a/split", lambda dock: dock.split("a", by="step")),
    ("/traces/a/overlay", lambda dock: dock.overlay("a", "critical_path")),
    ("/traces/merge", lambda dock: dock.merge(["a", "b"])),
    ("/groups/a/merge", lambda dock: dock.merge_group("a")),
    ("/groups", lambda dock: dock.create_group("run", ["a"])),
    ("/traces/import", lambda dock: dock.import_files({"path": "/srv"})),
]


@pytest.mark.parametrize(("path", "create"), CREATIONS, ids=[path for path, _ in CREATIONS])
def test_request_that_creates_something_is_repeated_with_its_key(
    connect: Connect, server: Server, path: str, create: Callable[[Driven], object]
) -> None:
    in_progress = problem(409, "idempotency_key_busy", "In progress", "Wait.", retry_after_s=0)
    server.script("POST", path, busy(), in_progress, json_answer(job("queued"), 202), json_answer(job("queued"), 202))
    dock = connect(server.url)
    create(dock)
    create(dock)
    keys = [request.headers["idempotency-key"] for request in server.sent("POST")]
    assert len(keys) == 4
    assert len({*keys[:3]}) == 1
    assert keys[3] != keys[0]


def test_upload_in_one_request_is_repeated_with_all_bytes(connect: Connect, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"x" * 3_000_000)
    server.script("PUT", "/traces/a.json", busy())
    connect(server.url).upload(tmp_path / "a.json", resume=False)
    assert [len(request.body) for request in server.sent("PUT")] == [3_000_000] * 2
    assert len({request.headers["idempotency-key"] for request in server.sent("PUT")}) == 1


@contextmanager
def breaking(url: str, count: int) -> Iterator[str]:
    """Yield a URL whose first `count` connections break after the request has passed; others work."""
    host, port = url.removeprefix("http://").split(":")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for number in range(1000):
            try:
                ours, _ = listening.accept()
            except OSError:
                return
            with ours, socket.create_connection((host, int(port))) as theirs:
                theirs.sendall(_request(ours))
                answer = b"".join(iter(lambda: theirs.recv(1 << 16), b""))
                if number >= count:
                    ours.sendall(answer)

    thread = Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def _request(connection: socket.socket) -> bytes:
    """Read a request, and return it with the wish that the server closes the connection."""
    with connection.makefile("rb") as file:
        lines = [file.readline()]
        while (line := file.readline()) != b"\r\n":
            lines += [] if line.lower().startswith(b"connection:") else [line]
        length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
        return b"".join([*lines, b"Connection: close\r\n\r\n", file.read(length)])


def test_split_whose_answer_is_lost_makes_its_traces_once(
    connect: Connect, real_server: RealServer, quick: Retries
) -> None:
    dock = connect(real_server.url)
    whole = dock.wait(dock.upload(DATA / "cpu_train_steps.pt.trace.json.gz"))
    with breaking(real_server.url, 2) as url:
        started = connect(url, retries=quick).split(whole, by="step")
    made = dock.finish(started)["result"]["traces"]
    assert len(dock.jobs(kind="split", trace=whole)) == 1
    assert sorted(child["id"] for child in dock.traces(parent=whole)) == sorted(made)


def test_upload_whose_answer_is_lost_makes_one_trace(
    connect: Connect, real_server: RealServer, quick: Retries, tmp_path: Path
) -> None:
    path = tmp_path / f"{time.time_ns()}.json"
    path.write_bytes(b'{"traceEvents": []}')
    with breaking(real_server.url, 2) as url:
        uploaded = connect(url, retries=quick).upload(path)
    assert [each["id"] for each in connect(real_server.url).traces(name=path.name)] == [uploaded["id"]]


def test_deletion_whose_answer_is_lost_is_not_repeated(connect: Connect, server: Server, quick: Retries) -> None:
    server.traces = [trace("a", "a.json")]
    with breaking(server.url, 1) as url, pytest.raises(UnreachableError, match="broke"):
        connect(url, retries=quick).delete("a")
    assert len(server.sent("DELETE")) == 1


def test_server_that_starts_late_is_reached(connect: Connect, server: Server) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        dock = connect(url, retries=Retries(attempts=9, first_pause_s=0.05, longest_pause_s=0.1))
        late = Thread(target=_answer_once_listening, args=(bound,))
        late.start()
        assert dock.sessions() == {"sessions": []}
        late.join()


def _answer_once_listening(bound: socket.socket) -> None:
    bound.listen()
    connection, _ = bound.accept()
    with connection:
        connection.recv(1 << 16)
        body = b'{"sessions": []}'
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))


def test_server_that_is_down_is_an_error_after_the_last_attempt(connect: Connect, quick: Retries) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(UnreachableError) as caught:
            connect(url, retries=quick).sessions()
    assert not caught.value.connected


class TestPauses:
    def test_pauses_double_up_to_the_longest(self) -> None:
        pauses = Pauses(Retries(attempts=6, first_pause_s=1, longest_pause_s=4), "GET", is_repeatable=True)
        lengths = [pauses.after(unreached(connected=False)) or 0 for _ in range(5)]
        for length, most in zip(lengths, [1, 2, 4, 4, 4], strict=True):
            assert 0.75 * most <= length <= most
        assert pauses.after(unreached(connected=False)) is None

    def test_no_attempt_begins_after_the_patience(self) -> None:
        pauses = Pauses(Retries(attempts=9, patience_s=10), "GET", is_repeatable=True)
        assert pauses.after(refused(503, 11)) is None
        assert pauses.after(refused(503, 9)) == 9

    def test_broken_request_is_repeated_only_without_a_second_effect(self) -> None:
        assert Pauses(Retries(), "POST", is_repeatable=True).after(unreached(connected=True)) is not None
        assert Pauses(Retries(), "POST", is_repeatable=False).after(unreached(connected=True)) is None
        assert Pauses(Retries(), "DELETE", is_repeatable=False).after(unreached(connected=True)) is None

    def test_request_that_was_not_sent_is_repeated(self) -> None:
        assert Pauses(Retries(), "POST", is_repeatable=False).after(unreached(connected=False)) is not None
        assert Pauses(Retries(unreachable=False), "GET", is_repeatable=True).after(unreached(connected=False)) is None

    def test_refusals_of_other_statuses_are_final(self) -> None:
        for status in (400, 404, 409, 422, 500, 502, 504, 507):
            assert Pauses(Retries(), "GET", is_repeatable=True).after(refused(status)) is None

    def test_request_in_progress_is_repeated_with_its_key_alone(self) -> None:
        error = refused(409, 1, "idempotency_key_busy")
        assert Pauses(Retries(), "POST", is_repeatable=True).after(error) == 1
        assert Pauses(Retries(), "POST", is_repeatable=False).after(error) is None

    def test_one_attempt_is_no_retry(self) -> None:
        assert Pauses(Retries(attempts=1), "GET", is_repeatable=True).after(unreached(connected=False)) is None

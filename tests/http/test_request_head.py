"""Heads of requests are bounded: larger ones get an error response, and cost the server no memory."""

import json
from collections.abc import Callable, Iterator

import psutil
import pytest

from service.http.server.request_head import FIELDS_MAX, HEAD_MAX, TARGET_MAX
from tests.http.conftest import connected, sent_raw
from tests.server import Server

LAST = b"Connection: close\r\n\r\n"


def head(target: str = "/healthz", *fields: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (f"GET {target} HTTP/1.1", "Host: localhost", *fields)).encode()


def status_and_code(answer: bytes) -> tuple[int, str]:
    top, _, body = answer.partition(b"\r\n\r\n")
    assert body
    assert answer.count(b"HTTP/1.1 ") == 1
    problem = json.loads(body)
    assert b"application/problem+json" in top
    assert problem["status"] == int(top.split()[1])
    return problem["status"], problem["code"]


def test_a_head_within_the_bounds_is_read(server: Server) -> None:
    most = [f"X-{number}: x" for number in range(FIELDS_MAX - 2)]
    for fields in (most, [f"X: {'x' * (HEAD_MAX - 200)}"]):
        assert sent_raw(server, head("/healthz", *fields) + LAST).startswith(b"HTTP/1.1 200 ")
    long = sent_raw(server, head(f"/api/v1/traces?name={'x' * (TARGET_MAX - 100)}") + LAST)
    assert long.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("request_head", "status", "code"),
    [
        (head("/healthz", *(f"X-{number}: x" for number in range(FIELDS_MAX + 1))), 431, "head_too_large"),
        (head("/healthz", f"X: {'x' * HEAD_MAX}"), 431, "head_too_large"),
        (head(f"/healthz?{'x' * TARGET_MAX}"), 414, "target_too_long"),
        (b"no such thing\r\n", 400, "bad_request"),
    ],
)
def test_head_beyond_the_bounds_is_refused_with_the_reason(
    server: Server, request_head: bytes, status: int, code: str
) -> None:
    assert status_and_code(sent_raw(server, request_head + LAST)) == (status, code)


def endless_fields() -> Iterator[bytes]:
    yield head()
    yield from (f"X-{number}: {'x' * 1000}\r\n".encode() for number in range(10_000))


def endless_field() -> Iterator[bytes]:
    yield head() + b"X: "
    yield from (b"x" * 10_000 for _ in range(1000))


def endless_target() -> Iterator[bytes]:
    yield b"GET /"
    yield from (b"x" * 10_000 for _ in range(1000))


@pytest.mark.parametrize("pieces", [endless_fields, endless_field, endless_target])
def test_ten_megabytes_of_head_are_not_kept_in_memory(server: Server, pieces: Callable[[], Iterator[bytes]]) -> None:
    process = psutil.Process(server.pid)
    sent_raw(server, head() + LAST)
    before = process.memory_info().rss
    for _ in range(5):
        with connected(server) as connection:
            connection.sendall(b"".join(pieces()))
            answer = connection.makefile("rb").read()
        assert status_and_code(answer)[0] in (414, 431)
    assert process.memory_info().rss - before < 8 << 20
    assert server.api.get(f"{server.url}/healthz").status_code == 200


def test_endless_trailers_end_the_connection(server: Server) -> None:
    start = b"PUT /api/v1/traces/endless.json HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailers = b"".join(f"X-{number}: {'x' * 1000}\r\n".encode() for number in range(20_000))
    with connected(server) as connection:
        connection.sendall(start + b"1\r\nx\r\n0\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(trailers)
    assert server.api.get("/traces", params={"name": "endless.json"}).json()["traces"] == []


def test_bytes_after_a_refused_head_are_no_request(server: Server) -> None:
    after = b"DELETE /api/v1/traces/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert status_and_code(sent_raw(server, head("/healthz", f"X: {'x' * HEAD_MAX}") + b"\r\n" + after)) == (
        431,
        "head_too_large",
    )


def test_each_request_on_a_connection_is_measured_anew(server: Server) -> None:
    half_head = head("/healthz", f"X: {'x' * (HEAD_MAX // 2)}")
    assert sent_raw(server, (half_head + b"\r\n") * 7 + half_head + LAST).count(b"HTTP/1.1 200 ") == 8

"""Connections are bounded: those without progress are ended, and all others are answered."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from service.http.server.connections import Connections, TransferRate
from tests.http.conftest import connected
from tests.server import Server
from tests.waiting import PATIENCE_S, until

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
PUT = b"PUT /api/v1/traces/slow.json HTTP/1.1\r\nHost: localhost\r\n"
LIMIT = 60


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with small bounds."""
    data = tmp_path_factory.mktemp("strict") / "data"
    server = Server(data, max_connections=LIMIT, head_timeout_s=1, transfer_window_s=1, min_bytes_per_s=2000).start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with bounds that a sound client stays far above, even on a busy machine."""
    server = Server(tmp_path_factory.mktemp("patient") / "data", transfer_window_s=8, min_bytes_per_s=200).start()
    yield server
    assert server.stop() == 0


def problem_of(answer: bytes) -> tuple[int, str]:
    problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    return problem["status"], problem["code"]


def answer_on(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def clients(server: Server) -> list[tuple[str, int]]:
    """List the addresses of the clients to which the server has an open connection."""
    connections = psutil.Process(server.pid).net_connections("tcp")
    return [connection.raddr for connection in connections if connection.status == psutil.CONN_ESTABLISHED]


def test_server_answers_despite_two_hundred_incomplete_heads(strict: Server) -> None:
    with ExitStack() as held:
        for _ in range(200):
            held.enter_context(connected(strict)).sendall(HEAD)
        assert strict.api.get(f"{strict.url}/healthz").status_code == 200
        until(lambda: len(clients(strict)) < 5)


@pytest.mark.parametrize("sent", [HEAD, b"GET /", b"\r\n\r\n"])
def test_incomplete_head_times_out(strict: Server, sent: bytes) -> None:
    with connected(strict) as connection:
        connection.sendall(sent)
        answer = answer_on(connection)
    assert not answer or problem_of(answer) == (408, "too_slow")
    assert bool(answer) == sent.startswith(b"GET")


def test_head_sent_byte_by_byte_times_out(strict: Server) -> None:
    with connected(strict) as connection:
        connection.settimeout(0.05)
        connection.sendall(HEAD)
        answer, deadline = b"", time.monotonic() + 20
        while not answer and time.monotonic() < deadline:
            connection.sendall(b"X")
            try:
                answer = connection.recv(1 << 16)
            except TimeoutError:
                continue
    assert problem_of(answer) == (408, "too_slow")


def test_second_head_on_a_connection_times_out_too(strict: Server) -> None:
    with connected(strict) as connection:
        connection.sendall(HEAD + b"\r\n" + HEAD)
        answers = answer_on(connection)
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert answers.count(b"HTTP/1.1 408 ") == 1


@pytest.mark.parametrize(
    ("fields", "body"), [(b"Content-Length: 100\r\n", b"{"), (b"Transfer-Encoding: chunked\r\n", b"1\r\n{\r\n")]
)
def test_stalled_body_times_out_and_leaves_no_files(strict: Server, fields: bytes, body: bytes) -> None:
    with connected(strict) as connection:
        connection.sendall(PUT + fields + b"\r\n" + body)
        assert problem_of(answer_on(connection)) == (408, "too_slow")
    until(lambda: not list((strict.data / "incoming").iterdir()))
    assert strict.api.get("/traces", params={"name": "slow.json"}).json()["traces"] == []


def trickled(server: Server, text: bytes, count: int, every_s: float) -> bytes:
    """PUT a body in small pieces until the server answers, and return the response."""
    with connected(server) as connection:
        connection.sendall(PUT + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(text))
        connection.settimeout(every_s)
        for start in range(0, len(text), count):
            connection.sendall(text[start : start + count])
            try:
                return connection.recv(1 << 16)
            except TimeoutError:
                continue
        connection.settimeout(PATIENCE_S)
        return answer_on(connection)


def test_trickling_body_times_out(strict: Server) -> None:
    assert problem_of(trickled(strict, b" " * 1000, 1, 0.1)) == (408, "too_slow")


def test_body_above_the_minimum_rate_becomes_a_trace(patient: Server) -> None:
    text = b'{"traceEvents":[]}' + b" " * 30_000
    assert trickled(patient, text, 1000, 0.4).startswith(b"HTTP/1.1 201 ")


def send_slowly(connection: socket.socket) -> None:
    """Send a byte every 50 ms for `PATIENCE_S` seconds."""
    pace = threading.Event()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        connection.sendall(b"x")
        pace.wait(0.05)


def test_slow_body_after_its_response_holds_no_connection(strict: Server) -> None:
    with connected(strict) as connection:
        connection.sendall(b"POST /api/v1/nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_slowly(connection)


@pytest.fixture(scope="module")
def bulky(strict: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a trace whose original exceeds all buffers between the server and a client."""
    return str(strict.upload(write_bulky(tmp_path_factory.mktemp("bulky")))["id"])


def write_bulky(folder: Path) -> Path:
    path = folder / "bulky.json"
    path.write_bytes(b'{"traceEvents":[]}' + b" " * (32 << 20))
    return path


def download(server: Server, trace: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
    fields = b"Host: localhost\r\nConnection: close\r\n\r\n"
    connection.sendall(f"GET /api/v1/traces/{trace}/download?format=original HTTP/1.1\r\n".encode() + fields)
    return connection


def test_unread_download_is_aborted(strict: Server, bulky: str) -> None:
    with download(strict, bulky) as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"
        until(lambda: connection.getsockname() not in clients(strict))
        size = 0
        with suppress(ConnectionResetError):
            size = len(answer_on(connection))
    assert size < 32 << 20


def test_slowly_read_download_is_complete(patient: Server, tmp_path: Path) -> None:
    bulky = str(patient.upload(write_bulky(tmp_path))["id"])
    with download(patient, bulky) as connection:
        pace, ended, size = threading.Event(), time.monotonic() + 10, 0
        while piece := connection.recv(1 << 16):
            size += len(piece)
            if time.monotonic() < ended:
                pace.wait(0.01)  # much slower, the client would need the window for what the kernel has buffered
    assert size > 32 << 20


def test_connection_beyond_the_limit_is_refused_and_busy_ones_stay(strict: Server, bulky: str) -> None:
    with ExitStack() as held:
        reading = [held.enter_context(download(strict, bulky)) for _ in range(LIMIT + 5)]
        assert reading[0].recv(12) == b"HTTP/1.1 200"
        refused = held.enter_context(connected(strict))
        answer = answer_on(refused)
        assert b"\r\nRetry-After: " in answer
        assert problem_of(answer) == (503, "too_many_connections")
    until(lambda: len(clients(strict)) < 5)
    assert strict.api.get(f"{strict.url}/healthz").status_code == 200


def test_flood_of_connections_blocks_no_other_client(strict: Server) -> None:
    def flood(_: int) -> None:
        for _ in range(100):
            with connected(strict) as connection:
                connection.sendall(HEAD)

    with ThreadPoolExecutor(4) as threads:
        flooding = [threads.submit(flood, at) for at in range(4)]
        while not all(task.done() for task in flooding):
            assert strict.api.get("/traces").status_code == 200
        for task in flooding:
            task.result()


# -- the bounds themselves ---------------------------------------------------------------------------------------------


class Client:
    """A stand-in for a connection from an address."""

    def __init__(self, address: str | None) -> None:
        self.client = (address and (address, 1)) or None
        self.gave_way = False

    def check(self, now: float) -> None: ...

    def close_idle(self) -> None:
        self.gave_way = True


def bounded(limit: int = 10, limit_per_client: int = 2) -> Connections:
    return Connections(limit=limit, limit_per_client=limit_per_client, head_timeout_s=1, window_s=1, minimum_per_s=1)


@pytest.mark.parametrize(
    ("addresses", "entered"),
    [
        (["10.0.0.1"] * 3, [True, True, False]),
        (["10.0.0.1", "10.0.0.2", "10.0.0.1"], [True] * 3),
        (["::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1"], [True, True, False]),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"], [True, True, False, True]),
        (["fe80::1%eth0"] * 3, [True, True, False]),
        (["127.0.0.1"] * 3 + ["::1"] * 3 + ["::ffff:127.0.0.1"] * 3, [True] * 9),
        ([None] * 4, [True] * 4),
    ],
)
def test_connections_of_each_client_are_bounded_except_loopback(
    addresses: list[str | None], entered: list[bool]
) -> None:
    async def enter() -> list[bool]:
        connections = bounded()
        return [connections.enter(Client(address)) for address in addresses]

    assert asyncio.run(enter()) == entered


def test_closed_connection_no_longer_counts() -> None:
    async def run() -> None:
        connections, first = bounded(limit=1, limit_per_client=1), Client("10.0.0.1")
        assert connections.enter(first)
        assert not connections.enter(Client("10.0.0.1"))
        connections.leave(first)
        connections.leave(first)
        assert connections.enter(Client("10.0.0.1"))

    asyncio.run(run())


def test_longest_idle_connection_is_closed_for_a_new_one() -> None:
    async def run() -> None:
        connections, clients = bounded(limit=3), [Client(None) for _ in range(4)]
        for client in clients[:3]:
            assert connections.enter(client)
            connections.idle(client)
        connections.busy(clients[0])
        assert connections.enter(clients[3])
        assert [client.gave_way for client in clients] == [False, True, False, False]
        connections.busy(clients[2])
        assert not connections.enter(Client(None))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("moves", "slow"),
    [
        ([(0, True), (0, True)], True),
        ([(99, True), (0, True)], True),
        ([(100, True), (0, True)], False),
        ([(0, False), (0, True)], False),
        ([(0, True), (0, False)], False),
    ],
)
def test_transfer_rate_counts_only_awaited_time(moves: list[tuple[int, bool]], slow: bool) -> None:
    rate = TransferRate(10, 100)
    answers = []
    for at, (count, awaited) in enumerate(moves):
        rate.transferred(count)
        answers.append(rate.too_slow(at * 10.0, awaited=awaited))
    assert answers[-1] is slow

"""Attacks on engines, on all paths: each has its error, leaves nothing behind, and affects no other client."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from service.engine.relay import FILE_PIECE_MAX
from service.engine.trace_processor import wire
from service.http.routes.perfetto import NO_TRY_AGAIN
from tests.http.conftest import ENDLESS, ENDLESS_ROWS, connected
from tests.ports import free_port
from tests.server import Server

pytestmark = pytest.mark.system

DEADLINE_S = 1
MEMORY = 1 << 30
EVIL = "https://evil.example"
COUNT = "SELECT count(*) FROM slice WHERE dur >= 0"


class Door(ABC):
    """A path by which a client sends SQL to the engine of a trace."""

    def __init__(self, server: Server, trace: str, port: int) -> None:
        self.server, self.trace, self.port = server, trace, port

    @abstractmethod
    def ask(self, sql: str) -> str:
        """Run SQL, and return its error, or an empty text if it succeeds."""


class Query(Door):
    """`POST /traces/{id}/query`."""

    def ask(self, sql: str) -> str:
        answer = self.server.query(self.trace, sql, timeout_s=DEADLINE_S)
        if answer.is_success:
            return ""
        problem = answer.json()
        assert answer.status_code < 500 or problem["code"] in ("query_timeout", "engine_failed", "engine_outgrew")
        return f"{problem['code']}: {problem['detail']}"


class Tab(Door):
    """The Perfetto UI's WebSocket."""

    @property
    def address(self) -> str:
        return f"{self.server.url.replace('http', 'ws')}/perfetto/{self.trace}/rpc/websocket"

    def connected(self) -> ClientConnection:
        return connect(self.address, max_size=None)

    def rpc_answers(self, request: object) -> list[wire.Rpc]:
        """Send a request on a new connection, and return its responses."""
        with self.connected() as tab:
            tab.send(wire.frame(request))
            deframer, answers = wire.Deframer(), list[wire.Rpc]()
            while not answers or not wire.is_last(answers[-1]):
                answers += map(wire.Rpc.FromString, deframer.feed(tab.recv(30, decode=False)))
            return answers

    def ask(self, sql: str) -> str:
        try:
            answers = self.rpc_answers(wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql)))
        except ConnectionClosed as closed:
            return str(closed)
        return next((answer.query_result.error for answer in answers if answer.query_result.error), "")


class ListenersTab(Tab):
    """The WebSocket of the localhost listener."""

    @property
    def address(self) -> str:
        return f"ws://127.0.0.1:{self.port}/websocket"


class Listener(Door):
    """`POST /query` of the localhost listener, as Perfetto's Python client sends it."""

    def ask(self, sql: str) -> str:
        body = wire.QueryArgs(sql_query=sql).SerializeToString()
        try:
            answer = httpx.post(f"http://127.0.0.1:{self.port}/query", content=body, timeout=120, trust_env=False)
        except httpx.RemoteProtocolError as error:
            return str(error)
        return str(wire.QueryResult.FromString(answer.content).error)


DOORS: dict[str, Callable[[Server, str, int], Door]] = {
    "query": Query,
    "tab": Tab,
    "listener": Listener,
    "listener's tab": ListenersTab,
}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Server]:
    started = Server(
        tmp_path_factory.mktemp("besieged") / "data", perfetto_port=port, ui_timeout_s=DEADLINE_S,
        engine_memory_bytes=MEMORY, engine_sandbox="required", engine_deaths=1000,
    )  # fmt: skip
    yield started.start()
    assert started.stop() == 0
    assert "Traceback" not in started.log_text()


@pytest.fixture(scope="module")
def trace(besieged: Server, step_trace: Path) -> str:
    trace = str(besieged.upload(step_trace)["id"])
    assert besieged.api.put("/listener", json={"trace": trace}).status_code == 200
    return trace


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, besieged: Server, trace: str, port: int) -> Door:
    return DOORS[request.param](besieged, trace, port)


@pytest.fixture(params=["tab", "listener's tab"])
def tab(request: pytest.FixtureRequest, besieged: Server, trace: str, port: int) -> Tab:
    return Tab(besieged, trace, port) if request.param == "tab" else ListenersTab(besieged, trace, port)


@pytest.fixture(autouse=True)
def unharmed(besieged: Server, trace: str) -> Iterator[None]:
    """Assert after each attack that the server runs, its files are unchanged, and the trace can be queried."""
    before = files(besieged)
    pid = besieged.pid
    yield
    assert besieged.rows(trace, COUNT) == [[487]]
    assert besieged.pid == pid
    assert besieged.api.get(f"{besieged.url}/healthz").status_code == 200
    assert files(besieged) == before


def files(server: Server) -> dict[str, str]:
    """Return a digest for each path in the data folder; empty for folders and for files that the server writes."""
    errors = {}
    for path in server.data.rglob("*"):
        own = path.name.startswith(("catalog", "audit", "tokens")) or not path.is_file()
        errors[str(path)] = "" if own else hashlib.sha256(path.read_bytes()).hexdigest()
    return errors


def test_server_logs_the_guards_of_engines_at_start(besieged: Server) -> None:
    assert "guards of the engines: Landlock ABI " in besieged.log_text()


# -- files -----------------------------------------------------------------------------------------------------------

ON_FILES = [
    "ATTACH DATABASE '{catalog}' AS c; SELECT * FROM c.traces",
    "ATTACH 'file:{catalog}?vfs=unix' AS c",
    "attach '/etc/passwd' AS p",
    "SELECT 1; /* */ ATTACH '{new}' AS n; CREATE TABLE n.t AS SELECT 1",
    "EXPLAIN ATTACH '{new}' AS n",
    "CREATE PERFETTO MACRO red() RETURNS Expr AS ATTACH '{new}' AS n; red!()",
    "SELECT CREATE_FUNCTION('red()', 'INT', 'ATTACH ''{new}'' AS n')",
    "SELECT RUN_METRIC('chrome/chrome_processes.sql', 'a', '; ATTACH ''{new}'' AS n')",
    "SELECT EXPORT_JSON('{new}')",
    "SELECT \"export_json\" ( '{new}' )",
    "CREATE PERFETTO FUNCTION red(x STRING) RETURNS LONG DELEGATES TO export_json",
    "SELECT write_file('{new}', 'x')",
    "VACUUM INTO '{new}'",
    "VACUUM",
    "DETACH main",
    "PRAGMA temp_store_directory = '{folder}'",
    "PRAGMA writable_schema = 1",
]


@pytest.mark.parametrize("sql", ON_FILES)
def test_no_sql_reaches_a_file(sql: str, door: Door, tmp_path: Path) -> None:
    places = {"catalog": door.server.data / "catalog.sqlite", "new": tmp_path / "new", "folder": tmp_path}
    assert "is refused: it " in door.ask(sql.format(**places))
    assert list(tmp_path.iterdir()) == []
    assert door.ask(COUNT) == ""


def test_refused_statement_is_reported_with_its_position(besieged: Server, trace: str) -> None:
    answer = besieged.query(trace, "SELECT 1;\n  ATTACH '/etc/passwd' AS p")
    assert answer.status_code == 403
    problem = answer.json()
    assert (problem["code"], problem["word"], problem["line"], problem["column"]) == ("sql_refused", "ATTACH", 2, 3)


def test_forbidden_sql_in_a_trace_summary_is_refused(trace: str, tab: Tab, port: int, tmp_path: Path) -> None:
    sql = f"SELECT 1 AS x; ATTACH '{tmp_path / 'new'}' AS n"
    metric = {"id": "red", "value": "x", "query": {"sql": {"sql": sql, "column_names": ["x"]}}}
    request = wire.request(wire.SUMMARIZE_TRACE, trace_summary_args={"proto_specs": [{"metric_spec": [metric]}]})
    assert "ATTACH in line 1" in tab.rpc_answers(request)[-1].trace_summary_result.error
    body = request.trace_summary_args.SerializeToString()
    answer = httpx.post(f"http://127.0.0.1:{port}/trace_summary", content=body, trust_env=False)
    assert b"ATTACH in line 1" in answer.content
    assert not (tmp_path / "new").exists()


# -- time and memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [ENDLESS, ENDLESS_ROWS, f"CREATE PERFETTO TABLE red AS {ENDLESS_ROWS}"])
def test_endless_statements_are_stopped(sql: str, door: Door) -> None:
    error = door.ask(sql)
    if sql == ENDLESS_ROWS and isinstance(door, Query):
        assert error == ""  # the default limit of rows ends this query
    else:
        assert "stopped after" in error or "memory" in error
    assert door.ask(COUNT) == ""


NUMBERS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100000000)"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT printf('%.*c', 2000000000, 'x')",
        "SELECT zeroblob(2000000000)",
        "SELECT zeroblob(999999999)",
        "SELECT replace(hex(zeroblob(10000000)), '0', printf('%.*c', 200, 'x'))",
        f"{NUMBERS} SELECT group_concat(printf('%.*c', 100000, 'x')) FROM c",
        f"{NUMBERS} SELECT count(*) FROM (SELECT printf('%.*c', 100000, 'x') || x AS y FROM c ORDER BY y)",
    ],
)
def test_statements_that_exhaust_memory_are_stopped(sql: str, door: Door) -> None:
    error = door.ask(sql)
    assert error or "2000000000, 'x'" in sql  # SQLite returns NULL for this unless the deadline comes first
    assert door.ask(COUNT) == ""
    assert sum(engine.memory_info().rss for engine in door.server.children("--stdiod")) < MEMORY


# -- RPC -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*range(1, 3), *range(7, 10), 11, 13, *range(16, 23), 99])
def test_no_rpc_method_changes_the_trace(method: int, tab: Tab) -> None:
    tab.server.rows(tab.trace, f"DROP TABLE IF EXISTS mine; CREATE TABLE mine AS SELECT {method} AS x")
    modules = {"package_name": "slices", "allow_override": True}
    spoiling = wire.Rpc(append_trace_data=b'{"traceEvents":[]}', register_sql_package_args=modules)
    request = wire.Rpc.FromString(b"\x10" + wire.varint(method) + spoiling.SerializeToString())  # some are unknown
    with suppress(ConnectionClosed):
        tab.rpc_answers(request)
    assert tab.server.rows(tab.trace, "SELECT x FROM mine") == [[method]]


def test_truncated_frames_block_no_other_client(tab: Tab) -> None:
    whole = wire.frame(wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=COUNT)))
    with tab.connected() as waiting:
        waiting.send(whole[:-3])
        assert tab.ask(COUNT) == ""
    with tab.connected() as broken:
        broken.send(whole[:-3] + whole)
        with suppress(ConnectionClosed, TimeoutError):
            broken.recv(1)


NO_FRAMES = {
    "large": b"\x0a" + wire.varint(1 << 40),
    "huge": b"\x0a" + b"\xff" * 9 + b"\x01",
    "endless": b"\x0a" + b"\xff" * 20,
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "text": "text",
}


@pytest.mark.parametrize("data", NO_FRAMES.values(), ids=NO_FRAMES)
def test_malformed_frames_end_the_connection(data: bytes | str, tab: Tab) -> None:
    with tab.connected() as connection:
        connection.send(data)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(10)
    assert closed.value.rcvd
    assert closed.value.rcvd.code == NO_TRY_AGAIN


def test_oversized_message_ends_the_connection(tab: Tab) -> None:
    with tab.connected() as connection:
        with suppress(ConnectionClosed):  # the server may close the connection during the transfer
            connection.send(b"\x0a" + wire.varint(FILE_PIECE_MAX + 1) + bytes(FILE_PIECE_MAX + 1))
        with pytest.raises(ConnectionClosed):
            connection.recv(10)


# -- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", [False, True], ids=["server", "listener"])
def test_ten_megabytes_of_headers_take_no_memory(listener: bool, besieged: Server, port: int) -> None:
    before = psutil.Process(besieged.pid).memory_info().rss
    target = Server(besieged.data)
    target.url = f"http://127.0.0.1:{port}" if listener else besieged.url
    with closing(connected(target)) as connection, suppress(ConnectionError):
        connection.sendall(b"POST /query HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(10_000):
            connection.sendall(f"X-{number}: {'x' * 1000}\r\n".encode())
        while connection.recv(1 << 16):
            pass
    assert psutil.Process(besieged.pid).memory_info().rss - before < 5_000_000


@pytest.mark.parametrize(
    ("name", "value", "status", "code"),
    [("Origin", EVIL, 403, "wrong_origin"), ("Host", "evil.example", 421, "wrong_host")],
)
def test_page_of_another_site_is_refused(
    name: str, value: str, status: int, code: str, besieged: Server, trace: str
) -> None:
    question = json.dumps({"sql": "SELECT 1"})
    headers = {name: value, "Content-Type": "text/plain"}  # a browser sends this type without a preflight
    answer = besieged.api.post(f"/traces/{trace}/query", content=question, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("headers", [{"Origin": EVIL}, {"Host": "evil.example"}, {"Origin": "null"}])
def test_listener_refuses_pages_of_other_sites(headers: dict[str, str], trace: str, port: int) -> None:
    for call in ("status", "query"):
        answer = httpx.post(f"http://127.0.0.1:{port}/{call}", headers=headers, trust_env=False)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_websocket_refuses_pages_of_other_sites(tab: Tab) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(tab.address, origin=Origin(EVIL))
    assert refused.value.response.status_code == 403

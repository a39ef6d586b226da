"""The localhost listener, with the real Perfetto client."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from perfetto.trace_processor import TraceProcessor
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from service.engine import wire
from service.http.listener import ORIGINS
from tests.http.conftest import free_port
from tests.server import Server

EVIL = Origin("https://evil.example")
NUMBERS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 90000) SELECT x FROM c"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("listening") / "data", perfetto_port=port).start()
    yield one
    assert one.stop() == 0


@pytest.fixture(scope="module")
def chosen(listening: Server, step_trace: Path) -> str:
    """A trace that the listener serves."""
    trace = listening.upload(step_trace)["id"]
    assert listening.api.put("/listener", json={"trace": trace}).json()["trace"] == trace
    return str(trace)


@pytest.fixture
def door(port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as client:
        yield client


def test_without_a_trace_it_says_what_to_do(listening: Server, door: httpx.Client, port: int) -> None:
    state = {"enabled": True, "host": "127.0.0.1", "port": port, "trace": None}
    assert listening.api.get("/listener").json() == state
    answer = door.post("/status")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_ready")
    assert "PUT /api/v1/listener" in answer.json()["detail"]
    with (
        connect(f"ws://127.0.0.1:{port}/websocket") as tab,
        pytest.raises(ConnectionClosed, match="No trace is chosen"),
    ):
        tab.recv(5)


def test_the_perfetto_client_reads_why_it_has_no_answer(listening: Server, step_trace: Path, port: int) -> None:
    trace = listening.upload(step_trace)["id"]
    assert listening.api.put("/listener", json={"trace": trace}).status_code == 200
    with TraceProcessor(addr=f"127.0.0.1:{port}") as perfetto:
        assert [row.n for row in perfetto.query("SELECT 1 AS n")] == [1]
        listening.api.delete(f"/traces/{trace}").raise_for_status()
        with pytest.raises(Exception, match="No trace is chosen"):
            perfetto.query("SELECT 1")


def test_the_perfetto_client_asks_sql(listening: Server, chosen: str, port: int) -> None:
    with TraceProcessor(addr=f"127.0.0.1:{port}") as perfetto:
        assert [row.n for row in perfetto.query("SELECT count(*) AS n FROM slice")] == [487]
        row = next(iter(perfetto.query("SELECT 9007199254740993 AS i, 'ü' AS s, NULL AS n, 0.5 AS d")))
        assert (row.i, row.s, row.n, row.d) == (9007199254740993, "ü", None, 0.5)
        many = perfetto.query(NUMBERS)
        assert [row.x for row in many] == list(range(1, 90_001))
        with pytest.raises(Exception, match="no such column: nope"):
            perfetto.query("SELECT nope")


def test_the_perfetto_client_computes_metrics(listening: Server, chosen: str, port: int) -> None:
    with TraceProcessor(addr=f"127.0.0.1:{port}") as perfetto:
        assert perfetto.metric(["trace_metadata"]).trace_metadata.trace_duration_ns > 0


@pytest.mark.parametrize("call", ["parse", "notify_eof", "reset_trace_processor", "enable_metatrace", "nothing"])
def test_what_would_change_the_shared_trace_is_refused(chosen: str, door: httpx.Client, call: str) -> None:
    answer = door.post(f"/{call}", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (403, "request_refused")


def test_the_tables_of_others_survive_a_restore(listening: Server, chosen: str, door: httpx.Client) -> None:
    listening.query(chosen, "CREATE TABLE kept AS SELECT 1 AS x")
    assert door.post("/restore_initial_tables").status_code == 200
    assert listening.rows(chosen, "SELECT x FROM kept") == [[1]]


def test_a_body_that_is_no_message_is_refused(chosen: str, door: httpx.Client) -> None:
    for call in ("query", "compute_metric"):
        answer = door.post(f"/{call}", content=b"\xff\xff\xff")
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), call


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}])
def test_foreign_pages_are_refused(chosen: str, door: httpx.Client, headers: dict[str, str]) -> None:
    for call in ("status", "query"):
        answer = door.post(f"/{call}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "request_refused")
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ORIGINS)
def test_perfettos_own_page_is_let_in(chosen: str, door: httpx.Client, origin: str) -> None:
    answer = door.post("/status", headers={"Origin": origin})
    assert answer.headers["access-control-allow-origin"] == origin
    assert wire.StatusResult.FromString(answer.content).human_readable_version.startswith("Perfetto v54.0")
    preflight = door.options(
        "/status",
        headers={
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Private-Network": "true",
        },
    )
    assert preflight.headers["access-control-allow-private-network"] == "true"


def test_a_foreign_page_gets_no_websocket(chosen: str, port: int) -> None:
    with pytest.raises(InvalidStatus, match="403"), connect(f"ws://127.0.0.1:{port}/websocket", origin=EVIL):
        pass
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13"
    head = f"GET /websocket HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\n{key}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(f"{head}Connection: Upgrade\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403 ")


def test_the_ui_speaks_over_a_websocket(chosen: str, port: int) -> None:
    question = wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query="SELECT 7"))
    with connect(f"ws://127.0.0.1:{port}/websocket", origin=Origin("https://ui.perfetto.dev")) as tab:
        tab.send(wire.frame(question))
        (payload,) = wire.Deframer().feed(tab.recv(5, decode=False))
    assert list(wire.Rpc.FromString(payload).query_result.batch[0].varint_cells) == [7]


def test_a_trace_that_is_deleted_is_served_no_more(listening: Server, step_trace: Path, chosen: str) -> None:
    other = listening.upload(step_trace)["id"]
    listening.api.put("/listener", json={"trace": other})
    listening.api.delete(f"/traces/{other}")
    assert listening.api.get("/listener").json()["trace"] is None
    assert listening.api.put("/listener", json={"trace": other}).status_code == 404
    assert listening.api.put("/listener", json={"trace": chosen}).status_code == 200


def test_the_two_ports_do_not_serve_each_others_pages(chosen: str, listening: Server, door: httpx.Client) -> None:
    assert door.get("/api/v1/traces").status_code == 404
    assert listening.api.post(f"{listening.url}/status").status_code == 404


def test_it_can_be_off(server: Server) -> None:
    assert server.api.get("/listener").json() == {"enabled": False, "host": "127.0.0.1", "port": 0, "trace": None}

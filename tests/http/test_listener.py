"""The localhost listener, with the real Perfetto client."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from service.engine.trace_processor import provision, wire
from service.http.listener_state import ListenerState
from service.http.routes.listener import ORIGINS
from service.http.server import listening as listening_module
from service.http.server.listening import bind
from service.settings import Settings
from tests.ports import free_port
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S

EVIL = Origin("https://evil.example")
NUMBERS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 90000) SELECT x FROM c"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("listening") / "data", perfetto_port=port).start()
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="module")
def served_trace(listening: Server, step_trace: Path) -> str:
    """A trace that the listener serves."""
    trace = listening.upload(step_trace)["id"]
    assert listening.api.put("/listener", json={"trace": trace}).json()["trace"] == trace
    return str(trace)


@pytest.fixture
def door(port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S) as client:
        yield client


def test_listener_without_a_trace_explains_how_to_choose_one(listening: Server, door: httpx.Client, port: int) -> None:
    state = {"enabled": True, "host": "127.0.0.1", "port": port, "trace": None, "error": None}
    assert listening.api.get("/listener").json() == state
    answer = door.post("/status")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_ready")
    assert "PUT /api/v1/listener" in answer.json()["detail"]
    with (
        connect(f"ws://127.0.0.1:{port}/websocket") as tab,
        pytest.raises(ConnectionClosed, match="No trace is chosen"),
    ):
        tab.recv(PATIENCE_S)


def test_perfetto_client_receives_the_reason_of_a_refusal(listening: Server, step_trace: Path, port: int) -> None:
    trace = listening.upload(step_trace)["id"]
    assert listening.api.put("/listener", json={"trace": trace}).status_code == 200
    with TraceProcessor(addr=f"127.0.0.1:{port}") as perfetto:
        assert [row.n for row in perfetto.query("SELECT 1 AS n")] == [1]
        listening.api.delete(f"/traces/{trace}").raise_for_status()
        with pytest.raises(Exception, match=f"trace {trace}, with which this connection began, was deleted"):
            perfetto.query("SELECT 1")
    with TraceProcessor(addr=f"127.0.0.1:{port}") as perfetto:
        with pytest.raises(Exception, match="No trace is chosen"):
            perfetto.query("SELECT 1")
        with pytest.raises(Exception, match="No trace is chosen"):
            perfetto.metric(["trace_metadata"])


def test_perfetto_client_runs_sql(listening: Server, served_trace: str, port: int) -> None:
    with TraceProcessor(addr=f"127.0.0.1:{port}") as perfetto:
        assert [row.n for row in perfetto.query("SELECT count(*) AS n FROM slice")] == [487]
        row = next(iter(perfetto.query("SELECT 9007199254740993 AS i, 'ü' AS s, NULL AS n, 0.5 AS d")))
        assert (row.i, row.s, row.n, row.d) == (9007199254740993, "ü", None, 0.5)
        rows = perfetto.query(NUMBERS)
        assert [row.x for row in rows] == list(range(1, 90_001))
        with pytest.raises(Exception, match="no such column: nope"):
            perfetto.query("SELECT nope")


def test_perfetto_client_computes_metrics(listening: Server, served_trace: str, port: int) -> None:
    with TraceProcessor(addr=f"127.0.0.1:{port}") as perfetto:
        assert perfetto.metric(["trace_metadata"]).trace_metadata.trace_duration_ns > 0


SUMMARY = """
metric_spec {
  id: "slices"
  value: "n"
  query { sql { sql: "SELECT count(*) AS n FROM slice" column_names: "n" } }
}
"""


def test_perfetto_client_computes_trace_summaries(listening: Server, served_trace: str, port: int) -> None:
    with TraceProcessor(addr=f"127.0.0.1:{port}") as perfetto:
        [slices] = perfetto.trace_summary([SUMMARY]).metric_bundles
        assert [row.values[0].double_value for row in slices.row] == [487]
        with pytest.raises(Exception, match="nothing_of_the_kind"):
            perfetto.trace_summary(["nothing_of_the_kind"])


def test_several_perfetto_clients_run_sql_at_once(listening: Server, served_trace: str, port: int) -> None:
    def count(_: int) -> list[int]:
        with TraceProcessor(addr=f"localhost:{port}") as perfetto:
            return [row.n for _ in range(5) for row in perfetto.query("SELECT count(*) AS n FROM slice")]

    with ThreadPoolExecutor(6) as clients:
        assert list(clients.map(count, range(6))) == [[487] * 5] * 6


def test_perfetto_client_keeps_its_first_trace(listening: Server, served_trace: str, port: int, tmp_path: Path) -> None:
    next_trace = listening.upload(write_trace(tmp_path / "other.json", TraceShape()))["id"]
    count = "SELECT count(*) AS n FROM slice"
    [[slices]] = listening.rows(next_trace, count)
    assert slices != 487
    with TraceProcessor(addr=f"127.0.0.1:{port}") as before:
        assert [row.n for row in before.query(count)] == [487]
        listening.api.put("/listener", json={"trace": next_trace}).raise_for_status()
        assert [row.n for row in before.query(count)] == [487]
        with TraceProcessor(addr=f"127.0.0.1:{port}") as after:
            assert [row.n for row in after.query(count)] == [slices]
    listening.api.put("/listener", json={"trace": served_trace}).raise_for_status()


def test_idle_http_connection_stays_open(served_trace: str, port: int) -> None:
    """Python's http.client does not reconnect: it would send its next request on the closed connection."""
    body = wire.QueryArgs(sql_query="SELECT 1").SerializeToString()
    head = f"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=6) as connection:  # uvicorn's default is 5 s
        connection.sendall(head.encode() + body)
        while b"0\r\n\r\n" not in connection.recv(1 << 16):
            pass
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_perfetto_package_loads_traces_of_the_server(listening: Server, served_trace: str) -> None:
    """Loads a trace like BatchTraceProcessor, which needs pandas."""

    def pieces() -> Iterator[bytes]:
        with listening.api.stream("GET", f"/traces/{served_trace}/download") as answer:
            yield from answer.iter_bytes(1 << 20)

    engine = TraceProcessorConfig(bin_path=str(provision.engine_path(Settings())))
    with TraceProcessor(trace=pieces(), config=engine) as perfetto:
        assert [row.n for row in perfetto.query("SELECT count(*) AS n FROM slice")] == [487]


@pytest.mark.skipif(find_spec("pandas") is None, reason="BatchTraceProcessor needs pandas, which is not installed")
def test_program_on_the_engines_page_queries_all_traces(start_server: Callable[..., Server], step_trace: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    lines = page.split("```python\nimport json")[1].split("```")[0]
    server = start_server()
    for name in ("one.json.gz", "two.json.gz"):
        server.upload(step_trace, name)
    program = f"import json{lines.replace('http://127.0.0.1:8700', server.url)}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["n", "487", "487"]


def test_perfetto_client_with_its_own_file_is_refused_with_a_message(
    served_trace: str, port: int, step_trace: Path
) -> None:
    with pytest.raises(Exception, match="it loads no other file"):
        TraceProcessor(addr=f"127.0.0.1:{port}", trace=str(step_trace))


@pytest.mark.parametrize("call", ["notify_eof", "reset_trace_processor", "enable_metatrace", "nothing"])
def test_calls_that_change_the_shared_trace_are_refused(served_trace: str, door: httpx.Client, call: str) -> None:
    answer = door.post(f"/{call}", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (403, "request_refused")


def test_uploaded_file_is_refused_in_the_message_that_its_client_reads(served_trace: str, door: httpx.Client) -> None:
    answer = door.post("/parse", content=b"x")
    assert answer.status_code == 403
    assert "it loads no other file" in wire.Rpc().append_result.FromString(answer.content).error


def test_status_offers_the_trace_to_the_public_ui_only(
    listening: Server, step_trace: Path, served_trace: str, door: httpx.Client, port: int
) -> None:
    offered = wire.StatusResult.FromString(door.post("/status").content)
    assert offered.loaded_trace_name == f"{step_trace.name} (Tracedock, trace {served_trace})"
    with connect(f"ws://127.0.0.1:{port}/websocket") as tab:
        tab.send(wire.frame(wire.request(wire.GET_STATUS)))
        (payload,) = wire.Deframer().feed(tab.recv(PATIENCE_S, decode=False))
    assert wire.Rpc.FromString(payload).status == offered
    own = listening.api.post(f"{listening.url}/perfetto/{served_trace}/rpc/status")
    assert wire.StatusResult.FromString(own.content).loaded_trace_name == ""


def test_status_has_the_reason_why_the_trace_cannot_be_opened(
    start_server: Callable[..., Server], step_trace: Path, tmp_path: Path
) -> None:
    port = free_port()
    server = start_server(perfetto_port=port, engine_memory_bytes=1)
    trace = server.upload(step_trace)["id"]
    server.api.put("/listener", json={"trace": trace}).raise_for_status()
    answer = httpx.post(f"http://127.0.0.1:{port}/status", trust_env=False)
    assert answer.status_code == 200  # with an error status, the UI would show no message
    name = wire.StatusResult.FromString(answer.content).loaded_trace_name
    assert "\nIt can't be opened now: An engine on all of this would take about" in name


def test_listener_page_explains_itself(
    listening: Server, step_trace: Path, served_trace: str, door: httpx.Client, port: int
) -> None:
    served = door.get("/")
    assert served.headers["content-type"].startswith("text/plain")
    assert f"It serves {step_trace.name} (Tracedock, trace {served_trace})" in served.text
    assert f"{listening.url}/traces/{served_trace}" in served.text
    assert f"https://ui.perfetto.dev/#!/?rpc_port={port}" in served.text
    assert door.head("/").status_code == 200
    listening.api.put("/listener", json={"trace": None}).raise_for_status()
    assert "No trace is chosen." in door.get("/").text
    command = next(line for line in door.get("/").text.splitlines() if "curl -X PUT" in line)
    done = subprocess.run(
        shlex.split(command.removeprefix("- ").replace('"ID"', f'"{served_trace}"')), capture_output=True, check=True
    )
    assert json.loads(done.stdout)["trace"] == served_trace


def test_listener_answers_on_both_loopback_addresses(served_trace: str, port: int) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    answer = httpx.post(f"http://[::1]:{port}/status", trust_env=False)
    assert wire.StatusResult.FromString(answer.content).loaded_trace_name
    with connect(f"ws://[::1]:{port}/websocket") as tab:
        tab.send(wire.frame(wire.request(wire.GET_STATUS)))
        assert tab.recv(PATIENCE_S)


def test_listener_without_ipv6_uses_ipv4(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(listening_module, "HOST_6", "2001:db8::1")  # an address for documentation, which no machine has
    state, port = ListenerState(), free_port()
    [bound] = bind(state, port, "http://127.0.0.1:1")
    with bound:
        assert (bound.getsockname(), state.port, state.error) == (("127.0.0.1", port), port, None)
        assert caplog.text == ""


def test_port_can_not_be_taken_before_the_server_is_ready() -> None:
    with listening_module.listening_socket("127.0.0.1", 0) as bound, pytest.raises(OSError, match="in use"):
        socket.create_server(bound.getsockname())


def test_server_starts_without_the_listener_if_its_port_is_taken(
    start_server: Callable[..., Server], step_trace: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        port = occupant.getsockname()[1]
        server = start_server(perfetto_port=port)
        state = server.api.get("/listener").json()
        assert (state["enabled"], state["port"]) == (False, port)
        assert state["error"].startswith(f"Port {port} on 127.0.0.1 is in use by another program")
        assert state["error"] in server.log_text()
        trace = server.upload(step_trace)["id"]
        assert server.api.put("/listener", json={"trace": trace}).json() == state | {"trace": trace}


def test_tables_of_other_clients_survive_a_restore(listening: Server, served_trace: str, door: httpx.Client) -> None:
    listening.query(served_trace, "CREATE TABLE kept AS SELECT 1 AS x")
    assert door.post("/restore_initial_tables").status_code == 200
    assert listening.rows(served_trace, "SELECT x FROM kept") == [[1]]


def test_malformed_protobuf_body_is_refused(served_trace: str, door: httpx.Client) -> None:
    for call in ("query", "compute_metric"):
        answer = door.post(f"/{call}", content=b"\xff\xff\xff")
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), call


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}])
def test_foreign_pages_are_refused(served_trace: str, door: httpx.Client, headers: dict[str, str]) -> None:
    for call in ("status", "query"):
        answer = door.post(f"/{call}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "request_refused")
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ORIGINS)
def test_pages_of_the_perfetto_ui_are_allowed(served_trace: str, door: httpx.Client, origin: str) -> None:
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


def test_a_foreign_page_gets_no_websocket(served_trace: str, port: int) -> None:
    with pytest.raises(InvalidStatus, match="403"), connect(f"ws://127.0.0.1:{port}/websocket", origin=EVIL):
        pass
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13"
    head = f"GET /websocket HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\n{key}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(f"{head}Connection: Upgrade\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403 ")


def test_ui_queries_over_a_websocket(served_trace: str, port: int) -> None:
    question = wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query="SELECT 7"))
    with connect(f"ws://127.0.0.1:{port}/websocket", origin=Origin("https://ui.perfetto.dev")) as tab:
        tab.send(wire.frame(question))
        (payload,) = wire.Deframer().feed(tab.recv(PATIENCE_S, decode=False))
    assert list(wire.Rpc.FromString(payload).query_result.batch[0].varint_cells) == [7]


def spoken(tab: ClientConnection, request: object) -> wire.Rpc:
    """Send a request like the UI, and return its only response."""
    tab.send(wire.frame(request))
    (payload,) = wire.Deframer().feed(tab.recv(PATIENCE_S, decode=False))
    return wire.Rpc.FromString(payload)


def test_tab_keeps_its_trace_until_that_is_deleted(
    listening: Server, step_trace: Path, served_trace: str, port: int, tmp_path: Path
) -> None:
    next_trace = listening.upload(write_trace(tmp_path / "other.json", TraceShape()))["id"]
    [[slices]] = listening.rows(next_trace, "SELECT count(*) FROM slice")
    question = wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query="SELECT count(*) FROM slice"))
    listening.api.put("/listener", json={"trace": next_trace}).raise_for_status()
    with connect(f"ws://127.0.0.1:{port}/websocket") as tab:
        assert spoken(tab, question).query_result.batch[0].varint_cells == [slices]
        listening.api.put("/listener", json={"trace": served_trace}).raise_for_status()
        assert spoken(tab, question).query_result.batch[0].varint_cells == [slices]
        with connect(f"ws://127.0.0.1:{port}/websocket") as new:
            assert spoken(new, question).query_result.batch[0].varint_cells == [487]
        listening.api.delete(f"/traces/{next_trace}").raise_for_status()
        with pytest.raises(ConnectionClosed, match=f"The trace {next_trace} was deleted"):
            spoken(tab, question)


def test_reconnecting_tab_gets_no_other_trace(
    start_server: Callable[..., Server], step_trace: Path, tmp_path: Path
) -> None:
    """The UI reconnects and continues its sequence of requests, without stating which trace it shows."""
    port = free_port()
    server = start_server(perfetto_port=port)
    first_trace, second_trace = (server.upload(step_trace, name)["id"] for name in ("one.json.gz", "two.json.gz"))
    body = wire.Rpc(seq=9, request=wire.GET_STATUS).SerializeToString()
    going_on = b"\x0a" + wire.varint(len(body)) + body
    address = f"ws://127.0.0.1:{port}/websocket"

    def goes_on() -> bool:
        with connect(address) as tab:
            tab.send(going_on)
            with suppress(ConnectionClosed):
                return bool(tab.recv(PATIENCE_S))
            assert tab.close_reason == "The connection to the trace was lost. Reload this tab."
            return False

    server.api.put("/listener", json={"trace": first_trace}).raise_for_status()
    assert not goes_on()  # the tab may show a trace of an earlier server process
    assert goes_on()
    server.api.put("/listener", json={"trace": second_trace}).raise_for_status()
    assert not goes_on()
    server.api.put("/listener", json={"trace": first_trace}).raise_for_status()
    assert not goes_on()


def test_deleted_trace_is_no_longer_served(listening: Server, step_trace: Path, served_trace: str) -> None:
    deleted = listening.upload(step_trace)["id"]
    listening.api.put("/listener", json={"trace": deleted})
    listening.api.delete(f"/traces/{deleted}")
    assert listening.api.get("/listener").json()["trace"] is None
    assert listening.api.put("/listener", json={"trace": deleted}).status_code == 404
    assert listening.api.put("/listener", json={"trace": served_trace}).status_code == 200


def test_listener_and_server_do_not_serve_each_others_paths(
    served_trace: str, listening: Server, door: httpx.Client
) -> None:
    assert door.get("/api/v1/traces").status_code == 404
    assert listening.api.post(f"{listening.url}/status").status_code == 404


def test_listener_can_be_switched_off(server: Server) -> None:
    assert server.api.get("/listener").json() == {
        "enabled": False, "host": "127.0.0.1", "port": 0, "trace": None, "error": None
    }  # fmt: skip

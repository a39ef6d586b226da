"""The Perfetto UI of the server, and its WebSocket."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from service.engine.trace_processor import wire
from service.http.routes.perfetto import NO_TRY_AGAIN, TRY_AGAIN
from tests.http.conftest import ENDLESS, sent_raw
from tests.server import Server
from tests.waiting import PATIENCE_S, until


def page(server: Server, path: str) -> httpx.Response:
    return server.api.get(f"{server.url}{path}")


def tab_on(server: Server, trace: str, origin: Origin | None = None) -> ClientConnection:
    return connect(f"{server.url.replace('http', 'ws')}/perfetto/{trace}/rpc/websocket", origin=origin)


def query(sql: str) -> bytes:
    return wire.frame(wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql)))


def answer_of(tab: ClientConnection) -> Any:
    (payload,) = wire.Deframer().feed(tab.recv(PATIENCE_S, decode=False))
    return wire.Rpc.FromString(payload)


def clients(server: Server, trace: str) -> int:
    number: int = server.api.get(f"/traces/{trace}/session").json()["clients"]
    return number


# -- pages ---------------------------------------------------------------------------------------------------------


def test_a_trace_opens_in_the_ui(server: Server, trace: str) -> None:
    answer = server.api.get(f"/traces/{trace}/perfetto")
    assert (answer.status_code, answer.headers["location"]) == (307, f"/perfetto/{trace}/#!/viewer")


def test_ui_page_loads_our_script_first_and_allows_no_other_host(server: Server, trace: str) -> None:
    answer = page(server, f"/perfetto/{trace}/")
    scripts = [part.split(">")[0] for part in answer.text.split("<script")[1:]]
    assert "/static/perfetto.js" in scripts[0]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "*" not in policy
    assert page(server, "/static/perfetto.js").status_code == 200


def test_files_of_the_ui_are_served_and_kept_by_browsers(server: Server, trace: str) -> None:
    version = page(server, f"/perfetto/{trace}/").text.split('data-perfetto_version=\'{"stable":"')[1].split('"')[0]
    bundle = page(server, f"/perfetto/files/{version}/frontend_bundle.js")
    assert bundle.status_code == 200
    assert "javascript" in bundle.headers["content-type"]
    assert bundle.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert page(server, f"/perfetto/files/{version}/trace_processor.wasm").headers["content-type"] == "application/wasm"


@pytest.mark.parametrize(
    "path",
    [
        "v99.0-abc/",
        "v99.0-abc/frontend_bundle.js",
        "index.html",
        "live_reload",
        "service_worker.js",
        "%00",
        "x" * 400,
        "vizviewer_info",
    ],
)
def test_missing_ui_file_is_a_plain_404(server: Server, path: str) -> None:
    answer = page(server, f"/perfetto/files/{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "path",
    ["../index.html", "../../engine-v54.0/trace_processor_shell", "/etc/passwd", "..%2f..%2fetc/passwd", "%2e%2e/x"],
)
def test_only_files_of_the_ui_are_served(server: Server, path: str) -> None:
    head = f"GET /perfetto/files/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = sent_raw(server, head.encode())
    assert answer.startswith(b"HTTP/1.1 404 ")


def test_an_unknown_trace_has_no_ui(server: Server) -> None:
    for path in ("/perfetto/000000000000/", "/api/v1/traces/000000000000/perfetto"):
        answer = page(server, path)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_trace")


# -- RPC -----------------------------------------------------------------------------------------------------------


def test_the_status_is_answered_at_once(server: Server, trace: str) -> None:
    answer = server.api.post(f"{server.url}/perfetto/{trace}/rpc/status")
    assert wire.StatusResult.FromString(answer.content).api_version == wire.API_VERSION
    assert answer.elapsed.total_seconds() < PATIENCE_S


def test_tabs_share_an_engine(server: Server, trace: str) -> None:
    with tab_on(server, trace) as first, tab_on(server, trace) as second:
        for number, tab in enumerate((first, second, first)):
            tab.send(query(f"SELECT {number}"))
            assert list(answer_of(tab).query_result.batch[0].varint_cells) == [number]
        assert clients(server, trace) == 2
    until(lambda: clients(server, trace) == 0)


def test_tab_may_pipeline_many_requests(server: Server, trace: str) -> None:
    with tab_on(server, trace) as tab:
        for number in range(300):
            tab.send(query(f"SELECT {number}"))
        answers = [list(answer_of(tab).query_result.batch[0].varint_cells) for _ in range(300)]
    assert answers == [[number] for number in range(300)]


def test_closed_tab_stops_its_query(server: Server, trace: str) -> None:
    server.rows(trace, "SELECT 1")
    engine = psutil.Process(server.api.get(f"/traces/{trace}/session").json()["engine"]["pid"])
    with tab_on(server, trace) as tab:
        tab.send(query(ENDLESS))
        until(lambda: engine.status() == psutil.STATUS_RUNNING)
    assert server.rows(trace, "SELECT 1") == [[1]]
    assert clients(server, trace) == 0


def test_page_of_another_site_is_refused(server: Server, trace: str) -> None:
    with pytest.raises(InvalidStatus, match="403"), tab_on(server, trace, origin=Origin("https://evil.example")):
        pass
    with tab_on(server, trace, origin=Origin(server.url)) as tab:
        tab.send(query("SELECT 1"))
        assert answer_of(tab)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", "text"])
def test_malformed_rpc_ends_the_connection(server: Server, trace: str, data: bytes | str) -> None:
    with tab_on(server, trace) as tab:
        tab.send(data)
        with pytest.raises(ConnectionClosed) as closed:
            tab.recv(PATIENCE_S)
    assert closed.value.rcvd
    assert closed.value.rcvd.code == NO_TRY_AGAIN
    until(lambda: clients(server, trace) == 0)


def test_tab_is_closed_with_try_again_after_its_engine_ended(server: Server, step_trace: Path) -> None:
    trace = str(server.upload(step_trace)["id"])
    with tab_on(server, trace) as tab:
        tab.send(query("SELECT 1"))
        answer_of(tab)
        server.api.delete(f"/traces/{trace}/session")
        tab.send(query("SELECT 1"))
        with pytest.raises(ConnectionClosed) as closed:
            tab.recv(PATIENCE_S)
    assert closed.value.rcvd
    assert closed.value.rcvd.code == TRY_AGAIN


def test_tab_on_an_unknown_trace_is_closed_with_the_reason(server: Server) -> None:
    with tab_on(server, "000000000000") as tab, pytest.raises(ConnectionClosed, match="No trace has the id"):
        tab.recv(PATIENCE_S)


def test_tab_closed_while_the_engine_loads_no_longer_counts(
    start_server: Callable[..., Server], large_trace: Path
) -> None:
    server = start_server()
    trace = str(server.upload(large_trace)["id"])
    with tab_on(server, trace) as tab:
        tab.send(query("SELECT 1"))
        assert clients(server, trace) == 1
    until(lambda: clients(server, trace) == 0)

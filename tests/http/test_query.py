"""SQL on a trace, over real sockets."""

import csv
import io
import json
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
import pytest

from tests.http.conftest import ENDLESS, ENDLESS_ROWS, connected, sent_raw
from tests.server import Server
from tests.waiting import PATIENCE_S, until

StartServer = Callable[..., Server]

NDJSON, CSV, ARROW = "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"
VALUES = "SELECT 9007199254740993 AS i, -0.5 AS d, 'ü,\"' AS s, '' AS e, x'00ff' AS b, NULL AS n, 9e999 AS inf"
NAMES = ["i", "d", "s", "e", "b", "n", "inf"]


def post_query(server: Server, trace: str, sql: str, accept: str = "", **more: object) -> httpx.Response:
    return server.api.post(f"/traces/{trace}/query", json={"sql": sql} | more, headers={"Accept": accept})


def request_of(trace: str, accept: str = "application/json", **question: object) -> bytes:
    """Return the bytes of a query request."""
    body = json.dumps(question).encode()
    head = f"POST /api/v1/traces/{trace}/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def engine_of(server: Server, trace: str) -> psutil.Process:
    return psutil.Process(server.api.get(f"/traces/{trace}/session").json()["engine"]["pid"])


# -- forms ---------------------------------------------------------------------------------------------------------


def test_json_result_is_exact(server: Server, trace: str) -> None:
    table = post_query(server, trace, VALUES).json()
    assert table["rows"] == [[9007199254740993, -0.5, 'ü,"', "", "AP8=", None, "Infinity"]]
    types = ["int", "double", "string", "string", "blob", "null", "double"]
    assert table["columns"] == [
        {"name": name, "type": kind, "unit": None, "description": None} for name, kind in zip(NAMES, types, strict=True)
    ]
    assert table["truncated"] is False
    assert table["elapsed_ms"] > 0


def test_ndjson_result_is_exact(server: Server, trace: str) -> None:
    answer = post_query(server, trace, VALUES, NDJSON)
    assert answer.headers["content-type"] == NDJSON
    values = [9007199254740993, -0.5, 'ü,"', "", "AP8=", None, "Infinity"]
    assert json.loads(answer.text) == dict(zip(NAMES, values, strict=True))


def test_csv_result_is_exact(server: Server, trace: str) -> None:
    answer = post_query(server, trace, VALUES, CSV)
    assert answer.headers["content-type"].startswith(CSV)
    assert answer.text.splitlines()[1] == '9007199254740993,-0.5,"ü,""","",AP8=,,Infinity'
    assert next(csv.reader(io.StringIO(answer.text))) == NAMES


def test_arrow_result_is_exact(server: Server, trace: str) -> None:
    answer = post_query(server, trace, VALUES, ARROW)
    assert answer.headers["content-type"] == ARROW
    values = [9007199254740993, -0.5, 'ü,"', "", b"\0\xff", None, float("inf")]
    assert pa.ipc.open_stream(answer.content).read_all().to_pylist() == [dict(zip(NAMES, values, strict=True))]


@pytest.mark.parametrize("accept", ["", NDJSON, CSV, ARROW])
def test_many_rows_arrive_in_order_in_every_form(server: Server, trace: str, accept: str) -> None:
    sql = ENDLESS_ROWS.replace("FROM c)", "FROM c LIMIT 50000)")
    data = post_query(server, trace, sql, accept, limit=None)
    read: dict[str, Callable[[], list[int]]] = {
        "": lambda: [row[0] for row in data.json()["rows"]],
        NDJSON: lambda: [json.loads(line)["x"] for line in data.text.splitlines()],
        CSV: lambda: [int(line) for line in data.text.splitlines()[1:]],
        ARROW: lambda: list(pa.ipc.open_stream(data.content).read_all()["x"].to_pylist()),
    }
    assert read[accept]() == list(range(1, 50_001))


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "truncated"), [(0, True), (486, True), (487, False), (488, False), (None, False)])
def test_a_limit_is_exact(server: Server, trace: str, limit: int | None, truncated: bool) -> None:
    table = post_query(server, trace, "SELECT id FROM slice", limit=limit).json()
    assert (len(table["rows"]), table["truncated"]) == (487 if limit is None else min(limit, 487), truncated)


def test_query_without_a_limit_has_the_server_limit(server: Server, trace: str) -> None:
    table = post_query(server, trace, ENDLESS_ROWS).json()
    assert (len(table["rows"]), table["truncated"]) == (100_000, True)


def test_a_query_that_takes_too_long_is_stopped(server: Server, trace: str) -> None:
    answer = post_query(server, trace, ENDLESS, timeout_s=0.3)
    assert (answer.status_code, answer.json()["code"], answer.json()["timeout_s"]) == (504, "query_timeout", 0.3)
    assert server.rows(trace, "SELECT 1") == [[1]]


def test_a_result_beyond_the_servers_bound_is_refused(start_server: StartServer, step_trace: Path) -> None:
    server = start_server(max_result_bytes=100_000)
    trace = str(server.upload(step_trace)["id"])
    answer = post_query(server, trace, ENDLESS_ROWS, limit=None)
    assert (answer.status_code, answer.json()["code"]) == (413, "result_too_large")


# -- invalid queries -----------------------------------------------------------------------------------------------


def test_wrong_sql_is_reported_with_its_position(server: Server, trace: str) -> None:
    answer = post_query(server, trace, "SELECT 1;\nSELECT\n  nope FROM slice")
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["code"]) == (400, "sql_error")
    assert (problem["detail"], problem["line"], problem["column"]) == ("no such column: nope", 3, 3)
    assert "no such column: nope" in problem["message"]


@pytest.mark.parametrize("accept", ["", NDJSON, CSV, ARROW])
def test_wrong_sql_is_a_problem_in_every_form(server: Server, trace: str, accept: str) -> None:
    assert post_query(server, trace, "SELEC", accept).json()["code"] == "sql_error"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"{}", b'{"sql": ""}', b'{"sql": 1}', b'{"sql": "SELECT 1", "limits": 1}',
        b'{"sql": "SELECT 1", "limit": -2}', b'{"sql": "SELECT 1", "limit": 0.5}',
        b'{"sql": "SELECT 1", "timeout_s": 0}', b'{"sql": "SELECT 1", "timeout_s": NaN}',
        b'{"sql": "SELECT 1", "timeout_s": 1e9}', b'{"sql": "\\ud800"}', b"\xff",
        b'{"sql": "SELECT 1\\u0000 and more"}', b'{"sql": "SELECT 1", "limit": true}',
    ],
)  # fmt: skip
def test_malformed_query_request_is_refused(server: Server, trace: str, body: bytes) -> None:
    answer = server.api.post(f"/traces/{trace}/query", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) in [(422, "bad_request"), (400, "bad_request")]
    assert answer.headers["content-type"] == "application/problem+json"


def test_unknown_field_is_named(server: Server, trace: str) -> None:
    answer = server.query(trace, "SELECT 1", limits=1)
    assert answer.json()["faults"] == [{"where": "body.limits", "what": "Extra inputs are not permitted"}]


# -- while the engine loads ----------------------------------------------------------------------------------------


def test_query_returns_202_while_the_engine_loads(start_server: StartServer, large_trace: Path) -> None:
    server = start_server()
    trace = server.upload(large_trace)["id"]
    early = server.api.post(f"/traces/{trace}/query", params={"wait": 0}, json={"sql": "SELECT 1"})
    assert early.status_code == 202
    assert early.headers["retry-after"] == "1"
    assert early.headers["location"] == f"/api/v1/traces/{trace}/session"
    assert early.json()["state"] == "loading"
    assert early.json()["progress"]["events_total"] == server.api.get(f"/traces/{trace}").json()["events"]["kept"]
    late = server.api.post(f"/traces/{trace}/query", params={"wait": PATIENCE_S}, json={"sql": "SELECT 1"})
    assert (late.status_code, late.json()["rows"]) == (200, [[1]])


# -- streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", [NDJSON, CSV])
def test_first_rows_arrive_before_the_query_ends(server: Server, trace: str, accept: str) -> None:
    question = {"sql": ENDLESS_ROWS, "limit": None, "timeout_s": 10 * PATIENCE_S}
    with server.api.stream("POST", f"/traces/{trace}/query", json=question, headers={"Accept": accept}) as answer:
        lines = answer.iter_lines()
        first = [next(lines), next(lines)]
        assert first == (["x", "1"] if accept == CSV else ['{"x":1}', '{"x":2}'])
    assert server.rows(trace, "SELECT 1") == [[1]]


def test_a_stream_that_fails_ends_with_the_error_and_is_cut(server: Server, trace: str) -> None:
    with connected(server) as connection:
        connection.sendall(request_of(trace, NDJSON, sql=ENDLESS_ROWS, limit=None, timeout_s=0.5))
        data = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    assert data.startswith(b"HTTP/1.1 200 OK")
    assert not data.endswith(b"0\r\n\r\n")  # without the last chunk, a client knows that the response is incomplete
    last = [line for line in data.splitlines() if line.startswith(b"{")][-1]
    assert json.loads(last)["error"]["code"] == "query_timeout"


# -- disconnected clients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["application/json", NDJSON, CSV, ARROW])
def test_disconnected_client_stops_its_query(server: Server, trace: str, accept: str) -> None:
    server.rows(trace, "SELECT 1")
    engine = engine_of(server, trace)
    sql = ENDLESS if accept in ("application/json", ARROW) else ENDLESS_ROWS
    with connected(server) as connection:
        connection.sendall(request_of(trace, accept, sql=sql, limit=None, timeout_s=10 * PATIENCE_S))
        if sql is ENDLESS_ROWS:
            assert connection.recv(10)
        else:
            until(lambda: engine.status() == psutil.STATUS_RUNNING)
    assert server.rows(trace, "SELECT 1") == [[1]]
    cpu_s = sum(engine.cpu_times()[:2])
    for _ in range(100):
        server.api.get(f"{server.url}/healthz")
    assert sum(engine.cpu_times()[:2]) - cpu_s < 0.05


def test_queued_query_of_a_disconnected_client_is_dropped(server: Server, trace: str) -> None:
    server.rows(trace, "SELECT 1")
    with connected(server) as running:
        running.sendall(request_of(trace, NDJSON, sql=ENDLESS_ROWS, limit=None, timeout_s=10 * PATIENCE_S))
        assert running.recv(10)
        with connected(server) as waiting:
            waiting.sendall(request_of(trace, sql="CREATE TABLE left_behind(x)"))
            until(lambda: server.api.get(f"/traces/{trace}/session").json()["queries"] >= 3)
    assert server.rows(trace, "SELECT count(*) FROM sqlite_master WHERE name = 'left_behind'") == [[0]]


def test_slow_reader_blocks_no_other_client(server: Server, trace: str) -> None:
    with connected(server) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sql = ENDLESS_ROWS.replace("FROM c)", "FROM c LIMIT 300000)")
        slow.sendall(request_of(trace, NDJSON, sql=sql, limit=None))
        assert slow.recv(10)  # and reads nothing further
        assert server.rows(trace, "SELECT 1") == [[1]]


def test_two_requests_on_one_connection_are_both_answered(server: Server, trace: str) -> None:
    first, second = request_of(trace, sql="SELECT 1"), request_of(trace, sql="SELECT 2")
    answers = sent_raw(server, first + second.replace(b"Host: localhost", b"Host: localhost\r\nConnection: close"))
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.index(b"[1]") < answers.index(b"[2]")

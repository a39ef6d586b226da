"""Sessions of engines over HTTP."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import until

StartServer = Callable[..., Server]


def test_a_session_is_started_shown_and_closed(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    where = f"/traces/{trace}/session"
    none = server.api.get(where)
    assert (none.status_code, none.json()["code"], none.json()["state"]) == (409, "not_ready", "closed")

    opened = server.api.post(where, params={"wait": 30})
    session = opened.json()
    assert (opened.status_code, session["trace"], session["state"]) == (200, trace, "ready")
    assert session["engine"]["version"].startswith("v54.0")
    assert session["engine"]["rss_bytes"] > 1_000_000
    assert session["error"] is None
    assert (session["clients"], session["queries"]) == (0, 0)
    assert session["load_s"] > 0
    assert psutil.pid_exists(session["engine"]["pid"])

    server.rows(trace, "SELECT 1")
    assert server.api.get(where).json()["queries"] == 1
    assert trace in [session["trace"] for session in server.api.get("/sessions").json()["sessions"]]

    assert server.api.delete(where).status_code == 204
    assert not psutil.pid_exists(session["engine"]["pid"])
    assert trace not in [session["trace"] for session in server.api.get("/sessions").json()["sessions"]]
    assert server.api.delete(where).status_code == 204  # closed already


def test_a_session_is_started_without_waiting(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    answer = server.api.post(f"/traces/{trace}/session")
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/traces/{trace}/session"
    assert answer.json()["state"] == "loading"


def test_tables_live_as_long_as_their_session(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    server.query(trace, "CREATE TABLE mine AS SELECT 42 AS x")
    assert server.rows(trace, "SELECT x FROM mine") == [[42]]
    server.api.delete(f"/traces/{trace}/session")
    assert server.query(trace, "SELECT x FROM mine").json()["code"] == "sql_error"


def test_an_engine_that_is_killed_is_replaced(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    server.rows(trace, "SELECT 1")
    engine = server.engine(trace)
    engine.kill()
    until(lambda: server.query(trace, "SELECT 1").status_code == 200)
    assert server.engine(trace) != engine


def test_number_of_engines_is_limited(start_server: StartServer, step_trace: Path) -> None:
    server = start_server(max_engines=1)
    first, second = (server.upload(step_trace)["id"] for _ in range(2))
    assert server.rows(first, "SELECT 1") == [[1]]
    assert server.rows(second, "SELECT 1") == [[1]]  # the idle engine is closed for it
    assert [session["trace"] for session in server.api.get("/sessions").json()["sessions"]] == [second]
    question = {"sql": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c", "limit": None}
    with server.api.stream("POST", f"/traces/{second}/query", json=question, headers={"Accept": "text/csv"}) as running:
        lines = running.iter_lines()  # keep a reference: deleting this iterator closes the stream
        assert next(lines) == "x"
        refused = server.query(first, "SELECT 1")
    assert refused.status_code == 503, refused.text
    assert refused.json()["code"] == "engine_unavailable"
    assert [engine["trace"] for engine in refused.json()["in_use"]] == [second]
    assert refused.headers["retry-after"] == "10"


def test_an_idle_engine_is_closed(start_server: StartServer, step_trace: Path) -> None:
    server = start_server(engine_idle_s=1)
    trace = server.upload(step_trace)["id"]
    server.rows(trace, "SELECT 1")
    engine = server.engine(trace)
    until(lambda: server.api.get("/sessions").json()["sessions"] == [])
    until(lambda: not engine.is_running())


def test_engine_that_does_not_start_is_reported(start_server: StartServer, step_trace: Path) -> None:
    double = Path(__file__).parents[1] / "engine" / "doubles" / "failing"
    server = start_server(engine=double, engine_sandbox="off")
    trace = server.upload(step_trace)["id"]
    answer = server.query(trace, "SELECT 1")
    assert (answer.status_code, answer.json()["code"]) == (502, "engine_failed")
    assert "the moon is in the way" in answer.json()["detail"]
    assert server.api.get(f"/traces/{trace}/session").json()["error"]["code"] == "engine_failed"


def damaged(whole: bytes, how: str) -> bytes:
    """Damage a trace so that the engine can't load the file itself."""
    match how:
        case "cut":
            return whole[: len(whole) // 2]
        case "cut gzip":
            packed = gzip.compress(whole)
            return packed[: len(packed) // 2]
        case "byte order mark":
            return b"\xef\xbb\xbf" + whole
        case "two documents":
            return whole + whole
        case _:
            return whole.replace(b'"aten::', b'"at"en::', 3)


@pytest.mark.parametrize("how", ["cut", "cut gzip", "byte order mark", "two documents", "quotes"])
def test_queries_on_a_damaged_trace_see_its_ingested_slices(server: Server, tmp_path: Path, how: str) -> None:
    whole = write_trace(tmp_path / "whole", TraceShape(kernels=50)).read_bytes()
    path = tmp_path / "damaged.pt.trace.json"
    path.write_bytes(damaged(whole, how))
    trace: dict[str, Any] = server.upload(path)

    slices = sum(count for key, count in trace["counts"].items() if key.startswith(("X|", "i|")))
    assert server.rows(trace["id"], "SELECT count(*) FROM slice") == [[slices]]


def test_missing_columns_are_reported_to_a_query(server: Server, tmp_path: Path) -> None:
    whole = write_trace(tmp_path / "whole", TraceShape(kernels=50)).read_bytes()
    (tmp_path / "cut.json").write_bytes(damaged(whole, "cut"))
    trace = server.upload(tmp_path / "cut.json")["id"]
    columns = server.data / "columns" / str(trace)
    (columns / "events.parquet").unlink()
    answer = server.query(trace, "SELECT 1")
    assert (answer.status_code, answer.json()["code"]) == (502, "export_failed")


def test_selection_of_a_step_has_its_own_engine(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    where, step = f"/traces/{trace}/session", {"steps": [3]}
    assert server.api.get(where, params=step).status_code == 409
    opened = server.api.post(where, params=step | {"wait": 30})
    session = opened.json()
    assert (opened.status_code, session["state"], session["selection"]) == (200, "ready", step)
    assert session["progress"]["bytes"] > 1000
    assert server.api.get(where).status_code == 409  # the whole trace has none

    same = server.api.post(where, params={"selection": json.dumps(step)}).json()
    assert same["engine"]["pid"] == session["engine"]["pid"]
    question = "SELECT name FROM slice WHERE name GLOB 'ProfilerStep*'"
    answer = server.api.post(f"/traces/{trace}/query", json={"sql": question, "selection": step})
    assert answer.json()["rows"] == [["ProfilerStep#3"]]
    assert len(server.rows(trace, question)) > 1
    assert {json.dumps(session["selection"]) for session in server.api.get("/sessions").json()["sessions"]} >= {
        "null",
        json.dumps(step),
    }

    assert server.api.delete(where, params=step).status_code == 204
    assert server.api.get(where, params=step).status_code == 409
    assert server.api.get(where).status_code == 200


def test_kernel_table_is_the_same_with_essential_arguments(server: Server, tmp_path: Path) -> None:
    trace_id = server.upload(write_trace(tmp_path / "gpu.json", TraceShape(steps=2)))["id"]
    sql = """INCLUDE PERFETTO MODULE torch.kernels;
        SELECT name, ts, dur, device, stream, correlation, launch_ts, delay, op_name, step, bytes
        FROM torch_kernel ORDER BY ts, name"""
    tables = [server.query(trace_id, sql, args=args).json()["rows"] for args in ("all", "essential")]
    assert tables[0] == tables[1] != []
    assert all(row[6] is not None and row[8] for row in tables[0])


def test_loading_engine_of_a_selection_has_a_location(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    answer = server.api.post(f"/traces/{trace}/session", params={"steps": 2})
    assert answer.status_code == 202
    assert server.api.get(f"{server.url}{answer.headers['location']}").json()["selection"] == {"steps": [2]}


def test_engines_end_when_their_trace_is_deleted(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    pids = [
        server.api.post(f"/traces/{trace}/session", params=chosen | {"wait": 30}).json()["engine"]["pid"]
        for chosen in ({}, {"steps": 2}, {"steps": 3})
    ]
    assert server.api.delete(f"/traces/{trace}").status_code == 204
    assert not any(map(psutil.pid_exists, pids))


def test_invalid_selection_has_no_engine(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    answer = server.api.post(f"/traces/{trace}/query", json={"sql": "SELECT 1", "selection": {"steps": [99]}})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_choice")
    assert answer.json()["known_steps"] == [2, 3, 4, 5]
    page = server.api.get(f"{server.url}/perfetto/{trace}~no-json/")
    assert (page.status_code, page.json()["code"]) == (422, "bad_selection")

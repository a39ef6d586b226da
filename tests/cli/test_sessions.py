"""The commands `sessions` and `sessions close`, and the options `--args` and `--source` of commands with an engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tracedock.client import Client

from tests.cli.conftest import OnTerminal, Run
from tests.cli.double import Answer, Server, json_answer, session, trace

RANK0, RANK1 = "9f2c41d07a3b", "0a1b2c3d4e5f"
STEP = {"steps": [7], "window": {"end_ns": 9007199254740993}}
EMPTY_TABLE = json_answer({"columns": [], "rows": [], "truncated": False, "elapsed_ms": 1.0})


def session_with_engine(trace_id: str, state: str = "ready", **changed: Any) -> dict[str, Any]:
    """Return a session, with the version and the memory of its engine."""
    process = {"version": "v54.0", "pid": 7, "rss_bytes": 42_594_304, "peak_bytes": 45_301_760}
    process |= {"predicted_bytes": 53_604_432, "restarts": 0}
    return session(trace_id, state, engine=process, **changed)


def account(shown: int, events: int) -> dict[str, Any]:
    return {"complete": shown == events, "shown": shown, "events": events, "notes": [], "stats": []}


@pytest.fixture
def engines_server(server: Server) -> Server:
    """Return a server with sessions in several states."""
    server.traces = [trace(RANK0, "rank0.json"), trace(RANK1, "rank1.json")]
    error = {"code": "engine_stuck", "title": "Stuck", "detail": "x"}
    sessions = [
        session_with_engine(RANK0, account=account(54_906, 54_906), clients=2),
        session_with_engine(RANK0, "loading", args="essential", selection=STEP),
        session_with_engine(RANK1, account=account(7, 9), idle_s=12.5),
        session_with_engine(RANK1, "failed", args="none", error=error),
        session_with_engine(RANK1, source="original", stats=[{"name": "traced_buf_chunks_lost"}]),
    ]
    memory = {"held_bytes": 175_000_000, "budget_bytes": 15_200_000_000}
    server.script("GET", "/sessions", *[json_answer({"sessions": sessions, "memory": memory, "next": None})] * 2)
    return server


def test_sessions_prints_exact_lines_into_a_pipe(run: Run, engines_server: Server) -> None:
    names, *lines = [line.split("\t") for line in run("sessions").stdout.splitlines()]
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    assert [row["trace"] for row in rows] == [RANK0, RANK0, RANK1, RANK1, RANK1]
    assert [row["args"] for row in rows] == ["all", "essential", "all", "none", "all"]
    assert [row["source"] for row in rows] == [*["columns"] * 4, "original"]
    assert [row["state"] for row in rows] == ["ready", "loading", "ready", "failed", "ready"]
    assert [row["note"] for row in rows] == [r"\N", r"\N", "incomplete", "engine_stuck", "importer complains"]
    assert [(row["shown"], row["events"]) for row in rows[:3]] == [("54906", "54906"), (r"\N", r"\N"), ("7", "9")]
    assert (rows[0]["memory"], rows[0]["predicted"], rows[0]["clients"]) == ("42594304", "53604432", "2")
    assert rows[2]["idle_s"] == "12.5"
    assert json.loads(rows[1]["selection"]) == STEP


def test_sessions_prints_units_and_total_memory_on_a_terminal(on_terminal: OnTerminal, engines_server: Server) -> None:
    code, drawn, _ = on_terminal("sessions")
    assert code == 0
    for text in ("42.6 MB", "53.6 MB", "54,906", "engine_stuck", "175.0 MB of 15.2 GB"):
        assert text in drawn


def test_sessions_prints_the_json_of_the_api(run: Run, engines_server: Server) -> None:
    document = json.loads(run("sessions", "--json").stdout)
    assert [session["trace"] for session in document["sessions"]] == [RANK0, RANK0, RANK1, RANK1, RANK1]
    assert document["memory"]["budget_bytes"] == 15_200_000_000


def test_close_stops_exactly_the_engines_of_the_trace(run: Run, engines_server: Server) -> None:
    engines_server.script("DELETE", f"/traces/{RANK0}/session", Answer(204), Answer(204))
    result = run("sessions", "close", "rank0.json")
    assert result.exit_code == 0
    requests = engines_server.sent("DELETE")
    assert [request.path for request in requests] == [f"/traces/{RANK0}/session"] * 2
    assert requests[0].query == {"source": "columns"}
    assert requests[1].query.keys() == {"args", "selection", "source"}
    assert requests[1].query["args"] == "essential"
    assert json.loads(requests[1].query["selection"]) == STEP
    assert [line.split("\t")[:4] for line in result.stdout.splitlines()] == [
        ["closed", RANK0, "all", "columns"],
        ["closed", RANK0, "essential", "columns"],
    ]


def test_close_of_a_trace_without_an_engine_is_refused(run: Run, server: Server) -> None:
    server.traces = [trace(RANK0, "rank0.json")]
    sessions = [session_with_engine(RANK1)]
    server.script("GET", "/sessions", json_answer({"sessions": sessions, "memory": {}, "next": None}))
    result = run("sessions", "close", RANK0)
    assert result.exit_code == 1
    assert "No engine runs on rank0.json" in result.stderr
    assert server.sent("DELETE") == []


@pytest.mark.parametrize(("options", "args"), [([], None), (["--args", "essential"], "essential")])
def test_query_sends_the_event_arguments_of_its_engine(
    run: Run, engines_server: Server, options: list[str], args: str | None
) -> None:
    engines_server.script("POST", f"/traces/{RANK0}/query", EMPTY_TABLE, Answer(200, b"", "text/csv"))
    assert run("query", RANK0, "select 1", *options).exit_code == 0
    assert run("query", RANK0, "select 1", "--format", "csv", *options).exit_code == 0
    assert [json.loads(request.body).get("args") for request in engines_server.sent("POST")] == [args, args]


def test_open_link_has_the_event_arguments(run: Run, engines_server: Server) -> None:
    link = f"{engines_server.url}/api/v1/traces/{RANK0}/perfetto"
    assert run("open", RANK0).stdout == f"{link}\n"
    assert run("open", RANK0, "--args", "none").stdout == f"{link}?args=none\n"
    engines_server.script(
        "GET", f"/traces/{RANK0}/perfetto", Answer(307, headers={"Location": "/perfetto/x/#!/viewer"})
    )
    link_to_selection = run("open", RANK0, "--args", "none", "--steps", "7").stdout
    assert link_to_selection == f"{link}?selection=%7B%22steps%22%3A%5B7%5D%7D&args=none\n"


def test_source_is_sent_with_queries_and_links(run: Run, engines_server: Server) -> None:
    engines_server.script("POST", f"/traces/{RANK0}/query", EMPTY_TABLE, Answer(200, b"", "text/csv"))
    for form in ("table", "csv"):
        assert run("query", RANK0, "select 1", "--source", "original", "--format", form).exit_code == 0
    assert [json.loads(request.body)["source"] for request in engines_server.sent("POST")] == ["original"] * 2
    path = f"/traces/{RANK0}/perfetto"
    engines_server.script("GET", path, Answer(307, headers={"Location": "/perfetto/x/#!/viewer"}))
    link = run("open", RANK0, "--source", "original").stdout
    assert link == f"{engines_server.url}/api/v1{path}?source=original\n"


def test_source_with_a_listener_is_a_usage_error(run: Run, engines_server: Server) -> None:
    result = run("open", RANK0, "--source", "original", "--listener")
    assert result.exit_code == 2
    assert "default source" in result.stderr
    assert engines_server.requests == []


def test_unknown_args_and_a_listener_with_args_are_usage_errors(run: Run, engines_server: Server) -> None:
    for command in (["query", RANK0, "select 1", "--args", "some"], ["open", RANK0, "--args", "none", "--listener"]):
        assert run(*command).exit_code == 2
    assert engines_server.requests == []


def test_client_opens_reads_and_closes_a_session_of_a_selection(client: Client, server: Server) -> None:
    path = f"/traces/{RANK0}/session"
    for method in ("POST", "GET"):
        server.script(method, path, json_answer(session_with_engine(RANK0)))
    server.script("DELETE", path, Answer(204))
    assert client.open_session(RANK0, selection=STEP, args="none", wait=5)["state"] == "ready"
    assert client.session(RANK0, selection=STEP, args="none")["state"] == "ready"
    client.close_session(RANK0, selection=STEP, args="none")
    for request in server.requests:
        assert request.query.pop("wait", "5") == "5"
        assert request.query.keys() == {"selection", "args"}
        assert json.loads(request.query["selection"]) == STEP

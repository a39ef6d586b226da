"""The command `jobs`, and its subcommands `show`, `follow` and `cancel`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import OnTerminal, Run
from tests.cli.double import Server, json_answer, problem, trace

RANK0 = "9f2c41d07a3b"
AT = "2026-11-21T21:00:00.123Z"


def a_job(number: int, kind: str = "split", state: str = "running", **changed: Any) -> dict[str, Any]:
    """Return a job as the API describes it."""
    return {
        "id": str(number), "kind": kind, "state": state, "priority": "interactive", "trace": RANK0, "request": {},
        "attempts": 1, "created_at": AT, "started_at": AT, "ended_at": None,
        "progress": {"bytes": 0, "bytes_total": 0, "events": 250, "events_total": 1000},
        "eta_s": 12.5, "result": None, "error": None,
    } | changed  # fmt: skip


ERROR = {"code": "not_json", "title": "The file is not JSON", "detail": "It begins with PK."}
JOBS = [
    a_job(4),
    a_job(3, "ingest", "failed", eta_s=None, error=ERROR),
    a_job(2, "merge", "done", eta_s=None, trace=None, result={"traces": ["a", "b"]}),
    a_job(1, "import", "queued", priority="bulk", trace=None, eta_s=None, progress=dict.fromkeys(
        ("bytes", "bytes_total", "events", "events_total"), 0)),
]  # fmt: skip


@pytest.fixture
def busy(server: Server) -> Server:
    """Serve four jobs of different kinds, two per page."""
    server.traces = [trace(RANK0, "rank0.json")]
    server.script("GET", "/jobs", *[
        json_answer({"jobs": JOBS[:2], "next": "two"}), json_answer({"jobs": JOBS[2:], "next": None}),
    ])  # fmt: skip
    return server


def test_jobs_lists_all_pages(run: Run, busy: Server) -> None:
    names, *lines = [line.split("\t") for line in run("jobs").stdout.splitlines()]
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    assert [row["job"] for row in rows] == ["4", "3", "2", "1"]
    assert [row["kind"] for row in rows] == ["split", "ingest", "merge", "import"]
    assert [row["priority"] for row in rows] == ["interactive"] * 3 + ["bulk"]
    assert [row["done"] for row in rows] == ["0.25", "0.25", "1.0", r"\N"]
    assert [row["error"] for row in rows] == [r"\N", "not_json", r"\N", r"\N"]
    assert rows[0]["left s"] == "12.5"
    assert [request.query.get("cursor") for request in busy.sent("GET")] == [None, "two"]


def test_jobs_filters_by_state_kind_and_trace(run: Run, busy: Server) -> None:
    assert run("jobs", "--state", "failed", "--kind", "split", "--trace", "rank0.json", "--limit", "1").exit_code == 0
    query = busy.sent("GET")[-1].query
    assert (query["state"], query["kind"], query["trace"]) == ("failed", "split", RANK0)


def test_jobs_notes_that_the_list_is_truncated(run: Run, busy: Server) -> None:
    listed = run("jobs", "--limit", "2", "--json")
    assert [job["id"] for job in json.loads(listed.stdout)] == ["4", "3"]
    assert "These are the newest 2; there are more (--limit)." in listed.stderr


def test_jobs_show_prints_a_job(run: Run, server: Server) -> None:
    server.script("GET", "/jobs/3", json_answer(JOBS[1]))
    facts = dict(line.split("\t") for line in run("jobs", "show", "3").stdout.splitlines())
    assert facts["error"] == "The file is not JSON: It begins with PK. (not_json)"
    assert (facts["state"], facts["events"], facts["trace"]) == ("failed", "250 of 1000", RANK0)


def test_followed_job_prints_its_new_traces(run: Run, server: Server) -> None:
    done = a_job(4, state="done", eta_s=None, result={"traces": ["a", "b"]})
    server.script("GET", "/jobs/4", json_answer(JOBS[0]), json_answer(JOBS[0]), json_answer(done))
    followed = run("jobs", "follow", "4")
    assert followed.exit_code == 0, followed.stderr
    assert "made\ta b" in followed.stdout
    # 250 of 1,000, rounded down to a tenth: a line for each report would flood a log
    assert "split 4: 20 % of 1,000 events, running" in followed.stderr


@pytest.mark.parametrize(("state", "message"), [("failed", "It begins with PK."), ("cancelled", "A client cancelled")])
def test_follow_of_a_failed_or_cancelled_job_fails(run: Run, server: Server, state: str, message: str) -> None:
    ended = a_job(4, state=state, error=ERROR if state == "failed" else None)
    server.script("GET", "/jobs/4", json_answer(JOBS[0]), json_answer(ended))
    followed = run("jobs", "follow", "4")
    assert followed.exit_code == 1
    assert message in followed.stderr


def test_jobs_cancel_cancels_a_job(run: Run, server: Server) -> None:
    server.script("DELETE", "/jobs/4", json_answer(a_job(4, state="cancelled")))
    assert run("jobs", "cancel", "4").stdout == "cancelled\t4\n"


def test_unknown_job_is_an_error(run: Run, server: Server) -> None:
    server.script("GET", "/jobs/9", problem(404, "unknown_job", "There is no such job", "No job has the id 9."))
    shown = run("jobs", "show", "9")
    assert (shown.exit_code, "No job has the id 9." in shown.stderr) == (1, True)


def test_jobs_draws_a_table_on_a_terminal(on_terminal: OnTerminal, busy: Server) -> None:
    _, table, _ = on_terminal("jobs", "--limit", "4")
    assert "25 %" in table
    assert "interactive" in table.replace("\n", "")

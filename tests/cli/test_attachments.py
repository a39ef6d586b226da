"""The commands that attach files to a trace or a run, list them and delete them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from service.http.digests import repr_digest
from tests.cli.conftest import Run
from tests.cli.double import Answer, Server, json_answer, problem, trace

TRACE, GROUP, ATTACHED = "9f2c41d07a3b", "00112233aabb", "5f0c1f9a2b3c"


def attachment(name: str, content: bytes = b"notes") -> dict[str, object]:
    return {
        "id": ATTACHED, "name": name, "kind": "text", "trace": None, "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(), "created_at": "2026-11-20T18:45:00.000Z",
    }  # fmt: skip


@pytest.fixture
def filled(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server with a trace and a group, in a folder with two files."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b#1.txt"):
        (tmp_path / name).write_text("notes")
    server.traces = [trace(TRACE, "rank0.json")]
    server.groups = [{"id": GROUP, "name": "run", "traces": 2, "created_at": "2026-11-20T18:45:00Z", "ranks": []}]
    return server


def test_files_are_attached_to_a_trace_or_a_group(run: Run, filled: Server) -> None:
    filled.script("PUT", f"/groups/{GROUP}/attachments/a.txt", json_answer(attachment("a.txt"), 201))
    filled.script("PUT", f"/groups/{GROUP}/attachments/b%231.txt", json_answer(attachment("b#1.txt"), 201))
    filled.script("PUT", f"/traces/{TRACE}/attachments/a.txt", json_answer(attachment("a.txt"), 201))
    result = run("attach", "run", "a.txt", "b#1.txt")
    assert (result.exit_code, result.stdout.split()) == (0, [ATTACHED, ATTACHED])
    assert run("attach", TRACE, "a.txt").stdout.split() == [ATTACHED]


def test_attachments_are_listed(run: Run, filled: Server) -> None:
    page = {"attachments": [attachment("a.txt")], "next": None}
    filled.script("GET", f"/groups/{GROUP}/attachments", json_answer(page))
    result = run("attach", "run")
    assert result.exit_code == 0
    header, row = result.stdout.splitlines()
    assert header.split("\t") == ["id", "kind", "size", "created", "trace", "name"]
    assert row.split("\t")[:3] == [ATTACHED, "text", "5"]
    assert row.endswith("a.txt")


def test_other_files_are_attached_if_one_is_refused(run: Run, filled: Server) -> None:
    refusal = problem(422, "bad_attachment", "The file can't be attached", "The file is a trace.")
    filled.script("PUT", f"/groups/{GROUP}/attachments/a.txt", refusal)
    filled.script("PUT", f"/groups/{GROUP}/attachments/b%231.txt", json_answer(attachment("b#1.txt"), 201))
    result = run("attach", "run", "a.txt", "b#1.txt")
    assert (result.exit_code, result.stdout.split()) == (1, [ATTACHED])
    assert "a.txt" in result.stderr
    assert "The file is a trace." in result.stderr


def test_missing_files_are_refused_before_any_is_sent(run: Run, filled: Server) -> None:
    result = run("attach", "run", "a.txt", "missing.txt")
    assert (result.exit_code, "missing.txt: no such file" in result.stderr) == (2, True)
    assert "this is a folder" in run("attach", "run", ".").stderr
    assert [request for request in filled.requests if request.method == "PUT"] == []


def test_server_gets_the_digest_to_verify(run: Run, filled: Server) -> None:
    filled.script("PUT", f"/groups/{GROUP}/attachments/a.txt", json_answer(attachment("a.txt"), 201))
    run("attach", "run", "a.txt")
    [sent] = [request for request in filled.requests if request.method == "PUT"]
    assert sent.body == b"notes"
    assert {key.lower(): value for key, value in sent.headers.items()}["repr-digest"] == repr_digest(
        hashlib.sha256(b"notes").hexdigest()
    )


def test_attachments_are_deleted(run: Run, filled: Server) -> None:
    filled.script("DELETE", f"/attachments/{ATTACHED}", Answer(204))
    result = run("detach", ATTACHED)
    assert (result.exit_code, result.stdout.split()) == (0, [ATTACHED])

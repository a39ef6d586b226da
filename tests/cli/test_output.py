"""Output files: all commands refuse to replace one, in the same words, before any request or long work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.main import app
from tests.cli.conftest import Run
from tests.cli.double import Answer, Server, json_answer, trace
from tests.traces import TraceShape, write_trace

RANK0 = "9f2c41d07a3b"
COMMANDS = {
    "download": ["download", RANK0, "-o", "out"],
    "download of a file": ["download", "./a.json", "-o", "out"],
    "query": ["query", RANK0, "SELECT 1", "-o", "out"],
    "query as csv": ["query", RANK0, "SELECT 1", "-f", "csv", "-o", "out"],
    "analyze": ["analyze", RANK0, "steps", "-o", "out"],
    "analyze of a file": ["analyze", "./a.json", "steps", "-o", "out"],
    "overlay of a file": ["analyze", "./a.json", "critical_path", "--overlay", "-o", "out"],
    "report": ["report", RANK0, "-o", "out"],
    "report on a file": ["report", "./a.json", "-o", "out"],
    "merge of files": ["merge", "./a.json", "./b.json", "-o", "out"],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> Path:
    """Run commands in a folder with two traces and an earlier output."""
    for rank, name in enumerate(("a.json", "b.json")):
        write_trace(tmp_path / name, TraceShape(rank=rank, steps=2))
    (tmp_path / "out").write_text("old")
    monkeypatch.chdir(tmp_path)
    server.traces = [trace(RANK0, "rank0.json")]
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_existing_file_is_refused_before_any_request(run: Run, server: Server, here: Path, command: list[str]) -> None:
    result = run(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: out: File exists; --force replaces it\n"
    assert (here / "out").read_text() == "old"
    assert server.requests == []


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_missing_folder_is_refused_before_any_request(run: Run, server: Server, command: list[str]) -> None:
    result = run(*command[:-1], "missing/out")
    assert result.exit_code == 1
    assert result.stderr == "error: missing: No such file or directory\n"
    assert server.requests == []


def test_split_of_a_file_refuses_to_replace_a_piece(run: Run, here: Path) -> None:
    assert run("split", "./a.json", "--by", "step", "-o", "steps").exit_code == 0
    piece = next(iter(sorted((here / "steps").iterdir())))
    again = run("split", "./a.json", "--by", "step", "-o", "steps", "--quiet")
    assert (again.exit_code, again.stderr) == (
        1, f"error: steps/{piece.name}: File exists; --force replaces it\n",
    )  # fmt: skip
    assert run("split", "./a.json", "--by", "step", "-o", "steps", "--force").exit_code == 0


def test_forced_file_is_replaced(run: Run, server: Server, here: Path) -> None:
    server.script("POST", f"/traces/{RANK0}/query", Answer(200, b"a\r\n1\r\n", "text/csv"))
    assert run("query", RANK0, "SELECT 1", "-f", "csv", "-o", "out", "--force").exit_code == 0
    assert (here / "out").read_bytes() == b"a\r\n1\r\n"


def test_dash_is_the_standard_output_of_every_command(run: Run, server: Server, here: Path) -> None:
    table = {"columns": [{"name": "a", "type": "int", "unit": None, "description": None}], "rows": [[1]],
             "truncated": False}  # fmt: skip
    server.script("POST", f"/traces/{RANK0}/query", json_answer(table))
    server.script("GET", f"/traces/{RANK0}/analysis/steps", json_answer({"tables": {"t": table}, "skipped": []}))
    server.script("GET", f"/traces/{RANK0}/report", Answer(200, b"# Report\n", "text/markdown"))
    server.script("GET", f"/traces/{RANK0}/download", Answer(200, b"[]"))
    assert run("query", RANK0, "SELECT 1", "-o", "-").stdout == "a\n1\n"
    assert run("analyze", RANK0, "steps", "-o", "-").stdout == "a\n1\n"
    assert run("report", RANK0, "-o", "-", "-f", "markdown").stdout == "# Report\n"
    assert run("download", RANK0, "-o", "-").stdout == "[]"
    assert not (here / "-").exists()


def test_upload_of_a_dash_reads_the_standard_input(server: Server) -> None:
    content = json.dumps({"traceEvents": []}).encode() * 3
    arguments = ["--url", server.url, "upload", "-", "--name", "from a pipe.json"]
    result = CliRunner().invoke(app, arguments, input=content, prog_name="tracedock")
    assert result.exit_code == 0, result.stderr
    assert [trace["name"] for trace in server.traces] == ["from a pipe.json", "rank0.json"]
    assert server.sent("PUT")[0].body == content


def test_name_of_an_upload_is_for_one_file(run: Run, server: Server) -> None:
    assert run("upload", "a.json", "--name", "renamed.json").exit_code == 0
    assert server.traces[0]["name"] == "renamed.json"
    several = run("upload", "a.json", "b.json", "--name", "renamed.json")
    assert (several.exit_code, "one name for 2 files" in several.stderr) == (2, True)

"""Resolution of TRACE arguments with local files, the same for all commands that accept files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from tests.cli.conftest import Run
from tests.cli.double import Server, problem, trace
from tests.conftest import DATA

STEPS = DATA / "cpu_train_steps.pt.trace.json.gz"
TRACE_ID, OTHER_ID = "9f2c41d07a3b", "0a1b2c3d4e5f"
NAME = "a.json.gz"
COMMANDS = {
    "analyze": ["analyze", NAME, "steps"],
    "with": ["analyze", "./" + NAME, "steps", "--with", NAME],
    "base": ["analyze", "./" + NAME, "compare", "--base", NAME],
    "overlay": ["analyze", NAME, "critical_path", "--overlay"],
    "download": ["download", NAME, "--steps", "3"],
    "split": ["split", NAME, "--by", "step", "--dry-run"],
    "merge": ["merge", NAME, "./" + NAME],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run commands in a folder with a trace."""
    shutil.copy(STEPS, tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def alone(*arguments: str) -> Result:
    """Run a command without a server."""
    return CliRunner().invoke(app, ["--url", "http://127.0.0.1:9", *arguments], prog_name="tracedock")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_name_of_a_file_and_a_trace_is_refused_with_both_alternatives(
    run: Run, server: Server, command: list[str]
) -> None:
    server.traces = [trace(TRACE_ID, NAME)]
    result = run(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"write ./{NAME} for the file, or the id: {TRACE_ID}" in result.stderr
    assert server.sent("POST") == []


def test_each_alternative_resolves_to_its_target(run: Run, server: Server) -> None:
    server.traces = [trace(TRACE_ID, NAME)]
    plan = json.loads(run("split", f"./{NAME}", "--by", "step", "--dry-run", "--json").stdout)
    assert len(plan["pieces"]) == 4
    assert server.requests == []
    server.script(
        "POST", f"/traces/{TRACE_ID}/split", problem(422, "nothing_selected", "Nothing", "The server was asked.")
    )
    assert "The server was asked." in run("split", TRACE_ID, "--by", "step", "--dry-run").stderr


def test_name_of_a_file_and_several_traces_is_refused_with_all_ids(run: Run, server: Server) -> None:
    server.traces = [trace(TRACE_ID, NAME), trace(OTHER_ID, NAME)]
    result = run("split", NAME, "--dry-run")
    assert result.exit_code == 2
    assert all(text in result.stderr for text in (f"./{NAME}", TRACE_ID, OTHER_ID))


def test_group_counts_only_where_groups_are_allowed(run: Run, server: Server) -> None:
    server.groups = [{"id": "00112233aabb", "name": NAME, "traces": 2, "created_at": "2026-11-20T18:45:00Z"}]
    refused = run("analyze", NAME, "steps")
    assert (refused.exit_code, "00112233aabb" in refused.stderr) == (2, True)
    assert run("split", NAME, "--by", "step", "--dry-run").exit_code == 0


def test_file_that_the_server_lacks_is_read_with_a_note(run: Run, server: Server) -> None:
    result = run("analyze", NAME, "steps")
    assert result.exit_code == 0, result.stderr
    assert f"Reading the file ./{NAME}; {server.url} has no trace of that name." in result.stderr


def test_file_is_read_without_a_server_with_a_note() -> None:
    result = alone("analyze", NAME, "steps")
    assert result.exit_code == 0, result.stderr
    assert f"Reading the file ./{NAME}; no server answers at http://127.0.0.1:9." in result.stderr


def test_refusal_of_the_server_is_noted(run: Run, server: Server) -> None:
    server.script("GET", "/traces", problem(401, "unauthorized", "No", "Send a token."))
    result = run("split", NAME, "--by", "step", "--dry-run")
    assert result.exit_code == 0
    assert "may have a trace of that name, too" in result.stderr
    assert "Send a token." in result.stderr


@pytest.mark.parametrize("spelled", ["./{}", "../{here}/{}", "{path}/{}"])
def test_path_is_a_file_without_a_request(spelled: str, run: Run, server: Server, here: Path) -> None:
    server.traces = [trace(TRACE_ID, NAME)]
    result = run("split", spelled.format(NAME, here=here.name, path=here), "--by", "step", "--dry-run")
    assert (result.exit_code, "Reading" in result.stderr) == (0, False)
    assert server.requests == []


def test_path_below_the_folder_is_a_file_with_a_note(run: Run, server: Server, here: Path) -> None:
    (here / "runs").mkdir()
    shutil.copy(STEPS, here / "runs" / NAME)
    result = run("split", f"runs/{NAME}", "--by", "step", "--dry-run")
    assert (result.exit_code, f"Reading the file ./runs/{NAME}." in result.stderr) == (0, True)
    assert server.requests == []


def test_path_without_a_file_is_refused_unless_it_may_be_a_group(run: Run, server: Server) -> None:
    for command in (["split", "llama/70B"], ["analyze", "./llama/70B", "steps"]):
        refused = run(*command)
        assert (refused.exit_code, "no such file" in refused.stderr) == (2, True)
    assert server.requests == []
    server.groups = [{"id": "00112233aabb", "name": "llama/70B", "traces": 2, "created_at": "2026-11-20T18:45:00Z"}]
    server.script("GET", "/groups/00112233aabb/analysis/steps", problem(409, "not_ready", "No", "The group was asked."))
    assert "The group was asked." in run("analyze", "llama/70B", "steps").stderr


def test_folder_with_the_name_of_a_trace_is_not_a_file(run: Run, server: Server, here: Path) -> None:
    (here / "run").mkdir()
    server.traces = [trace(TRACE_ID, "run")]
    server.script(
        "POST", f"/traces/{TRACE_ID}/split", problem(422, "nothing_selected", "Nothing", "The server was asked.")
    )
    assert "The server was asked." in run("split", "run", "--by", "step", "--dry-run").stderr

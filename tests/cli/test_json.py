"""The option --json: each command that shows something prints one JSON document, and nothing else on stdout."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from service.cli.main import app
from service.engine import doctor
from service.fleet.dataset import Dataset
from service.fleet.ingesting import ingest_sources
from service.fleet.sources import find_sources
from service.fleet.workers.here import Here
from tests.cli.conftest import Run
from tests.cli.double import Answer, Server, job, json_answer, session, trace
from tests.traces import TraceShape, write_trace

RANK0, RANK1, GROUP = "9f2c41d07a3b", "0a1b2c3d4e5f", "00112233aabb"
ATTACHED = "5f0c1f9a2b3c"
BIG = 9007199254740993

WITHOUT = {
    "serve": "it runs until it is stopped",
    "report": "it writes a document of its own format",
    "completion": "it writes a script",
    "mcp": "it talks to an agent",
    "gate": "its verdict has forms of its own, one of them JSON",
}
"""Commands without the option, and why."""

COMMANDS: dict[str, list[str]] = {
    "upload": ["a.json", "b.json"],
    "import": ["/srv/a.json"],
    "ls": [],
    "show": [RANK0],
    "download": [RANK0, "--output", "copy.json"],
    "rm": [RANK0, "--yes"],
    "fleet ingest": ["{traces}", "--to", "{store}", "--mode", "here"],
    "fleet status": ["{store}"],
    "fleet analyze": ["{store}", "steps", "--mode", "here"],
    "fleet ask": ["{store}", "slow_ranks"],
    "fleet window": ["{store}", "--rank", "0", "--window", "0s..1ms"],
    "groups": [],
    "groups show": ["run"],
    "groups merge": ["run"],
    "groups rm": ["run"],
    "attach": [RANK0, "a.json"],
    "detach": [ATTACHED],
    "analyze": [RANK0, "steps"],
    "query": [RANK0, "SELECT 1"],
    "open": [RANK0],
    "split": [RANK0, "--by", "step"],
    "merge": [RANK0, RANK1],
    "doctor": [],
    "jobs": [],
    "jobs show": ["3"],
    "jobs follow": ["3"],
    "jobs cancel": ["3"],
    "sessions": [],
    "sessions close": [RANK0],
    "imports": [],
    "imports end": ["1"],
    "baseline": [],
    "baseline show": ["main"],
    "baseline set": ["main", RANK0],
    "baseline rm": ["main"],
    "history": ["step.median"],
    "token add": ["laptop", "--scope", "read", "--data", "data"],
    "token ls": ["--data", "data"],
    "token rm": ["desktop", "--data", "data"],
}
"""Arguments of each command with the option, with the names of two folders: of traces, and of their dataset."""


def paths(group: Any, prefix: str = "") -> Iterator[str]:
    """Yield the words of each command that can run; a group runs if it needs no command."""
    for name, command in group.commands.items():
        if not isinstance(command, TyperGroup) or command.invoke_without_command:
            yield prefix + name
        if isinstance(command, TyperGroup):
            yield from paths(command, f"{prefix}{name} ")


@pytest.fixture
def full_server(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Server:
    """Serve an answer to each of the commands, in a folder with two files and a token."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("[]")
    run("token", "add", "desktop", "--scope", "read", "--data", "data")
    monkeypatch.setattr(doctor, "examine", lambda _: [doctor.Finding("engine", True, "v54", "")])
    made = {"traces": [RANK1], "files": [{"path": "/srv/a.json", "trace": RANK1, "why": None}], "import": None}
    done = job("done", result=made, eta_s=None)
    table = {"columns": [{"name": "n", "type": "int", "unit": None, "description": None}], "rows": [[BIG]]}
    server.traces = [trace(RANK0, "rank0.json"), trace(RANK1, "rank1.json")]
    server.groups = [{"id": GROUP, "name": "run", "traces": 2, "created_at": "2026-11-20T18:45:00Z", "ranks": []}]
    server.script("GET", f"/traces/{RANK0}/download", Answer(200, b"[]"))
    server.script("GET", f"/traces/{RANK0}/analysis/steps", json_answer({"tables": {"steps": table}}))
    server.script("POST", f"/traces/{RANK0}/query", json_answer(table))
    for path in ("traces/import", f"groups/{GROUP}/merge", f"traces/{RANK0}/split", "traces/merge"):
        server.script("POST", f"/{path}", json_answer(done, 202))
    server.script("DELETE", f"/groups/{GROUP}", Answer(204))
    server.script("GET", "/jobs", json_answer({"jobs": [done], "next": None}))
    server.script("GET", "/jobs/3", *[json_answer(done)] * 3)
    server.script("DELETE", "/jobs/3", json_answer(done))
    server.script("GET", "/sessions", json_answer({"sessions": [session(RANK0, "ready")], "memory": {}}))
    server.script("DELETE", f"/traces/{RANK0}/session", Answer(204))
    server.script("GET", "/imports", json_answer({"imports": [{"id": "1"}]}))
    baseline = {
        "name": "main",
        "kind": "trace",
        "target": RANK0,
        "target_name": "rank0.json",
        "set_at": "",
        "history": [],
    }
    server.script("GET", "/baselines", json_answer({"baselines": [baseline], "next": None}))
    server.script("GET", "/baselines/main", json_answer(baseline))
    server.script("PUT", "/baselines/main", json_answer(baseline))
    server.script("DELETE", "/baselines/main", Answer(204))
    attachment = {
        "id": ATTACHED, "name": "a.json", "kind": "text", "sha256": hashlib.sha256(b"[]").hexdigest(),
    }  # fmt: skip
    server.script("PUT", f"/traces/{RANK0}/attachments/a.json", json_answer(attachment, 201))
    server.script("DELETE", f"/attachments/{ATTACHED}", Answer(204))
    server.script("DELETE", "/imports/1", json_answer({"id": "1", "taken": 2}))
    return server


def test_every_command_is_walked() -> None:
    assert {*COMMANDS} | {*WITHOUT} == {*paths(get_command(app))}
    assert not {*COMMANDS} & {*WITHOUT}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of a folder with a trace, and of its dataset."""
    traces, store = (str(tmp_path_factory.mktemp(name)) for name in ("traces", "store"))
    write_trace(Path(traces, "rank0.json"), TraceShape(steps=1))
    dataset = Dataset.create(store)
    ingest_sources(dataset, find_sources([traces], None, dataset.location.url), Here())
    return {"traces": traces, "store": store}


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_document_on_one_line(run: Run, full_server: Server, folders: dict[str, str], command: str) -> None:
    arguments = [folders.get(argument.strip("{}"), argument) for argument in COMMANDS[command]]
    result = run(*command.split(), *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    assert isinstance(json.loads(result.stdout), dict | list)


def test_json_of_several_things_is_a_list_of_them(run: Run, full_server: Server) -> None:
    sent = json.loads(run("upload", "a.json", "b.json", "--json", "--no-wait").stdout)
    assert [trace["name"] for trace in sent] == ["a.json", "b.json"]
    removed = json.loads(run("rm", "--yes", RANK0, RANK1, "--json").stdout)
    assert removed == [{"id": RANK0, "name": "rank0.json"}, {"id": RANK1, "name": "rank1.json"}]


def test_json_of_a_query_has_exact_integers(run: Run, full_server: Server) -> None:
    assert f"[[{BIG}]]" in run("query", RANK0, "SELECT 1", "--json").stdout


def test_json_of_files_names_the_new_file(run: Run, full_server: Server) -> None:
    document = json.loads(run("download", RANK0, "-o", "copy.json", "--json").stdout)
    assert document == {"file": "copy.json", "size": 2}
    refused = run("download", RANK0, "-o", "-", "--json")
    assert (refused.exit_code, "--json" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", [["query", RANK0, "SELECT 1"], ["analyze", RANK0, "steps"]])
def test_json_with_another_format_is_refused(run: Run, full_server: Server, command: list[str]) -> None:
    assert run(*command, "--json", "--format", "json").exit_code == 0
    refused = run(*command, "--json", "--format", "csv")
    assert (refused.exit_code, "not csv" in refused.stderr) == (2, True)

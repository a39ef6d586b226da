"""Completion: of commands, options and choices, and of traces, groups and jobs of a server."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.main import get_command

from service.cli.completion import VARIABLE, Shell, print_completions
from service.cli.main import app
from tests.cli.conftest import COMMAND, Run
from tests.cli.double import Server, json_answer, trace
from tests.waiting import until

Completed = Callable[[str], list[str]]
NOBODY = "http://127.0.0.1:9"


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def with_command(folder: Path) -> dict[str, str]:
    """Return the environment of a shell that finds `tracedock` in a folder."""
    command = folder / "tracedock"
    command.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def full(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("TRACEDOCK_URL", server.url)
    server.page = 100
    server.traces = [
        trace("9f3000000000", "rank1.json"),
        trace("9f2c41d07a3b", "rank0.json"),
        trace("0a1b2c3d4e5f", "twice.json"),
        trace("0a1b2c3d4e60", "twice.json"),
    ]
    server.groups = [{"id": "00112233aabb", "name": "run-7", "traces": 2}]
    server.script("GET", "/jobs", json_answer({"jobs": [{"id": "12", "kind": "split", "state": "done"}]}))
    return server


@pytest.fixture
def completed(capsys: pytest.CaptureFixture[str]) -> Completed:
    def complete(line: str) -> list[str]:
        print_completions(get_command(app), f"tracedock {line}")
        return [printed.partition("\t")[0] for printed in capsys.readouterr().out.splitlines()]

    return complete


@pytest.mark.parametrize(
    ("line", "items"),
    [
        ("gro", ["groups"]),
        ("groups ", ["show", "merge", "rm"]),
        ("--url http://x gro", ["groups"]),
        ("ls --sta", ["--state"]),
        ("ls --state ", ["queued", "ingesting", "ready", "failed"]),
        ("ls --state=f", ["--state=failed"]),
        ("ls --qui", ["--quiet"]),
        ("query latest x --format nd", ["ndjson"]),
        ("split latest --by st", ["step", "stream"]),
        ("analyze latest temp", ["temporal_breakdown"]),
        ("analyze --steps 3 latest temp", ["temporal_breakdown"]),
        ("token add laptop --scope w", ["write"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("nothing ", []),
        ("show -- --sta", []),
        ("ls 'open quote", []),
    ],
)
def test_words_are_completed_without_a_server(
    completed: Completed, monkeypatch: pytest.MonkeyPatch, line: str, items: list[str]
) -> None:
    monkeypatch.setenv("TRACEDOCK_URL", NOBODY)
    assert completed(line) == items


@pytest.mark.parametrize(
    ("line", "items"),
    [
        ("show ", ["latest", "rank1.json", "rank0.json", "0a1b2c3d4e5f", "0a1b2c3d4e60"]),
        ("show rank0", ["rank0.json"]),
        ("show 9f", ["9f3000000000", "9f2c41d07a3b"]),
        ("ls --parent rank1", ["rank1.json"]),
        ("rm rank0.json ra", ["rank1.json", "rank0.json"]),
        ("groups show ru", ["run-7"]),
        ("upload --group ru", ["run-7"]),
        ("analyze ru", ["run-7"]),
        ("jobs follow 1", ["12"]),
    ],
)
def test_traces_groups_and_jobs_of_the_server_are_completed(
    completed: Completed, full: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, items: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completed(line) == items


def test_server_of_the_command_line_is_asked_with_its_token(
    completed: Completed, full: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEDOCK_URL", NOBODY)
    assert completed(f"show --url {full.url} --token secret rank0") == ["rank0.json"]
    assert full.requests[-1].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "document", [{"traces": "text"}, {"status": "ok"}, {"traces": [3]}], ids=["text", "other", "numbers"]
)
def test_answer_of_another_program_completes_nothing(completed: Completed, full: Server, document: object) -> None:
    full.script("GET", "/traces", json_answer(document))
    assert completed("show ra") == []


def test_name_that_controls_a_terminal_is_completed_by_its_id(completed: Completed, server: Server) -> None:
    server.traces = [trace("9f2c41d07a3b", "a\x1b]0;x\n.json")]
    assert completed(f"show --url {server.url} ") == ["latest", "9f2c41d07a3b"]


def test_files_are_completed_where_a_command_reads_files(
    completed: Completed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEDOCK_URL", NOBODY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("rank0.json", "run/rank1.json"):
        (tmp_path / name).touch()
    assert completed("upload r") == ["rank0.json", "run/"]
    assert completed("upload run/") == ["run/rank1.json"]
    assert completed("upload ./r") == ["./rank0.json", "./run/"]
    assert completed("show r") == []


def test_completion_imports_no_client(environment: dict[str, str]) -> None:
    program = (
        "import sys\nfrom service.cli import main, completion\nfrom typer.main import get_command\n"
        "completion.print_completions(get_command(main.app), 'tracedock show ra')\n"
        "slow = {'httpx', 'rich', 'service.engine', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_command_answers_the_scripts(environment: dict[str, str], full: Server) -> None:
    asked = {**environment, VARIABLE: "tracedock groups show ru"}
    done = subprocess.run(COMMAND, env=asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "run-7\tgroup of 2 traces\n", "")


@pytest.mark.parametrize(
    ("words", "current", "items"),
    [
        (["tracedock", "ls", "--sta"], "--sta", ["--state"]),
        (["tracedock", "ls", "--state", "=", "re"], "re", ["ready"]),
        (["tracedock", "ls", "--state", "="], "=", ["queued", "ingesting", "ready", "failed"]),
        (["tracedock", "show", "with"], "with", [r"with\ space.json"]),
    ],
)
def test_bash_completes_the_word_at_the_cursor(
    server: Server, environment: dict[str, str], tmp_path: Path, run: Run, words: list[str], current: str,
    items: list[str],
) -> None:  # fmt: skip
    server.traces = [trace("9f2c41d07a3b", "with space.json")]
    line = " ".join(words).replace(" = ", "=").replace(" =", "=")
    script = (
        f"{run('completion', 'bash').stdout}\ncompopt() {{ :; }}\n"  # it works only while bash completes
        f"COMP_WORDS=({' '.join(map(repr, words))})\nCOMP_CWORD={len(words) - 1}\n"
        f"COMP_LINE={line!r}\nCOMP_POINT={len(line)}\n"
        f"_tracedock tracedock {current!r}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
    found = environment | with_command(tmp_path)
    done = subprocess.run(["bash", "-c", script], env=found, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.splitlines()) == ("", items)


@pytest.mark.system  # `make test-system` installs the shells
@needs("fish")
@pytest.mark.parametrize(
    ("line", "items"),
    [
        ("tracedock ls --sta", ["--state"]),
        ("tracedock ls --state=re", ["--state=ready"]),
        ("tracedock ls --state ", ["queued", "ingesting", "ready", "failed"]),
        ("tracedock show with", ["with space.json"]),
        ("tracedock show 'with s", ["with space.json"]),
        ("tracedock upload ra", ["rank0.json"]),
    ],
)
def test_fish_completes_the_line(
    server: Server, environment: dict[str, str], tmp_path: Path, run: Run, line: str, items: list[str]
) -> None:
    server.traces = [trace("9f2c41d07a3b", "with space.json")]
    (tmp_path / "rank0.json").touch()
    script = f"{run('completion', 'fish').stdout}\ncd {tmp_path}\ncomplete -C {shlex.quote(line)}\n"
    found = environment | with_command(tmp_path)
    done = subprocess.run(["fish", "--no-config", "-c", script], env=found, capture_output=True, text=True, check=False)
    assert [printed.partition("\t")[0] for printed in done.stdout.splitlines()] == items, done.stderr


@pytest.mark.system  # `make test-system` installs the shells
@needs("zsh")
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("tracedock ls --sta\t", "tracedock ls --state "),
        ("tracedock ls --state=re\t", "tracedock ls --state=ready "),
        ("tracedock ls --state re\t", "tracedock ls --state ready "),
        ("tracedock show with\t", r"tracedock show with\ space:1.json "),
        ("tracedock upload ra\t", "tracedock upload rank0.json "),
    ],
)
def test_zsh_completes_the_line_in_a_terminal(
    server: Server, environment: dict[str, str], tmp_path: Path, run: Run, typed: str, line: str
) -> None:
    server.traces = [trace("9f2c41d07a3b", "with space:1.json")]
    (tmp_path / "rank0.json").touch()
    (tmp_path / "_tracedock").write_text(run("completion", "zsh").stdout)
    (tmp_path / ".zshrc").write_text(
        f"PS1='ready> '\nfpath=({tmp_path} $fpath)\nautoload -Uz compinit && compinit -u -D\n"
        'show-line() { print -r -- "$BUFFER" > line.new && mv line.new line }\n'
        "zle -N show-line\nbindkey '^X' show-line\n"
    )
    terminal, other_end = pty.openpty()
    with closing(open(terminal, "r+b", buffering=0)) as keyboard:  # noqa: PTH123 - a file descriptor has no path
        found = environment | with_command(tmp_path) | {"ZDOTDIR": str(tmp_path), "TERM": "dumb"}
        zsh = subprocess.Popen(
            ["zsh", "-d", "-i"], cwd=tmp_path, env=found, stdin=other_end, stdout=other_end, stderr=other_end,
            start_new_session=True,
        )  # fmt: skip
        os.close(other_end)
        try:
            shown = b""
            while b"ready> " not in shown:
                shown += keyboard.read(1000)
            keyboard.write(f"{typed}\x18".encode())
            until((tmp_path / "line").exists)
        finally:
            zsh.kill()
            zsh.wait()
    assert (tmp_path / "line").read_text() == f"{line}\n"


@pytest.mark.parametrize("shell", Shell)
def test_script_is_valid_in_its_shell(run: Run, shell: Shell) -> None:
    script = run("completion", shell).stdout
    assert VARIABLE in script
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")

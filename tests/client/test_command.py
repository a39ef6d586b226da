from __future__ import annotations

import fcntl
import gzip
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tracedock import __version__, command
from tracedock.spool import Spool
from typer.testing import CliRunner

from service.cli.main import app
from tests.cli.double import Answer, Server, problem
from tests.docs.pages import ROOT

TRACE = b'{"traceEvents": []}'


def spooled(folder: Path, name: str, url: str, **members: Any) -> Path:
    """Leave a trace in a spool as training does, and return its description."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.trace.json.gz").write_bytes(gzip.compress(TRACE))
    description = folder / f"{name}.json"
    description.write_text(json.dumps({"name": f"{name}.pt.trace.json.gz", "group": "run", "url": url} | members))
    return description


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture(params=["client", "server"])
def send(request: pytest.FixtureRequest, server: Server, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs `upload` of either command line: it returns the exit code and the outputs."""

    def run(*words: str) -> tuple[int, str, str]:
        if request.param == "client":
            code = command.run(["--url", server.url, "upload", *words])
            return code, *capsys.readouterr()
        result = CliRunner().invoke(app, ["--url", server.url, "upload", *words])
        return result.exit_code, result.stdout, result.stderr

    return run


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"tracedock {__version__}\n"


def test_command_of_the_server_names_the_package_that_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run(["ls", "--json", "-x"])
    assert ended.value.code == 2
    assert "`tracedock ls` needs the package tracedock-server" in capsys.readouterr().err


def test_client_knows_all_commands_of_the_server() -> None:
    names = {each.name or "" for each in app.registered_commands} | {each.name or "" for each in app.registered_groups}
    names |= {each.callback.__name__ for each in app.registered_commands if not each.name and each.callback}
    assert names - {""} == {*command.SERVER_COMMANDS, "upload", "gate", "baseline", "history"}


def test_console_script_runs_the_full_command_line_if_the_server_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = tmp_path / "tracedock_server-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tracedock-server\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text("[tracedock.command]\nmain = full_command_line:main\n")
    (tmp_path / "full_command_line.py").write_text("def main(): print('the full command line')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert (ended.value.code, capsys.readouterr().out) == (None, "the full command line\n")


def test_console_script_runs_its_own_commands_without_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    monkeypatch.setattr(sys, "argv", ["tracedock", "--version"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 0


def test_project_of_the_server_declares_its_command_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "tracedock-server"
    assert project["entry-points"]["tracedock.command"] == {"main": "service.cli.main:main"}


def test_files_are_uploaded(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(name.encode())
    assert command.run(["--url", server.url, "upload", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert [trace["name"] for trace in reversed(server.traces)] == ["a.json", "b.json"]
    assert capsys.readouterr().out.split() == [trace["id"] for trace in reversed(server.traces)]


def test_traces_of_a_folder_become_the_group_of_its_name(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    (folder / "rank1").mkdir(parents=True)
    for name in ("b.json.gz", "rank1/a.pt.trace.json", "notes.txt", ".hidden.json"):
        (folder / name).write_bytes(name.encode())
    assert command.run(["--url", server.url, "upload", "--no-wait", str(folder)]) == 0
    assert {trace["name"] for trace in server.traces} == {"b.json.gz", "a.pt.trace.json"}
    assert {request.query["group"] for request in server.sent("PUT")} == {"my run"}


def test_standard_input_is_uploaded(server: Server) -> None:
    words = [sys.executable, "-c", "import sys; from tracedock.command import run; sys.exit(run(sys.argv[1:]))"]
    done = subprocess.run(
        [*words, "--url", server.url, "upload", "--no-wait", "--name", "piped.json", "-"],
        input=TRACE, capture_output=True, check=True, env=os.environ,
    )  # fmt: skip
    assert [(trace["name"], trace["size"]) for trace in server.traces] == [("piped.json", len(TRACE))]
    assert done.stdout.decode().split() == [server.traces[0]["id"]]


def test_refused_file_does_not_stop_the_others(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(name.encode())
    server.script("PUT", "/traces/a.json", problem(507, "no_room", "No room", "Full."))
    assert command.run(["--url", server.url, "upload", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    assert [trace["name"] for trace in server.traces] == ["b.json"]
    assert "a.json: No room: Full. (no_room)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["upload"],
        ["upload", "missing.json"],
        ["upload", "a.json", "--spool", "."],
        ["upload", "--name", "x", "a.json", "b.json"],
        ["upload", "empty"],
        ["nothing"],
        [],
    ],
)
def test_wrong_usage_is_refused(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.json").write_bytes(b"a")
    (tmp_path / "b.json").write_bytes(b"b")
    with pytest.raises(SystemExit) as ended:
        command.run(["--url", "http://127.0.0.1:9", *words])
    assert ended.value.code == 2


def test_missing_server_has_its_own_exit_code(spool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    description = spooled(spool, "a", "http://127.0.0.1:9")
    assert command.run(["--url", "http://127.0.0.1:9", "upload", "--spool", str(spool)]) == command.UNREACHABLE
    assert "cannot reach a server" in capsys.readouterr().err
    assert description.exists()


def test_spool_is_sent_and_removed(send: Any, server: Server, spool: Path) -> None:
    for name in ("b", "a"):
        os.utime(spooled(spool, name, f"{server.url}/"), ns=(0, ord(name)))
    code, out, _ = send("--spool", str(spool))
    assert code == 0
    assert [trace["name"] for trace in reversed(server.traces)] == ["a.pt.trace.json.gz", "b.pt.trace.json.gz"]
    assert out.split() == [trace["id"] for trace in reversed(server.traces)]
    assert {request.query["group"] for request in server.sent("PUT")} == {"run"}
    assert list(spool.iterdir()) == []


def test_trace_that_is_not_yet_compressed_is_sent_as_it_is(send: Any, server: Server, spool: Path) -> None:
    spooled(spool, "a", server.url)
    (spool / "a.trace.json.gz").unlink()
    (spool / "a.trace.json").write_bytes(TRACE)
    assert send("--spool", str(spool))[0] == 0
    assert [(trace["name"], trace["size"]) for trace in server.traces] == [("a.pt.trace.json", len(TRACE))]
    assert list(spool.iterdir()) == []


def test_trace_on_which_another_process_works_stays(send: Any, server: Server, spool: Path) -> None:
    with spooled(spool, "a", server.url).open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert send("--spool", str(spool))[0] == 0
    assert server.traces == []
    assert len(list(spool.iterdir())) == 2


def test_trace_for_another_server_stays_unless_any_is_allowed(send: Any, server: Server, spool: Path) -> None:
    spooled(spool, "a", "http://elsewhere:8700")
    code, _, err = send("--spool", str(spool))
    assert (code, server.traces) == (0, [])
    assert "1 of the traces are for http://elsewhere:8700: name it with --url, or send them here with --any-url" in err
    assert send("--spool", str(spool), "--any-url")[0] == 0
    assert [trace["name"] for trace in server.traces] == ["a.pt.trace.json.gz"]


def test_damaged_description_is_reported_and_stays(send: Any, server: Server, spool: Path) -> None:
    for name, text in (("a", "no json"), ("b", "[]"), ("c", '{"name": 1, "url": ""}'), ("d", '{"name": "d"}')):
        spooled(spool, name, server.url).write_text(text)
    spooled(spool, "e", server.url)
    code, _, err = send("--spool", str(spool))
    assert code == 1
    assert [trace["name"] for trace in server.traces] == ["e.pt.trace.json.gz"]
    assert err.count("The trace beside it stays") == 4
    assert len(Spool(spool).identities()) == 4


def test_description_without_its_trace_is_not_sent(send: Any, server: Server, spool: Path) -> None:
    spooled(spool, "a", server.url)
    (spool / "a.trace.json.gz").unlink()
    assert send("--spool", str(spool))[0] == 0
    assert server.requests == []


def test_refused_trace_of_a_spool_stays(send: Any, server: Server, spool: Path) -> None:
    spooled(spool, "a", server.url)
    server.script("PUT", "/traces/a.pt.trace.json.gz", Answer(507, b"{}", "application/problem+json"))
    assert send("--spool", str(spool))[0] == 1
    assert len(list(spool.iterdir())) == 2


def test_two_processes_that_send_the_same_trace_use_one_key(send: Any, server: Server, spool: Path) -> None:
    for _ in range(2):
        spooled(spool, "a", server.url)
        assert send("--spool", str(spool))[0] == 0
    assert len({request.headers["idempotency-key"] for request in server.sent("PUT")}) == 1

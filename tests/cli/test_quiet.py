"""The option --quiet, before and after the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import OnTerminal, Run
from tests.cli.double import Server, problem, trace

RANK0 = "9f2c41d07a3b"


@pytest.fixture
def many(server: Server) -> Server:
    server.traces = [trace(f"{number:012x}", f"rank{number}.json") for number in range(3)]
    return server


@pytest.mark.parametrize("arguments", [["--quiet", "ls"], ["ls", "--quiet"], ["-q", "ls"], ["ls", "-q"]])
def test_quiet_listing_prints_no_note(run: Run, many: Server, arguments: list[str]) -> None:
    loud = run("ls", "--limit", "1")
    quiet = run(*arguments, "--limit", "1")
    assert "there are more" in loud.stderr
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, loud.stdout, "")


def test_quiet_upload_prints_only_the_id(run: Run, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    result = run("upload", str(tmp_path / "a.json"), "--quiet")
    assert (result.stdout, result.stderr) == (f"{server.traces[0]['id']}\n", "")


def test_quiet_upload_draws_no_bar_on_a_terminal(on_terminal: OnTerminal, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    code, drawn, _ = on_terminal("upload", str(tmp_path / "a.json"), "-q")
    assert (code, drawn) == (0, f"{server.traces[0]['id']}  ready  a.json\r\n")


def test_quiet_error_is_printed_with_the_file_it_concerns(run: Run, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    server.script("PUT", "/traces/a.json", problem(413, "too_large", "Too large", "At most 1 GB."))
    result = run("-q", "upload", str(tmp_path / "a.json"))
    assert result.exit_code == 1
    assert result.stderr == f"{tmp_path / 'a.json'}:\nerror: Too large (too_large)\nAt most 1 GB.\n"


def test_quiet_of_one_command_does_not_last(run: Run, many: Server) -> None:
    run("ls", "--limit", "1", "--quiet")
    assert "there are more" in run("ls", "--limit", "1").stderr

"""The option --quiet, before and after the command."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_bar_takes_one_line_of_the_terminal(
    on_terminal: OnTerminal, environment: dict[str, str], server: Server, tmp_path: Path, columns: int
) -> None:
    environment["COLUMNS"] = str(columns)
    name = "a_long_name_of_a_rank_of_a_run_of_many.pt.trace.json"
    (tmp_path / name).write_bytes(b"[]")
    _, drawn, _ = on_terminal("upload", str(tmp_path / name))
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn))
    bars = [line for line in lines if "━" in line]
    assert bars
    assert max(map(len, bars)) <= columns
    assert all(line.startswith(("upload ", "ingest ")) for line in bars)
    assert {line[:6] for line in lines if line.strip()} <= {"upload", "ingest", name[:6], server.traces[0]["id"][:6]}

"""The command `report`, for traces on the server and for local files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import OnTerminal, Run
from tests.cli.double import Answer, Server, trace
from tests.traces import TraceShape, write_examples, write_trace

ID = "9f2c41d07a3b"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The example traces of two ranks."""
    folder = tmp_path_factory.mktemp("report")
    write_examples(folder)
    return sorted(folder.iterdir())


def test_report_on_a_file_is_markdown(run: Run, files: list[Path]) -> None:
    result = run("report", str(files[0]))
    assert result.exit_code == 0, result.stderr
    assert "## What to try first" in result.stdout
    assert f"`tracedock analyze {files[0]} kernel_breakdown`" in result.stdout


def test_report_on_several_files_is_one_on_a_run(run: Run, files: list[Path]) -> None:
    result = run("report", str(files[0]), "--with", str(files[1]))
    assert result.exit_code == 0, result.stderr
    assert "## Late ranks" in result.stdout
    assert f"`tracedock analyze {files[0]} collectives --with {files[1]}`" in result.stdout
    assert run("report", str(files[0]), "--with", str(files[1]), "--with", str(files[0])).stdout == result.stdout


def test_report_on_files_of_several_cycles_is_on_one_of_them(run: Run, tmp_path: Path) -> None:
    files = [
        str(write_trace(tmp_path / f"rank{rank}.{first}.json", TraceShape(rank=rank, world_size=2, first_step=first)))
        for rank in range(2)
        for first in (3, 13)
    ]
    others = [option for file in files[1:] for option in ("--with", file)]
    for cycle, name in ((0, "0 (steps 3 to 5)"), (1, "1 (steps 13 to 15)")):
        text = run("report", files[0], *others, "--cycle", str(cycle)).stdout.replace("\\", "")
        assert f"- Cycle: {name}\n" in text
        assert "- Traces: 2\n" in text
        assert f"--cycle {cycle}`" in text
    first = run("report", files[0], *others, "--cycle", "0").stdout
    assert run("report", files[0], *others).stdout == first
    unknown = run("report", files[0], *others, "--cycle", "2")
    assert (unknown.exit_code, "There is no cycle 2." in unknown.stderr) == (1, True)


@pytest.mark.parametrize(("name", "start"), [("r.html", "<!doctype html>"), ("r.md", "# gpt")])
def test_suffix_of_the_output_chooses_the_format(
    run: Run, files: list[Path], tmp_path: Path, name: str, start: str
) -> None:
    result = run("report", str(files[0]), "--steps", "10", "-o", str(tmp_path / name))
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    text = (tmp_path / name).read_text()
    assert text.startswith(start)
    assert "step 11" not in text


def test_report_on_a_trace_of_the_server_is_requested(run: Run, server: Server) -> None:
    server.traces = [trace(ID, "rank0.json")]
    server.script("GET", f"/traces/{ID}/report", Answer(200, b"# rank0.json\n", "text/markdown"))
    result = run("report", "rank0.json", "--wait", "5", "--steps", "3")
    assert (result.exit_code, result.stdout) == (0, "# rank0.json\n"), result.stderr
    query = server.sent("GET")[-1].query
    assert {key: query[key] for key in ("format", "wait")} == {"format": "markdown", "wait": "5.0"}
    assert json.loads(query["selection"]) == {"steps": [3]}


def test_report_on_a_group_is_requested(run: Run, server: Server, tmp_path: Path) -> None:
    server.groups = [{"id": "00112233aabb", "name": "run", "traces": 2, "created_at": "2026-11-20T18:45:00Z"}]
    server.script("GET", "/groups/00112233aabb/report", Answer(200, b"<!doctype html>", "text/html"))
    assert run("report", "run", "--cycle", "1", "-o", str(tmp_path / "run.html")).exit_code == 0
    assert (tmp_path / "run.html").read_text() == "<!doctype html>"
    query = server.sent("GET")[-1].query
    assert (query["format"], query["cycle"]) == ("html", "1")


def test_cycle_of_a_report_needs_a_run(run: Run, server: Server) -> None:
    server.traces = [trace(ID, "rank0.json")]
    result = run("report", "rank0.json", "--cycle", "1")
    assert (result.exit_code, "--cycle" in result.stderr) == (2, True)


def test_html_is_not_printed_on_a_terminal(on_terminal: OnTerminal, files: list[Path]) -> None:
    code, printed, _ = on_terminal("report", str(files[0]), "--format", "html")
    assert code == 2
    assert "--output" in printed


def test_further_files_need_a_file(run: Run, server: Server, files: list[Path]) -> None:
    server.traces = [trace(ID, "rank0.json")]
    result = run("report", "rank0.json", "--with", str(files[1]))
    assert result.exit_code == 2
    assert "a run on the server is a group" in result.stderr

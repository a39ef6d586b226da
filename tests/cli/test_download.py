from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import OnTerminal, Run
from tests.cli.double import Answer, Server, problem, trace

BYTES = bytes(range(256)) * 10_000
PATH = "/traces/9f2c41d07a3b/download"
ATTACHED = {"Content_Disposition": "attachment; filename*=utf-8''rank%200.json"}


def answer(body: bytes = BYTES, **more: Any) -> Answer:
    return Answer(200, body, "application/octet-stream", **{"headers": ATTACHED} | more)


@pytest.fixture
def trace_server(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Serve a trace, and run commands in an empty folder."""
    monkeypatch.chdir(tmp_path)
    server.traces = [trace("9f2c41d07a3b", "rank 0.json")]
    server.script("GET", PATH, answer())
    return server


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_download_writes_the_trace_under_its_name_and_prints_it(run: Run, trace_server: Server, tmp_path: Path) -> None:
    result = run("download", "latest")
    assert (result.exit_code, result.stdout) == (0, "rank 0.json\n")
    assert "download rank 0.json: 100 % of 2.6 MB" in result.stderr
    assert files(tmp_path) == {"rank 0.json": BYTES}
    assert trace_server.sent("GET")[-1].query == {"order": "time", "redact": "false"}


def test_download_sends_all_options(run: Run, trace_server: Server) -> None:
    trace_server.script("GET", PATH, answer(), answer())
    assert run("download", "latest", "-f", "json.gz", "--order", "original", "--redact").exit_code == 0
    assert trace_server.sent("GET")[-1].query == {"format": "json.gz", "order": "original", "redact": "true"}
    assert run("download", "latest", "-f", "pftrace.gz", "--redact", "-o", "a.gz").exit_code == 0
    assert trace_server.sent("GET")[-1].query == {"format": "pftrace.gz", "order": "time", "redact": "true"}
    assert run("download", "latest", "--format", "xml").exit_code == 2


def test_download_writes_to_the_given_output(run: Run, trace_server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    trace_server.script("GET", PATH, answer(), answer(), answer())
    assert run("download", "latest", "-o", "a.json").stdout == "a.json\n"
    assert run("download", "latest", "-o", "folder").stdout == "folder/rank 0.json\n"
    piped = run("download", "latest", "-o", "-")
    assert (piped.stdout_bytes, piped.stderr) == (BYTES, "")
    assert files(tmp_path / "folder") == {"rank 0.json": BYTES}
    assert (tmp_path / "a.json").read_bytes() == BYTES


@pytest.mark.parametrize("options", [[], ["-o", "rank 0.json"], ["-o", "."]])
def test_download_replaces_a_file_only_with_force(
    run: Run, trace_server: Server, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "rank 0.json").write_text("mine")
    trace_server.script("GET", PATH, answer(), answer())
    refused = run("download", "latest", *options)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "rank 0.json: File exists; --force replaces it" in refused.stderr
    assert files(tmp_path) == {"rank 0.json": b"mine"}
    assert run("download", "latest", "--force", *options).exit_code == 0
    assert files(tmp_path) == {"rank 0.json": BYTES}


def test_truncated_download_leaves_no_file(run: Run, trace_server: Server, tmp_path: Path) -> None:
    trace_server.script("GET", PATH, answer(declared=len(BYTES) + 1))
    result = run("download", "latest")
    assert result.exit_code == 3
    assert "broke" in result.stderr
    assert files(tmp_path) == {}


def test_refused_download_leaves_no_file(run: Run, trace_server: Server, tmp_path: Path) -> None:
    trace_server.script("GET", PATH, problem(422, "not_redactable", "Secrets can't be hidden", "Only json."))
    result = run("download", "latest", "--redact")
    assert result.exit_code == 1
    assert "Secrets can't be hidden (not_redactable)\nOnly json." in result.stderr
    assert files(tmp_path) == {}


def test_download_with_a_wrong_digest_leaves_no_file(run: Run, trace_server: Server, tmp_path: Path) -> None:
    def digest(content: bytes) -> dict[str, str]:
        encoded = base64.b64encode(hashlib.sha256(content).digest()).decode()
        return ATTACHED | {"Repr_Digest": f"sha-256=:{encoded}:"}

    trace_server.script("GET", PATH, answer(headers=digest(b"other")), answer(headers=digest(BYTES)))
    result = run("download", "latest")
    assert result.exit_code == 1
    assert hashlib.sha256(BYTES).hexdigest() in result.stderr
    assert files(tmp_path) == {}
    assert run("download", "latest").exit_code == 0


@pytest.mark.parametrize("name", ["..%2Fx", "%2Fetc%2Fx", "..", "", "a%5Cb"])
def test_file_name_of_the_server_can_not_choose_a_folder(
    run: Run, trace_server: Server, tmp_path: Path, name: str
) -> None:
    trace_server.script("GET", PATH, answer(headers={"Content_Disposition": f"attachment; filename*=utf-8''{name}"}))
    assert run("download", "latest").stdout == "9f2c41d07a3b\n"
    assert files(tmp_path) == {"9f2c41d07a3b": BYTES}


def test_quoted_file_name_of_the_server_is_used(run: Run, trace_server: Server) -> None:
    trace_server.script("GET", PATH, answer(headers={"Content_Disposition": 'attachment; filename="rank1.json"'}))
    assert run("download", "latest").stdout == "rank1.json\n"


def test_download_shows_a_progress_bar_on_a_terminal(on_terminal: OnTerminal, trace_server: Server) -> None:
    code, drawn, piped = on_terminal("download", "latest", terminal=("stderr",))
    assert (code, piped) == (0, "rank 0.json\n")
    assert "download rank 0.json" in drawn

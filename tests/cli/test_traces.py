from __future__ import annotations

import hashlib
import json
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import OnTerminal, Run
from tests.cli.double import Server, json_answer, problem, trace

ESC = "\x1b"


@pytest.fixture
def filled_server(server: Server) -> Server:
    server.traces = [
        trace("9f3000000000", "rank1.json", state="ingesting", rank=1),
        trace("9f2c41d07a3b", "rank0.json"),
    ]
    return server


def test_upload_prints_only_the_id_to_a_pipe_and_progress_to_stderr(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[]" * 1000)
    result = run("upload", str(tmp_path / "a.json"))
    assert result.exit_code == 0
    assert result.stdout == hashlib.sha256(b"[]" * 1000).hexdigest()[:12] + "\n"
    assert "upload a.json: 100 % of 2.0 kB" in result.stderr
    assert "ingest a.json: 100 %" in result.stderr
    assert ESC not in result.output


def test_upload_prints_the_id_on_stdout_while_bars_are_drawn(
    on_terminal: OnTerminal, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    code, drawn, piped = on_terminal("upload", str(tmp_path / "a.json"), terminal=("stderr",))
    assert code == 0
    assert piped == f"{server.traces[0]['id']}\n"
    assert "upload a.json" in drawn
    assert "12,000 events" in drawn


def test_upload_without_wait_sends_no_further_request(run: Run, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    assert run("upload", "--no-wait", str(tmp_path / "a.json")).exit_code == 0
    assert server.sent("GET") == []


def test_upload_of_a_file_that_the_server_cannot_read_fails_with_the_reason(
    run: Run, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "a.json.gz").write_bytes(b"nonsense")
    error = {"code": "bad_gzip", "title": "Bad gzip", "detail": "the stream ends early", "offset": 4096}
    server.script(
        "PUT",
        "/traces/a.json.gz",
        json_answer(trace("0a" * 6, "a.json.gz", sha256=hashlib.sha256(b"nonsense").hexdigest(), state="queued"), 201),
    )
    server.traces = [trace("0a" * 6, "a.json.gz", state="failed", error=error)]
    result = run("upload", str(tmp_path / "a.json.gz"))
    assert result.exit_code == 1
    assert result.stdout == "0a" * 6 + "\n"
    assert "error: Bad gzip (bad_gzip)\nthe stream ends early\nat byte 4096" in result.stderr


def test_upload_continues_after_a_refused_file(run: Run, server: Server, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(b"[]")
    server.script("PUT", "/traces/a.json", problem(413, "too_large", "Too large", "At most 1 GB."))
    result = run("upload", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert result.exit_code == 1
    assert "error: Too large (too_large)\nAt most 1 GB." in result.stderr
    assert [t["name"] for t in server.traces] == ["b.json"]


def test_upload_of_a_missing_file_is_wrong_usage(run: Run, server: Server) -> None:
    assert run("upload", "/no/such/file").exit_code == 2
    assert server.requests == []


def test_upload_open_prints_the_link_and_opens_it(
    run: Run, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browser(link: str) -> bool:
        opened.append(link)
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    (tmp_path / "a.json").write_bytes(b"[]")
    result = run("upload", "--open", str(tmp_path / "a.json"))
    link = f"{server.url}/api/v1/traces/{server.traces[0]['id']}/perfetto"
    assert result.stdout.splitlines() == [server.traces[0]["id"], link]
    assert opened == [link]


def test_ls_gives_a_pipe_tab_separated_lines_with_exact_values(run: Run, filled_server: Server) -> None:
    result = run("ls")
    assert result.exit_code == 0
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        ["id", "state", "size", "events", "rank", "created", "name"],
        ["9f3000000000", "ingesting", "816469", r"\N", "1", "2026-11-20T18:45:00.123Z", "rank1.json"],
        ["9f2c41d07a3b", "ready", "816469", "12000", "0", "2026-11-20T18:45:00.123Z", "rank0.json"],
    ]


def test_ls_draws_a_table_on_a_terminal(on_terminal: OnTerminal, filled_server: Server) -> None:
    code, drawn, _ = on_terminal("ls")
    assert code == 0
    assert "816.5 kB" in drawn
    assert "12,000" in drawn


def test_ls_filters_and_notes_the_limit(run: Run, filled_server: Server) -> None:
    assert run("ls", "--state", "ready").stdout.count("rank") == 2  # the column, and one trace
    limited = run("ls", "--limit", "1")
    assert len(limited.stdout.splitlines()) == 2
    assert "there are more (--limit)" in limited.stderr
    assert "more" not in run("ls", "--limit", "2").stderr


def test_ls_json_is_that_of_the_api(run: Run, filled_server: Server) -> None:
    assert json.loads(run("ls", "--json").stdout) == filled_server.traces


def test_show_prints_exact_facts_into_a_pipe(run: Run, filled_server: Server) -> None:
    facts = dict(line.split("\t") for line in run("show", "rank0.json").stdout.splitlines())
    assert facts["id"] == "9f2c41d07a3b"
    assert facts["start_ns"] == "9007199254740993"
    assert facts["duration_ns"] == "1000000001"
    assert facts["base_ns"] == "1700000000000000001"
    assert facts["streams"] == "0/7,0/20"
    assert facts["counts"] == "s|ac2g 6401,X|kernel 4350,M| 36"
    assert facts["repaired"] == "1200 (invalid_utf8) Bytes that are not UTF-8: replaced by U+FFFD."
    assert facts["oddity"] == "1 (unlinked_kernels) Work on a device whose launch is not in the trace."


def test_show_prints_readable_and_exact_durations(on_terminal: OnTerminal, filled_server: Server) -> None:
    _, drawn, _ = on_terminal("show", "rank0.json")
    assert "duration        1.00 s (1,000,000,001 ns)" in drawn


def test_show_names_the_group_and_no_empty_labels(run: Run, on_terminal: OnTerminal, server: Server) -> None:
    processes = [
        {"pid": 0, "name": "python", "labels": "GPU 0", "events": 1},
        {"pid": "", "name": None, "labels": None, "events": 1},
        {"pid": "Spans", "name": None, "labels": None, "events": 1},
    ]
    group = {"id": "0bb28b5d9215", "name": "gpt"}
    server.traces = [trace("9f2c41d07a3b", "rank0.json", group=group, processes=processes)]
    _, drawn, _ = on_terminal("show", "latest")
    assert "group           gpt (0bb28b5d9215)" in drawn
    assert "processes       0 GPU 0, -, Spans" in drawn
    assert "group\t0bb28b5d9215\n" in run("show", "latest").stdout


def test_show_prints_damage_and_its_places(run: Run, on_terminal: OnTerminal, filled_server: Server) -> None:
    lines = run("show", "rank0.json").stdout.splitlines()
    where = lines.index("repaired\t1200 (invalid_utf8) Bytes that are not UTF-8: replaced by U+FFFD.") + 1
    assert lines[where : where + 2] == ['example\tbyte 40960: "name": "caf\ufffd\\x1b[2J"', "example\tbyte 50000: "]
    assert lines[-1] == "example\tgemm, ts 5 ns"
    _, drawn, _ = on_terminal("show", "rank0.json")
    assert "1,200 (invalid_utf8) Bytes that are not UTF-8" in drawn
    assert "\x1b[2J" not in drawn


def test_upload_notes_damage_of_a_file(run: Run, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    sent = run("upload", str(tmp_path / "a.json"))
    (kept,) = server.traces
    assert f"a.json: 1,200 repaired; see `tracedock show {kept['id']}`." in sent.stderr
    assert sent.exit_code == 0
    assert sent.stdout == f"{kept['id']}\n"


@pytest.mark.parametrize(
    ("refused", "message"), [(3, "a.json: 3 refused, 1 repaired;"), (0, "a.json: incomplete, 1 repaired;")]
)
def test_upload_notes_refused_events(run: Run, server: Server, tmp_path: Path, refused: int, message: str) -> None:
    (tmp_path / "a.json").write_bytes(b"[]")
    cut = {"code": "cut", "kind": "refused", "detail": "The file ends here.", "count": 1, "examples": []}
    health = {"repaired": 1, "refused": refused, "notes": [cut]}
    kept = trace("0a" * 6, "a.json", sha256=hashlib.sha256(b"[]").hexdigest(), health=health)
    server.traces = [kept]
    server.script("PUT", "/traces/a.json", json_answer(kept, 201))
    assert message in run("upload", str(tmp_path / "a.json")).stderr


def test_show_json_keeps_big_integers(run: Run, filled_server: Server) -> None:
    shown = run("show", "9f2c", "--json").stdout
    assert '"start_ns": 9007199254740993' in shown
    assert json.loads(shown) == filled_server.traces[1]


def test_show_of_a_queued_trace_omits_unknown_facts(run: Run, server: Server) -> None:
    unknown: dict[str, Any] = {"format": None, "bounds": None, "base_ns": None, "rank": None, "health": {}}
    server.traces = [trace("9f2c41d07a3b", "a.json", state="queued", **unknown)]
    result = run("show", "latest")
    assert result.exit_code == 0
    assert "start_ns" not in result.stdout


def test_unknown_trace_is_refused_and_ambiguous_one_is_wrong_usage(run: Run, filled_server: Server) -> None:
    unknown, ambiguous = run("show", "nothing"), run("show", "9f")
    assert (unknown.exit_code, ambiguous.exit_code) == (1, 2)
    assert "unknown_trace" in unknown.stderr
    assert "9f3000000000" in ambiguous.stderr
    assert "9f2c41d07a3b" in ambiguous.stderr


def test_open_prints_the_link(run: Run, filled_server: Server) -> None:
    result = run("open", "rank0.json")
    assert result.stdout == f"{filled_server.url}/api/v1/traces/9f2c41d07a3b/perfetto\n"
    assert result.stderr == ""


def test_open_notes_that_the_trace_is_not_ready(run: Run, filled_server: Server) -> None:
    assert "rank1.json is ingesting" in run("open", "latest").stderr


def test_open_listener_chooses_the_trace(run: Run, filled_server: Server) -> None:
    result = run("open", "rank0.json", "--listener")
    assert result.exit_code == 0
    assert json.loads(filled_server.sent("PUT")[0].body) == {"trace": "9f2c41d07a3b"}
    assert "127.0.0.1:9001" in result.stderr


def test_open_listener_fails_when_the_listener_is_off(run: Run, filled_server: Server) -> None:
    filled_server.listener["enabled"] = False
    result = run("open", "rank0.json", "--listener")
    assert result.exit_code == 1
    assert "The listener is off" in result.stderr


def test_open_listener_prints_the_reason_why_the_listener_is_off(run: Run, filled_server: Server) -> None:
    filled_server.listener |= {"enabled": False, "error": "Port 9001 on 127.0.0.1 is in use by another program."}
    result = run("open", "rank0.json", "--listener")
    assert result.exit_code == 1
    assert "Port 9001 on 127.0.0.1 is in use" in " ".join(result.stderr.split())


def test_rm_deletes_a_trace_once_if_it_is_named_twice(run: Run, filled_server: Server) -> None:
    result = run("rm", "--yes", "latest", "9f3", "rank0.json")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["9f3000000000", "9f2c41d07a3b"]
    assert filled_server.traces == []


def test_rm_deletes_nothing_when_one_of_the_names_is_unknown(run: Run, filled_server: Server) -> None:
    assert run("rm", "--yes", "latest", "nothing").exit_code == 1
    assert len(filled_server.traces) == 2


def test_rm_without_yes_deletes_nothing_without_a_terminal(run: Run, filled_server: Server) -> None:
    result = run("rm", "latest", stdin="y\n")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert len(filled_server.traces) == 2


def test_trace_name_cannot_control_the_terminal_or_forge_a_line(
    run: Run, on_terminal: OnTerminal, server: Server
) -> None:
    server.traces = [trace("9f2c41d07a3b", "a\x1b]0;owned\x07\nb\tc\\d\u202e.json")]
    for command in ("ls", "show", "open"):
        args = [] if command == "ls" else ["latest"]
        piped = run(command, *args)
        assert ESC not in piped.output
        _, drawn, _ = on_terminal(command, *args)
        assert "\x1b]0;" not in drawn
        assert "\u202e" not in drawn
    assert len(run("ls").stdout.splitlines()) == 2
    assert r"a\x1b]0;owned\x07\nb\tc\\d\u202e.json" in run("ls").stdout

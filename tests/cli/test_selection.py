"""Options of a selection, and the requests that commands send for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.conftest import Run
from tests.cli.double import Answer, Server, json_answer, problem, trace

ID = "9f2c41d07a3b"


@pytest.fixture
def trace_server(server: Server) -> Server:
    """Serve a trace."""
    server.traces = [trace(ID, "rank0.json")]
    return server


@pytest.fixture
def splitting(trace_server: Server) -> Server:
    """Serve a trace, and accept two dry runs of splits."""
    trace_server.script("POST", f"/traces/{ID}/split", *[json_answer({"pieces": [], "events": 0})] * 2)
    return trace_server


def sent_selection(run: Run, server: Server, *options: str) -> Any:
    """Return the selection that a split sends for the options."""
    result = run("split", ID, "--dry-run", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(server.sent("POST")[-1].body).get("selection")


@pytest.mark.parametrize(
    ("options", "selection"),
    [
        ("", None),
        ("--steps 3,4", {"steps": [3, 4]}),
        ("--steps 5-7 --steps 6,9", {"steps": [5, 6, 7, 9]}),
        ("--streams 0/7,0/20 --streams 1/7", {"streams": ["0/7", "0/20", "1/7"]}),
        ("--devices 0-1 --ranks 7", {"devices": [0, 1], "ranks": [7]}),
        ("--devices=-1", {"devices": [-1]}),
        ("--threads 12,13/14 --threads a,b", {"threads": [12, "13/14", "a,b"]}),
        ("--processes 0,12 --processes python", {"processes": [0, 12, "python"]}),
        ("--categories kernel,", {"categories": ["kernel", ""]}),
        ("--names gemm<*,1> --names re:^aten", {"names": ["gemm<*,1>", "re:^aten"]}),
        ("--phases X,i", {"phases": ["X", "i"]}),
        ("--min-dur 1.5ms", {"min_dur_ns": 1_500_000}),
        ("--window 5us..1.5ms", {"window": {"start_ns": 5_000, "end_ns": 1_500_000, "relative": True}}),
        ("--window=-1s..", {"window": {"start_ns": -1_000_000_000, "relative": True}}),
        ("--window ..7", {"window": {"end_ns": 7, "relative": True}}),
        ("--window @9007199254740993..", {"window": {"start_ns": 9007199254740993}}),
        ("--window @1..@2", {"window": {"start_ns": 1, "end_ns": 2}}),
        ("--from a --to b", {"window": {"from": "a", "to": "b"}}),
        ("--from a --window ..5", {"window": {"from": "a", "end_ns": 5, "relative": True}}),
        (
            "--exclude-categories python_function --exclude-names a* --exclude-names b",
            {"exclude": {"categories": ["python_function"], "names": ["a*", "b"]}},
        ),
        ("--straddle clip", {"straddle": "clip"}),
        ("--straddle keep", None),
        ("--no-metadata --no-flows", {"closure": {"metadata": False, "flows": False}}),
        (
            "--no-launches --no-kernels --no-annotations",
            {"closure": {"launches": False, "kernels": False, "annotations": False}},
        ),
        ('--selection {"steps":[1],"straddle":"keep"}', {"steps": [1]}),
    ],
)
def test_selection_options_become_json(
    run: Run, splitting: Server, options: str, selection: dict[str, Any] | None
) -> None:
    assert sent_selection(run, splitting, *options.split()) == selection


def test_selection_option_reads_a_file(run: Run, splitting: Server, tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text('{"names": ["é*"]}', encoding="utf-8")
    assert sent_selection(run, splitting, "--selection", f"@{path}") == {"names": ["é*"]}
    path.write_bytes(b"\xff")
    assert run("split", ID, "--selection", f"@{path}").exit_code == 2
    assert run("split", ID, "--selection", f"@{path}.gone").exit_code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--steps three", "'three' is neither a number"),
        ("--steps 7-3", "'7-3' ends before it starts"),
        ("--steps 1-99999999999", "more than 10000 values"),
        ("--steps 99999999999999999999", "is neither a number"),
        ("--steps 9999999999999999999", "steps.0"),
        ("--window 5", "not START..END"),
        ("--window ..", "not START..END"),
        ("--window 5..3", "does not end after its start"),
        ("--window 5..5", "does not end after its start"),
        ("--window @5..6", "@ before both"),
        ("--window 1h..", "'1h' is not a time"),
        ("--window 1.. --from a", "either a time or an annotation"),
        ("--min-dur 0.5", "not a whole number of ns"),
        ("--min-dur=-5", "min_dur_ns"),
        ("--straddle some", "some"),
        ("--selection {", "selection is invalid"),
        ('--selection {"step":[1]}', "step"),
        ("--selection {} --steps 1", "no other option"),
    ],
)
def test_invalid_selection_options_are_wrong_usage_and_send_no_request(
    run: Run, splitting: Server, options: str, message: str
) -> None:
    result = run("split", ID, *options.split())
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert splitting.requests == []


def test_query_sends_the_selection(run: Run, trace_server: Server) -> None:
    table = {"columns": [], "rows": [], "truncated": False, "elapsed_ms": 1.0}
    trace_server.script("POST", f"/traces/{ID}/query", json_answer(table), Answer(200, b"", "text/csv"))
    for form in ("table", "csv"):
        assert run("query", ID, "select", "--steps", "3", "--format", form).exit_code == 0
        assert json.loads(trace_server.sent("POST")[-1].body)["selection"] == {"steps": [3]}


UI_REDIRECT = Answer(307, headers={"Location": "/perfetto/x/#!/viewer"})


def test_open_link_has_the_slice(run: Run, trace_server: Server) -> None:
    trace_server.script("GET", f"/traces/{ID}/perfetto", UI_REDIRECT)
    result = run("open", ID, "--slice", "at:5:aten::mm", "--args", "none")
    link = urlsplit(result.stdout.strip())
    assert parse_qs(link.query) == {"slice": ["at:5:aten::mm"], "args": ["none"]}
    assert trace_server.sent("GET")[-1].path == f"/traces/{ID}/perfetto"
    assert run("open", ID, "--slice", "id:5", "--listener").exit_code == 2


def test_open_does_not_print_a_refused_link(run: Run, trace_server: Server) -> None:
    trace_server.script(
        "GET",
        f"/traces/{ID}/perfetto",
        problem(422, "unknown_slice", "There is no such slice", "The trace has no slice named 'aten::mm'."),
    )
    result = run("open", ID, "--slice", "at:5:aten::mm")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no slice named 'aten::mm'" in result.stderr


def test_open_link_has_the_selection(run: Run, trace_server: Server) -> None:
    trace_server.script("GET", f"/traces/{ID}/perfetto", UI_REDIRECT)
    result = run("open", ID, "--steps", "3", "--names", "a&b")
    link = urlsplit(result.stdout.strip())
    assert link.path == f"/api/v1/traces/{ID}/perfetto"
    assert json.loads(parse_qs(link.query)["selection"][0]) == {"steps": [3], "names": ["a&b"]}
    assert run("open", ID, "--steps", "3", "--listener").exit_code == 2
    assert trace_server.sent("PUT") == []


def test_download_of_a_selection_leaves_the_format_to_the_server(
    run: Run, trace_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    attached = {"Content_Disposition": 'attachment; filename="rank0.cut.json.gz"'}
    trace_server.script("GET", f"/traces/{ID}/download", Answer(200, b"x", headers=attached))
    assert run("download", ID, "--steps", "3").stdout == "rank0.cut.json.gz\n"
    query = trace_server.sent("GET")[-1].query
    assert json.loads(query.pop("selection")) == {"steps": [3]}
    assert query == {"order": "time", "redact": "false"}
    for options in (["-f", "original"], ["-f", "parquet"], ["--order", "original"]):
        assert run("download", ID, "--steps", "3", *options).exit_code == 2

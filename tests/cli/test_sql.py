from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import OnTerminal, Run
from tests.cli.double import Answer, Server, json_answer, problem, session, trace

PATH = "/traces/9f2c41d07a3b/query"
BIG = 9007199254740993


def answer(rows: list[list[Any]], *columns: tuple[str, str], truncated: bool = False) -> Answer:
    named = [{"name": n, "type": t, "unit": None, "description": None} for n, t in columns]
    return json_answer({"columns": named, "rows": rows, "truncated": truncated, "elapsed_ms": 1.5})


@pytest.fixture
def trace_server(server: Server) -> Server:
    """Serve a trace."""
    server.traces = [trace("9f2c41d07a3b", "rank0.json")]
    return server


def sent_body(server: Server) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(server.sent("POST")[-1].body)
    return body


def test_piped_table_is_tab_separated_and_distinguishes_null_from_text(run: Run, trace_server: Server) -> None:
    rows: list[list[Any]] = [[BIG, None, 0.1], [-1, "\\N", 1.0], [0, "a\tb\nc", "Infinity"]]
    trace_server.script("POST", PATH, answer(rows, ("ts", "int"), ("name", "string"), ("x", "mixed")))
    result = run("query", "latest", "select")
    assert result.exit_code == 0
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        ["ts", "name", "x"],
        ["9007199254740993", r"\N", "0.1"],
        ["-1", r"\\N", "1.0"],
        ["0", r"a\tb\nc", "Infinity"],
    ]


def test_drawn_table_distinguishes_null_and_truncates_no_digit(on_terminal: OnTerminal, trace_server: Server) -> None:
    row: list[Any] = [BIG + n for n in range(10)]
    columns = [(f"column_{n}", "int") for n in range(10)]
    trace_server.script("POST", PATH, answer([[*row, None]], *columns, ("name", "string")))
    code, drawn, _ = on_terminal("query", "latest", "select")
    assert code == 0
    assert all(f"{value:,}" in drawn for value in row)
    assert "\x1b[2;3mNULL" in drawn


def test_default_limit_is_1000_on_a_terminal_and_100000_in_a_pipe(
    run: Run, on_terminal: OnTerminal, trace_server: Server
) -> None:
    trace_server.script("POST", PATH, *[answer([], ("a", "int"))] * 4)
    run("query", "latest", "select")
    assert sent_body(trace_server)["limit"] == 100_000
    on_terminal("query", "latest", "select")
    assert sent_body(trace_server)["limit"] == 1000
    run("query", "latest", "select", "--limit", "7", "--timeout", "2.5")
    assert sent_body(trace_server) == {"sql": "select", "limit": 7, "timeout_s": 2.5}
    run("query", "latest", "select", "--limit", "0", "--timeout", "0")
    assert sent_body(trace_server) == {"sql": "select", "limit": None, "timeout_s": None}


def test_truncated_table_is_noted_on_stderr(run: Run, trace_server: Server) -> None:
    trace_server.script("POST", PATH, answer([[1]], ("a", "int"), truncated=True))
    result = run("query", "latest", "select", "--limit", "1")
    assert result.stdout == "a\n1\n"
    assert "Truncated after 1 rows" in result.stderr


@pytest.mark.parametrize(
    ("form", "media", "limit"),
    [
        ("json", "application/json", 100_000),
        ("ndjson", "application/x-ndjson", None),
        ("csv", "text/csv", None),
        ("arrow", "application/vnd.apache.arrow.stream", None),
    ],
)
def test_other_formats_pass_on_the_bytes_of_the_server_without_silent_truncation(
    run: Run, trace_server: Server, form: str, media: str, limit: int | None
) -> None:
    body = b"\x00\xff\r\n" + str(BIG).encode()
    trace_server.script("POST", PATH, Answer(200, body, media))
    result = run("query", "latest", "select", "--format", form)
    assert result.stdout_bytes == body + (b"\n" if form == "json" else b"")
    assert trace_server.sent("POST")[-1].headers["accept"] == media
    assert sent_body(trace_server)["limit"] == limit


def test_arrow_is_not_written_to_a_terminal(on_terminal: OnTerminal, trace_server: Server) -> None:
    code, drawn, _ = on_terminal("query", "latest", "select", "--format", "arrow")
    assert code == 2
    assert "binary" in drawn


def test_query_is_read_from_stdin_or_a_file(run: Run, trace_server: Server, tmp_path: Path) -> None:
    trace_server.script("POST", PATH, *[answer([], ("a", "int"))] * 2)
    run("query", "latest", "-", stdin="select 1;\n")
    assert sent_body(trace_server)["sql"] == "select 1;\n"
    (tmp_path / "q.sql").write_text("select 'é'", encoding="utf-8")
    run("query", "latest", "--file", str(tmp_path / "q.sql"))
    assert sent_body(trace_server)["sql"] == "select 'é'"


@pytest.mark.parametrize("args", [[], ["  "], ["select 1", "--file", __file__], ["x", "--format", "xml"]])
def test_missing_or_second_query_is_wrong_usage(run: Run, trace_server: Server, args: list[str]) -> None:
    assert run("query", "latest", *args).exit_code == 2
    assert trace_server.requests == []


def test_output_option_writes_to_the_file_only(run: Run, trace_server: Server, tmp_path: Path) -> None:
    trace_server.script("POST", PATH, Answer(200, b"a\r\n1\r\n", "text/csv"), answer([[None]], ("a", "int")))
    target = tmp_path / "rows"
    assert run("query", "latest", "select", "--format", "csv", "-o", str(target)).output == ""
    assert target.read_bytes() == b"a\r\n1\r\n"
    run("query", "latest", "select", "-o", str(target), "--force")
    assert target.read_bytes() == b"a\n\\N\n"
    assert list(tmp_path.iterdir()) == [target]


def test_truncated_response_keeps_the_old_file(run: Run, trace_server: Server, tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    target.write_text("old")
    trace_server.script("POST", PATH, Answer(200, b"a\r\n", "text/csv", declared=100))
    result = run("query", "latest", "select", "--format", "csv", "-o", str(target), "--force")
    assert result.exit_code == 3
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_unwritable_output_is_an_error_with_its_name(run: Run, trace_server: Server) -> None:
    trace_server.script("POST", PATH, answer([], ("a", "int")))
    result = run("query", "latest", "select", "-o", "/no/such/folder/rows")
    assert result.exit_code == 1
    assert "/no/such/folder" in result.stderr
    assert trace_server.requests == []
    assert "No such file or directory" in result.stderr


def test_query_shows_progress_while_the_engine_loads(run: Run, trace_server: Server) -> None:
    loading = json_answer(session("9f2c41d07a3b", "loading", 500), 202, Retry_After="0")
    trace_server.script("POST", PATH, loading, answer([[1]], ("a", "int")))
    result = run("query", "latest", "select")
    assert result.stdout == "a\n1\n"
    assert "load engine for rank0.json: 500 B, loading" in result.stderr


def test_loading_bar_ends_before_rows_are_printed(on_terminal: OnTerminal, trace_server: Server) -> None:
    loading = json_answer(session("9f2c41d07a3b", "loading", 500), 202, Retry_After="0")
    trace_server.script("POST", PATH, loading, Answer(200, b"a\r\n1\r\n", "text/csv"))
    code, drawn, piped = on_terminal("query", "latest", "x", "--format", "csv", terminal=("stderr",))
    assert (code, piped) == (0, "a\r\n1\r\n")
    assert "load engine for rank0.json" in drawn


def test_sql_error_is_printed_with_title_detail_code_and_position(run: Run, trace_server: Server) -> None:
    trace_server.script(
        "POST",
        PATH,
        problem(
            400,
            "sql_error",
            "The SQL is not valid",
            "The engine refused the query.",
            message="no such table: slic",
            line=1,
            column=15,
        ),
    )
    result = run("query", "latest", "select * from slic")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "error: The SQL is not valid (sql_error)\n"
        "The engine refused the query.\n"
        "no such table: slic\n"
        "at line 1, column 15\n"
    )

"""SQL that is refused before it reaches the engine."""

import sqlite3
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.names import Names
from service.engine.statements import check_sql
from service.trace.errors import SqlError, SqlRefused
from tests.engine.conftest import OpenSession, query_rows

REFUSED = [
    ("ATTACH '/x' AS y", "ATTACH", 1, 1),
    ("/**/AtTaCh DATABASE '/x' AS y", "ATTACH", 1, 5),
    ("SELECT 1;\n -- a\n  attach ':memory:' AS y", "ATTACH", 3, 3),
    ("EXPLAIN QUERY PLAN ATTACH '/x' AS y", "ATTACH", 1, 20),
    ("SELECT 'it''s'; DETACH y", "DETACH", 1, 17),
    ("CREATE PERFETTO MACRO m() RETURNS Expr AS ATTACH '/x' AS y", "ATTACH", 1, 43),
    ("SELECT m!(ATTACH)", "ATTACH", 1, 11),
    ("VACUUM INTO '/x'", "VACUUM", 1, 1),
    ("vacuum", "VACUUM", 1, 1),
    ("PRAGMA writable_schema = 1", "PRAGMA", 1, 1),
    ("PRAGMA main.journal_mode = WAL", "PRAGMA", 1, 1),
    ("PRAGMA table_infos(slice)", "PRAGMA", 1, 1),
    ("SELECT EXPORT_JSON('/x')", "EXPORT_JSON", 1, 8),
    ("SELECT \"Export_Json\"/**/('/x')", "EXPORT_JSON", 1, 9),
    ("SELECT [export_json]('/x')", "EXPORT_JSON", 1, 9),
    ("SELECT `export_json`('/x')", "EXPORT_JSON", 1, 9),
    ("SELECT write_file('/x', 'y')", "WRITE_FILE", 1, 8),
    ("SELECT load_extension('/x')", "LOAD_EXTENSION", 1, 8),
    ("SELECT CREATE_FUNCTION('f()', 'INT', 'ATT' || 'ACH')", "CREATE_FUNCTION", 1, 8),
    ("SELECT RUN_METRIC('a.sql', 'b', '; ATTACH')", "RUN_METRIC", 1, 8),
    ("SELECT CREATE_FUNCTION(' f()', 'INT', 'SELECT 1')", "CREATE_FUNCTION", 1, 8),
    ("SELECT CREATE_FUNCTION('f()', 'INT', 'SELECT 1', 2)", "CREATE_FUNCTION", 1, 8),
    ("CREATE PERFETTO MACRO m() RETURNS Expr AS CREATE_FUNCTION('f()', 'INT', 'SELECT 1')", "CREATE_FUNCTION", 1, 43),
    ("SELECT CREATE_FUNCTION('f()', 'INT', 'SELECT 1'), EXPORT_JSON('x')", "EXPORT_JSON", 1, 51),
    ("BEGIN", "BEGIN", 1, 1),
    ("SELECT 1; savepoint a", "SAVEPOINT", 1, 11),
    ("REINDEX", "REINDEX", 1, 1),
    ("ANALYZE", "ANALYZE", 1, 1),
    ("SELECT 1 FROM (DELETE FROM t)", "DELETE", 1, 16),
    ("ALTER TABLE a RENAME TO slice", "ALTER", 1, 1),
    ("CREATE PERFETTO MACRO m() RETURNS Expr AS DELETE FROM t", "DELETE", 1, 43),
    ("CREATE PERFETTO MACRO m() RETURNS Expr AS x ON DELETE FROM t", "DELETE", 1, 48),
    ("SELECT m!(DROP)", "DROP", 1, 11),
    ("SELECT m!(INTO t)", "INTO", 1, 11),
    ("SELECT RUN_METRIC('a.sql' || '')", "RUN_METRIC", 1, 8),
]
ALLOWED_WORDS = [
    "SELECT 'attach database'",
    "SELECT 'it''s attach'",
    'SELECT "attach", `vacuum`, [detach] FROM t',
    "-- ATTACH '/x' AS y\nSELECT 1",
    "/* ATTACH */ SELECT 1 /* VACUUM",
    "SELECT replace(name, 'a', 'b') AS begin, ts + dur AS end FROM slice",
    "SELECT attachment, my_attach, attach$, éattach FROM t",
    "SELECT :attach, @attach, $attach",
    "SELECT create_function_ FROM t",
    "SELECT 'EXPORT_JSON'",
]
ALLOWED_CALLS = [
    "PRAGMA table_info(slice)",
    "pragma /**/ main . index_list ('t')",
    "SELECT name FROM pragma_table_info('slice')",
    "SELECT RUN_METRIC ('android/android_cpu.sql')",
    "SELECT CREATE_FUNCTION(\n'F(id LONG)', /**/ 'STRING', 'SELECT ''attach'' || name FROM slice WHERE id = $id')",
]


@pytest.mark.parametrize(("sql", "word", "line", "column"), REFUSED)
def test_refused_sql_is_reported_with_word_and_position(sql: str, word: str, line: int, column: int) -> None:
    with pytest.raises(SqlRefused) as refused:
        check_sql(sql, Names())
    assert refused.value.extra == {"word": word, "line": line, "column": column}
    assert refused.value.detail.startswith(f"{word} in line {line}, column {column} is refused: it ")


@pytest.mark.parametrize("sql", ALLOWED_WORDS)
def test_refused_words_in_literals_names_and_comments_are_allowed(sql: str) -> None:
    check_sql(sql, Names())


@pytest.mark.parametrize("sql", ALLOWED_CALLS)
def test_read_only_pragmas_metrics_and_functions_are_allowed(sql: str) -> None:
    check_sql(sql, Names())


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("SELECT 'a'; ATTACH 'x' AS y", "ATTACH"),
        ("SELECT CREATE_FUNCTION('g()', 'INT', 'VACUUM')", "VACUUM"),
        ("SELECT CREATE_FUNCTION('g()', 'INT', 'SELECT 1')", "g"),
        ("DELETE FROM t", "t"),
        ("SELECT 1; DROP VIEW slice", "slice"),
    ],
)
def test_function_body_that_writes_or_defines_is_refused(body: str, word: str) -> None:
    with pytest.raises(SqlRefused) as refused:
        check_sql("SELECT CREATE_FUNCTION('f()', 'INT', '{}')".format(body.replace("'", "''")), Names())
    assert refused.value.extra == {"word": word, "line": 1, "column": 38}


AUTHORIZED_ACTIONS = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA)
FRAGMENTS = (
    *("ATTACH ':memory:' AS a", "detach a", "SELECT 1", "SELECT export_json('x')", "PRAGMA user_version"),
    *("'", '"', "`", "[", "]", "--", "\n", "/*", "*/", "/", "*", "-", ";", " ", "x'", "$a(", ")", "(", ":", "::", "@"),
    *("é", "\ufeff", "1", "EXPLAIN ", "#", "?", "\t", "a", "$"),
)  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
def test_forbidden_action_of_any_sql_text_is_refused(sql: str) -> None:
    """SQLite's authorizer is the oracle: it is called before each attach, detach, pragma and call of a function."""
    forbidden_actions = []

    def authorize(action: int, _first: str | None, name: str | None, *_: str | None) -> int:
        if action in AUTHORIZED_ACTIONS or (action == sqlite3.SQLITE_FUNCTION and name == "export_json"):
            forbidden_actions.append(action)
        return sqlite3.SQLITE_OK

    engine = sqlite3.connect(":memory:", isolation_level=None)
    engine.create_function("export_json", 1, lambda _: None)
    engine.set_authorizer(authorize)
    with suppress(sqlite3.Error):
        engine.executescript(sql)
    engine.close()
    if forbidden_actions:
        with pytest.raises((SqlRefused, SqlError)):
            check_sql(sql, Names())


@pytest.mark.parametrize("fragment", ["a ", "''", "/**/", "(", "$a(", "-", '"', "/*", "SELECT x.y, 'abc' FROM t; "])
def test_megabyte_of_sql_is_checked_within_seconds(fragment: str) -> None:
    sql = fragment * (1_000_000 // len(fragment)) + "'attach"
    started = time.process_time()
    with suppress(SqlRefused, SqlError):
        check_sql(sql, Names())
    assert time.process_time() - started < 5  # quadratic time would be minutes


async def test_session_refuses_a_statement_and_stays_open(open_session: OpenSession) -> None:
    async with open_session() as session:
        with pytest.raises(SqlRefused, match="ATTACH in line 1, column 1 is refused"):
            await query_rows(session, "ATTACH '/etc/passwd' AS p")
        assert await query_rows(session, "SELECT 1") == [(1,)]

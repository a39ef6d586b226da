"""Hostile SQL, on all paths to an engine, changes no response to other clients."""

import sys
import unicodedata
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.engine.trace_processor import wire
from tests.conftest import scaled
from tests.http.test_red_team import DOORS, Door, Tab
from tests.ports import free_port
from tests.server import Server
from tests.traces import TraceShape, write_trace

pytestmark = pytest.mark.system

BASE = """
INCLUDE PERFETTO MODULE torch.*; INCLUDE PERFETTO MODULE slices.with_context;
SELECT (SELECT count(*) || ',' || sum(ts) || ',' || sum(dur) || ',' || sum(length(name)) FROM slice),
    (SELECT count(*) || ',' || sum(dur) FROM thread_slice), (SELECT count(*) || ',' || sum(tid) FROM thread),
    (SELECT count(*) || ',' || sum(pid) FROM process), (SELECT count(*) || ',' || sum(length(key)) FROM args),
    (SELECT count(*) || ',' || sum(dur) || ',' || count(step) || ',' || sum(length(op_name)) FROM torch_kernel),
    (SELECT count(*) || ',' || sum(self_dur) FROM torch_op), (SELECT count(*) || ',' || sum(step) FROM torch_step),
    (SELECT group_concat(sql) FROM sqlite_master WHERE name IN ('slice', 'thread', 'torch_kernel', 'args')),
    (SELECT group_concat(name) FROM pragma_database_list), (SELECT count(*) FROM sqlite_temp_master),
    (SELECT user_version FROM pragma_user_version), torch_base_ns(), torch_step_at(0, 0), abs(-3),
    extract_arg(1, 'args.x')
"""


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("guarded") / "data", perfetto_port=port)
    yield server.start()
    assert server.stop() == 0
    assert "Traceback" not in server.log_text()


@pytest.fixture(scope="module")
def kernels(guarded: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trace with kernels, which the listener serves, too."""
    file = write_trace(tmp_path_factory.mktemp("kernels") / "kernels.json", TraceShape(kernels=40))
    trace = str(guarded.upload(file)["id"])
    assert guarded.api.put("/listener", json={"trace": trace}).status_code == 200
    return trace


@pytest.fixture(scope="module")
def truth(guarded: Server, kernels: str) -> list[object]:
    """The answers that another client reads before all attacks."""
    return answers(guarded, kernels)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, guarded: Server, kernels: str, port: int) -> Door:
    return DOORS[request.param](guarded, kernels, port)


@pytest.fixture(autouse=True)
def unharmed(guarded: Server, kernels: str, truth: list[object]) -> Iterator[None]:
    yield
    assert answers(guarded, kernels) == truth


def answers(server: Server, trace: str) -> list[object]:
    """Return the results that another client reads from the trace, and the pid and account of its engine."""
    session = server.api.post(f"/traces/{trace}/session", params={"wait": 30}).json()
    return [*server.rows(trace, BASE), server.engine(trace).pid, session["account"]]


BLANKS = [
    character
    for character in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cc") or character in "\u200b\u200c\u200d\u2060\ufeff"
]
ON_THE_ENGINE = ["attach ':memory:' as m", "detach m", "vacuum", "pragma user_version = 5"]


def test_no_kind_of_blank_hides_a_statement(door: Door) -> None:
    assert len(BLANKS) > 80
    for blank in BLANKS[1:]:
        for sql in ON_THE_ENGINE:
            assert door.ask(f"{blank}{sql}") != "", f"U+{ord(blank):04X}"
            assert door.ask(sql.replace(" ", blank, 1)) != "", f"U+{ord(blank):04X}"
        assert door.ask(f"select 1;{blank}drop{blank}view{blank}slice") != ""


KW = "create or replace perfetto macro kw(a Expr) returns Expr as $a;"
ON_BUILT_IN_NAMES = [
    "drop view slice; create view slice as select 1 as ts",
    "DROP VIEW IF EXISTS slice",
    "drop view main.slice",
    'drop view "slice"',
    "drop view `SLICE`",
    "drop view [slice]",
    "drop/**/view/* */SLICE",
    "drop -- x\nview slice",
    "drop view main . /**/ \"slice\"",
    "drop table thread",
    "drop view if exists temp.slice",
    "explain drop view slice",
    "explain query plan drop view slice",
    "create view slice as select 1",
    "create temp view slice as select 1 as ts",
    "create temporary table slice as select 1 as ts",
    "create table temp.slice as select 1 as ts",
    "create table if not exists temp.slice(ts)",
    "create table main.slice(ts)",
    "create perfetto table slice as select 1 as ts",
    "create or replace perfetto table slice as select 1 as ts",
    "create or replace perfetto view slice as select 1 as ts",
    "create or replace perfetto view thread as select 1 as utid",
    "create or replace perfetto table process as select 1 as upid",
    "create or replace perfetto view args as select 1 as id",
    "create virtual table temp.slice using __intrinsic_window(0, 0, 1)",
    "create virtual table slice using span_join(sched, thread_state)",
    "create table x as select 1 as ts; alter table x rename to slice",
    "create temp table x as select 1 as ts; alter table temp.x rename to slice",
    "alter table slice rename to slices",
    "alter table _torch_facts add column x",
    "create trigger slice_trigger instead of insert on slice begin select 1; end",
    "create temp trigger t instead of insert on slice begin select 1; end",
    "create index torch_kernel on _torch_facts(base_ns)",
    "create unique index one on _torch_facts(base_ns)",
    "delete from _torch_facts",
    "delete from main._torch_track",
    "with a as (select 1) delete from _torch_facts",
    "with recursive a(x) as (select 1) update _torch_facts set base_ns = 5",
    "explain query plan with a as (select 1) delete from _torch_facts",
    "update _torch_facts set base_ns = 5",
    "update or replace \"_torch_facts\" set base_ns = 5",
    "insert into _torch_facts values (1, 'a', 'b')",
    "insert or replace into _torch_facts values (1, 'a', 'b')",
    "replace into _torch_facts values (1, 'a', 'b')",
    "with a as (select 1) replace into _torch_facts select 1, 'a', 'b'",
    "with a as (select 1) insert into main._torch_facts select 1, 'a', 'b'",
    "drop table _torch_facts",
    "drop table torch_kernel",
    "create or replace perfetto table torch_kernel as select 1 as id",
    "create or replace perfetto view torch_kernel as select 1 as id",
    "create or replace perfetto table Torch_Op as select 1 as id",
    "create perfetto function torch_base_ns() returns long as select 5",
    "create or replace perfetto function torch_base_ns() returns long as select 5",
    "create or replace perfetto function TORCH_step_at(ts long, rank long) returns long as select 5",
    "create or replace perfetto function \"torch_base_ns\"() returns long as select 5",
    "create or replace perfetto function abs(x long) returns long as select 5",
    "create or replace perfetto function count(x long) returns long as select 5",
    "create or replace perfetto function extract_arg(a long, b string) returns string as select 'x'",
    "create or replace perfetto function torch_kernel() returns table(id long) as select 1 as id",
    "create or replace perfetto macro _torch_step_on(x Expr) returns Expr as 5",
    "create or replace perfetto macro torch_kernel() returns TableOrSubquery as (select 1 as id)",
    "select create_function('torch_base_ns()', 'LONG', 'select 5')",
    "select create_function('Abs(x LONG)', 'LONG', 'select 5')",
    "select create_function('mine()', 'LONG', 'delete from _torch_facts')",
    "select create_view_function('slice()', 'x LONG', 'select 5 as x')",
    "select run_metric('a.sql', 'b', '; drop view slice')",
    "create perfetto table android_startups as select 1 as x",
    "create perfetto view cpu_frequency_counters as select 1 as x",
    "create table sched_latency_for_running_interval as select 1 as x",
    "create perfetto macro interval_self_intersect(x Expr) returns Expr as 1",
    "create perfetto macro graph_reachable_dfs(x Expr) returns Expr as 1",
    "create table sqlite_stat1 as select 1 as x",
    "create table pragma_table_info as select 1 as x",
    "create table json_each as select 1 as x",
    "create perfetto table __intrinsic_slice as select 1 as x",
    "create perfetto table _client1_x as select 1 as x",
    "delete from sqlite_master",
    "update sqlite_schema set sql = ''",
    "pragma writable_schema = 1; delete from sqlite_master",
    "pragma main.user_version = 5",
    "pragma case_sensitive_like = 1",
    "pragma recursive_triggers(1)",
    "begin",
    "begin exclusive; select 1",
    "savepoint a; select 1",
    "reindex",
    "analyze",
    "create perfetto macro red() returns Expr as drop view slice; red!()",
    "create perfetto macro red() returns Expr as delete from _torch_facts; with a as (select 1) red!()",
    "create perfetto macro red() returns Expr as pragma user_version = 5; red!()",
    "create perfetto macro red() returns Expr as vacuum; red!()",
    "create perfetto macro kw(a Expr) returns Expr as $a; kw!(drop) view slice",
    f"{KW} drop kw!(view slice)",
    f"{KW} drop view kw!(slice)",
    f"{KW} drop view main.kw!(slice)",
    f"{KW} create table kw!(temp.slice) as select 1 as ts",
    f"{KW} create temp kw!(view) slice as select 1 as ts",
    f"{KW} create or replace perfetto kw!(view) slice as select 1",
    f"{KW} with a as (select 1) kw!(delete) from _torch_facts",
    f"{KW} with a as (select 1) kw!(delete from) _torch_facts",
    f"{KW} explain kw!(drop) view slice",
    f"{KW} kw!(begin)",
    f"{KW} kw!(pragma user_version = 5)",
    f"{KW} insert into kw!(_torch_facts) values (1, 'a', 'b')",
    "__intrinsic_token_apply!(_ii_df_agg, (drop, view)); select 1",
    "select $a(); drop view slice; --)",
    "select $a(1); drop view slice",
    "select 'a'';'; drop view slice",
    "select '; drop view slice",
    "select \"; drop view slice; \" from x; drop view slice",
    "select 1 /*; */; drop view slice",
    "select 1 -- ;\n; drop view slice",
    "select [a'] from x; drop view slice; select ']'",
    "\u00e9; drop view slice",
    "select 1) ; drop view slice; select (1",
]  # fmt: skip


@pytest.mark.parametrize("sql", ON_BUILT_IN_NAMES)
def test_no_sql_changes_what_other_clients_read(sql: str, door: Door) -> None:
    assert door.ask(sql) != ""


@pytest.fixture(params=["tab", "listener's tab"])
def tab(request: pytest.FixtureRequest, guarded: Server, kernels: str, port: int) -> Door:
    return DOORS[request.param](guarded, kernels, port)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP VIEW slice; SELECT 1 AS x",
        "SELECT 1 AS x) DELETE FROM _torch_facts --",
        "SELECT 1 AS x; CREATE TEMP VIEW slice AS SELECT 1 AS ts",
        "SELECT 1 AS x; UPDATE _torch_facts SET base_ns = 5",
        "SELECT 1 AS x; BEGIN",
        "SELECT 1 AS x;\u00a0PRAGMA user_version = 5",
    ],
)
def test_no_summary_changes_what_other_clients_read(sql: str, tab: Tab, port: int) -> None:
    metric = {"id": "red", "value": "x", "query": {"sql": {"sql": sql, "column_names": ["x"]}}}
    request = wire.request(wire.SUMMARIZE_TRACE, trace_summary_args={"proto_specs": [{"metric_spec": [metric]}]})
    assert "is refused" in tab.rpc_answers(request)[-1].trace_summary_result.error
    body = request.trace_summary_args.SerializeToString()
    answer = httpx.post(f"http://127.0.0.1:{port}/trace_summary", content=body, trust_env=False)
    assert b"is refused" in answer.content
    wire_metric = wire.request(wire.COMPUTE_METRIC, compute_metric_args={"metric_names": [sql]})
    assert tab.rpc_answers(wire_metric)[-1].metric_result.error != ""


PIECES = (
    *("attach ':memory:' as a", "detach a", "select 1", "pragma user_version = 5", "drop view slice", "begin"),
    *("delete from _torch_facts", "create temp view slice as select 1 as ts", "vacuum", "with a as (select 1) "),
    *("create or replace perfetto macro m(x Expr) returns Expr as ", "m!(", "m!", "$x", "explain ", "drop "),
    "view slice",
    *("'", '"', "`", "[", "]", "--", "\n", "/*", "*/", "/", "*", "-", ";", ";", ";", " ", "x'", "$a(", ")", "(", ":"),
    *("\u00e9", "\ufeff", "\u00a0", "\u2003", "\x0b", "\x0c", "1", "?", "\t", "a", "$", "::", "@", "#", "!", "."),
)  # fmt: skip


@settings(max_examples=scaled(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sql=st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join))
def test_no_combination_of_fragments_changes_what_other_clients_read(
    sql: str, guarded: Server, kernels: str, truth: list[object]
) -> None:
    guarded.query(kernels, sql)
    assert answers(guarded, kernels) == truth


# -- names of clients ----------------------------------------------------------------------------------------------


def test_tables_of_a_client_are_its_own(guarded: Server, kernels: str, port: int) -> None:
    query = DOORS["query"](guarded, kernels, port)
    assert query.ask("DROP TABLE IF EXISTS mine; CREATE TABLE mine AS SELECT 1 AS x") == ""
    for name in ("tab", "listener", "listener's tab"):
        other_client = DOORS[name](guarded, kernels, port)
        for sql in ("DROP TABLE mine", "DELETE FROM mine", "UPDATE mine SET x = 2", "INSERT INTO MINE VALUES (2)"):
            assert "another client has created it: create your own, or choose another name" in other_client.ask(sql)
        assert other_client.ask("DROP TABLE IF EXISTS mine; CREATE PERFETTO TABLE mine AS SELECT 3 AS x") == ""
        assert guarded.rows(kernels, "SELECT x FROM mine") == [[1]]
    assert query.ask("UPDATE mine SET x = 2") == ""
    assert guarded.rows(kernels, "SELECT x FROM mine") == [[2]]


def test_refused_name_is_reported_with_its_position_and_a_remedy(guarded: Server, kernels: str) -> None:
    answer = guarded.query(kernels, "SELECT 1;\n  DROP VIEW Slice")
    problem = answer.json()
    assert answer.status_code == 403
    assert (problem["code"], problem["word"], problem["line"], problem["column"]) == ("sql_refused", "Slice", 2, 13)
    assert "choose another name" in problem["detail"]


def test_every_name_of_the_standard_library_is_protected(guarded: Server, kernels: str) -> None:
    listed = "SELECT name FROM sqlite_master UNION SELECT name FROM pragma_function_list"
    before = {name for [name] in guarded.rows(kernels, listed)}
    guarded.rows(kernels, "INCLUDE PERFETTO MODULE *; SELECT 1")
    brought = {str(name) for [name] in guarded.rows(kernels, listed)} - before
    assert len(brought) > 500
    free = [name for name in brought if guarded.query(kernels, f'DROP TABLE IF EXISTS "{name}"').status_code != 403]
    assert free == []

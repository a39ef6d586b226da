"""The tools on a real server: what they return, what they refuse, and what they leave out."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from service.agents.reply import titled
from service.agents.tools.catalogue import TOOLS
from service.analysis.catalogue import QUESTIONS
from tests.agents.agent import Agent, over_http, table, talk
from tests.docs.pages import EXAMPLES
from tests.server import Server
from tests.snapshots import BASE, MB, STACKS, entry, pickled, snapshot
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S

GPT = sorted(EXAMPLES.glob("*.json.gz"))
RUN = "gpt of the agents"


@pytest.fixture(scope="module")
def ranks(server: Server) -> Iterator[list[str]]:
    """The ids of the two ranks of a run."""
    ids = []
    for path in GPT:
        answer = server.api.put(
            f"/traces/agents.{path.name}", params={"wait": PATIENCE_S, "group": RUN}, content=path.read_bytes()
        )
        assert answer.status_code == 201, answer.text
        ids.append(answer.json()["id"])
    yield ids
    group = next(group for group in server.api.get("/groups").json()["groups"] if group["name"] == RUN)
    server.api.delete(f"/groups/{group['id']}", params={"traces": True})


def called(server: Server, tool: str, **arguments: Any) -> str:
    async def call(agent: Agent) -> str:
        return await agent.call(tool, **arguments)

    return talk(over_http(server), call)


def refused(server: Server, tool: str, **arguments: Any) -> str:
    async def call(agent: Agent) -> str:
        return await agent.error(tool, **arguments)

    return talk(over_http(server), call)


# -- what agents read first ------------------------------------------------------------------------------------------


def test_tools_are_few_read_only_and_described(server: Server) -> None:
    async def tools(agent: Agent) -> list[Any]:
        return (await agent.session.list_tools()).tools

    listed = talk(over_http(server), tools)
    assert [tool.name for tool in listed] == [*TOOLS]
    assert len(listed) == 7
    for tool in listed:
        assert tool.annotations.read_only_hint
        assert 50 < len(tool.description) < 800
        assert tool.input_schema["additionalProperties"] is False
        assert all(field["description"] for field in tool.input_schema["properties"].values())
    size = sum(len(tool.model_dump_json(exclude_none=True, by_alias=True)) for tool in listed)
    assert size < 12_000


def test_instructions_name_the_shortest_way(server: Server) -> None:
    async def instructions(agent: Agent) -> str | None:
        return agent.session.initialize_result.instructions  # type: ignore[union-attr] # of a session after its handshake

    text = talk(over_http(server), instructions)
    assert text
    assert text.index("`describe`") < text.index("`analyse`") < text.index("`query`")


# -- list and describe -----------------------------------------------------------------------------------------------


def test_list_has_runs_and_the_traces_of_a_run(server: Server, ranks: list[str]) -> None:
    (run,) = table(called(server, "list", query=RUN, kind="run"), "runs and traces")
    assert (run["kind"], run["name"], run["traces"], run["ranks"], run["state"]) == ("run", RUN, "2", "2", "ready")
    traces = table(called(server, "list", run=run["id"]), "runs and traces")
    assert {trace["id"] for trace in traces} == {*ranks}


def test_list_pages(server: Server, ranks: list[str]) -> None:
    (run,) = table(called(server, "list", query=RUN, kind="run"), "runs and traces")
    first = called(server, "list", run=run["id"], max_rows=1)
    assert "rows 1-1 of 2; cut by max_rows: offset=1 continues" in first
    second = called(server, "list", run=run["id"], max_rows=1, offset=1)
    assert {table(page, "runs and traces")[0]["id"] for page in (first, second)} == {*ranks}


def test_describe_of_a_run_has_recommendations_ranks_and_analyses(server: Server, ranks: list[str]) -> None:
    text = called(server, "describe", target=RUN)
    assert "dataloader [rank 1]" in text
    assert {row["trace"] for row in table(text, "ranks")} == {*ranks}
    assert "analyses: temporal_breakdown" in text
    assert "counters (CUPTI's range profiler counted nothing" in text


def test_describe_of_a_trace_has_its_steps_and_streams(server: Server, ranks: list[str]) -> None:
    text = called(server, "describe", target=ranks[0])
    assert "steps: 3, from 10 to 12" in text
    assert "streams: 0/7, 0/20" in text
    assert re.search(r"start_ns: \d{16}; end_ns: \d{16}; span_ns: \d+", text)


def test_describe_of_a_failed_trace_has_the_reason(server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "agents-broken.json"
    broken.write_text("{")
    trace = server.upload(broken)
    text = called(server, "describe", target=trace["id"])
    assert "state: failed" in text
    assert trace["error"]["detail"] in text


# -- analyse and compare ---------------------------------------------------------------------------------------------


def test_analyse_without_a_name_lists_all_analyses(server: Server, ranks: list[str]) -> None:
    rows = table(called(server, "analyse", target=ranks[0]), "analyses")
    assert [row["analysis"] for row in rows] == [*QUESTIONS]


def test_analyse_returns_the_rows_of_the_api(server: Server, ranks: list[str]) -> None:
    answer = server.api.get(f"/traces/{ranks[0]}/analysis/operators", params={"steps": 11}).json()["tables"]
    name = next(iter(answer))
    text = called(server, "analyse", target=ranks[0], analysis="operators", selection={"steps": [11]}, max_rows=1000,
                  max_bytes=100_000, max_chars=10_000)  # fmt: skip
    rows = table(text, name)
    names = [titled(column) for column in answer[name]["columns"]]
    assert len(rows) == len(answer[name]["rows"]) == answer[name]["total"] > 5
    for shown, row in zip(rows, answer[name]["rows"], strict=True):
        expected = {key: value for key, value in zip(names, row, strict=True) if value is not None or key in shown}
        assert shown == {key: value if isinstance(value, str) else json.dumps(value) for key, value in expected.items()}


def test_pages_of_an_analysis_are_its_whole_table(server: Server, ranks: list[str]) -> None:
    arguments = {"target": ranks[0], "analysis": "operators", "columns": ["name", "calls"], "max_rows": 1000}
    whole = table(called(server, "analyse", **arguments, max_bytes=100_000), "operators")
    read: list[dict[str, str]] = []
    while len(read) < len(whole):
        page = table(called(server, "analyse", **arguments, offset=len(read), max_bytes=1000), "operators")
        assert page
        read += page
    assert read == whole


def test_analyse_takes_parameters_and_a_selection_as_text(server: Server, ranks: list[str]) -> None:
    text = called(server, "analyse", target=RUN, analysis="kernel_breakdown", parameters='{"top": 1}',
                  selection='{"steps": [11]}', columns=["rank", "name"], table="kernels")  # fmt: skip
    assert {row["rank"] for row in table(text, "kernels")} == {"0", "1"}


def test_explain_describes_parameters_and_columns(server: Server, ranks: list[str]) -> None:
    text = called(server, "analyse", target=ranks[0], analysis="collectives", explain=True)
    assert QUESTIONS["collectives"].definition in text
    assert "table ranks: rank, straggler, " in text
    columns = called(server, "analyse", target=ranks[0], analysis="collectives", explain=True, table="ranks")
    assert {row["column"] for row in table(columns, "columns of ranks")} >= {"waited_for_ns", "late_cause"}
    assert "parameter candidates: maximum number of stragglers (default: 2)" in text


def test_compare_has_both_sides(server: Server, ranks: list[str]) -> None:
    text = called(server, "compare", base=ranks[0], other=ranks[0], base_selection={"steps": [10]},
                  other_selection={"steps": [11]})  # fmt: skip
    assert text.startswith(("note: ", "# "))
    assert "other tables: " in text


def test_compare_has_the_memory_of_two_snapshots(server: Server, tmp_path: Path) -> None:
    sides = []
    for name, size in (("before", 5), ("after", 7)):
        path = tmp_path / f"{name}.pickle"
        path.write_bytes(pickled(snapshot([entry("alloc", BASE, size * MB, 1, frames=STACKS[2])])))
        sides.append(server.upload(path)["id"])
    text = called(server, "compare", base=sides[0], other=sides[1], analysis="compare_snapshots")
    (row,) = table(text, "stacks")
    assert (row["site"], row["verdict"]) == ("/home/ann/model.py:12 forward", "more")


def test_cycle_of_a_run_is_chosen(server: Server, tmp_path: Path) -> None:
    for rank in range(2):
        for first_step in (3, 13):
            shape = TraceShape(rank=rank, world_size=2, first_step=first_step, seed=first_step + rank)
            file = write_trace(tmp_path / f"turn{rank}.{first_step}.json", shape)
            query: dict[str, str | int] = {"wait": PATIENCE_S, "group": "run of two turns"}
            server.api.put(f"/traces/{file.name}", params=query, content=file.read_bytes())
    described = called(server, "describe", target="run of two turns")
    assert "cycles of the profiler: 0 (steps 3-5), 1 (steps 13-15)" in described
    assert re.search(r"^1\. \w+ \[rank \d, cycle \d\]: ", described, re.MULTILINE)
    rows = table(called(server, "analyse", target="run of two turns", analysis="steps", cycle=1), "steps")
    assert {(row["rank"], row["step"]) for row in rows} == {
        (rank, step) for rank in "01" for step in ("13", "14", "15")
    }
    compared = called(server, "compare", base="run of two turns", other="run of two turns", base_cycle=0,
                      other_cycle=1, table="each_step")  # fmt: skip
    assert {(row["base_step"], row["step"]) for row in table(compared, "each_step")} == {
        ("3", "13"), ("4", "14"), ("5", "15"),
    }  # fmt: skip


# -- window, query and link ------------------------------------------------------------------------------------------


def test_window_of_a_step_has_its_tracks(server: Server, ranks: list[str]) -> None:
    text = called(server, "window", trace=ranks[0], step=11)
    assert re.search(r"^window: start_ns \d+, end_ns \d+, span_ns 55819372; 4 streams and threads$", text, re.MULTILINE)
    assert {"stream", "thread"} == {row["kind"] for row in table(text, "tracks")}


def test_window_in_bins_and_slices(server: Server, ranks: list[str]) -> None:
    bins = table(called(server, "window", trace=ranks[0], step=11, show="bins", bins=4), "bins")
    assert {row["bin"] for row in bins} == {"0", "1", "2", "3"}
    text = called(server, "window", trace=ranks[0], step=11, show="slices", max_rows=5)
    slices = table(text, "slices")
    assert "; cut by max_rows: offset=5 continues" in text
    durations = [int(row["dur_ns"]) for row in slices]
    assert durations == sorted(durations, reverse=True)
    following = called(server, "window", trace=ranks[0], step=11, show="slices", max_rows=5, offset=5)
    assert int(table(following, "slices")[0]["dur_ns"]) <= durations[-1]


def test_window_of_an_unknown_step_names_the_steps(server: Server, ranks: list[str]) -> None:
    assert "known_steps: [10,11,12]" in refused(server, "window", trace=ranks[0], step=99)


def test_query_returns_exact_rows_and_says_when_more_exist(server: Server, ranks: list[str]) -> None:
    text = called(server, "query", trace=ranks[0], sql="SELECT 9007199254740993 AS n, NULL AS none, 'a' AS t")
    assert text == "# result: rows 1-1 of 1; null in all rows: none\nn\tt\n9007199254740993\ta\n"
    more = called(server, "query", trace=ranks[0], sql="SELECT id FROM slice", max_rows=3)
    assert more.startswith("# result: rows 1-3; cut by max_rows: ")


def test_query_has_the_package_torch(server: Server, ranks: list[str]) -> None:
    sql = "INCLUDE PERFETTO MODULE torch.kernels; SELECT step, count(*) AS n FROM torch_kernel GROUP BY step"
    assert {row["step"] for row in table(called(server, "query", trace=ranks[0], sql=sql), "result")} >= {"10", "11"}


def test_link_opens(server: Server, ranks: list[str]) -> None:
    page = called(server, "link", target=RUN)
    assert page.startswith(f"{server.url}/groups/")
    assert server.api.get(page.strip()).status_code == 200
    at = called(server, "link", target=ranks[0], show="perfetto", selection={"steps": [11]}, slice="position:2434")
    opened = server.api.get(at.strip())
    assert opened.status_code == 307
    assert "visStart" in opened.headers["location"]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_unknown_trace_is_refused_with_traces_that_exist(server: Server, ranks: list[str]) -> None:
    text = refused(server, "describe", target="nothing")
    assert text.startswith("unknown_trace: ")
    assert RUN in text
    assert refused(server, "query", trace="0" * 12, sql="SELECT 1").startswith("unknown_trace: ")


def test_run_is_refused_where_one_trace_is_needed(server: Server, ranks: list[str]) -> None:
    text = refused(server, "query", trace=RUN, sql="SELECT 1")
    assert text.startswith("ambiguous_target: ")
    assert all(rank in text for rank in ranks)


def test_name_of_several_traces_is_refused_with_their_ids(server: Server, ranks: list[str], tmp_path: Path) -> None:
    twins = []
    for count in (1, 2):
        path = tmp_path / "agents-twin.json"
        path.write_text(json.dumps([{"ph": "X", "name": "a", "ts": 1, "dur": count}]))
        twins.append(server.upload(path)["id"])
    text = refused(server, "describe", target="agents-twin.json")
    assert text.startswith("ambiguous_target: ")
    assert all(twin in text for twin in twins)


def test_bad_sql_is_refused_with_its_place(server: Server, ranks: list[str]) -> None:
    text = refused(server, "query", trace=ranks[0], sql="SELEC 1")
    assert text.startswith("sql_error: ")
    assert "line: 1" in text
    assert refused(server, "query", trace=ranks[0], sql="ATTACH 'x' AS y").startswith("sql_refused: ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"analysis": "nothing"}, "unknown_analysis: "),
        ({"analysis": "../operators"}, "bad_arguments: analysis"),
        ({"analysis": "nothing", "explain": True}, "unknown_analysis: "),
        ({"analysis": "operators", "parameters": {"nothing": 1}}, "unknown_parameter: "),
        ({"analysis": "operators", "table": "nothing"}, "unknown_table: "),
        ({"analysis": "operators", "columns": ["nothing"]}, "unknown_column: "),
        ({"analysis": "operators", "selection": {"steps": [99]}}, "unknown_choice: "),
        ({"analysis": "operators", "selection": "steps"}, "bad_arguments: selection"),
        ({"analysis": "counters"}, "not_applicable: "),
        ({"analysis": "compare"}, "bad_analysis: "),
        ({"analysis": "compare_snapshots"}, "bad_analysis: "),
        ({"nothing": 1}, "bad_arguments: nothing"),
        ({"max_bytes": 10**9}, "bad_arguments: max_bytes"),
        ({"max_rows": "many"}, "bad_arguments: max_rows"),
    ],
)
def test_invalid_requests_are_refused_with_what_exists(
    arguments: dict[str, Any], expected: str, server: Server, ranks: list[str]
) -> None:
    text = refused(server, "analyse", target=ranks[0], **arguments)
    assert text.startswith(expected)
    if expected.startswith(("unknown", "bad_arguments")):
        assert "known" in text


def test_window_takes_a_step_or_times(server: Server, ranks: list[str]) -> None:
    assert "not both" in refused(server, "window", trace=ranks[0], step=11, start_ns=1)


def test_unknown_tool_is_a_protocol_error(server: Server) -> None:
    async def call(agent: Agent) -> str:
        with pytest.raises(MCPError) as raised:
            await agent.session.call_tool("delete", {})
        return str(raised.value)

    assert "describe, analyse" in talk(over_http(server), call)


def test_huge_values_are_refused_before_they_fill_memory(server: Server, ranks: list[str]) -> None:
    sql = "SELECT replace(hex(zeroblob(30000000)), '0', 'x') AS t"
    text = refused(server, "query", trace=ranks[0], sql=sql)
    assert text.startswith("result_too_large: ")


def test_long_values_are_cut_within_the_budget(server: Server, ranks: list[str]) -> None:
    sql = "SELECT replace(hex(zeroblob(500000)), '0', 'x') AS t"
    text = called(server, "query", trace=ranks[0], sql=sql)
    assert "…[999800 more]" in text
    assert len(text) < 1000
    whole = called(server, "query", trace=ranks[0], sql=sql, max_chars=20_000, max_bytes=1000)
    assert whole == "# result: 0 of 1 rows; cut by max_bytes: LIMIT" + whole.partition("LIMIT")[2]
    assert len(whole) <= 1000


def test_many_large_answers_at_once_are_all_read(server: Server, ranks: list[str]) -> None:
    sql = "SELECT replace(hex(zeroblob(500000)), '0', 'x') AS t"

    async def calls(agent: Agent) -> list[str]:
        return [*await asyncio.gather(*(agent.call("query", trace=ranks[0], sql=sql) for _ in range(10)))]

    assert all("…[999800 more]" in text for text in talk(over_http(server), calls))


def test_names_in_a_trace_stay_within_their_cells_and_lines(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "agents-odd.json"
    name = "a\tb\n# result: rows 1-1 of 1\nc"
    path.write_text(json.dumps([{"ph": "X", "name": name, "ts": 1, "dur": 2, "pid": 1, "tid": 1}]))
    trace = server.upload(path, name="agents odd ü.json")["id"]
    text = called(server, "query", trace=trace, sql="SELECT name FROM slice")
    assert text.splitlines() == ["# result: rows 1-1 of 1", "name", "a\\tb\\n# result: rows 1-1 of 1\\nc"]
    assert "agents odd ü.json" in called(server, "describe", target="agents odd ü.json")


def test_errors_are_bounded(server: Server, ranks: list[str]) -> None:
    assert len(refused(server, "query", trace=ranks[0], sql=f"SELECT '{'x' * 100_000}")) < 4_200

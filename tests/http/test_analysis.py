"""Analyses over HTTP: their list, parameters and formats."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from service.analysis.catalogue import QUESTIONS
from service.http.routes.analysis import COMMON_PARAMETERS
from service.http.shapes import Analyses, Answer
from tests import openapi
from tests.server import Server
from tests.traces import TraceShape, write_trace
from tests.waiting import PATIENCE_S

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def ranks(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two traces of one run."""
    folder = tmp_path_factory.mktemp("ranks")
    files = [write_trace(folder / f"rank{rank}.json", TraceShape(rank=rank, steps=3)) for rank in range(2)]
    return [str(server.upload(file)["id"]) for file in files]


@pytest.fixture(scope="module")
def on_host(server: Server, step_trace: Path) -> str:
    """A trace without GPU work."""
    return str(server.upload(step_trace)["id"])


def ask(server: Server, trace: str, name: str, accept: str = "application/json", **parameters: Any) -> httpx.Response:
    return server.api.get(f"/traces/{trace}/analysis/{name}", params=parameters, headers={"accept": accept})


def test_each_analysis_is_listed_with_its_tables_and_whether_it_applies(
    server: Server, ranks: list[str], on_host: str
) -> None:
    for trace, applies in ((ranks[0], True), (on_host, False)):
        answer = server.api.get(f"/traces/{trace}/analysis")
        listed = {analysis.name: analysis for analysis in Analyses.model_validate(answer.json()).analyses}
        assert [*listed] == [*QUESTIONS]
        assert listed["temporal_breakdown"].applies == applies
        assert (listed["temporal_breakdown"].reason is None) == applies
        assert all(entry.definition and entry.source.startswith("https://") for entry in listed.values())


def test_columns_have_the_values_of_the_rows(server: Server, ranks: list[str]) -> None:
    rows = ask(server, ranks[0], "overview", bins=50).json()["tables"]
    columns = ask(server, ranks[0], "overview", bins=50, format="columns").json()["tables"]
    assert [*columns] == [*rows]
    for name, table in columns.items():
        assert table["columns"] == rows[name]["columns"]
        assert [list(row) for row in zip(*table["values"], strict=True)] == rows[name]["rows"]
    assert columns["bins"]["values"][1]


@pytest.mark.parametrize("form", ["json", "columns", "csv", "arrow"])
def test_pages_are_the_rows_of_the_whole_table(form: str, server: Server, ranks: list[str]) -> None:
    def rows(**page: Any) -> list[Any]:
        content = ask(server, ranks[0], "operators", table="operators", format=form, **page).content
        if form == "arrow":
            return [[*row.values()] for row in pa.ipc.open_stream(content).read_all().to_pylist()]
        if form == "csv":
            return [*csv.reader(io.StringIO(content.decode()))][1:]
        table = json.loads(content)["tables"]["operators"]
        return [*table["rows"]] if form == "json" else [[*row] for row in zip(*table["values"], strict=True)]

    whole = rows()
    assert len(whole) > 3
    assert rows(limit=2) == whole[:2]
    assert rows(limit=2, offset=1) == whole[1:3]
    assert rows(offset=2) == whole[2:]
    assert rows(limit=0) == rows(offset=2**62) == []


def test_page_says_whether_rows_follow(server: Server, ranks: list[str]) -> None:
    def truncated(**page: Any) -> bool:
        table = ask(server, ranks[0], "operators", table="operators", **page).json()["tables"]["operators"]
        return bool(table["truncated"])

    total = ask(server, ranks[0], "operators", table="operators").json()["tables"]["operators"]["total"]
    assert total > 3
    assert (truncated(), truncated(limit=total), truncated(limit=total - 1)) == (False, False, True)
    assert (truncated(limit=1, offset=total - 1), truncated(limit=1, offset=total)) == (False, False)
    assert ask(server, ranks[0], "operators", limit=-1).status_code == 422
    assert ask(server, ranks[0], "operators", offset=2**62 + 1).status_code == 422


def test_pages_have_their_own_etags(server: Server, ranks: list[str]) -> None:
    tags = {ask(server, ranks[0], "operators", limit=limit).headers["etag"] for limit in (1, 2)}
    assert len(tags) == 2


def test_window_of_the_overview_is_no_selection(server: Server, ranks: list[str]) -> None:
    [whole] = ask(server, ranks[0], "overview").json()["tables"]["window"]["rows"]
    start, end = whole[1:3]
    window = ask(server, ranks[0], "overview", from_ns=start + 5, to_ns=end - 5, bins=1).json()["tables"]
    assert window["window"]["rows"][0][1:3] == [start + 5, end - 5]
    assert len(window["bins"]["rows"]) == len(window["tracks"]["rows"])


@pytest.mark.parametrize("name", [*QUESTIONS])
def test_each_analysis_returns_its_documented_tables_or_a_reason(server: Server, ranks: list[str], name: str) -> None:
    answer = ask(server, ranks[0], name, traces=ranks[1])
    if answer.status_code == 422:
        assert answer.json()["code"] == "not_applicable"
        assert answer.json()["detail"].endswith(".")
        return
    assert answer.status_code == 200, answer.text
    result = Answer.model_validate(answer.json())
    assert {
        table: [column.model_dump() for column in answered.columns] for table, answered in result.tables.items()
    } == {table: [vars(column) for column in columns] for table, columns in QUESTIONS[name].tables.items()}
    assert any(answered.rows for answered in result.tables.values())


def test_analysis_has_the_same_rows_in_all_three_formats(server: Server, ranks: list[str]) -> None:
    breakdown = ask(server, ranks[0], "temporal_breakdown").json()["tables"]["breakdown"]
    names = [column["name"] for column in breakdown["columns"]]
    arrow = ask(server, ranks[0], "temporal_breakdown", ARROW)
    assert arrow.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert [[*row.values()] for row in table.to_pylist()] == breakdown["rows"]
    assert table.schema.names == names
    assert table.schema.field("span_ns").metadata[b"unit"] == b"ns"
    text = ask(server, ranks[0], "temporal_breakdown", "text/csv")
    assert text.headers["content-type"].startswith("text/csv")
    [row] = csv.DictReader(io.StringIO(text.text))
    assert int(row["span_ns"]) == breakdown["rows"][0][names.index("span_ns")]
    assert ask(server, ranks[0], "temporal_breakdown", format="csv").text == text.text


def test_analysis_with_a_matching_etag_is_not_modified(server: Server, ranks: list[str]) -> None:
    first = ask(server, ranks[0], "temporal_breakdown")
    headers = {"accept": "application/json", "if-none-match": first.headers["etag"]}
    address = f"/traces/{ranks[0]}/analysis/temporal_breakdown"
    again = server.api.get(address, headers=headers)
    assert (again.status_code, again.content) == (304, b"")
    changes: list[dict[str, Any]] = [{"memset": "comp"}, {"steps": 1}, {"traces": ranks[1]}, {"format": "csv"}]
    for params in changes:
        assert server.api.get(address, params=params, headers=headers).status_code != 304


def test_analysis_of_several_ranks_lists_the_skipped_ranks(server: Server, ranks: list[str], on_host: str) -> None:
    result = ask(server, ranks[0], "temporal_breakdown", traces=[ranks[1], on_host]).json()
    assert [row[0] for row in result["tables"]["breakdown"]["rows"]] == [0, 1]
    [skipped] = result["skipped"]
    assert "GPU" in skipped["reason"]


def test_trace_that_is_named_twice_is_analysed_once(server: Server, ranks: list[str]) -> None:
    def answer(name: str, **parameters: Any) -> dict[str, Any]:
        whole = ask(server, ranks[0], name, **parameters).json()
        return {key: whole[key] for key in ("tables", "cycles")}

    assert answer("temporal_breakdown", traces=ranks[0]) == answer("temporal_breakdown")
    assert answer("collectives", traces=[ranks[1], *ranks]) == answer("collectives", traces=ranks[1])
    assert answer("compare", traces=ranks[0], base=[ranks[1], ranks[1]]) == answer("compare", base=ranks[1])


def test_trace_is_compared_with_itself(server: Server, ranks: list[str]) -> None:
    assert ask(server, ranks[0], "compare", traces=ranks[0]).status_code == 200


def test_ranks_of_a_merged_trace_are_distinguished(server: Server, ranks: list[str]) -> None:
    job = server.api.post("/traces/merge", params={"wait": PATIENCE_S}, json={"traces": ranks, "align": "none"}).json()
    [merged] = job["result"]["traces"]
    apart = ask(server, ranks[0], "temporal_breakdown", traces=ranks[1]).json()["tables"]
    assert ask(server, merged, "temporal_breakdown").json()["tables"] == apart


def test_analysis_of_a_selection_covers_only_that_part(server: Server, ranks: list[str]) -> None:
    steps = server.api.get(f"/traces/{ranks[0]}").json()["steps"]
    whole, *parts = (
        ask(server, ranks[0], "temporal_breakdown", **chosen).json()["tables"]["breakdown"]["rows"][0]
        for chosen in ({}, *({"steps": step["number"]} for step in steps))
    )
    assert all(0 < part[2] < whole[2] for part in parts)
    selection = f'{{"steps": [{steps[0]["number"]}]}}'
    assert ask(server, ranks[0], "temporal_breakdown", selection=selection).json()["tables"]["breakdown"]["rows"] == [
        parts[0]
    ]


@pytest.mark.parametrize(
    ("name", "params", "status", "code"),
    [
        ("horoscope", {}, 404, "unknown_analysis"),
        ("temporal_breakdown", {"colour": "red"}, 422, "unknown_parameter"),
        ("temporal_breakdown", {"memset": "red"}, 422, "bad_analysis"),
        ("temporal_breakdown", {"format": "csv", "table": "none"}, 422, "bad_analysis"),
        ("temporal_breakdown", {"table": "none"}, 422, "bad_analysis"),
        ("operators", {"format": "arrow", "table": ["operators", "attribution"]}, 422, "bad_analysis"),
        ("temporal_breakdown", {"format": "pdf"}, 422, "bad_request"),
        ("temporal_breakdown", {"traces": "none"}, 404, "unknown_trace"),
        ("temporal_breakdown", {"steps": 77}, 422, "unknown_choice"),
    ],
)
def test_invalid_analysis_request_is_a_problem(
    server: Server, ranks: list[str], name: str, params: dict[str, Any], status: int, code: str
) -> None:
    answer = ask(server, ranks[0], name, **params)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize("form", ["json", "columns"])
def test_json_has_only_the_named_tables(server: Server, ranks: list[str], form: str) -> None:
    whole = ask(server, ranks[0], "operators", format=form).json()["tables"]
    two = [*whole][:2]
    assert len(whole) > len(two)
    some = ask(server, ranks[0], "operators", format=form, table=two[::-1])
    assert [*some.json()["tables"].items()] == [(name, whole[name]) for name in two]
    [one] = ask(server, ranks[0], "operators", format=form, table=two[1]).json()["tables"].items()
    assert one == (two[1], whole[two[1]])


def test_analysis_that_does_not_apply_gives_a_reason(server: Server, on_host: str) -> None:
    problem = ask(server, on_host, "temporal_breakdown")
    assert problem.status_code == 422
    assert problem.json()["code"] == "not_applicable"
    assert problem.json()["detail"] == "Nothing in this trace runs on a GPU."


def test_every_analysis_is_documented_with_its_parameters(server: Server) -> None:
    paths = openapi.resolved(openapi.document_of(server))["paths"]
    for name, question in QUESTIONS.items():
        for subject, own in (("traces/{trace_id}", {"traces"}), ("groups/{group_id}", {"base"})):
            operation = paths[f"/api/v1/{subject}/analysis/{name}"]["get"]
            assert operation["summary"] == question.short_question
            names = {parameter["name"] for parameter in operation["parameters"]}
            assert names >= {"selection", *own, *question.parameters.model_fields}
            assert "name" not in names


@pytest.mark.parametrize("name", QUESTIONS)
def test_parameters_of_an_analysis_differ_from_those_that_all_analyses_have(name: str) -> None:
    assert not set(QUESTIONS[name].parameters.model_fields) & COMMON_PARAMETERS

"""The API responds with the JSON objects of its documentation."""

from pathlib import Path
from typing import Any, get_type_hints

import pytest

from service.http import shapes
from service.trace import summary
from tests.conftest import DATA
from tests.server import Server
from tests.tus import begin
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def trace(server: Server) -> dict[str, Any]:
    return server.upload(DATA / "cpu_gloo_rank1_of_2.pt.trace.json.gz")


def test_a_ready_trace_has_the_documented_shape(trace: dict[str, Any]) -> None:
    shapes.Trace.model_validate(trace)


def test_queued_and_failed_traces_have_the_documented_shape(server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    shapes.Trace.model_validate(server.upload(broken, wait=0))
    failed = server.upload(broken)
    assert failed["state"] == "failed"
    shapes.Trace.model_validate(failed)


def test_a_damaged_trace_has_the_documented_shape_and_a_report(server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('[null, {"ph": "X", "name": "a\tb", "ts": 1}, {"ph": "X')
    trace = shapes.Trace.model_validate(server.upload(broken))
    assert (trace.events.in_, trace.events.kept, trace.health.refused, trace.health.repaired) == (3, 1, 2, 1)
    notes = {
        note.code: (note.kind, note.count, note.examples[0].offset) for note in trace.health.notes if note.examples
    }
    assert notes["control_character"] == ("repaired", 1, 29)
    assert notes["not_an_event"] == ("refused", 1, 1)
    assert notes["cut"] == ("refused", 1, 44)
    listed = shapes.Traces.model_validate(server.api.get("/traces").json()).traces
    assert next(listed_trace for listed_trace in listed if listed_trace.id == trace.id).health == trace.health


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        (shapes.Bounds, summary.Bounds),
        (shapes.EventCounts, summary.EventCounts),
        (shapes.Process, summary.Process),
        (shapes.Thread, summary.Thread),
        (shapes.Device, summary.Device),
        (shapes.Step, summary.Step),
        (shapes.HealthExample, summary.HealthExample),
        (shapes.HealthNote, summary.HealthNote),
        (shapes.HealthReport, summary.HealthReport),
        (shapes.Attribution, summary.Attribution),
        (shapes.Residual, summary.Residual),
        (shapes.MergedRank, summary.MergedRank),
    ],
)
def test_shape_has_the_fields_of_its_part_of_a_summary(shape: type[shapes.Shape], part: type[Any]) -> None:
    assert [field.alias or name for name, field in shape.model_fields.items()] == [*get_type_hints(part)]


def test_shape_of_a_trace_has_all_fields_of_a_summary() -> None:
    assert get_type_hints(summary.Summary).keys() <= shapes.Trace.model_fields.keys()


def test_a_page_of_traces_has_the_documented_shape(server: Server, trace: dict[str, Any]) -> None:
    shapes.Traces.model_validate(server.api.get("/traces").json())


def test_a_table_has_the_documented_shape(server: Server, trace: dict[str, Any]) -> None:
    shapes.QueryResult.model_validate(server.query(trace["id"], "select 1 as a, null as b, 2.5 as c").json())


def test_sessions_have_the_documented_shape(server: Server, trace: dict[str, Any]) -> None:
    answer = server.api.post(f"/traces/{trace['id']}/session", params={"wait": PATIENCE_S})
    shapes.Session.model_validate(answer.json())
    shapes.Sessions.model_validate(server.api.get("/sessions").json())


def test_the_listener_has_the_documented_shape(server: Server) -> None:
    shapes.Listener.model_validate(server.api.get("/listener").json())


def test_an_upload_has_the_documented_shape(server: Server) -> None:
    upload = begin(server, 10)
    shapes.Upload.model_validate(server.api.get(upload).json())


def test_a_problem_has_the_documented_shape(server: Server) -> None:
    shapes.Problem.model_validate(server.api.get("/traces/000000000000").json())


def test_every_answer_that_is_json_is_documented(server: Server) -> None:
    paths = server.api.get(f"{server.url}/openapi.json").json()["paths"]
    for path, calls in paths.items():
        for method, call in calls.items():
            if (
                not path.startswith("/api/")
                or method == "delete"
                or path.endswith(("/download", "/perfetto", "/report", "/events", "/file"))
            ):
                continue
            if path.startswith("/api/v1/uploads") and method != "get":  # tus answers in headers
                continue
            answers = {status: answer for status, answer in call["responses"].items() if status.startswith("2")}
            for status, answer in answers.items():
                assert answer["content"]["application/json"]["schema"], f"{method} {path} {status}"
            assert {"4XX", "503"} <= call["responses"].keys(), f"{method} {path}"

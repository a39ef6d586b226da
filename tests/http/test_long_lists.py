"""A trace with very many tracks or steps has a description of bounded size, and keeps all of its events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.store.lists import LISTED_MAX
from tests.server import Server
from tests.waiting import PATIENCE_S

MANY = LISTED_MAX + 2000
"""Number of processes, threads, streams, steps and categories: more than a description lists."""
LAST = MANY - 1
MIB = 1 << 20


def events() -> Iterator[dict[str, Any]]:
    for number in range(MANY):
        times = {"ts": number * 10, "dur": 5}
        yield {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": number, "tid": number, **times}
        yield {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 0, "tid": 0, **times}
        yield {"ph": "X", "cat": f"category {number}", "name": "other", "pid": 0, "tid": 1, **times}
        args = {"device": number % 300, "stream": number}
        yield {"ph": "X", "cat": "kernel", "name": "gemm", "pid": number % 300, "tid": number, **times, "args": args}
        yield {
            "ph": "M",
            "name": "process_name",
            "pid": number,
            "tid": 0,
            "ts": 0,
            "args": {"name": f"worker {number}"},
        }


@pytest.fixture(scope="module")
def long_trace(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The description of a trace with more tracks, steps and categories than it lists."""
    path = tmp_path_factory.mktemp("long") / "long.json"
    path.write_text(json.dumps({"traceEvents": [*events()]}))
    return server.upload(path)


def test_description_has_the_first_entries_and_their_total_number(long_trace: dict[str, Any]) -> None:
    assert long_trace["state"] == "ready"
    assert len(long_trace["processes"]) == len(long_trace["steps"]) == LISTED_MAX
    assert [step["number"] for step in long_trace["steps"]] == [*range(LISTED_MAX)]
    assert long_trace["totals"]["processes"] == long_trace["totals"]["steps"] == long_trace["totals"]["streams"] == MANY
    assert long_trace["steps_count"] == MANY
    assert long_trace["totals"]["counts"] == len(set(long_trace["counts"])) + MANY + 4 - len(long_trace["counts"])
    assert "devices" not in long_trace["totals"]
    assert len(json.dumps(long_trace)) < 4 * MIB


def test_lists_of_traces_stay_small(server: Server, long_trace: dict[str, Any]) -> None:
    (brief,) = server.api.get("/traces", params={"name": long_trace["name"]}).json()["traces"]
    assert brief["steps_count"] == MANY
    assert len(json.dumps(brief)) < MIB // 2
    assert brief == {key: long_trace[key] for key in brief}


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        ({"steps": [LAST], "threads": ["0/0"]}, 1),
        ({"processes": [LAST]}, 1),
        ({"processes": [f"worker {LAST}"]}, 1),
        ({"threads": [f"{LAST}/{LAST}"]}, 1),
        ({"streams": [f"{LAST % 300}/{LAST}"]}, 1),
        ({"categories": [f"category {LAST}"]}, 1),
    ],
)
def test_values_beyond_the_listed_entries_can_be_selected(
    server: Server, long_trace: dict[str, Any], selection: dict[str, Any], count: int
) -> None:
    closure = dict.fromkeys(("metadata", "flows", "launches", "kernels", "annotations"), False)
    parameters = {"format": "json", "selection": json.dumps(selection | {"closure": closure})}
    answer = server.api.get(f"/traces/{long_trace['id']}/download", params=parameters)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["traceEvents"]) == count
    planned = server.api.post(f"/traces/{long_trace['id']}/split", json={"selection": selection, "dry_run": True})
    assert planned.status_code == 200, planned.text


def test_unknown_choice_is_refused_with_a_few_known_values(server: Server, long_trace: dict[str, Any]) -> None:
    parameters = {"format": "json", "streams": "0/999999"}
    answer = server.api.get(f"/traces/{long_trace['id']}/download", params=parameters)
    assert answer.status_code == 422
    assert len(answer.json()["known_streams"]) <= 50


@pytest.mark.system
def test_child_and_session_have_all_entries(server: Server, long_trace: dict[str, Any]) -> None:
    sql = f"SELECT count(*) FROM process WHERE name = 'worker {LAST}'"
    assert server.rows(long_trace["id"], sql) == [[1]]
    job = server.api.post(f"/traces/{long_trace['id']}/split", json={"selection": {"categories": ["cpu_op"]}})
    assert job.status_code == 202, job.text
    done = server.api.get(job.headers["location"].removeprefix("/api/v1"), params={"wait": PATIENCE_S}).json()
    (child,) = done["result"]["traces"]
    child_trace = server.api.get(f"/traces/{child}").json()
    assert child_trace["totals"]["processes"] == MANY
    assert server.api.get(f"/traces/{child}/analysis/steps").status_code in (200, 422)


def test_an_analysis_reads_all_steps(server: Server, long_trace: dict[str, Any]) -> None:
    answer = server.api.get(f"/traces/{long_trace['id']}/analysis/steps")
    assert len(answer.json()["tables"]["steps"]["rows"]) == MANY


def test_long_names_are_left_out_of_a_description_but_kept_in_the_trace(server: Server, tmp_path: Path) -> None:
    long_name, path = "x" * 3 * MIB, tmp_path / "names.json"
    path.write_text(
        json.dumps(
            {
                "host_name": long_name,
                "traceEvents": [
                    {
                        "ph": "X",
                        "cat": long_name,
                        "name": long_name,
                        "pid": long_name,
                        "tid": long_name,
                        "ts": 1,
                        "dur": 1,
                    },
                    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
                ],
            }
        )
    )
    trace = server.upload(path)
    assert trace["totals"] == {"counts": 2, "processes": 2, "threads": 2}
    assert [process["pid"] for process in trace["processes"]] == [1]
    assert len(json.dumps(trace)) < 16 << 10
    document = server.api.get(f"/traces/{trace['id']}/download", params={"format": "json"}).json()
    assert document == json.loads(path.read_text())

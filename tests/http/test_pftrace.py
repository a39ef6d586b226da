"""Traces that PyTorch writes as `.pftrace` answer over HTTP like the document that Kineto writes for the same work."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.pftrace import LAYOUTS, ZERO_NS, Activity, content, document, packets, training
from tests.server import Server
from tests.waiting import PATIENCE_S

BASE_NS = ZERO_NS - ZERO_NS % 7_889_238_000_000_000
WORK = training(steps=4, launches=5)
QUESTIONS = ("kernel_breakdown", "operators", "launch_stats", "steps", "gpu_summary")


def as_kineto_writes(activities: list[Activity]) -> bytes:
    """Return the document of activities, with times in µs since Kineto's zero."""
    found = document(activities) | {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS}
    for event in found["traceEvents"]:
        event["ts"] = (event["ts"] + ZERO_NS - BASE_NS) / 1000
        if "dur" in event:
            event["dur"] /= 1000
    return json.dumps(found).encode()


@pytest.fixture(scope="module")
def kineto(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("kineto") / "rank0.json"
    path.write_bytes(as_kineto_writes(WORK))
    return server.upload(path)


@pytest.fixture(scope="module", params=LAYOUTS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pftrace") / "rank0.pftrace"
    path.write_bytes(content(packets(WORK, request.param)))
    return path


@pytest.fixture(scope="module")
def trace(server: Server, file: Path) -> dict[str, Any]:
    return server.upload(file)


def test_trace_is_ready_with_steps_streams_and_counts(trace: dict[str, Any], kineto: dict[str, Any]) -> None:
    assert (trace["state"], trace["format"], trace["rank"], trace["steps_count"]) == ("ready", "pftrace", 0, 4)
    work = {key: count for key, count in trace["counts"].items() if not key.startswith("M")}
    assert work == kineto["counts"]
    for key in ("streams", "attribution", "base_ns", "bounds", "steps"):
        assert trace[key] == kineto[key]


@pytest.mark.parametrize("name", QUESTIONS)
def test_analyses_answer_as_for_kineto(
    server: Server, trace: dict[str, Any], kineto: dict[str, Any], name: str
) -> None:
    mine, theirs = (server.api.get(f"/traces/{one['id']}/analysis/{name}") for one in (trace, kineto))

    assert (mine.status_code, theirs.status_code) == (200, 200), mine.text
    assert mine.json()["tables"] == theirs.json()["tables"]


def test_sql_sees_the_kernels_with_their_arguments(server: Server, trace: dict[str, Any]) -> None:
    rows = server.rows(trace["id"], "SELECT count(*), sum(dur) FROM slice WHERE category = 'kernel'")
    work = [activity for activity in WORK if activity.category == "kernel"]
    assert rows == [[len(work), sum(activity.end - activity.start for activity in work)]]


def test_original_has_the_bytes_and_json_has_the_events(server: Server, trace: dict[str, Any], file: Path) -> None:
    original = server.api.get(f"/traces/{trace['id']}/download", params={"format": "original"})
    assert original.content == file.read_bytes()
    found = json.loads(
        gzip.decompress(server.api.get(f"/traces/{trace['id']}/download", params={"format": "json.gz"}).content)
    )
    kernels = [event for event in found["traceEvents"] if event.get("cat") == "kernel"]
    assert len(kernels) == 20
    assert kernels[0]["args"]["grid"] == [1, 1, 1]


def test_trace_is_split_by_step(server: Server, trace: dict[str, Any]) -> None:
    answer = server.api.post(f"/traces/{trace['id']}/split", json={"by": "step"})
    job = server.api.get(answer.headers["location"].removeprefix("/api/v1"), params={"wait": PATIENCE_S}).json()
    assert (job["state"], len(job["result"]["traces"])) == ("done", 4)


def test_a_file_without_events_fails_with_the_reason(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "empty.pftrace"
    path.write_bytes(content(packets(WORK, "categories")[:5]))
    failed = server.upload(path)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "not_a_trace")
    assert "no track events" in failed["error"]["detail"]

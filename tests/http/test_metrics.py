"""The metrics for Prometheus: counters and gauges."""

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from tests.conftest import DATA
from tests.http.conftest import connected
from tests.server import Server
from tests.waiting import PATIENCE_S, until

TRACE = DATA / "cpu_train_steps.pt.trace.json.gz"


def metrics(server: Server) -> dict[tuple[str, ...], float]:
    """Return the values by name and labels."""
    answer = server.api.get(f"{server.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name.removeprefix("tracedock_"), *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parsed(answer.text)
        for sample in family.samples
    }


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    """A server without other clients."""
    return start_server()


def test_counters_count_jobs_events_errors_and_requests(server: Server) -> None:
    trace = server.upload(TRACE)
    server.api.post(f"/traces/{trace['id']}/split", params={"wait": PATIENCE_S}, json={"selection": {"steps": [3]}})
    assert server.api.get("/traces/nowhere").status_code == 404
    assert server.api.get("/nothing/here").status_code == 404
    assert server.rows(trace["id"], "select 1") == [[1]]

    values = metrics(server)

    assert values["jobs_ended_total", "ingest", "done"] == values["jobs_ended_total", "split", "done"] == 1
    assert values["events_total", "ingest"] == trace["events"]["kept"]
    assert 0 < values["events_total", "split"] < trace["events"]["kept"]
    assert values["errors_total", "unknown_trace"] == values["errors_total", "not_found"] == 1
    assert values["http_requests_total", "PUT", "/api/v1/traces/{filename:path}", "201"] == 1
    assert values["http_requests_total", "GET", "/api/v1/traces/{trace_id}", "404"] == 1
    assert values["http_requests_total", "GET", "(none)", "404"] == 1
    assert values["http_request_seconds_count", "PUT", "/api/v1/traces/{filename:path}"] == 1
    assert values["received_bytes_total",] >= TRACE.stat().st_size
    assert values["sent_bytes_total",] > 1000


def test_error_that_is_sent_compressed_is_counted(server: Server) -> None:
    answer = server.api.post("/groups", json={f"field_{number}": number for number in range(50)})
    assert (answer.status_code, answer.headers["content-encoding"]) == (422, "gzip")
    assert metrics(server)["errors_total", "bad_request"] == 1


def test_requests_are_counted_by_analysis(server: Server) -> None:
    trace = server.upload(TRACE)["id"]
    group = server.api.post("/groups", json={"name": "run", "traces": [trace]}).json()["id"]
    for path in (f"/traces/{trace}", f"/groups/{group}"):
        assert server.api.get(f"{path}/analysis/operators").status_code == 200
        assert server.api.get(f"{path}/analysis/operator").status_code == 404

    values = metrics(server)

    for path in ("/api/v1/traces/{trace_id}", "/api/v1/groups/{group_id}"):
        assert values["http_requests_total", "GET", f"{path}/analysis/operators", "200"] == 1
        assert values["http_requests_total", "GET", f"{path}/analysis/{{name}}", "404"] == 1


def test_gauges_report_engines_disk_and_uploads(server: Server) -> None:
    trace = server.upload(TRACE)
    server.rows(trace["id"], "select 1")
    head = "PUT /api/v1/traces/a.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    with connected(server) as upload:
        upload.sendall(head.encode())
        until(lambda: metrics(server)["uploads_under_way",] == 1)
        values = metrics(server)
    assert values["engines", "ready"] == 1
    assert 0 < values["engine_memory_bytes",] < values["engine_memory_max_bytes",]
    assert values["process_resident_memory_bytes",] > 10_000_000
    assert values["disk_bytes",] > values["disk_free_bytes",] > 0
    assert values["uploads_unfinished",] == 0
    until(lambda: metrics(server)["data_bytes",] > TRACE.stat().st_size)
    until(lambda: metrics(server)["uploads_under_way",] == 0)


def test_gauges_report_unfinished_jobs(server: Server) -> None:
    held = b'{"traceEvents": [' + b'{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1},' * 400_000
    for end in (b"{}]}", b"{} ]}"):
        server.api.put("/traces/a.json", content=held + end)
    values = metrics(server)
    assert values.get(("jobs", "ingest", "running"), 0) + values.get(("jobs", "ingest", "queued"), 0) > 0

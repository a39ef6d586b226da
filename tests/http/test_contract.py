"""The contract of all routes: query parameters, methods, content types, CORS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import openapi
from tests.http.conftest import sent_raw
from tests.server import Server

ORIGIN = "https://traces.example"
MADE_UP = "made_up_parameter"


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def operations(server: Server) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the method, path and description of each operation in the OpenAPI document."""
    return openapi.operations(openapi.resolved(openapi.document_of(server)))


def filled(path: str, **values: str) -> str:
    """Fill the parameters of a path; a missing value becomes `none`, or `0` for a job."""
    resources = ("trace_id", "group_id", "job_id", "upload_id", "import_id", "attachment_id", "dataset", "run")
    for name in (*resources, "name", "filename"):
        path = path.replace(f"{{{name}}}", values.get(name, "0" if name == "job_id" else "none"))
    assert "{" not in path
    return path


# -- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "parameter", "nearest"),
    [
        ("/traces/{}/download?step=2", "step", "steps"),
        ("/traces/{}/download?stream=0/7", "stream", "streams"),
        ("/traces/{}/download?fromat=json", "fromat", "format"),
        ("/traces/{}/download?zzz=1", "zzz", None),
        ("/traces/{}?steps=2", "steps", None),
        ("/traces/{}/session?step=2", "step", "steps"),
        ("/traces/{}/perfetto?step=2", "step", "steps"),
        ("/traces/{}/analysis?step=2", "step", "steps"),
        ("/traces/{}/analysis/kernel_breakdown?min_dur=2", "min_dur", "min_dur_ns"),
        ("/traces/{}/analysis/kernel_breakdown?=2", "", None),
        ("/traces?stat=ready", "stat", "state"),
    ],
)
def test_unknown_parameter_is_refused_with_the_nearest_known_one(
    path: str, parameter: str, nearest: str | None, server: Server, trace: str
) -> None:
    answer = server.api.get(path.format(trace), follow_redirects=False)
    assert code_of(answer) == (422, "unknown_parameter")
    problem = answer.json()
    assert (problem["parameter"], problem["nearest"]) == (parameter, nearest)
    assert nearest is None or nearest in problem["known"]


def test_every_operation_refuses_undeclared_parameters(server: Server) -> None:
    calls = operations(server)
    assert len(calls) > 60
    for method, path, operation in calls:
        declared = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
        headers = {"Tus-Resumable": "1.0.0"}
        answer = server.api.request(method, f"{server.url}{filled(path)}", params={MADE_UP: 1}, headers=headers)
        assert answer.status_code == 422, (method, path, answer.text)
        if method != "HEAD" and answer.status_code == 422:
            assert answer.json()["code"] == "unknown_parameter", (method, path)
            assert set(answer.json()["known"]) == declared, (method, path)
        assert "422" in operation["responses"] or not path.startswith("/api/"), (method, path)


def test_client_that_sends_a_large_file_receives_the_refusal(server: Server) -> None:
    traces = server.api.get("/traces").json()["traces"]
    body = (bytes(1 << 20) for _ in range(64))
    assert code_of(server.api.put("/traces/x.json", params={"gruop": "x"}, content=body)) == (422, "unknown_parameter")
    assert server.api.get("/traces").json()["traces"] == traces


@pytest.mark.parametrize("path", ["/", "/traces/x", "/groups/x", "/login", "/healthz", "/readyz", "/metrics"])
def test_pages_refuse_unknown_parameters_too(path: str, server: Server) -> None:
    assert code_of(server.api.get(f"{server.url}{path}?{MADE_UP}=1")) == (422, "unknown_parameter")


@pytest.mark.parametrize(
    "path", ["/?q=x&sort=size&open=a,b", "/traces/x?args=none", "/login?next=/&failed=1", "/static/trace.js?v=7"]
)
def test_pages_accept_the_parameters_that_their_scripts_read(path: str, server: Server) -> None:
    assert server.api.get(f"{server.url}{path}").status_code == 200


def test_group_analysis_accepts_the_parameters_of_that_analysis(server: Server) -> None:
    path = "/groups/none/analysis/kernel_breakdown"
    assert code_of(server.api.get(path, params={"limit_": 1})) == (422, "unknown_parameter")
    names = server.api.get(path, params={MADE_UP: 1}).json()["known"]
    of_trace = server.api.get("/traces/none/analysis/kernel_breakdown", params={MADE_UP: 1}).json()["known"]
    assert {*of_trace} - {*names} == {"traces"}
    assert code_of(server.api.get("/groups/none/analysis/none", params={MADE_UP: 1})) == (404, "unknown_analysis")


@pytest.mark.parametrize("query", ["format=json&format=parquet", "start_ns=1&start_ns=2", "redact=true&redact=false"])
def test_repeated_single_valued_parameter_is_refused(query: str, server: Server, trace: str) -> None:
    answer = server.api.get(f"/traces/{trace}/download?{query}")
    assert code_of(answer) == (422, "repeated_parameter")
    assert answer.json()["parameter"] == query.partition("=")[0]


def test_list_parameter_accepts_several_values(server: Server, trace: str) -> None:
    assert server.api.get(f"/traces/{trace}/analysis?categories=cpu_op&categories=cpu_op").status_code == 200


# -- methods ---------------------------------------------------------------------------------------------------------


def test_head_has_the_status_and_headers_of_get_for_every_resource(
    server: Server, trace: str, step_trace: Path
) -> None:
    values = {"trace_id": trace, "job_id": server.api.get("/jobs").json()["jobs"][0]["id"]}
    for method, path, _ in operations(server):
        if method != "GET" or path.endswith(("/events", "/metrics", "/readyz")) or "/analysis/" in path:
            continue
        where = f"{server.url}{filled(path, **values)}"
        with server.api.stream("GET", where) as answer:
            expected = answer.status_code, {name: answer.headers.get(name) for name in ("content-type", "etag")}
        head = server.api.head(where, headers={"Tus-Resumable": "1.0.0"})
        if "/uploads/" in path:  # tus defines HEAD of an upload, which has no content type
            assert head.status_code == answer.status_code
            continue
        assert (head.status_code, {name: head.headers.get(name) for name in expected[1]}) == expected, path
        if "content-length" in answer.headers and "content-length" in head.headers and path.endswith("{trace_id}"):
            assert head.headers["content-length"] == answer.headers["content-length"]
        assert head.content == b""


def test_head_has_the_content_length_of_get(server: Server, trace: str) -> None:
    for path in (f"/traces/{trace}", "/traces", "/access", f"/traces/{trace}/envelope"):
        plain = {"Accept-Encoding": "identity"}  # the size of compressed text is not known without it
        head, answer = server.api.head(path, headers=plain), server.api.get(path, headers=plain)
        assert (head.status_code, head.headers["content-length"]) == (200, str(len(answer.content)))


def test_head_of_a_streamed_resource_has_no_body(server: Server, trace: str) -> None:
    head = server.api.head(f"/traces/{trace}/analysis/operators")
    assert (head.status_code, head.headers["content-type"], head.content) == (200, "application/json", b"")
    job = server.api.get("/jobs").json()["jobs"][0]["id"]
    assert server.api.head(f"/jobs/{job}/events").headers["content-type"].startswith("text/event-stream")
    request = f"HEAD /api/v1/traces/{trace} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    raw = sent_raw(server, request.encode())
    assert raw.startswith(b"HTTP/1.1 200")
    assert raw.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/api/v1/traces", "GET, HEAD, OPTIONS"),
        ("POST", "/api/v1/traces/x", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("PATCH", "/api/v1/traces/x/session", "DELETE, GET, HEAD, OPTIONS, POST"),
        ("POST", "/api/v1/traces/x/download", "GET, HEAD, OPTIONS"),
        ("GET", "/api/v1/traces/x/query", "OPTIONS, POST"),
        ("HEAD", "/api/v1/traces/x/query", "OPTIONS, POST"),
        ("PUT", "/api/v1/groups/x", "DELETE, GET, HEAD, OPTIONS, PATCH"),
        ("GET", "/api/v1/uploads", "OPTIONS, POST"),
        ("PUT", "/api/v1/uploads/x", "DELETE, GET, HEAD, OPTIONS, PATCH, POST"),
        ("TRACE", "/api/v1/jobs", "GET, HEAD, OPTIONS"),
        ("PROPFIND", "/api/v1/jobs/1", "DELETE, GET, HEAD, OPTIONS"),
        ("POST", "/", "GET, HEAD, OPTIONS"),
        ("POST", "/static/trace.js", "GET, HEAD, OPTIONS"),
        ("PUT", "/login", "GET, HEAD, OPTIONS, POST"),
    ],
)
def test_refused_method_is_answered_with_all_allowed_methods(
    method: str, path: str, allow: str, server: Server
) -> None:
    answer = server.api.request(method, f"{server.url}{path}", headers={"Tus-Resumable": "1.0.0"})
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)
    options = server.api.options(f"{server.url}{path}")
    assert (options.status_code, options.headers["allow"], options.content) == (204, allow, b"")


def test_options_of_an_unknown_path_is_not_found(server: Server) -> None:
    assert server.api.options("/nothing").status_code == 404
    assert server.api.head("/nothing").status_code == 404


def test_head_requests_are_counted_by_their_route(server: Server, trace: str) -> None:
    server.api.head(f"/traces/{trace}")
    counted = server.api.get(f"{server.url}/metrics").text
    assert 'tracedock_http_requests_total{method="HEAD",route="/api/v1/traces/{trace_id}",status="200"}' in counted


# -- bodies ----------------------------------------------------------------------------------------------------------


def test_json_body_needs_no_content_type(server: Server, trace: str) -> None:
    question = json.dumps({"sql": "SELECT 7"}).encode()
    answer = server.api.post(f"/traces/{trace}/query", content=question)
    assert "content-type" not in answer.request.headers
    assert (answer.status_code, answer.json()["rows"]) == (200, [[7]])


@pytest.mark.parametrize(
    "kind",
    [
        *("application/x-www-form-urlencoded", "text/plain", "application/sql", "nonsense"),
        *("application/merge-patch+json", "application/json-patch+json", "text/json"),
    ],
)
def test_body_of_another_content_type_is_refused(kind: str, server: Server, trace: str) -> None:
    headers = {"Content-Type": kind}
    answer = server.api.post(f"/traces/{trace}/query", content=b'{"sql": "SELECT 7"}', headers=headers)
    assert code_of(answer) == (415, "body_not_json")
    assert kind in answer.json()["detail"]
    assert "Content-Type: application/json" in answer.json()["detail"]
    assert code_of(server.api.patch(f"/traces/{trace}", content=b"{}", headers=headers)) == (415, "body_not_json")


def test_every_request_body_refuses_unknown_fields(server: Server) -> None:
    schemas = openapi.document_of(server)["components"]["schemas"]
    bodies = 0
    for method, path, operation in operations(server):
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        if schema is None:
            continue
        bodies += 1
        assert schemas[schema["$ref"].rsplit("/", 1)[1]]["additionalProperties"] is False, path
        answer = server.api.request(method, f"{server.url}{filled(path)}", json={MADE_UP: 1})
        assert code_of(answer) == (422, "bad_request"), path
        assert MADE_UP in answer.json()["detail"]
    assert bodies >= 9


# -- CORS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a token and two allowed origins."""
    server = Server(
        tmp_path_factory.mktemp("shared") / "data", allowed_origins=f"{ORIGIN}, http://localhost:3000",
        token="a-token-of-the-tests",
    ).start()  # fmt: skip
    yield server
    assert server.stop() == 0


def preflight(server: Server, origin: str, method: str = "PUT") -> httpx.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    headers |= {"Access-Control-Request-Headers": "authorization,content-type,upload-offset"}
    return server.api.options("/traces/x.json", headers=headers)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_preflight_of_an_allowed_origin_needs_no_token(method: str, shared: Server) -> None:
    answer = preflight(shared, ORIGIN, method)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert method in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    assert "Origin" in answer.headers["vary"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://traces.example", f"{ORIGIN}.evil.example"])
def test_other_origins_receive_no_cors_headers_and_change_nothing(origin: str, shared: Server) -> None:
    token = {"Origin": origin, "Authorization": "Bearer a-token-of-the-tests"}
    for answer in (preflight(shared, origin), shared.api.get("/traces", headers=token)):
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "Origin" in answer.headers["vary"]
    changed = shared.api.put("/traces/x.json", content=b"{}", headers=token)
    assert code_of(changed) == (403, "wrong_origin")


def test_page_of_an_allowed_origin_can_read_responses_and_problems(shared: Server) -> None:
    token = {"Origin": ORIGIN, "Authorization": "Bearer a-token-of-the-tests"}
    created = shared.api.post("/groups", json={"name": "by a page"}, headers=token)
    assert created.status_code == 201
    exposed = {name.strip() for name in created.headers["access-control-expose-headers"].split(",")}
    assert {"Location", "ETag", "Upload-Offset", "Tracedock-Trace"} <= exposed
    refused = shared.api.get("/traces", headers={"Origin": ORIGIN})
    assert code_of(refused) == (401, "unauthorized")
    for answer in (created, refused):
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "access-control-allow-credentials" not in answer.headers


def test_server_without_allowed_origins_sends_no_cors_headers(server: Server) -> None:
    for answer in (server.api.get("/traces", headers={"Origin": ORIGIN}), preflight(server, ORIGIN)):
        assert not [name for name in answer.headers if name.startswith("access-control")]

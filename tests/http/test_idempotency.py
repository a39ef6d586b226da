"""Requests repeated with the same idempotency key take effect once, even if the server is killed in between."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.store.tokens import Scope, Tokens
from tests.conftest import DATA
from tests.http.conftest import connected
from tests.server import Server
from tests.waiting import PATIENCE_S, until

SMALL = DATA / "cpu_train_steps.pt.trace.json.gz"
EVENT = b'{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}'
TRACE = b'{"traceEvents": [' + EVENT + b"]}"


@pytest.fixture(scope="module")
def trace(server: Server) -> dict[str, Any]:
    return server.upload(SMALL, "steps.pt.trace.json.gz")


def put_trace(
    server: Server, key: str, body: bytes = TRACE, name: str = "trace.json", **options: Any
) -> httpx.Response:
    return server.api.put(f"/traces/{name}", content=body, headers={"Idempotency-Key": key}, **options)


def trace_ids_named(server: Server, name: str) -> list[str]:
    return [trace["id"] for trace in server.api.get("/traces", params={"name": name}).json()["traces"]]


def test_repeated_upload_makes_one_trace(server: Server) -> None:
    first = put_trace(server, "k1", name="repeated.json")
    again = put_trace(server, "k1", name="repeated.json", params={"wait": 5})
    assert (first.status_code, first.headers.get("idempotency-replayed")) == (201, None)
    assert (again.status_code, again.content, again.headers["location"]) == (
        201,
        first.content,
        first.headers["location"],
    )
    assert again.headers["idempotency-replayed"] == "true"
    assert trace_ids_named(server, "repeated.json") == [first.json()["id"]]
    assert put_trace(server, "k1 other", name="repeated.json").json()["id"] != first.json()["id"]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other.json"},
        {"body": TRACE + b" "},
        {"body": TRACE.replace(b"a", b"b")},
        {"params": {"priority": "bulk"}},
    ],
)
def test_key_is_refused_for_a_different_upload(server: Server, changes: dict[str, Any]) -> None:
    assert put_trace(server, f"k2 {changes}").status_code == 201
    refused = put_trace(server, f"k2 {changes}", **changes)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")


def test_repeated_split_group_and_merge_take_effect_once(server: Server, trace: dict[str, Any]) -> None:
    for path, body in (
        (f"/traces/{trace['id']}/split", {"by": "step"}),
        ("/groups", {"name": "run of k3", "traces": [trace["id"]]}),
    ):
        first, again = (server.api.post(path, json=body, headers={"Idempotency-Key": f"k3 {path}"}) for _ in range(2))
        assert first.is_success, first.text
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert again.headers["location"] == first.headers["location"]
        changed = server.api.post(path, json=body | {"name": "x"}, headers={"Idempotency-Key": f"k3 {path}"})
        assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")
    (job,) = server.api.get("/jobs", params={"trace": trace["id"], "kind": "split"}).json()["jobs"]
    pieces = server.api.get(f"/jobs/{job['id']}", params={"wait": PATIENCE_S}).json()["result"]["traces"]
    assert len(pieces) == 4
    for piece in pieces[:2]:
        assert piece in trace_ids_named(server, "steps.step")
    merges = [
        server.api.post("/traces/merge", json={"traces": pieces[:2]}, headers={"Idempotency-Key": "k3 merge"}).json()
        for _ in range(2)
    ]
    assert merges[0]["id"] == merges[1]["id"]


def test_repeated_creation_of_a_resumable_upload_returns_the_same_upload(server: Server) -> None:
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "5", "Upload-Metadata": "filename azQuanNvbg=="}
    first, again = (server.api.post("/uploads", headers=headers | {"Idempotency-Key": "k4"}) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["location"] == first.headers["location"]
    changed = server.api.post("/uploads", headers=headers | {"Upload-Length": "6", "Idempotency-Key": "k4"})
    assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")


def test_refused_request_may_be_repeated_with_its_key(server: Server, trace: dict[str, Any]) -> None:
    path, headers = f"/traces/{trace['id']}/split", {"Idempotency-Key": "k5"}
    for _ in range(2):
        refused = server.api.post(path, json={"selection": {"steps": [77]}}, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown_choice")
        assert "idempotency-replayed" not in refused.headers
    assert server.api.post(path, json={"selection": {"steps": [3]}}, headers=headers).status_code == 202


@pytest.mark.parametrize("key", ["", "x" * 256, "\xfc"])
def test_malformed_key_is_refused(server: Server, key: str) -> None:
    refused = server.api.put("/traces/a.json", content=TRACE, headers=[(b"Idempotency-Key", key.encode("latin-1"))])
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_idempotency_key")


def test_repeated_request_conflicts_while_the_first_is_in_progress(server: Server) -> None:
    head = f"Host: localhost\r\nIdempotency-Key: k6\r\nContent-Length: {len(TRACE)}"
    incoming = server.data / "incoming"
    earlier_uploads = set(incoming.iterdir())
    with connected(server) as connection:
        connection.sendall(f"PUT /api/v1/traces/k6.json HTTP/1.1\r\n{head}\r\n\r\n".encode() + TRACE[:10])
        until(lambda: set(incoming.iterdir()) > earlier_uploads)
        repeated = put_trace(server, "k6", name="k6.json")
        assert (repeated.status_code, repeated.json()["code"]) == (409, "idempotency_key_busy")
        assert repeated.headers["retry-after"] == "1"
        connection.sendall(TRACE[10:])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 201")
    assert put_trace(server, "k6", name="k6.json").headers["idempotency-replayed"] == "true"
    assert len(trace_ids_named(server, "k6.json")) == 1


def test_concurrent_requests_with_one_key_make_one_trace(server: Server) -> None:
    def upload(_: int) -> tuple[int, str]:
        with httpx.Client(base_url=server.api.base_url, trust_env=False, timeout=PATIENCE_S) as api:
            answer = api.put("/traces/k7.json", content=TRACE, headers={"Idempotency-Key": "k7"})
            return answer.status_code, answer.json().get("id", "")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(upload, range(24)))
    trace_ids = trace_ids_named(server, "k7.json")
    assert len(trace_ids) == 1
    assert {(status, trace_id) for status, trace_id in answers if status != 409} == {(201, trace_ids[0])}


def test_callers_do_not_share_keys(start_server: Callable[..., Server]) -> None:
    server = start_server(token="secret-of-sixteen")
    with closing(Tokens(server.data / "tokens.sqlite")) as tokens:
        secret = tokens.add("other", Scope.WRITE)
    trace_ids = []
    for token in ("secret-of-sixteen", secret):
        server.api.headers["authorization"] = f"Bearer {token}"
        trace_ids.append(put_trace(server, "k8").json()["id"])
        assert put_trace(server, "k8").json()["id"] == trace_ids[-1]
    assert len(set(trace_ids)) == 2


def test_trace_made_before_a_kill_is_not_made_again(start_server: Callable[..., Server]) -> None:
    server = start_server(ingest_attempts=5)
    large = b'{"traceEvents": [' + b",".join([EVENT] * 400_000) + b"]}"
    with connected(server) as connection:  # `wait` delays the answer, so the server is killed before it sends one
        head = f"Host: localhost\r\nIdempotency-Key: k9\r\nContent-Length: {len(large)}"
        connection.sendall(f"PUT /api/v1/traces/k9.json?wait=60 HTTP/1.1\r\n{head}\r\n\r\n".encode() + large)
        while not trace_ids_named(server, "k9.json"):
            pass
        server.kill()
    server.start()
    (trace_id,) = trace_ids_named(server, "k9.json")
    again = server.api.put("/traces/k9.json", content=large, headers={"Idempotency-Key": "k9"})
    assert (again.status_code, again.json()["id"]) == (201, trace_id)
    assert again.headers["idempotency-replayed"] == "true"
    assert trace_ids_named(server, "k9.json") == [trace_id]
    assert server.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json()["state"] == "ready"


def test_repeated_requests_are_answered_after_a_kill(start_server: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "rank0.json").write_bytes(TRACE + b" ")
    server = start_server(import_roots=tmp_path / "runs")
    trace = server.upload(SMALL)
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", "/traces/trace.json", {"content": TRACE}),
        ("POST", f"/traces/{trace['id']}/split", {"json": {"by": "step"}}),
        ("POST", "/groups", {"json": {"name": "run", "traces": [trace["id"]]}}),
        ("POST", "/traces/import", {"json": {"path": str(tmp_path / "runs")}}),
    ]

    def send_all() -> list[httpx.Response]:
        return [
            server.api.request(method, path, headers={"Idempotency-Key": path}, **body)
            for method, path, body in requests
        ]

    originals = send_all()
    server.kill()
    # delete the stored answers, as if the server had been killed before it answered
    with closing(sqlite3.connect(server.data / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("UPDATE idempotency SET status = NULL, headers = NULL, body = NULL")
    server.start()
    replays = send_all()
    for original, replay in zip(originals, replays, strict=True):
        assert replay.headers["idempotency-replayed"] == "true"
        assert (replay.status_code, replay.headers["location"]) == (original.status_code, original.headers["location"])
        assert (replay.json()["id"], replay.json().keys()) == (original.json()["id"], original.json().keys())
    assert len(server.api.get("/groups").json()["groups"]) == 1
    for kind in ("split", "import"):
        assert len(server.api.get("/jobs", params={"kind": kind}).json()["jobs"]) == 1

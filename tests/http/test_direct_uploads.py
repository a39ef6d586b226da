"""Direct uploads: one new object by a presigned request, one trace of it, and nothing is left behind."""

import hashlib
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.jobs.direct_uploads import SIZE_MAX, WRITE_MAX_S
from service.store.locations.location import Location
from tests.http.test_bucket_imports import trace_bytes
from tests.link import Link
from tests.nsys import write_export
from tests.server import Server
from tests.store.locations.conftest import bucket, s3
from tests.store.s3 import SECRET, S3Server
from tests.waiting import PATIENCE_S, until

__all__ = ["bucket", "s3"]

pytestmark = pytest.mark.system

Start = Callable[..., Server]


@pytest.fixture
def server(bucket: Location, start_server: Start) -> Server:
    return start_server(bucket=f"{bucket.url}/direct")


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return trace_bytes(tmp_path)


@pytest.fixture
def store() -> Iterator[httpx.Client]:
    """A client of the bucket, without any credentials."""
    with httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:
        yield client


def begun(server: Server, size: int, **options: object) -> dict[str, Any]:
    answer = server.api.post("/uploads/direct", json={"name": "rank0.json", "size": size} | options)
    assert answer.status_code == 201, answer.text
    upload: dict[str, Any] = answer.json()
    return upload


def put(store: httpx.Client, upload: dict[str, Any], content: bytes, **changed: str) -> httpx.Response:
    return store.request(upload["method"], upload["url"], content=content, headers=upload["headers"] | changed)


def complete(server: Server, upload: dict[str, Any]) -> httpx.Response:
    return server.api.post(f"/uploads/direct/{upload['id']}/complete", params={"wait": PATIENCE_S})


def objects(bucket: Location) -> list[str]:
    return [entry.name for entry in bucket.entries("direct")]


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# -- the way of an upload ------------------------------------------------------------------------------------------


def test_object_of_a_presigned_request_becomes_a_trace(
    server: Server, bucket: Location, store: httpx.Client, content: bytes
) -> None:
    upload = begun(server, len(content), group="llama")
    path = f"/uploads/direct/{upload['id']}"
    assert server.api.get(path).json()["state"] == "open"
    assert code(complete(server, upload)) == (409, "object_missing")
    assert put(store, upload, content).status_code == 200
    trace = complete(server, upload).json()
    assert (trace["id"], trace["state"], trace["name"]) == (upload["id"], "ready", "rank0.json")
    assert trace["sha256"] == hashlib.sha256(content).hexdigest()
    assert trace["path"] == f"{bucket.url}/direct/{upload['id']}"
    assert trace["group"]["name"] == "llama"
    assert server.api.get(path).json() | {"state": "complete", "trace": upload["id"]} == server.api.get(path).json()
    assert [*(server.data / "originals").iterdir()] == []
    assert server.api.get(f"/traces/{upload['id']}/download").content == content
    assert server.api.get("/traces").json()["traces"][0]["id"] == upload["id"]


def test_request_is_bound_to_one_new_object_of_one_size(
    server: Server, bucket: Location, store: httpx.Client, content: bytes
) -> None:
    upload = begun(server, len(content))
    assert put(store, upload, content + b" ", **{"Content-Length": str(len(content) + 1)}).status_code == 403
    assert put(store, upload, content[:-1], **{"Content-Length": str(len(content) - 1)}).status_code == 403
    without_condition = {"Content-Length": str(len(content))}
    assert store.put(upload["url"], content=content, headers=without_condition).status_code == 403
    assert store.get(upload["url"]).status_code == 403
    assert store.delete(upload["url"]).status_code == 403
    other = upload["url"].replace(upload["id"], "0" * 12)
    assert store.put(other, content=content, headers=upload["headers"]).status_code == 403
    assert objects(bucket) == []
    assert put(store, upload, content).status_code == 200
    assert put(store, upload, bytes(len(content))).status_code == 412
    assert bucket.read(f"direct/{upload['id']}") == content


def test_completes_at_once_and_later_make_one_trace(server: Server, store: httpx.Client, content: bytes) -> None:
    upload = begun(server, len(content))
    put(store, upload, content)
    with ThreadPoolExecutor(8) as threads:
        answers = [*threads.map(lambda _: complete(server, upload), range(8))]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["id"] for answer in answers} == {upload["id"]}
    assert complete(server, upload).json()["id"] == upload["id"]
    assert len(server.api.get("/traces").json()["traces"]) == 1
    assert len(server.api.get("/jobs").json()["jobs"]) == 1


def test_object_of_another_size_is_refused(server: Server, bucket: Location, content: bytes) -> None:
    upload = begun(server, len(content))
    bucket.write(f"direct/{upload['id']}", content[:-1])  # as a store would that does not check the size
    answer = complete(server, upload)
    assert code(answer) == (409, "wrong_size")
    assert (answer.json()["expected"], answer.json()["found"]) == (len(content), len(content) - 1)
    assert server.api.delete(f"/uploads/direct/{upload['id']}").status_code == 204
    until(lambda: objects(bucket) == [])


def test_object_that_is_replaced_before_the_end_of_its_ingest_fails_it(
    server: Server, bucket: Location, store: httpx.Client, tmp_path: Path
) -> None:
    content = trace_bytes(tmp_path, size=45_000_000)
    upload = begun(server, len(content))
    put(store, upload, content)
    assert server.api.post(f"/uploads/direct/{upload['id']}/complete").json()["state"] != "ready"
    server.kill()
    bucket.write(f"direct/{upload['id']}", content.replace(b"1", b"2"))
    server.start()
    trace = complete(server, upload).json()
    assert (trace["state"], trace["error"]["code"]) == ("failed", "original_changed")
    assert code(server.api.get(f"/traces/{upload['id']}/download")) == (422, "original_changed")


# -- the end of an upload ------------------------------------------------------------------------------------------


def test_deleted_trace_and_given_up_upload_leave_no_object(
    server: Server, bucket: Location, store: httpx.Client, content: bytes
) -> None:
    done, given_up = begun(server, len(content)), begun(server, len(content))
    for upload in (done, given_up):
        put(store, upload, content)
    complete(server, done)
    assert code(server.api.delete(f"/uploads/direct/{done['id']}")) == (410, "upload_gone")
    assert server.api.delete(f"/uploads/direct/{given_up['id']}").status_code == 204
    until(lambda: objects(bucket) == [f"direct/{done['id']}"])
    assert server.api.delete(f"/traces/{done['id']}").status_code == 204
    until(lambda: objects(bucket) == [])
    for upload in (done, given_up):
        assert code(complete(server, upload)) == (410, "upload_gone")
        assert code(server.api.get(f"/uploads/direct/{upload['id']}")) == (410, "upload_gone")


def test_expired_upload_and_its_request_are_refused_and_its_object_is_removed(
    start_server: Start, bucket: Location, store: httpx.Client, content: bytes
) -> None:
    server = start_server(bucket=f"{bucket.url}/direct", upload_expires_s=2)
    arrived, late = begun(server, len(content)), begun(server, len(content))
    put(store, arrived, content)
    until(lambda: put(store, late, content).status_code == 403)
    until(lambda: server.api.get(f"/uploads/direct/{arrived['id']}").status_code == 410)
    assert code(complete(server, arrived)) == (410, "upload_gone")
    until(lambda: objects(bucket) == [])


def test_object_that_arrives_after_the_end_is_removed_in_the_end(
    server: Server, bucket: Location, store: httpx.Client, content: bytes
) -> None:
    upload = begun(server, len(content))
    server.api.delete(f"/uploads/direct/{upload['id']}")
    catalog = server.data / "catalog.sqlite"

    def removed() -> bool:
        with closing(sqlite3.connect(catalog)) as db:
            return db.execute("SELECT removed_ns FROM direct_upload").fetchone()[0] is not None

    until(removed)
    put(store, upload, content)  # the request had begun before
    assert objects(bucket) == [f"direct/{upload['id']}"]
    server.kill()
    before = time.time_ns() - (WRITE_MAX_S + 1) * 10**9
    with closing(sqlite3.connect(catalog)) as db, db:
        db.execute("UPDATE direct_upload SET url_expires_ns = ?, ended_ns = ?", (before, before))
    server.start()
    until(lambda: objects(bucket) == [])
    until(lambda: code(complete(server, upload)) == (404, "unknown_upload"))


def test_export_that_holds_secrets_leaves_only_its_columns(
    server: Server, bucket: Location, store: httpx.Client, tmp_path: Path
) -> None:
    content = write_export(tmp_path / "rank0.sqlite").read_bytes()
    for _ in range(2):  # the second one has the columns of the first one at once
        upload = begun(server, len(content), name="rank0.sqlite")
        put(store, upload, content)
        assert complete(server, upload).json()["state"] == "ready"
        until(lambda: objects(bucket) == [])
        assert code(server.api.get(f"/traces/{upload['id']}/download?format=original")) == (422, "no_such_form")
        assert complete(server, upload).json()["id"] == upload["id"]


def test_same_bytes_are_read_once_and_keep_their_own_objects(
    server: Server, bucket: Location, store: httpx.Client, content: bytes
) -> None:
    uploads = [begun(server, len(content)) for _ in range(2)]
    for upload in uploads:
        put(store, upload, content)
        assert complete(server, upload).json()["state"] == "ready"
    assert len(server.api.get("/jobs").json()["jobs"]) == 1
    server.api.delete(f"/traces/{uploads[0]['id']}")
    until(lambda: objects(bucket) == [f"direct/{uploads[1]['id']}"])
    assert server.api.get(f"/traces/{uploads[1]['id']}/download").content == content


# -- limits --------------------------------------------------------------------------------------------------------


def test_limits_of_other_uploads_hold(start_server: Start, bucket: Location) -> None:
    server = start_server(bucket=f"{bucket.url}/direct", max_uploads=1, max_upload_bytes=1000)
    post = server.api.post
    assert code(post("/uploads/direct", json={"name": "a.json", "size": 1001})) == (413, "too_large")
    assert code(post("/uploads/direct", json={"name": "a.json", "size": 0})) == (400, "empty_body")
    assert code(post("/uploads/direct", json={"name": "../a.json", "size": 10})) == (400, "bad_name")
    assert code(post("/uploads/direct", json={"name": "a.json", "size": 10, "group": " "})) == (400, "bad_group_name")
    begun(server, 10)
    assert code(post("/uploads/direct", json={"name": "a.json", "size": 10})) == (429, "too_many_uploads")


def test_size_beyond_a_single_request_of_the_store_is_refused(server: Server) -> None:
    answer = server.api.post("/uploads/direct", json={"name": "a.json", "size": SIZE_MAX + 1})
    assert (code(answer), answer.json()["limit"]) == ((413, "too_large"), SIZE_MAX)


def test_server_without_a_bucket_names_the_setting(start_server: Start) -> None:
    answer = start_server().api.post("/uploads/direct", json={"name": "a.json", "size": 10})
    assert code(answer) == (403, "direct_uploads_off")
    assert "TRACEDOCK_BUCKET" in answer.json()["detail"]


def test_uploaded_objects_are_no_source_of_imports(
    start_server: Start, bucket: Location, store: httpx.Client, content: bytes
) -> None:
    server = start_server(bucket=f"{bucket.url}/direct", import_roots=bucket.url)
    upload = begun(server, len(content))
    put(store, upload, content)
    for path in (f"{bucket.url}/direct/{upload['id']}", f"{bucket.url}/**"):
        assert code(server.api.post("/traces/import", json={"path": path})) == (404, "nothing_to_import")


# -- secrets and failures ------------------------------------------------------------------------------------------


def test_signatures_and_keys_are_in_no_log_and_no_file(server: Server, store: httpx.Client, content: bytes) -> None:
    upload = begun(server, len(content))
    put(store, upload, content)
    complete(server, upload)
    signature = upload["url"].rpartition("X-Amz-Signature=")[2]
    kept = [path.read_bytes() for path in server.data.rglob("*") if path.is_file()]
    for secret in (signature, SECRET, "X-Amz"):
        assert all(secret.encode() not in text for text in [*kept, server.log_text().encode()]), secret
    assert SECRET not in upload["url"]
    assert b"begin direct upload" in (server.data / "audit.log").read_bytes()


def test_wrong_keys_and_missing_buckets_are_named(
    start_server: Start, bucket: Location, store: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = start_server(bucket="s3://no-such-bucket/direct")
    upload = begun(missing, 10)
    assert code(complete(missing, upload)) == (404, "unknown_location")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-of-this-test")
    denied = start_server(bucket=f"{bucket.url}/direct")
    upload = begun(denied, 10)
    assert put(store, upload, b"0123456789").status_code == 403
    answer = complete(denied, upload)
    assert code(answer) == (502, "location_denied")
    assert "wrong-secret-of-this-test" not in answer.text + denied.log_text()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    none = start_server(bucket=f"{bucket.url}/direct")
    answer = none.api.post("/uploads/direct", json={"name": "a.json", "size": 10})
    assert code(answer) == (502, "location_denied")
    assert "AWS_SECRET_ACCESS_KEY" in answer.json()["detail"]


def test_kill_of_the_server_between_any_two_steps_loses_and_doubles_nothing(
    server: Server, bucket: Location, store: httpx.Client, content: bytes
) -> None:
    def restart() -> None:
        server.kill()
        server.start()

    upload = begun(server, len(content))
    restart()
    put(store, upload, content)
    restart()
    api = server.api
    answer = api.post(f"/uploads/direct/{upload['id']}/complete")  # its ingest is queued, or has begun
    assert answer.status_code == 200
    restart()
    assert complete(server, upload).json()["state"] == "ready"
    restart()
    assert [trace["id"] for trace in server.api.get("/traces").json()["traces"]] == [upload["id"]]
    assert server.api.get(f"/traces/{upload['id']}/download").content == content
    server.api.delete(f"/traces/{upload['id']}")
    restart()
    until(lambda: objects(bucket) == [])
    assert code(complete(server, upload)) == (410, "upload_gone")


def test_kill_of_the_server_during_a_complete_is_repeated(server: Server, store: httpx.Client, tmp_path: Path) -> None:
    content = trace_bytes(tmp_path, size=20_000_000)
    upload = begun(server, len(content))
    put(store, upload, content)
    with ThreadPoolExecutor(1) as thread:
        broken = thread.submit(complete, server, upload)
        until(lambda: server.api.get(f"/uploads/direct/{upload['id']}").status_code == 200)
        server.kill()
        with pytest.raises(httpx.HTTPError):
            broken.result()
    server.start()
    assert complete(server, upload).json()["state"] == "ready"
    assert len(server.api.get("/traces").json()["traces"]) == 1


def test_stop_of_the_server_during_a_complete_asks_to_repeat_it(
    start_server: Start, bucket: Location, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = trace_bytes(tmp_path, size=2_000_000)
    with Link(s3.url) as link:
        monkeypatch.setenv("AWS_ENDPOINT_URL", link.url)
        server = start_server(bucket=f"{bucket.url}/direct")
        upload = begun(server, len(content))
        with httpx.Client(trust_env=False) as store:
            put(store, upload, content)
        until(lambda: not link.is_used)
        link.bytes_per_s = 20_000
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(complete, server, upload)
            until(lambda: link.is_used)
            assert code(server.api.delete(f"/uploads/direct/{upload['id']}")) == (423, "upload_locked")
            os.kill(server.pid, signal.SIGTERM)
            assert code(answer.result()) == (423, "upload_locked")
        link.bytes_per_s = 40_000_000  # the server ends once its requests to the bucket have


def test_ingest_waits_for_a_bucket_that_is_killed_and_restarted(
    start_server: Start, bucket: Location, store: httpx.Client, s3: S3Server, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TRACEDOCK_BUCKET_RETRY_S", str(PATIENCE_S))
    server = start_server(bucket=f"{bucket.url}/direct")
    content = trace_bytes(tmp_path, size=45_000_000)
    upload = begun(server, len(content))
    put(store, upload, content)
    assert server.api.post(f"/uploads/direct/{upload['id']}/complete").json()["state"] != "ready"
    s3.kill()
    s3.start()
    trace = server.api.get(f"/traces/{upload['id']}", params={"wait": PATIENCE_S}).json()
    assert (trace["state"], len(server.api.get("/jobs").json()["jobs"])) == ("ready", 1)


def test_kill_of_the_bucket_during_an_ingest_ends_it_and_a_second_complete_reads_again(
    start_server: Start, bucket: Location, store: httpx.Client, s3: S3Server, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TRACEDOCK_BUCKET_RETRY_S", "1")
    server = start_server(bucket=f"{bucket.url}/direct")
    content = trace_bytes(tmp_path, size=45_000_000)
    upload = begun(server, len(content))
    put(store, upload, content)
    api = server.api
    assert api.post(f"/uploads/direct/{upload['id']}/complete").json()["state"] != "ready"
    s3.kill()
    try:
        trace = api.get(f"/traces/{upload['id']}", params={"wait": PATIENCE_S}).json()
        assert (trace["state"], trace["error"]["code"]) == ("failed", "location_unavailable")
    finally:
        s3.start()
    until(lambda: complete(server, upload).json()["state"] == "ready")
    assert len(api.get("/traces").json()["traces"]) == 1

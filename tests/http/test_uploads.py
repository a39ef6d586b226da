"""Resumable uploads by tus 1.0: their chunks, and all invalid ones."""

import base64
import hashlib
import os
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tusclient.client import TusClient

from tests.conftest import SHARED, needs_shared
from tests.http.conftest import connected
from tests.http.test_traces import GOOD, chunks, files, traces
from tests.server import Server
from tests.tus import CHUNK, VERSION, begin, chunk_head, creation, head, id_of, metadata, offset, send
from tests.waiting import PATIENCE_S, until

StartServer = Callable[..., Server]
CONTENT = GOOD.ljust(5_000_000)


def checksum(content: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, content).digest()).decode()}"


def ready(server: Server, trace_id: str) -> dict[str, Any]:
    trace: dict[str, Any] = server.api.get(f"/traces/{trace_id}", params={"wait": PATIENCE_S}).json()
    assert trace["state"] == "ready", trace
    return trace


# -- good uploads --------------------------------------------------------------------------------------------------


def test_options_name_the_supported_tus_features(server: Server) -> None:
    answer = server.api.options("/uploads")
    assert answer.status_code == 204
    assert answer.headers["Tus-Resumable"] == answer.headers["Tus-Version"] == "1.0.0"
    assert int(answer.headers["Tus-Max-Size"]) == 64 << 30
    assert answer.headers["Tus-Checksum-Algorithm"].split(",") == ["sha256", "sha1", "md5"]
    assert set(answer.headers["Tus-Extension"].split(",")) == {
        *("creation", "creation-with-upload", "creation-defer-length"),
        *("checksum", "termination", "expiration"),
    }


def test_an_upload_in_chunks_becomes_a_trace(server: Server) -> None:
    upload = begin(server, len(CONTENT), "chunks.json")

    first = send(server, upload, 0, CONTENT[:3_000_000])
    assert (first.status_code, first.headers["Upload-Offset"]) == (204, "3000000")
    assert "Tracedock-Trace" not in first.headers
    assert offset(server, upload) == 3_000_000
    last = send(server, upload, 3_000_000, CONTENT[3_000_000:])

    assert (last.status_code, last.headers["Upload-Offset"]) == (204, str(len(CONTENT)))
    assert last.headers["Link"] == f'</api/v1/traces/{last.headers["Tracedock-Trace"]}>; rel="item"'
    trace = ready(server, last.headers["Tracedock-Trace"])
    assert (trace["name"], trace["size"]) == ("chunks.json", len(CONTENT))
    assert trace["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_offset_of_an_upload_is_reported_before_and_after_its_end(server: Server) -> None:
    upload = begin(server, len(CONTENT), "told.json")
    send(server, upload, 0, CONTENT[:1000])

    before, described = head(server, upload), server.api.get(upload).json()
    assert before.headers["Upload-Length"] == str(len(CONTENT))
    assert before.headers["Upload-Metadata"] == metadata(filename="told.json")
    assert before.headers["Cache-Control"] == "no-store"
    assert parsedate_to_datetime(before.headers["Upload-Expires"]).timestamp() > Path(__file__).stat().st_mtime
    expected = {"id": id_of(upload), "name": "told.json", "length": len(CONTENT), "offset": 1000, "trace": None}
    assert described == expected | {"expires_at": described["expires_at"]}

    send(server, upload, 1000, CONTENT[1000:])
    after, described = head(server, upload), server.api.get(upload).json()
    assert (after.status_code, after.headers["Upload-Offset"]) == (200, str(len(CONTENT)))
    assert after.headers["Tracedock-Trace"] == described["trace"]
    assert "Upload-Expires" not in after.headers
    assert described["offset"] == len(CONTENT)


@pytest.mark.parametrize("count", [1000, len(GOOD)])
def test_creation_may_carry_the_first_bytes(server: Server, count: int) -> None:
    content = GOOD if count == len(GOOD) else CONTENT
    headers = CHUNK | {"Upload-Length": str(len(content)), "Upload-Metadata": metadata(filename="with.json")}
    answer = server.api.post("/uploads", headers=headers, content=content[:count])
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (201, str(count))
    assert ("Tracedock-Trace" in answer.headers) == (count == len(content))
    assert offset(server, f"{server.url}{answer.headers['Location']}") == count


def test_length_may_be_deferred(server: Server) -> None:
    upload = begin(server, None)
    assert head(server, upload).headers["Upload-Defer-Length"] == "1"
    assert send(server, upload, 0, GOOD[:10]).status_code == 204
    assert offset(server, upload) == 10

    last = send(server, upload, 10, GOOD[10:], Upload_Length=str(len(GOOD)))

    assert ready(server, last.headers["Tracedock-Trace"])["size"] == len(GOOD)


def test_deferred_length_sent_last_completes_the_upload(server: Server) -> None:
    upload = begin(server, None)
    send(server, upload, 0, GOOD)
    last = send(server, upload, len(GOOD), b"", Upload_Length=str(len(GOOD)))
    assert ready(server, last.headers["Tracedock-Trace"])["sha256"] == hashlib.sha256(GOOD).hexdigest()


@pytest.mark.parametrize("algorithm", ["sha256", "sha1", "md5"])
def test_chunk_with_a_matching_checksum_is_accepted(server: Server, algorithm: str) -> None:
    upload = begin(server, len(CONTENT))
    first = send(server, upload, 0, CONTENT[:2_000_000], Upload_Checksum=checksum(CONTENT[:2_000_000], algorithm))
    assert first.status_code == 204
    last = send(server, upload, 2_000_000, CONTENT[2_000_000:], Upload_Checksum=checksum(CONTENT[2_000_000:]))
    assert ready(server, last.headers["Tracedock-Trace"])["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_chunk_may_be_sent_without_a_content_length(server: Server) -> None:
    upload = begin(server, len(CONTENT))
    headers = CHUNK | {"Upload-Offset": "0"}
    answer = server.api.patch(upload, content=chunks(CONTENT), headers=headers)
    assert ready(server, answer.headers["Tracedock-Trace"])["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_method_override_replaces_patch(server: Server) -> None:
    upload = begin(server, len(GOOD))
    headers = CHUNK | {"Upload-Offset": "0", "X-HTTP-Method-Override": "PATCH"}
    assert server.api.post(upload, content=GOOD[:9], headers=headers).headers["Upload-Offset"] == "9"
    assert server.api.post(upload, headers=VERSION | {"X-HTTP-Method-Override": "DELETE"}).status_code == 204
    assert server.api.post(upload, headers=VERSION | {"X-HTTP-Method-Override": "PUT"}).status_code == 400
    assert head(server, upload).status_code == 404


def test_an_upload_may_name_its_group(server: Server) -> None:
    fields = metadata(filename="r0.json", group="a resumed run", priority="bulk")
    upload = begin(server, len(GOOD), Upload_Metadata=fields)
    trace_id = send(server, upload, 0, GOOD).headers["Tracedock-Trace"]
    assert ready(server, trace_id)["group"]["name"] == "a resumed run"


@needs_shared
@pytest.mark.parametrize("verified", [False, True])
def test_tuspy_uploads_a_real_trace_stops_and_resumes(server: Server, verified: bool) -> None:
    path = SHARED / "a100_nccl_3_steps.pt.trace.json.gz"
    options = {"chunk_size": 1 << 18, "upload_checksum": verified}
    with path.open("rb") as file:
        uploads = TusClient(f"{server.url}/api/v1/uploads")
        first: Any = uploads.uploader(file_stream=file, metadata={"filename": path.name}, **options)
        first.upload_chunk()
    with path.open("rb") as file:
        second = TusClient(f"{server.url}/api/v1/uploads").uploader(file_stream=file, url=first.url, **options)
        assert second.get_offset() == 1 << 18
        second.upload()

    trace = ready(server, server.api.get(str(first.url)).json()["trace"])
    assert (trace["name"], trace["sha256"]) == (path.name, hashlib.sha256(path.read_bytes()).hexdigest())


# -- invalid requests ----------------------------------------------------------------------------------------------


def refused(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of a refusal, which must have the tus header, too."""
    assert answer.headers["Tus-Resumable"] == "1.0.0"
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("wrong_offset", [0, 999, 1001, len(CONTENT), 10**18])
def test_wrong_offset_is_refused_with_the_right_one(server: Server, wrong_offset: int) -> None:
    upload = begin(server, len(CONTENT))
    send(server, upload, 0, CONTENT[:1000])

    answer = send(server, upload, wrong_offset, b"xxxx")

    assert refused(answer) == (409, "wrong_offset")
    assert answer.headers["Upload-Offset"] == "1000"
    assert offset(server, upload) == 1000
    last = send(server, upload, 1000, CONTENT[1000:])
    assert ready(server, last.headers["Tracedock-Trace"])["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_complete_upload_accepts_no_more_bytes(server: Server) -> None:
    upload = begin(server, len(GOOD))
    send(server, upload, 0, GOOD)
    assert refused(send(server, upload, 0, GOOD)) == (409, "wrong_offset")
    assert refused(send(server, upload, len(GOOD), b"x")) == (410, "upload_gone")
    assert offset(server, upload) == len(GOOD)


@pytest.mark.parametrize("name", ["0123456789ab", "nonsense", "..%2f..%2fcatalog", "0123456789abc"])
def test_unknown_upload_is_not_found(server: Server, name: str) -> None:
    upload = f"{server.url}/api/v1/uploads/{name}"
    assert head(server, upload).status_code == 404
    if "%" not in name:
        assert refused(server.api.get(upload)) == (404, "unknown_upload")
        assert refused(send(server, upload, 0, b"x")) == (404, "unknown_upload")
        assert refused(server.api.delete(upload, headers=VERSION)) == (404, "unknown_upload")


@pytest.mark.parametrize("version", [None, "0.2.2", "1.0.1"])
def test_other_tus_version_is_refused(server: Server, version: str | None) -> None:
    upload, headers = begin(server, len(GOOD)), {"Tus-Resumable": version} if version else {}
    for answer in (
        server.api.post("/uploads", headers=headers | {"Upload-Length": "1"}),
        server.api.patch(upload, headers=headers | {"Upload-Offset": "0"}, content=b"x"),
        server.api.delete(upload, headers=headers),
    ):
        assert refused(answer) == (412, "wrong_version")
        assert answer.headers["Tus-Version"] == "1.0.0"
    assert server.api.head(upload, headers=headers).status_code == 412
    assert offset(server, upload) == 0


@pytest.mark.parametrize("kind", ["application/octet-stream", "", "application/json"])
def test_chunk_needs_its_content_type(server: Server, kind: str) -> None:
    upload = begin(server, len(GOOD))
    assert refused(send(server, upload, 0, GOOD, Content_Type=kind)) == (415, "wrong_type")
    headers = VERSION | {"Upload-Length": str(len(GOOD)), "Content-Type": kind}
    assert refused(server.api.post("/uploads", headers=headers, content=GOOD)) == (415, "wrong_type")
    assert offset(server, upload) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Upload-Length": "1", "Upload-Defer-Length": "1"},
        {"Upload-Defer-Length": "2"},
        {"Upload-Length": "-1"},
        {"Upload-Length": "1.5"},
        {"Upload-Length": "9" * 20},
        {"Upload-Length": "1", "Upload-Metadata": "filename ???"},
        {"Upload-Length": "1", "Upload-Metadata": f"a {'x' * 5000}"},
        {"Upload-Length": "1", "Upload-Metadata": "filename YQ==,filename YQ=="},
        {"Upload-Length": "1", "Upload-Metadata": metadata(priority="now")},
        {"Upload-Length": "1", "Upload-Checksum": "crc32 AAAA"},
        {"Upload-Length": "1", "Upload-Checksum": "sha1 AAAA"},
        {"Upload-Length": "1", "Upload-Checksum": "sha1 ?"},
    ],
)
def test_malformed_creation_begins_no_upload(server: Server, headers: dict[str, str]) -> None:
    before = files(server)
    assert refused(server.api.post("/uploads", headers=VERSION | headers)) == (400, "bad_upload")
    assert files(server) == before


@pytest.mark.parametrize("name", ["../x", "a/b", "a\0b", "x" * 300])
def test_upload_with_an_invalid_name_is_refused(server: Server, name: str) -> None:
    assert refused(creation(server, 1, name)) == (400, "bad_name")


def test_empty_upload_is_refused(server: Server) -> None:
    assert refused(creation(server, 0)) == (400, "empty_body")
    upload = begin(server, None)
    assert refused(send(server, upload, 0, b"", Upload_Length="0")) == (400, "empty_body")


def test_chunk_needs_an_offset(server: Server) -> None:
    upload = begin(server, 10)
    assert refused(server.api.patch(upload, content=b"x", headers=CHUNK)) == (400, "bad_upload")


def test_announced_length_can_not_change(server: Server) -> None:
    upload = begin(server, len(GOOD))
    send(server, upload, 0, GOOD[:10])
    assert refused(send(server, upload, 10, b"x", Upload_Length="20")) == (400, "bad_upload")
    deferred = begin(server, None)
    send(server, deferred, 0, GOOD[:10])
    assert refused(send(server, deferred, 10, b"x", Upload_Length="5")) == (400, "bad_upload")
    assert offset(server, upload) == offset(server, deferred) == 10


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_chunk_beyond_the_announced_length_is_refused_and_upload_can_continue(server: Server, framing: str) -> None:
    upload = begin(server, len(CONTENT))
    assert send(server, upload, 0, CONTENT[:4_000_000]).status_code == 204
    more = CONTENT[4_000_000:] + b"x"
    body = more if framing == "length" else chunks(more)
    answer = server.api.patch(upload, content=body, headers=CHUNK | {"Upload-Offset": "4000000"})
    assert refused(answer) == (413, "too_large")
    assert offset(server, upload) == 4_000_000
    last = send(server, upload, 4_000_000, CONTENT[4_000_000:])
    assert ready(server, last.headers["Tracedock-Trace"])["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_upload_beyond_the_maximum_size_is_refused(start_server: StartServer) -> None:
    server = start_server(max_upload_bytes=1000)
    assert refused(creation(server, 1001)) == (413, "too_large")
    upload = begin(server, None)
    assert refused(send(server, upload, 0, b"x" * 1001)) == (413, "too_large")
    assert refused(send(server, upload, 0, b"x", Upload_Length="1001")) == (413, "too_large")
    assert creation(server, 1000).status_code == 201


@pytest.mark.parametrize("algorithm", ["sha256", "sha1", "md5"])
def test_chunk_with_a_wrong_checksum_is_dropped(server: Server, algorithm: str) -> None:
    upload = begin(server, len(CONTENT))
    send(server, upload, 0, CONTENT[:1_500_000])
    damaged = b"x" + CONTENT[1_500_001:]

    answer = send(server, upload, 1_500_000, damaged, Upload_Checksum=checksum(CONTENT[1_500_000:], algorithm))

    assert refused(answer) == (460, "checksum_mismatch")
    assert answer.headers["Upload-Offset"] == "1500000"
    assert offset(server, upload) == 1_500_000
    last = send(server, upload, 1_500_000, CONTENT[1_500_000:])
    assert ready(server, last.headers["Tracedock-Trace"])["sha256"] == hashlib.sha256(CONTENT).hexdigest()


# -- concurrent requests -------------------------------------------------------------------------------------------


def test_second_writer_of_an_upload_is_refused(server: Server) -> None:
    upload = begin(server, len(CONTENT))
    with connected(server) as first:
        first.sendall(chunk_head(upload, 0, len(CONTENT), "Expect: 100-continue"))
        assert first.recv(100).startswith(b"HTTP/1.1 100 ")

        second = send(server, upload, 0, b"x" * 100)

        assert refused(second) == (423, "upload_locked")
        assert second.headers["Retry-After"] == "1"
        first.sendall(CONTENT)
        assert first.recv(100).startswith(b"HTTP/1.1 204 ")
    assert ready(server, id_of(upload))["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_deleted_upload_leaves_no_files(server: Server) -> None:
    before = files(server)
    upload = begin(server, len(CONTENT))
    send(server, upload, 0, CONTENT[:3_000_000])
    assert len(files(server)) == len(before) + 2
    assert server.api.delete(upload, headers=VERSION).status_code == 204
    assert files(server) == before
    assert refused(send(server, upload, 3_000_000, b"x")) == (404, "unknown_upload")


def test_upload_can_be_deleted_during_a_chunk(server: Server) -> None:
    before, listed = files(server), traces(server)
    upload = begin(server, len(CONTENT))
    with connected(server) as first:
        first.sendall(chunk_head(upload, 0, len(CONTENT), "Expect: 100-continue"))
        assert first.recv(100).startswith(b"HTTP/1.1 100 ")
        first.sendall(CONTENT[:-1])

        assert server.api.delete(upload, headers=VERSION).status_code == 204

        assert first.recv(100).startswith(b"HTTP/1.1 410 ")
    assert (files(server), traces(server)) == (before, listed)
    assert head(server, upload).status_code == 404


# -- interruptions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_bytes_of_an_interrupted_chunk_are_kept(server: Server, framing: str) -> None:
    upload = begin(server, len(CONTENT))
    with connected(server) as connection:
        connection.sendall(chunk_head(upload, 0, len(CONTENT) if framing == "length" else None))
        connection.sendall(b"%x\r\n" % len(CONTENT) if framing == "chunked" else b"")
        connection.sendall(CONTENT[:3_333_333])
    until(lambda: offset(server, upload) == 3_333_333)
    until(lambda: send(server, upload, 3_333_333, CONTENT[3_333_333:]).status_code == 204)
    assert ready(server, id_of(upload))["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_bytes_of_an_interrupted_chunk_with_a_checksum_are_dropped(server: Server) -> None:
    upload = begin(server, len(CONTENT))
    send(server, upload, 0, CONTENT[:1000])
    with connected(server) as connection:
        promised = f"Upload-Checksum: {checksum(CONTENT[1000:])}"
        connection.sendall(chunk_head(upload, 1000, len(CONTENT) - 1000, promised, "Expect: 100-continue"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(CONTENT[1000:3_333_333])
        until(lambda: (server.data / "incoming" / id_of(upload)).stat().st_size > 1_000_000)
    until(lambda: send(server, upload, 1000, CONTENT[1000:]).status_code == 204)
    assert ready(server, id_of(upload))["sha256"] == hashlib.sha256(CONTENT).hexdigest()


def test_upload_survives_a_kill_of_the_server(start_server: StartServer) -> None:
    server = start_server()
    upload = begin(server, len(CONTENT), "survives.json")
    send(server, upload, 0, CONTENT[:3_000_000])
    with connected(server) as connection:
        connection.sendall(chunk_head(upload, 3_000_000, 2_000_000, f"Upload-Checksum: {checksum(b'other')}"))
        connection.sendall(CONTENT[3_000_000:-1])
        until(lambda: (server.data / "incoming" / id_of(upload)).stat().st_size > 4_000_000)
        server.kill()
    server.start()

    assert offset(server, upload) == 3_000_000
    last = send(server, upload, 3_000_000, CONTENT[3_000_000:])

    trace = ready(server, last.headers["Tracedock-Trace"])
    assert (trace["name"], trace["sha256"]) == ("survives.json", hashlib.sha256(CONTENT).hexdigest())
    server.kill()
    server.start()
    assert head(server, upload).headers["Tracedock-Trace"] == trace["id"]


@pytest.mark.parametrize("folder", ["incoming", "originals"])
def test_complete_upload_becomes_a_trace_after_a_kill_of_the_server(start_server: StartServer, folder: str) -> None:
    server = start_server()
    upload = begin(server, len(CONTENT), "whole.json")
    send(server, upload, 0, CONTENT[:-1])
    server.kill()
    incoming = server.data / "incoming" / id_of(upload)
    incoming.write_bytes(CONTENT)
    incoming.rename(server.data / folder / id_of(upload))
    server.start()

    until(lambda: traces(server) != [])
    trace = ready(server, id_of(upload))

    assert (trace["name"], trace["sha256"]) == ("whole.json", hashlib.sha256(CONTENT).hexdigest())
    assert offset(server, upload) == len(CONTENT)
    assert files(server) == sorted([id_of(upload), f"{id_of(upload)}.done"])


def test_an_upload_expires(start_server: StartServer) -> None:
    server = start_server(upload_expires_s=3600)
    upload = begin(server, len(CONTENT))
    send(server, upload, 0, CONTENT[:1000])
    long_ago = parsedate_to_datetime(head(server, upload).headers["Upload-Expires"]).timestamp() - 7201
    os.utime(server.data / "incoming" / id_of(upload), (long_ago, long_ago))

    assert head(server, upload).status_code == 410
    assert refused(send(server, upload, 1000, b"x")) == (410, "upload_gone")
    assert refused(server.api.get(upload)) == (410, "upload_gone")
    assert files(server) == [f"{id_of(upload)}.upload"]


def test_expired_upload_is_removed_by_a_restarted_server(start_server: StartServer) -> None:
    server = start_server(upload_expires_s=3600)
    upload = begin(server, len(CONTENT))
    server.kill()
    for path in (server.data / "incoming").iterdir():
        os.utime(path, (0, 0))
    server.start()
    until(lambda: id_of(upload) not in files(server))
    assert head(server, upload).status_code in (404, 410)


def test_upload_of_a_deleted_trace_is_gone(server: Server) -> None:
    upload = begin(server, len(GOOD))
    send(server, upload, 0, GOOD)
    server.api.delete(f"/traces/{id_of(upload)}")
    assert refused(server.api.get(upload)) == (410, "upload_gone")


# -- disk space ----------------------------------------------------------------------------------------------------


def test_upload_beyond_the_quota_is_not_created(start_server: StartServer) -> None:
    server = start_server(quota_bytes=10_000_000)
    answer = creation(server, 20_000_000)
    assert refused(answer) == (507, "no_room")
    assert answer.json().items() >= {"needed": 20_000_000, "quota": 10_000_000}.items()
    assert files(server) == []


def test_upload_to_a_full_disk_keeps_received_bytes_and_resumes_with_room(small_disk: Path) -> None:
    server = Server(small_disk / "data").start()
    ballast = small_disk / "ballast"
    content = GOOD.ljust(2_500_000)
    try:
        upload = begin(server, len(content))
        ballast.write_bytes(bytes(2_000_000))
        answer = server.api.patch(upload, content=chunks(content), headers=CHUNK | {"Upload-Offset": "0"})
        assert answer.status_code == 507
        assert answer.json()["code"] in ("disk_full", "no_room")
        assert traces(server) == []
        received = offset(server, upload)
        assert 0 < received < len(content)

        ballast.unlink()
        last = send(server, upload, received, content[received:])

        assert ready(server, last.headers["Tracedock-Trace"])["sha256"] == hashlib.sha256(content).hexdigest()
    finally:
        ballast.unlink(missing_ok=True)
        assert server.stop() == 0

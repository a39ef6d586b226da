"""Traces are uploaded, listed, described, downloaded and deleted; invalid uploads are refused or fail."""

import base64
import gzip
import hashlib
import json
import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.conftest import ENDLESS_ROWS, connected, sent_raw
from tests.server import Server
from tests.waiting import until

StartServer = Callable[..., Server]
GOOD = b'{"traceEvents":[{"ph":"X","name":"one","cat":"cpu_op","pid":1,"tid":1,"ts":1,"dur":1}]}'


def digest_field(algorithm: str, content: bytes) -> str:
    """Return the value of a digest field, such as `sha-256=:…:`."""
    name = {"sha256": "sha-256", "sha512": "sha-512", "md5": "md5"}[algorithm]
    return f"{name}=:{base64.b64encode(hashlib.new(algorithm, content).digest()).decode()}:"


def files(server: Server) -> list[str]:
    """Return the names of the files in the folders of uploads and originals."""
    return sorted(path.name for folder in ("incoming", "originals") for path in (server.data / folder).iterdir())


def traces(server: Server, **params: object) -> list[dict[str, object]]:
    """Return the first page of the list of traces."""
    page: list[dict[str, object]] = server.api.get("/traces", params=params).json()["traces"]  # type: ignore[arg-type]
    return page


def ready_trace(server: Server) -> dict[str, object]:
    """Upload a small trace, and wait until it is ready."""
    trace: dict[str, object] = server.api.put("/traces/good", content=GOOD, params={"wait": 30}).json()
    return trace


def chunks(content: bytes, piece: int = 1 << 16) -> Iterator[bytes]:
    """Yield the content in pieces, so that a request has no Content-Length."""
    for at in range(0, len(content), piece):
        yield content[at : at + piece]


# -- good uploads --------------------------------------------------------------------------------------------------


def test_upload_returns_the_location_of_its_trace(server: Server, step_trace: Path) -> None:
    answer = server.api.put("/traces/a%20name%20with%20%C3%BC.json.gz", content=step_trace.read_bytes())
    trace = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/traces/{trace['id']}"
    assert (trace["name"], trace["size"]) == ("a name with ü.json.gz", step_trace.stat().st_size)
    assert trace["sha256"] == hashlib.sha256(step_trace.read_bytes()).hexdigest()
    assert trace["state"] in ("queued", "ingesting", "ready")
    assert server.api.get(f"/traces/{trace['id']}", params={"wait": 30}).json()["state"] == "ready"


def test_an_upload_may_wait_for_its_ingest(server: Server) -> None:
    answer = server.api.put("/traces/waited", content=GOOD, params={"wait": 30})
    assert (answer.json()["state"], answer.json()["events"]["in"]) == ("ready", 1)


def test_upload_of_unknown_length_is_accepted(server: Server) -> None:
    trace = server.api.put("/traces/chunked", content=chunks(GOOD, 7), params={"wait": 30}).json()
    assert (trace["size"], trace["state"]) == (len(GOOD), "ready")


def test_curl_uploads_a_file(server: Server, step_trace: Path) -> None:
    curl = subprocess.run(
        ["curl", "-sS", "--noproxy", "*", "-T", step_trace, f"{server.url}/api/v1/traces/"],
        capture_output=True,
        check=True,
    )
    assert json.loads(curl.stdout)["name"] == step_trace.name


def test_two_uploads_of_equal_bytes_are_two_traces(server: Server) -> None:
    first, second = (server.api.put("/traces/twin", content=GOOD).json() for _ in range(2))
    assert first["id"] != second["id"]
    assert first["sha256"] == second["sha256"]


# -- bad uploads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\x1f\x8b not gzip at all", "bad_compression"),
        (gzip.compress(GOOD, mtime=0)[:20], "truncated"),
        (b"PK\x03\x04 a zip", "not_json"),
        (b"this is no json", "not_json"),
        (b"Some text that is no SQLite database", "not_json"),
        (b"{", "truncated"),
        (GOOD[:40], "truncated"),
        (b"{}", "not_a_trace"),
        (b'{"traceEvents":"none"}', "not_a_trace"),
        (b"[1, 2, 3]", "not_a_trace"),
        (b"\xff\xfe\x00", "not_json"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:14].decode("ascii", "replace"),
)
def test_ingest_of_a_file_that_is_no_trace_fails_with_the_reason(server: Server, content: bytes, code: str) -> None:
    trace = server.api.put("/traces/bad", content=content, params={"wait": 30}).json()
    assert (trace["state"], trace["error"]["code"]) == ("failed", code)
    assert trace["error"].keys() >= {"code", "title", "detail"}
    answer = server.query(trace["id"], "SELECT 1")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_ready")
    assert answer.json()["error"]["code"] == code
    assert server.api.get(f"/traces/{trace['id']}/download").content == content
    assert server.api.delete(f"/traces/{trace['id']}").status_code == 204


def test_an_empty_body_is_refused(server: Server) -> None:
    before = files(server)
    answer = server.api.put("/traces/empty", content=b"")
    assert (answer.status_code, answer.json()["code"]) == (400, "empty_body")
    assert files(server) == before


@pytest.mark.parametrize(
    "target",
    [
        "../x",
        "a/../../x",
        "..",
        "a/b",
        "%2e%2e%2fx",
        "..%5Cx",
        "%00",
        "a%07b",
        "a%0Ab",
        "a%0D",
        "%0A",
        "%20",
        "%FF.json",
        "%ED%A0%80",
        "x" * 300,
    ],
)
def test_invalid_trace_name_is_refused(server: Server, target: str) -> None:
    before = files(server)
    head = (
        f"PUT /api/v1/traces/{target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Length: {len(GOOD)}\r\n\r\n"
    )
    answer = sent_raw(server, head.encode() + GOOD)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "bad_name"
    assert files(server) == before


def test_part_of_a_file_is_refused(server: Server) -> None:
    before = files(server)
    answer = server.api.put("/traces/part", content=GOOD, headers={"Content-Range": f"bytes 0-{len(GOOD) - 1}/9999"})
    assert (answer.status_code, answer.json()["code"]) == (400, "incomplete_body")
    assert files(server) == before


@pytest.mark.parametrize("stops_after", [0, 10, 3 << 20])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_incomplete_body_leaves_no_files_and_no_trace(server: Server, stops_after: int, framing: str) -> None:
    before, listed = files(server), traces(server)
    with connected(server) as connection:
        field = "Content-Length: 9000000" if framing == "length" else "Transfer-Encoding: chunked"
        head = f"PUT /api/v1/traces/cut HTTP/1.1\r\nHost: localhost\r\n{field}\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")  # the upload has begun
        assert len(files(server)) == len(before) + 1
        connection.sendall(b"800000\r\n" if framing == "chunked" else b"")
        connection.sendall(b" " * stops_after)
    until(lambda: files(server) == before)
    assert traces(server) == listed


# -- before the body -----------------------------------------------------------------------------------------------


def head(target: str, length: int, *more: str, expectation: str = "100-continue") -> bytes:
    """Return the head of an upload's request."""
    fields = ["Host: localhost", f"Content-Length: {length}", f"Expect: {expectation}", *more, "", ""]
    return "\r\n".join([f"PUT /api/v1/traces/{target} HTTP/1.1", *fields]).encode()


def test_valid_head_gets_100_continue(server: Server) -> None:
    before = files(server)
    with connected(server) as connection:
        connection.sendall(head("good", 100))
        assert connection.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
    until(lambda: files(server) == before)


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (head("a%2Fb", 100, "Connection: close"), 400, "bad_name"),
        (head("good", 100, "Connection: close", "Repr-Digest: nonsense"), 400, "bad_digest"),
        (head("good", 1 << 40, "Connection: close"), 413, "too_large"),
        (head("good", 100, "Connection: close", "Origin: https://evil.example"), 403, "wrong_origin"),
        (head("good", 100, "Connection: close", expectation="a-miracle"), 417, "unmet_expectation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_head_is_refused_before_the_body(server: Server, request_bytes: bytes, status: int, code: str) -> None:
    before = files(server)
    answer, _, problem = sent_raw(server, request_bytes).partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(problem)["code"] == code
    assert files(server) == before


def test_body_beyond_the_quota_is_refused_before_it_is_sent(start_server: StartServer) -> None:
    server = start_server(quota_bytes=10_000_000)
    answer, _, problem = sent_raw(server, head("good", 20_000_000, "Connection: close")).partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 507 ")
    assert json.loads(problem).items() >= {"code": "no_room", "needed": 20_000_000, "quota": 10_000_000}.items()
    assert files(server) == []


# -- too large -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that accepts uploads of at most one megabyte."""
    started = Server(tmp_path_factory.mktemp("small") / "data", max_upload_bytes=1_000_000).start()
    yield started
    assert started.stop() == 0


def test_body_of_exactly_the_maximum_size_is_accepted(small_server: Server) -> None:
    content = GOOD.ljust(1_000_000)
    assert small_server.api.put("/traces/fits", content=content).status_code == 201
    answer = small_server.api.put("/traces/fits-not", content=content + b" ")
    assert (answer.status_code, answer.json()["limit"]) == (413, 1_000_000)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("closing", [False, True])
def test_client_that_sends_far_too_much_receives_too_large(small_server: Server, framing: str, closing: bool) -> None:
    content = bytes(50_000_000)
    before = files(small_server)
    headers = {"Connection": "close"} if closing else {}
    with httpx.Client(trust_env=False, timeout=120) as client:
        answer = client.put(
            f"{small_server.url}/api/v1/traces/huge",
            content=content if framing == "length" else chunks(content),
            headers=headers,
        )
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert files(small_server) == before


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("closing", [False, True])
def test_curl_that_sends_far_too_much_receives_too_large(
    small_server: Server, framing: str, closing: bool, tmp_path: Path
) -> None:
    huge = tmp_path / "huge"
    huge.write_bytes(bytes(50_000_000))
    options = ["-H", "Expect:", *(["-H", "Transfer-Encoding: chunked"] if framing == "chunked" else [])]
    options += ["-H", "Connection: close"] if closing else []
    curl = subprocess.run(
        ["curl", "-sS", "--noproxy", "*", *options, "-T", huge, f"{small_server.url}/api/v1/traces/"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert (curl.returncode, curl.stderr) == (0, b"")
    assert json.loads(curl.stdout)["code"] == "too_large"


# -- a full disk ---------------------------------------------------------------------------------------------------


def test_upload_to_a_full_disk_is_refused_and_leaves_no_files(small_disk: Path) -> None:
    server = Server(small_disk / "data").start()
    try:
        answer = server.api.put("/traces/big", content=bytes(8_000_000))
        assert (answer.status_code, answer.json()["code"]) == (507, "no_room")
        answer = server.api.put("/traces/big", content=chunks(bytes(8_000_000)))
        assert (answer.status_code, answer.json()["code"]) == (507, "no_room")
        assert files(server) == []
        assert traces(server) == []
        assert ready_trace(server)["state"] == "ready"
    finally:
        assert server.stop() == 0


def test_trace_can_be_deleted_on_a_full_disk(small_disk: Path) -> None:
    server = Server(small_disk / "data").start()
    ballast = small_disk / "ballast"
    try:
        padded = GOOD + b" " * 500_000
        trace = server.api.put("/traces/padded", params={"wait": 30}, content=padded).json()
        free_bytes = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
        ballast.write_bytes(bytes(free_bytes))
        assert server.api.delete(f"/traces/{trace['id']}").status_code == 204
        assert (files(server), traces(server)) == ([], [])
    finally:
        ballast.unlink(missing_ok=True)
        assert server.stop() == 0


def test_upload_to_an_almost_full_disk_is_complete_or_leaves_nothing(small_disk: Path) -> None:
    server = Server(small_disk / "data").start()
    ballast = small_disk / "ballast"
    statuses = set()
    try:
        for blocks in range(12):
            ballast.unlink(missing_ok=True)
            free_blocks = os.statvfs(small_disk).f_bavail
            ballast.write_bytes(bytes(max(free_blocks - blocks, 0) * os.statvfs(small_disk).f_bsize))
            answer = server.api.put("/traces/one", content=GOOD)
            statuses.add(answer.status_code)
            if answer.status_code != 201:
                assert answer.status_code == 507, answer.text
                assert answer.json()["code"] in ("disk_full", "no_room")
            assert files(server) == sorted(str(trace["id"]) for trace in traces(server))
        assert 507 in statuses
        ballast.unlink()
        assert ready_trace(server)["state"] == "ready"
    finally:
        ballast.unlink(missing_ok=True)
        assert server.stop() == 0


# -- digests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Repr-Digest", "Content-Digest"])
@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_digest_is_verified(server: Server, name: str, algorithm: str) -> None:
    good = server.api.put("/traces/sure", content=GOOD, headers={name: digest_field(algorithm, GOOD)})
    assert good.status_code == 201
    before = files(server)
    bad = server.api.put("/traces/unsure", content=GOOD, headers={name: digest_field(algorithm, GOOD + b" ")})
    assert (bad.status_code, bad.json()["code"]) == (400, "digest_mismatch")
    assert bad.json()["found"] == hashlib.new(algorithm, GOOD).hexdigest()
    assert files(server) == before


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Repr-Digest": "sha-256=nonsense"}, 400, "bad_digest"),
        ({"Repr-Digest": "sha-256=:AAAA:"}, 400, "bad_digest"),
        ({"Repr-Digest": digest_field("md5", b"other")}, 201, None),
        ({"Repr-Digest": digest_field("sha256", GOOD), "Content-Digest": digest_field("sha512", GOOD)}, 201, None),
        (
            {"Repr-Digest": digest_field("sha256", GOOD), "Content-Digest": digest_field("sha512", b"other")},
            400,
            "digest_mismatch",
        ),
        ({"Repr-Digest": f"{digest_field('md5', b'')}, {digest_field('sha256', b'other')}"}, 400, "digest_mismatch"),
    ],
)
def test_digest_fields_are_verified_ignored_or_refused(
    server: Server, headers: dict[str, str], status: int, code: str | None
) -> None:
    answer = server.api.put("/traces/digested", content=GOOD, headers=headers)
    assert (answer.status_code, answer.json().get("code")) == (status, code)


# -- downloads and lists -------------------------------------------------------------------------------------------


def test_original_is_downloaded_unchanged(server: Server, trace: str, step_trace: Path) -> None:
    content = step_trace.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    answer = server.api.get(f"/traces/{trace}/download")
    assert answer.content == content
    assert answer.headers["etag"] == f'"{sha256}"'
    assert answer.headers["repr-digest"] == digest_field("sha256", content)
    assert answer.headers["accept-ranges"] == "bytes"
    assert step_trace.name in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("{etag}", 304),
        ("W/{etag}", 304),
        ('"another", {etag}', 304),
        ("*", 304),
        ('"another"', 200),
        ('"x{etag}"', 200),
        ("{sha256}", 200),
    ],
)
def test_original_with_a_matching_etag_is_not_modified(server: Server, trace: str, condition: str, status: int) -> None:
    head = server.api.head(f"/traces/{trace}/download")
    assert (head.status_code, head.content) == (200, b"")
    etag = head.headers["etag"]
    if_none_match = condition.format(etag=etag, sha256=etag.strip('"'))
    answer = server.api.get(f"/traces/{trace}/download", headers={"If-None-Match": if_none_match})
    assert answer.status_code == status
    assert len(answer.content) == (int(head.headers["content-length"]) if status == 200 else 0)


def test_ranges_of_the_original_are_downloaded(server: Server, trace: str, step_trace: Path) -> None:
    content = step_trace.read_bytes()
    whole = server.api.get(f"/traces/{trace}/download")

    def part(byte_range: str, **headers: str) -> httpx.Response:
        return server.api.get(f"/traces/{trace}/download", headers={"Range": byte_range} | headers)

    middle = part("bytes=10-19")
    assert (middle.status_code, middle.content) == (206, content[10:20])
    assert middle.headers["content-range"] == f"bytes 10-19/{len(content)}"
    assert middle.headers["repr-digest"] == whole.headers["repr-digest"]
    assert part("bytes=-5").content == content[-5:]
    assert part(f"bytes={len(content)}-").status_code == 416
    assert part("bytes=0-4", **{"If-Range": whole.headers["etag"]}).status_code == 206
    assert part("bytes=0-4", **{"If-Range": '"another"'}).status_code == 200


def test_trace_list_is_paged_from_newest_to_oldest(start_server: StartServer) -> None:
    server = start_server()
    names = [f"trace {number}" for number in range(7)]
    for name in names:
        assert server.api.put(f"/traces/{name}", content=GOOD).status_code == 201
    listed: list[str] = []
    cursor: str | None = None
    sizes = []
    while True:
        page = server.api.get("/traces", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        listed += [trace["name"] for trace in page["traces"]]
        sizes.append(len(page["traces"]))
        if not (cursor := page["next"]):
            break
        server.api.put("/traces/newer", content=GOOD)  # must not shift the pages that follow
    assert listed == names[::-1]
    assert sizes == [3, 3, 1]
    assert server.api.get("/traces", params={"limit": 9}).json()["next"] is None
    assert [trace["name"] for trace in traces(server, name="TRACE 3")] == ["trace 3"]
    assert traces(server, name="%") == []
    for trace in traces(server):
        server.api.get(f"/traces/{trace['id']}", params={"wait": 30})
    assert len(traces(server, state="ready")) == 9
    assert traces(server, state="failed") == []


def test_trace_list_omits_long_fields(server: Server, trace: str) -> None:
    whole = server.api.get(f"/traces/{trace}").json()
    brief = next(item for item in traces(server, limit=500) if item["id"] == trace)
    assert whole.keys() - brief.keys() == {"processes", "threads", "counts", "steps", "ranks", "totals"}
    assert brief["steps_count"] == len(whole["steps"]) == 4


def base64_text(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "cursor", ["x", "=", "AAAA", "ü", base64_text("1.2.3"), base64_text("a.b"), base64_text("9" * 40 + ".a")]
)
def test_invalid_cursor_is_refused(server: Server, cursor: str) -> None:
    answer = server.api.get("/traces", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor")


# -- deleting ------------------------------------------------------------------------------------------------------


def test_deletion_of_a_trace_removes_its_files_session_and_engine(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    assert server.rows(trace, "SELECT 1") == [[1]]
    assert server.api.delete(f"/traces/{trace}").status_code == 204
    for path in ("", "/download", "/session", "/perfetto"):
        assert server.api.get(f"/traces/{trace}{path}").status_code == 404
    assert server.api.delete(f"/traces/{trace}").status_code == 404
    assert not list(server.data.rglob(f"*{trace}*"))
    assert not server.children(str(trace))


def test_trace_can_be_deleted_while_it_is_ingested(start_server: StartServer, large_trace: Path) -> None:
    server = start_server()
    with large_trace.open("rb") as file:
        trace = server.api.put("/traces/large", content=file).json()["id"]
    assert server.api.get(f"/traces/{trace}").json()["state"] in ("queued", "ingesting")
    assert server.api.delete(f"/traces/{trace}").status_code == 204
    assert files(server) == []
    assert not server.children(trace)
    assert ready_trace(server)["state"] == "ready"  # the next trace is ingested


def test_trace_can_be_deleted_during_a_query(server: Server, step_trace: Path) -> None:
    trace = server.upload(step_trace)["id"]
    query = {"sql": ENDLESS_ROWS, "limit": None}
    accept = {"Accept": "application/x-ndjson"}
    with (
        httpx.Client(trust_env=False) as other_client,
        server.api.stream("POST", f"/traces/{trace}/query", json=query, headers=accept) as answer,
    ):
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"x": 1}
        assert other_client.delete(f"{server.url}/api/v1/traces/{trace}").status_code == 204
        last_line: deque[str] = deque(maxlen=1)
        with pytest.raises(httpx.RemoteProtocolError):
            last_line.extend(lines)
    assert json.loads(last_line[0])["error"]["code"] == "engine_failed"
    assert not server.children(str(trace))

"""Text is compressed on the wire for clients that accept it; all else is sent as it is."""

import gzip
import http.client
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from service.http.middleware.compression import MIN_BYTES, accepts_gzip
from tests.server import Server
from tests.waiting import PATIENCE_S

GZIP = {"Accept-Encoding": "gzip"}
IDENTITY = {"Accept-Encoding": "identity"}


def fetched(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[httpx.Headers, bytes]:
    """Return the headers and the bytes of a response as they were sent, but for chunks."""
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port or 80, timeout=PATIENCE_S)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return httpx.Headers([(":status", str(response.status)), *response.getheaders()]), body


@pytest.mark.parametrize(
    ("field", "accepts"),
    [
        ("gzip", True), ("GZIP", True), ("deflate, gzip;q=1.0, *;q=0.5", True), ("x-gzip", True), ("*", True),
        ("gzip;q=0.001", True), ("", False), ("identity", False), ("br", False), ("gzip;q=0", False),
        ("gzip; q=0.0, *", False), ("*;q=0", False), ("gzip;q=x", False),
    ],
)  # fmt: skip
def test_field_with_qualities_tells_whether_gzip_is_accepted(field: str, accepts: bool) -> None:
    assert accepts_gzip(field) is accepts


@pytest.mark.parametrize(
    "path",
    [
        "/", "/static/api.js", "/static/style/base.css", "/static/icon.svg", "/openapi.json", "/metrics",
        "/api/v1/nothing", "/api/v1/traces/{}", "/api/v1/traces/{}/analysis/operators",
        "/api/v1/traces/{}/analysis/operators?format=csv",
        "/api/v1/traces/{}/report",
    ],
)  # fmt: skip
def test_compressed_text_is_the_same_text(server: Server, trace: str, path: str) -> None:
    path = path.format(trace)
    plain_headers, plain = fetched(server, path, **IDENTITY)
    headers, body = fetched(server, path, **GZIP)
    assert "Accept-Encoding" in headers.get("vary", "") or len(plain) < MIN_BYTES
    assert "content-encoding" not in plain_headers
    if len(plain) >= MIN_BYTES:
        assert headers["content-encoding"] == "gzip"
        assert len(body) < len(plain)
        assert headers.get("content-length", str(len(body))) == str(len(body))
        body = gzip.decompress(body)
    if "elapsed_ms" not in str(plain) and path != "/metrics":
        assert body == plain
    assert headers["content-type"] == plain_headers["content-type"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/traces/{}/download?format=json", "/api/v1/traces/{}/download",
        "/api/v1/traces/{}/download?format=parquet",
        "/api/v1/traces/{}/analysis/operators?format=arrow",
    ],
)  # fmt: skip
def test_download_is_sent_as_it_is(server: Server, trace: str, path: str) -> None:
    headers, body = fetched(server, path.format(trace), **GZIP)
    assert "content-encoding" not in headers
    assert body == fetched(server, path.format(trace), **IDENTITY)[1] or "arrow" in path


def test_part_of_a_file_is_sent_as_it_is(server: Server) -> None:
    headers, body = fetched(server, "/static/api.js", **GZIP, Range="bytes=0-99")
    assert (headers[":status"], len(body)) == ("206", 100)
    assert "content-encoding" not in headers


def test_etag_of_compressed_text_is_weak_and_saves_the_body(server: Server, trace: str) -> None:
    path = f"/api/v1/traces/{trace}/analysis/operators"
    strong, _ = fetched(server, path, **IDENTITY)
    weak, _ = fetched(server, path, **GZIP)
    assert weak["etag"] == f"W/{strong['etag']}"
    for etag in (weak["etag"], strong["etag"]):
        headers, body = fetched(server, path, **GZIP, If_None_Match=etag)
        assert (headers[":status"], body) == ("304", b"")
    static, _ = fetched(server, "/static/api.js", **GZIP)
    assert fetched(server, "/static/api.js", **GZIP, If_None_Match=static["etag"])[0][":status"] == "304"


@pytest.mark.parametrize("path", ["/", "/static/api.js", "/api/v1/traces/{}", "/healthz", "/api/v1/traces/{}/download"])
def test_head_announces_what_get_sends(server: Server, trace: str, path: str) -> None:
    sent, _ = fetched(server, path.format(trace), **GZIP)
    announced, body = fetched(server, path.format(trace), "HEAD", **GZIP)
    names = ("content-encoding", "etag", "vary", "content-type")
    assert [announced.get(name) for name in names] == [sent.get(name) for name in names]
    assert announced.get("content-length") in (None, sent.get("content-length"))
    assert body == b""


RESOURCES = [
    "/", "/traces/{}", "/static/api.js", "/static/icon.svg", "/openapi.json", "/metrics", "/healthz", "/api/v1/nothing",
    "/api/v1/traces", "/api/v1/traces/{}", "/api/v1/traces/{}/analysis/operators",
    "/api/v1/traces/{}/analysis/operators?format=csv", "/api/v1/traces/{}/analysis/operators?format=arrow",
    "/api/v1/traces/{}/analysis/none", "/api/v1/traces/{}/report", "/api/v1/traces/{}/download",
    "/api/v1/traces/{}/download?format=json", "/api/v1/traces/{}/download?format=parquet",
]  # fmt: skip


@pytest.mark.parametrize("accepted", [GZIP, IDENTITY, {}], ids=["gzip", "identity", "anything"])
@pytest.mark.parametrize("path", RESOURCES)
def test_head_has_the_headers_of_get(server: Server, trace: str, path: str, accepted: dict[str, str]) -> None:
    """Except for the size of text that is compressed, which is not known without the body."""
    sent, _ = fetched(server, path.format(trace), **accepted)
    announced, body = fetched(server, path.format(trace), "HEAD", **accepted)
    assert body == b""
    assert announced.get("content-length") in (None, sent.get("content-length")) or path == "/metrics"
    of_one_response = {"date", "content-length", "transfer-encoding", "x-request-id", "server-timing"}
    assert {name: value for name, value in announced.items() if name not in of_one_response} == {
        name: value for name, value in sent.items() if name not in of_one_response
    }


@pytest.mark.parametrize("path", RESOURCES)
def test_text_says_that_it_depends_on_the_accepted_codings(server: Server, trace: str, path: str) -> None:
    for accepted in (GZIP, IDENTITY):
        headers, _ = fetched(server, path.format(trace), **accepted)
        varies = [field.strip() for field in headers.get("vary", "").split(",")].count("Accept-Encoding")
        is_text = "download" not in path and "arrow" not in path
        assert varies == is_text, headers


def test_small_text_is_sent_as_it_is(server: Server) -> None:
    headers, body = fetched(server, "/healthz", **GZIP)
    assert len(body) < MIN_BYTES
    assert "content-encoding" not in headers


@contextmanager
def streamed(server: Server, path: str) -> Iterator[http.client.HTTPResponse]:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port or 80, timeout=PATIENCE_S)
    connection.request("GET", path, headers=GZIP)
    yield connection.getresponse()
    connection.close()


def test_events_arrive_one_by_one(server: Server, trace: str) -> None:
    answer = server.api.post(f"/traces/{trace}/split", json={"selection": {"min_dur_ns": 1}})
    assert answer.status_code == 202, answer.text
    job = answer.json()
    with streamed(server, f"/api/v1/jobs/{job['id']}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers.get("content-encoding") is None
        assert response.readline().startswith((b"retry: ", b"event: "))


def test_rows_of_a_query_are_compressed_while_they_are_sent(server: Server, trace: str) -> None:
    sql = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) select i from n"
    with server.api.stream(
        "POST", f"/traces/{trace}/query", json={"sql": sql, "limit": 100_000}, headers=GZIP | {"Accept": "text/csv"}
    ) as response:
        pieces = [*response.iter_raw()]
    assert response.headers["content-encoding"] == "gzip"
    unpacked = zlib.decompressobj(wbits=31)
    assert unpacked.decompress(pieces[0]).startswith(b"i")  # the first piece can be read before the others are there
    text = gzip.decompress(b"".join(pieces)).split()
    assert (len(text), text[-1]) == (100_001, b"100000")

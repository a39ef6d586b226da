"""Attacks on uploads: each ends in a documented response or a trace with its report, and leaves nothing behind."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from isal import igzip

from tests import tus
from tests.http.conftest import connected
from tests.server import Server
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.system

GOOD = b'{"traceEvents": [{"ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
LIMIT = 4 << 20


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with small bounds."""
    data = tmp_path_factory.mktemp("besieged") / "data"
    server = Server(data, max_upload_bytes=LIMIT, head_timeout_s=2, transfer_window_s=2, keep_ready=True).start()
    server.api.headers["Connection"] = "close"  # the server ends idle connections after `head_timeout_s`
    yield server
    assert server.stop() == 0


@pytest.fixture(autouse=True)
def _unharmed(besieged: Server) -> Iterator[None]:
    """Assert after each attack that the server answers and has no stray files."""
    yield
    assert besieged.api.get(f"{besieged.url}/healthz").status_code == 200
    before = {trace["id"] for trace in besieged.api.get("/traces", params={"limit": 500}).json()["traces"]}
    assert {path.name for path in (besieged.data / "originals").iterdir()} <= before
    assert {path.suffix for path in (besieged.data / "incoming").iterdir()} <= {".done"}


def answer_to(server: Server, request: bytes) -> bytes:
    """Send bytes, and return the response."""
    with connected(server) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def status_of(answer: bytes) -> int:
    """Return the status of the last response, or 0 if the connection ended without a response."""
    return int(answer.rpartition(b"HTTP/1.1 ")[2][:3] or 0) if answer else 0


def put_head(*fields: str, name: str = "a.json") -> bytes:
    lines = (f"PUT /api/v1/traces/{name} HTTP/1.1", "Host: localhost", "Connection: close", *fields)
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


# -- lengths and framing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (["Content-Length: -1"], GOOD),
        (["Content-Length: 1e3"], GOOD),
        (["Content-Length: 0x10"], GOOD),
        (["Content-Length: +10"], GOOD),
        (["Content-Length: 99999999999999999999999"], GOOD),
        (["Content-Length: 9223372036854775807"], GOOD),
        ([f"Content-Length: {LIMIT + 1}"], GOOD),
        (["Content-Length: 10", "Content-Length: 20"], GOOD),
        (["Content-Length: 10, 20"], GOOD),
        (["Content-Length: 0"], b""),
        ([], b""),
        (["Content-Length: 1000"], GOOD),
        (["Transfer-Encoding: chunked", "Content-Length: 10"], b"1\r\n{\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked, chunked"], b"1\r\n{\r\n0\r\n\r\n"),
        (["Transfer-Encoding: xchunked"], GOOD),
        (["Transfer-Encoding: gzip, chunked"], b"zz\r\n{\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"-1\r\n{\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"ffffffffffffffffff\r\n{\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"5\r\n{\r\n0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"1\r\n{"),
        (["Transfer-Encoding: chunked"], b"%x\r\n" % (LIMIT + 1) + b" " * (LIMIT + 1) + b"\r\n0\r\n\r\n"),
        (["Transfer-Encoding : chunked"], b"1\r\n{\r\n0\r\n\r\n"),
        (["Content-Length: 10", "Expect: 200-ok"], GOOD),
        (["Content-Length: 10", " folded: x"], GOOD),
        (["Content-Length: 10\r", "X: y"], GOOD),
        ([f"Content-Length: {len(GOOD)}", "Repr-Digest: sha-256=:AAAA:"], GOOD),
        ([f"Content-Length: {len(GOOD)}", "Repr-Digest: sha-256=:" + "A" * 43 + "=:"], GOOD),
        ([f"Content-Length: {len(GOOD)}", "Content-Digest: sha-256=garbage"], GOOD),
        ([f"Content-Length: {len(GOOD)}", "X\x00Y: z"], GOOD),
    ],
)
def test_body_with_wrong_framing_becomes_no_trace(besieged: Server, fields: list[str], body: bytes) -> None:
    before = besieged.api.get("/traces", params={"name": "a.json"}).json()["traces"]
    answer = answer_to(besieged, put_head(*fields) + body)
    assert status_of(answer) in {400, 408, 411, 413, 417, 501}, answer[:300]
    assert besieged.api.get("/traces", params={"name": "a.json"}).json()["traces"] == before


def test_bytes_after_a_body_are_no_second_request(besieged: Server) -> None:
    hidden = b"DELETE /api/v1/traces/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = answer_to(besieged, put_head("Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\n" + hidden)
    assert answer.count(b"HTTP/1.1 ") == 1


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../a.json", "..%2fa.json", "%2e%2e%2fa.json", "%2f", "%2fetc%2fpasswd", "a%00.json", "%e2%80%aegpj.json",
        "x" * 10_000, ".", "..", "%20", "a%0a.json", "..%5ca.json", "C:%5ca.json", "",
    ],
)  # fmt: skip
def test_invalid_file_name_is_refused(besieged: Server, name: str) -> None:
    answer = answer_to(besieged, put_head(f"Content-Length: {len(GOOD)}", name=name) + GOOD)
    assert status_of(answer) in {400, 404, 405, 414}, answer[:300]


@pytest.mark.parametrize("name", ["con.json", "nul", "a.json.", "-rf", "a;b|c&d.json", "<script>.json", "'\".json"])
def test_unusual_file_name_is_accepted_unchanged(besieged: Server, name: str) -> None:
    answer = besieged.api.put(f"/traces/{quote(name)}", params={"wait": PATIENCE_S}, content=GOOD)
    assert (answer.status_code, answer.json()["name"]) == (201, name)


# -- compression -------------------------------------------------------------------------------------------------------


def windowed() -> bytes:
    """Return a zstd frame that declares a window of 2 GiB and has one raw block."""
    return b"\x28\xb5\x2f\xfd\x00\xa8" + (len(GOOD) << 3 | 1).to_bytes(3, "little") + GOOD


def bomb(start: bytes, filler: bytes, end: bytes) -> bytes:
    """Return 300 MiB of one byte between two texts, as gzip."""
    return igzip.compress(start + filler * (300 << 20) + end)


PACKED = gzip.compress(GOOD)
BODIES: dict[str, bytes | Callable[[], bytes]] = {
    "bomb": lambda: bomb(b'{"traceEvents": [', b" ", b"]}"),
    "bomb in a string": lambda: bomb(b'{"x": "', b"y", b'", "traceEvents": []}'),
    "nested gzip": gzip.compress(gzip.compress(PACKED)),
    "huge window": windowed(),
    "cut in the header": PACKED[:5],
    "cut in the stream": PACKED[:-20],
    "cut in the trailer": PACKED[:-4],
    "wrong checksum": PACKED[:-8] + b"\0" * 8,
    "rubbish behind": PACKED + b"rubbish",
    "many members": gzip.compress(b"") * 10_000 + PACKED,
    "raw deflate": zlib.compress(GOOD),
    "deep brackets": b'{"traceEvents": [' + b'{"args": ' * 100_000 + b"1" + b"}" * 100_000 + b"]}",
    "deep arrays": b"[" * 1_000_000 + b"]" * 1_000_000,
    "deep objects around": b'{"a": ' * 500_000 + b"1" + b"}" * 500_000,
    "twice traceEvents": b'{"traceEvents": [], "traceEvents": [{"ph": "X"}]}',
    "duplicate keys": GOOD.replace(b'"dur": 1', b'"dur": 1, "dur": 2, "ts": 3'),
    "huge exponents": GOOD.replace(b'"ts": 1', b'"ts": 1e400').replace(b'"dur": 1', b'"dur": -1e-400'),
    "long digits": GOOD.replace(b'"ts": 1', b'"ts": ' + b"9" * 100_000),
    "lone surrogates": GOOD.replace(b'"x"', b'"\\ud800"').replace(b'"pid": 1', b'"pid": "\\udfff"'),
    "not a number": GOOD.replace(b'"ts": 1', b'"ts": NaN').replace(b'"dur": 1', b'"dur": Infinity'),
    "large ids": GOOD.replace(b'"pid": 1', b'"pid": 18446744073709551616').replace(b'"tid": 1', b'"tid": -1e30'),
    "nul bytes": b"\0" * 100_000,
    "a mark alone": b"\xef\xbb\xbf",
    "bad utf-8": GOOD.replace(b'"x"', b'"\xff\xfe\xc0\x80"'),
    "a single quote": b'"',
    "an html page": b"<!doctype html><title>404</title>",
    "envelope only": b'{"traceEvents": 5}',
    "endless string": b'{"traceEvents": [{"name": "' + b"x" * 3_000_000,
}


@pytest.mark.parametrize("content", BODIES.values(), ids=BODIES)
def test_a_hostile_body_is_refused_or_reported(besieged: Server, content: bytes | Callable[[], bytes]) -> None:
    body = content() if callable(content) else content
    answer = besieged.api.put("/traces/hostile.json", params={"wait": PATIENCE_S}, content=body)
    assert answer.status_code == 201, answer.text
    trace: dict[str, Any] = answer.json()
    assert trace["state"] in ("ready", "failed"), trace
    if trace["state"] == "failed":
        assert trace["error"]["code"] not in ("internal", "ingest_died"), trace["error"]
    else:
        shown = besieged.api.get(f"/traces/{trace['id']}/download", params={"format": "json"})
        assert shown.status_code == 200
        json.loads(shown.content, parse_int=str)
    assert len(answer.content) < 1 << 20
    assert besieged.api.delete(f"/traces/{trace['id']}").status_code == 204


# -- resumable ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Upload-Length": "-1"}, {"Upload-Length": "9223372036854775808"}, {"Upload-Length": str(LIMIT + 1)},
        {"Upload-Length": "0"}, {"Upload-Length": "1.5"}, {"Upload-Length": "\u0661\u0660"}, {"Upload-Length": ""}, {},
        {"Upload-Defer-Length": "2"}, {"Upload-Length": "5", "Upload-Defer-Length": "1"},
        {"Upload-Length": "5", "Upload-Metadata": "filename !!!"},
        {"Upload-Length": "5", "Upload-Metadata": "filename " + base64.b64encode(b"\xff\xfe").decode()},
        {"Upload-Length": "5", "Upload-Metadata": "filename YQ==,filename Yg=="},
        {"Upload-Length": "5", "Upload-Metadata": "filename " + base64.b64encode(b"../x").decode()},
        {"Upload-Length": "5", "Upload-Metadata": "x" * 5000},
        {"Upload-Length": "5", "Upload-Metadata": tus.metadata(priority="root")},
        {"Upload-Length": "5", "Upload-Metadata": tus.metadata(group="a\nb")},
        {"Upload-Length": "5", "Tus-Resumable": "0.2.0"},
    ],
)  # fmt: skip
def test_invalid_upload_creation_is_refused(besieged: Server, headers: dict[str, str]) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in (tus.VERSION | headers).items()]
    answer = besieged.api.post("/uploads", headers=encoded)
    assert answer.status_code in {400, 412, 413}, answer.text
    assert answer.json()["code"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Upload-Offset": "5"}, 409),
        ({"Upload-Offset": "-1"}, 400),
        ({"Upload-Offset": "9" * 19}, 409),
        ({"Upload-Offset": "9" * 30}, 400),
        ({}, 400),
        ({"Upload-Offset": "0", "Content-Type": "application/json"}, 415),
        ({"Upload-Offset": "0", "Upload-Checksum": "crc32 AAAA"}, 400),
        ({"Upload-Offset": "0", "Upload-Checksum": "sha256 !"}, 400),
        ({"Upload-Offset": "0", "Upload-Checksum": "sha256 AAAA"}, 400),
        ({"Upload-Offset": "0", "Upload-Checksum": "sha256 " + "A" * 43 + "="}, 460),
        ({"Upload-Offset": "0", "Upload-Length": "1"}, 400),
    ],
)
def test_invalid_chunk_is_refused(besieged: Server, headers: dict[str, str], status: int) -> None:
    upload = tus.begin(besieged, 50)
    try:
        answer = besieged.api.patch(upload, content=b"x" * 10, headers=tus.CHUNK | headers)
        assert answer.status_code == status, answer.text
        assert tus.offset(besieged, upload) == 0
        assert besieged.api.patch(upload, content=b"x" * 51, headers=tus.CHUNK | {"Upload-Offset": "0"}).is_error
    finally:
        assert besieged.api.delete(upload, headers=tus.VERSION).status_code == 204
    assert tus.send(besieged, upload, 0, b"x").status_code in {404, 410}


def test_only_one_of_several_simultaneous_chunks_is_accepted(besieged: Server) -> None:
    upload = tus.begin(besieged, len(GOOD))
    with ThreadPoolExecutor(8) as threads:
        answers = [*threads.map(lambda _: tus.send(besieged, upload, 0, GOOD), range(8))]
    assert sum(answer.status_code == 204 for answer in answers) == 1
    assert {answer.status_code for answer in answers} <= {204, 409, 410, 423}
    trace = tus.head(besieged, upload).headers["Tracedock-Trace"]
    assert besieged.api.get(f"/traces/{trace}/download", params={"format": "original"}).content == GOOD


@pytest.mark.parametrize("upload_id", ["..", "%2e%2e%2fcatalog.sqlite", "a" * 12, "A" * 12, "0" * 5000, "*", "%00"])
def test_invalid_upload_id_is_not_found(besieged: Server, upload_id: str) -> None:
    request = f"PATCH /api/v1/uploads/{upload_id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    fields = "Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n"
    answer = answer_to(besieged, f"{request}{fields}Content-Length: 1\r\n\r\nx".encode())
    assert status_of(answer) in {404, 405}, answer[:300]

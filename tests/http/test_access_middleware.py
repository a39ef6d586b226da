"""Access to a real server: tokens, hosts, origins, security headers and the audit log."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from service.store.tokens import Scope, Tokens
from tests.http.conftest import sent_raw
from tests.server import Server
from tests.tus import CHUNK, VERSION, metadata
from tests.waiting import PATIENCE_S

EVIL = "https://evil.example"
NO_TRACE = "0" * 12
READS = [
    ("GET", "/api/v1/traces"),
    ("GET", "/api/v1/sessions"),
    ("GET", "/"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", f"/traces/{NO_TRACE}"),
    ("GET", f"/api/v1/traces/{NO_TRACE}/download"),
    ("GET", f"/perfetto/{NO_TRACE}/"),
    ("POST", f"/api/v1/traces/{NO_TRACE}/query"),
    ("POST", f"/api/v1/traces/{NO_TRACE}/session"),
    ("DELETE", f"/api/v1/traces/{NO_TRACE}/session"),
    ("POST", f"/perfetto/{NO_TRACE}/rpc/status"),
    ("GET", "/no/such/page"),
]
WRITES = [
    ("PUT", "/api/v1/traces/some.json"),
    ("PUT", f"/api/v1/traces/{NO_TRACE}/query"),  # a file may have this name
    ("DELETE", f"/api/v1/traces/{NO_TRACE}"),
    ("POST", "/api/v1/traces/merge"),
    ("POST", "/api/v1/uploads"),
    ("PATCH", f"/api/v1/uploads/{NO_TRACE}"),
    ("DELETE", f"/api/v1/uploads/{NO_TRACE}"),
    ("POST", f"/api/v1/uploads/{NO_TRACE}"),
    ("PUT", "/api/v1/listener"),
    ("DELETE", "/api/v1/jobs/1"),
    ("PATCH", "/what/may/come"),
]


class Guarded:
    """A server that requires a token, and a token of each scope."""

    def __init__(self, data: Path) -> None:
        with closing(Tokens(data / "tokens.sqlite")) as tokens:
            self.reader, self.writer = tokens.add("reader", Scope.READ), tokens.add("writer", Scope.WRITE)
        self.server = Server(data, allowed_hosts="traces.example", allowed_origins="https://traces.example").start()
        self.url = self.server.url

    def ask(self, method: str, path: str, token: str = "", **more: Any) -> httpx.Response:
        headers = more.pop("headers", {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        return self.server.api.request(method, f"{self.url}{path}", headers=headers, **more)

    def noted(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.server.data / "audit.log").read_text().splitlines()]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded_server = Guarded(tmp_path_factory.mktemp("guarded") / "data")
    yield guarded_server
    assert guarded_server.server.stop() == 0
    log = guarded_server.server.log_text()
    assert guarded_server.reader not in log
    assert guarded_server.writer not in log


@pytest.fixture(scope="module")
def trace(guarded: Guarded, step_trace: Path) -> str:
    answer = guarded.ask(
        "PUT",
        "/api/v1/traces/doors.json.gz",
        guarded.writer,
        params={"wait": PATIENCE_S},
        content=step_trace.read_bytes(),
    )
    assert answer.status_code == 201
    return str(answer.json()["id"])


def code(answer: httpx.Response) -> str:
    kind = answer.headers.get("content-type", "")
    return str(answer.json()["code"]) if kind.startswith("application/problem") else ""


# -- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), READS + WRITES)
def test_requests_without_a_valid_token_are_unauthorized(guarded: Guarded, method: str, path: str) -> None:
    for token in ("", "wrong", guarded.reader[:-1]):
        answer = guarded.ask(method, path, token)
        assert (answer.status_code, code(answer)) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert len(answer.content) < 400


@pytest.mark.parametrize(("method", "path"), READS)
def test_read_scope_allows_all_reads(guarded: Guarded, method: str, path: str) -> None:
    for token in (guarded.reader, guarded.writer):
        answer = guarded.ask(method, path, token, json={"sql": "SELECT 1"} if path.endswith("query") else None)
        assert code(answer) in ("", "unknown_trace", "not_found"), answer.text


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_read_scope_forbids_all_writes(guarded: Guarded, method: str, path: str) -> None:
    answer = guarded.ask(method, path, guarded.reader)
    assert (answer.status_code, code(answer)) == (403, "forbidden_scope")
    assert "reader" in answer.json()["detail"]
    assert code(guarded.ask(method, path, guarded.writer)) not in ("forbidden_scope", "unauthorized")


def test_read_scope_allows_only_dry_runs_of_a_split(guarded: Guarded, trace: str) -> None:
    where, dry = f"/api/v1/traces/{trace}/split", {"by": "step", "dry_run": True}
    assert guarded.ask("POST", where, guarded.reader, json=dry).status_code == 200
    assert code(guarded.ask("POST", where, guarded.reader, json={"by": "step"})) == "forbidden_scope"
    assert len(guarded.ask("GET", "/api/v1/traces", guarded.reader, params={"parent": trace}).json()["traces"]) == 0


@pytest.mark.parametrize("path", ["/healthz", "/login", "/static/style/base.css", "/static/login.js"])
def test_login_page_and_its_files_need_no_token(guarded: Guarded, path: str) -> None:
    assert guarded.ask("GET", path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/static/../api/v1/traces", "//api/v1/traces", "/healthz/../api/v1/traces", "/login/"]
)
def test_unusual_paths_do_not_bypass_authentication(guarded: Guarded, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = sent_raw(guarded.server, request.encode())
    assert answer.split()[1] in (b"401", b"404")
    assert b'"traces"' not in answer


def test_token_in_the_query_is_ignored(guarded: Guarded) -> None:
    for name in ("token", "access_token", "authorization"):
        assert guarded.ask("GET", "/api/v1/traces", params={name: guarded.writer}).status_code == 401


def test_tokens_are_added_and_revoked_while_the_server_runs(start_server: Callable[..., Server]) -> None:
    server = start_server()

    def command(*arguments: str) -> str:
        line = [sys.executable, "-m", "service", "token", *arguments, "--data", str(server.data)]
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout.strip()

    def status(token: str) -> int:
        return server.api.get("/traces", headers={"Authorization": f"Bearer {token}"}).status_code

    assert server.api.get("/traces").status_code == 200
    secret = command("add", "ci", "--scope", "read")
    other_secret = command("add", "other", "--scope", "write")
    assert server.api.get("/traces").status_code == 401
    assert (status(secret), status(other_secret)) == (200, 200)
    command("rm", "ci")
    assert (status(secret), status(other_secret)) == (401, 200)
    command("rm", "other")
    assert server.api.get("/traces").status_code == 200
    lines = [json.loads(line) for line in (server.data / "audit.log").read_text().splitlines()]
    assert [(line["did"], line["token"]) for line in lines] == [
        ("add token", "ci"), ("add token", "other"), ("remove token", "ci"), ("remove token", "other"),
    ]  # fmt: skip
    assert secret not in (server.data / "audit.log").read_text()


def test_server_on_all_addresses_needs_a_token_to_start(tmp_path: Path, start_server: Callable[..., Server]) -> None:
    line = [sys.executable, "-m", "service", "serve", "--host", "0.0.0.0", "--port", "0", "--perfetto-port", "0"]
    done = subprocess.run(
        [*line, "--data", str(tmp_path / "data")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "tracedock token add NAME --scope write" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    server = start_server(host="0.0.0.0", token="0123456789abcdef")
    assert server.api.get("/traces").status_code == 401
    assert server.api.get("/traces", headers={"Authorization": "Bearer 0123456789abcdef"}).status_code == 200
    children = server.children()
    assert children
    assert not [child for child in children if "TRACEDOCK_TOKEN" in child.environ()]


# -- names and pages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.7", "localhost@evil.example", ""])
@pytest.mark.parametrize("path", ["/api/v1/traces", "/", "/healthz", "/login", "/static/style/base.css"])
def test_request_for_another_host_is_refused(guarded: Guarded, host: str, path: str) -> None:
    answer = guarded.ask("GET", path, guarded.writer, headers={"Host": host})
    assert (answer.status_code, code(answer)) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8700", "[::1]:8700", "traces.example"])
def test_request_for_own_host_names_is_answered(guarded: Guarded, host: str) -> None:
    assert guarded.ask("GET", "/api/v1/traces", guarded.reader, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": EVIL}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://127.0.0.1"}]
)
def test_a_foreign_page_changes_nothing_on_an_open_server(server: Server, headers: dict[str, str]) -> None:
    for method, path in (("PUT", "/traces/x.json"), ("DELETE", f"/traces/{NO_TRACE}"), ("PUT", "/listener")):
        answer = server.api.request(method, path, headers=headers)
        assert (answer.status_code, code(answer)) == (403, "wrong_origin")
    answer = server.api.get("/traces", headers=headers)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]  # so that no page can read it


def test_own_pages_and_pages_of_allowed_origins_may_write(guarded: Guarded) -> None:
    for origin in (guarded.url, "https://traces.example"):
        answer = guarded.ask("DELETE", f"/api/v1/traces/{NO_TRACE}", guarded.writer, headers={"Origin": origin})
        assert code(answer) == "unknown_trace"


def test_websocket_passes_the_same_checks(guarded: Guarded, trace: str) -> None:
    address = f"{guarded.url.replace('http', 'ws')}/perfetto/{trace}/rpc/websocket"
    bearer = {"Authorization": f"Bearer {guarded.reader}"}
    for headers, origin, status in (
        ({}, guarded.url, 401),
        (bearer, EVIL, 403),
        (bearer | {"Host": "evil.example"}, guarded.url, 421),
    ):
        with (
            pytest.raises(InvalidStatus, match=str(status)),
            connect(address, additional_headers=headers, origin=Origin(origin)),
        ):
            pass
    with connect(address, additional_headers=bearer, origin=Origin(guarded.url)):
        pass
    with connect(address, additional_headers=bearer):  # a script has no origin
        pass


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/login", "/docs", "/api/v1/traces", "/static/trace.js", "/nothing", "/healthz"])
def test_every_response_has_security_headers(guarded: Guarded, path: str) -> None:
    for token in ("", guarded.reader):
        headers = guarded.ask("GET", path, token).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert ("unsafe-inline" in policy) is (path == "/docs")


def test_pages_have_no_inline_scripts_or_styles(guarded: Guarded) -> None:
    for path in ("/", "/login", f"/traces/{NO_TRACE}"):
        answer = guarded.ask("GET", path, guarded.reader)
        assert "script-src 'self';" in answer.headers["content-security-policy"]
        assert not re.search(r"<script(?![^>]* src=)|<style| on\w+=| style=", answer.text)


# -- the audit log ---------------------------------------------------------------------------------------------------


def test_audit_log_has_each_change_with_its_caller(guarded: Guarded, step_trace: Path) -> None:
    before = len(guarded.noted())
    sent = guarded.ask("PUT", "/api/v1/traces/noted.json.gz?wait=60", guarded.writer, content=step_trace.read_bytes())
    trace = sent.json()["id"]
    split = guarded.ask("POST", f"/api/v1/traces/{trace}/split?wait=60", guarded.writer, json={"by": "step"})
    guarded.ask("POST", f"/api/v1/traces/{trace}/split", guarded.writer, json={"by": "step", "dry_run": True})
    guarded.ask("PUT", "/api/v1/listener", guarded.writer, json={"trace": trace})
    guarded.ask("DELETE", f"/api/v1/jobs/{split.json()['id']}", guarded.writer)
    guarded.ask("DELETE", f"/api/v1/traces/{trace}/session", guarded.reader)
    guarded.ask("DELETE", f"/api/v1/traces/{trace}", guarded.reader)
    guarded.ask("DELETE", f"/api/v1/traces/{trace}", guarded.writer)
    guarded.ask("DELETE", f"/api/v1/traces/{trace}", "wrong")
    guarded.ask("PUT", "/static/style/base.css")
    guarded.ask("POST", "/login", data={"token": "wrong"})
    guarded.ask("GET", f"/api/v1/traces/{trace}", guarded.reader)
    guarded.ask("POST", "/login", data={"token": guarded.reader})
    lines = guarded.noted()[before:]
    assert all(line.pop("at") and line.pop("address") == "127.0.0.1" for line in lines)
    job = split.json()["id"]
    assert lines == [
        {"who": "writer", "did": "upload", "trace": trace, "status": 201},
        {"who": "writer", "did": "split", "trace": trace, "job": job, "status": 202},
        {"who": "writer", "did": "listen", "trace": trace, "status": 200},
        {"who": "writer", "did": "cancel", "job": job, "status": 200},
        {"who": "reader", "did": "close session", "trace": trace, "status": 204},
        {"who": "reader", "did": "delete", "trace": trace, "status": 403},
        {"who": "writer", "did": "delete", "trace": trace, "status": 204},
        {"who": "reader", "did": "log in"},
    ]


def test_audit_log_has_a_chunked_upload_once_it_is_complete(guarded: Guarded, step_trace: Path) -> None:
    before, content = len(guarded.noted()), step_trace.read_bytes()
    headers = VERSION | {"Upload-Length": str(len(content)), "Upload-Metadata": metadata(filename="doors.json.gz")}
    location = guarded.ask("POST", "/api/v1/uploads", guarded.writer, headers=headers).headers["location"]
    for at, piece in ((0, content[:100]), (0, b"wrong"), (100, content[100:])):
        last = guarded.ask("PATCH", location, guarded.writer, headers=CHUNK | {"Upload-Offset": str(at)}, content=piece)
    upload, noted = location.rpartition("/")[2], guarded.noted()[before:]
    assert all(line.pop("at") and line.pop("address") == "127.0.0.1" for line in noted)
    assert noted == [
        {"who": "writer", "did": "upload", "upload": upload, "status": 409},
        {"who": "writer", "did": "upload", "upload": upload, "trace": last.headers["tracedock-trace"], "status": 204},
    ]


def test_audit_log_has_changes_on_a_server_without_tokens(start_server: Callable[..., Server]) -> None:
    server = start_server()
    server.api.delete(f"/traces/{NO_TRACE}")
    [entry] = [json.loads(line) for line in (server.data / "audit.log").read_text().splitlines()]
    assert (entry["who"], entry["did"], entry["status"]) == ("local", "delete", 404)

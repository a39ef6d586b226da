from __future__ import annotations

import hashlib
import socket
from base64 import b64encode
from pathlib import Path

import pytest
from tracedock import sources
from tracedock.client import Client, Retries
from tracedock.errors import AmbiguousTraceError, ApiError, DigestMismatchError, UnreachableError, WaitTimeoutError
from tracedock.synchronous import upload as synchronous_upload

from tests.cli.double import Answer, Server, json_answer, problem, session, trace

ONCE = Retries(attempts=1)
TABLE = {"columns": [], "rows": [], "truncated": False, "elapsed_ms": 1.0}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rank 0 #1%.pt.trace.json"
    path.write_bytes(bytes(range(256)) * 10_000)
    return path


def test_upload_in_one_request_sends_the_bytes_under_the_file_name(client: Client, server: Server, file: Path) -> None:
    uploaded = client.upload(file, resume=False)
    [request] = server.sent("PUT")
    assert request.body == file.read_bytes()
    assert request.headers["content-length"] == str(file.stat().st_size)
    assert "transfer-encoding" not in request.headers
    assert uploaded["name"] == file.name
    assert uploaded["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_resumable_upload_sends_chunks(
    client: Client, server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK", 1_000_000)
    uploaded = client.upload(file, group="a run")
    assert [request.body for request in server.sent("PATCH")] == [
        file.read_bytes()[at : at + 1_000_000] for at in range(0, file.stat().st_size, 1_000_000)
    ]
    metadata = server.sent("POST")[0].headers["upload-metadata"]
    assert metadata.endswith(f",group {b64encode(b'a run').decode()}")
    assert uploaded["name"] == file.name
    assert uploaded["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("resume", [False, True])
def test_upload_reports_bytes_up_to_the_file_size(client: Client, file: Path, resume: bool) -> None:
    progress: list[tuple[int, int]] = []
    client.upload(file, resume=resume, on_bytes=lambda sent, total: progress.append((sent, total)))
    size = file.stat().st_size
    assert progress == [(1 << 20, size), (2 << 20, size), (size, size)]


@pytest.mark.parametrize("trouble", [423, 409, 503])
def test_interrupted_upload_resumes_at_the_offset_of_the_server(
    client: Client, server: Server, file: Path, trouble: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK", 1_000_000)
    monkeypatch.setattr(synchronous_upload, "PAUSE_S", 0.001)
    lost: list[float] = []

    def hinder(sent: int, total: int) -> None:
        if not lost:
            server.script("PATCH", "/uploads/0", problem(trouble, "trouble", "Trouble", "Not now."))

    uploaded = client.upload(file, on_bytes=hinder, on_retry=lambda error, pause_s: lost.append(pause_s))

    assert uploaded["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert lost
    assert len(server.sent("HEAD")) == len(lost)


def test_upload_that_is_refused_midway_is_an_error(client: Client, server: Server, file: Path) -> None:
    server.script("PATCH", "/uploads/0", problem(507, "no_room", "No room", "Full."))
    with pytest.raises(ApiError, match="Full"):
        client.upload(file)
    server.script("PATCH", "/uploads/1", problem(503, "trouble", "Trouble", "Not now."))
    with pytest.raises(ApiError, match="Not now"):
        client.upload(file, patience_s=0)


def test_upload_with_wait_returns_the_ready_trace(client: Client, server: Server, file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    states = [trace(digest[:12], file.name, state=state, sha256=digest) for state in ("queued", "ingesting", "ready")]
    server.script("GET", f"/traces/{digest[:12]}", *map(json_answer, [states[0], *states]))
    progress: list[str] = []
    uploaded = client.upload(file, wait=True, on_ingest=lambda t: progress.append(t["state"]))
    assert uploaded["state"] == "ready"
    assert progress == ["queued", "ingesting", "ready"]
    assert all(request.query["wait"] == "1" for request in server.sent("GET")[1:])


def test_digest_mismatch_is_an_error(client: Client, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    server.script("PUT", "/traces/a.json", json_answer(trace("0123456789ab", "a.json", sha256="00" * 32), 201))
    with pytest.raises(DigestMismatchError, match=hashlib.sha256(b"{}").hexdigest()) as caught:
        client.upload(tmp_path / "a.json")
    assert caught.value.trace["id"] == "0123456789ab"


@pytest.mark.parametrize("resume", [False, True])
def test_file_that_is_truncated_during_the_upload_is_an_error(
    client: Client, server: Server, file: Path, resume: bool
) -> None:
    def cut(sent: int, total: int) -> None:
        with file.open("r+b") as opened:
            opened.truncate(sent)

    with pytest.raises(OSError, match="was truncated"):
        client.upload(file, resume=resume, on_bytes=cut)
    assert all(upload.ended for upload in server.uploads)


def test_traces_iterates_over_all_pages_in_order(client: Client, server: Server) -> None:
    server.traces = [trace(f"{n:012x}", f"{n}.json") for n in range(5)]
    assert [t["name"] for t in client.traces()] == ["0.json", "1.json", "2.json", "3.json", "4.json"]


@pytest.mark.parametrize(
    ("text", "trace_id"),
    [
        ("9f2c41d07a3b", "9f2c41d07a3b"),
        ("9f2c", "9f2c41d07a3b"),
        ("9f3", "9f3000000000"),
        ("rank1.json", "0a0000000000"),
        ("latest", "9f3000000000"),
        ("beef", "0c0000000000"),
    ],
)
def test_find_accepts_id_prefix_name_and_latest(client: Client, server: Server, text: str, trace_id: str) -> None:
    server.traces = [
        trace("9f3000000000", "rank0.json"),
        trace("9f2c41d07a3b", "rank0.json"),
        trace("0a0000000000", "rank1.json"),
        trace("0b0000000000", "rank1.json.gz"),
        trace("0c0000000000", "beef"),
    ]
    assert client.find(text)["id"] == trace_id


@pytest.mark.parametrize("text", ["9f", "rank0.json"])
def test_prefix_or_name_of_several_traces_is_ambiguous(client: Client, server: Server, text: str) -> None:
    server.traces = [trace("9f3000000000", "rank0.json"), trace("9f2c41d07a3b", "rank0.json")]
    with pytest.raises(AmbiguousTraceError, match=r"9f3000000000(.|\n)*9f2c41d07a3b"):
        client.find(text)


@pytest.mark.parametrize("text", ["rank", "123456789012", "abc", "latest", "../x?y"])
def test_text_without_a_matching_trace_is_unknown(client: Client, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        client.find(text)
    assert caught.value.code == "unknown_trace"
    assert ("There is no trace yet on " in caught.value.detail) is (text == "latest")


def test_latest_of_an_empty_server_is_no_group_either(client: Client) -> None:
    with pytest.raises(ApiError, match="There is no trace yet on "):
        client.target("latest")


def test_query_is_repeated_while_the_engine_loads(client: Client, server: Server) -> None:
    server.script(
        "POST",
        "/traces/a/query",
        json_answer(session("a", "loading", 300), 202, Retry_After="0"),
        json_answer(session("a", "loading", 900), 202, Retry_After="0"),
        json_answer(TABLE),
    )
    progress: list[int] = []
    assert client.query("a", "select 1", on_loading=lambda s: progress.append(s["progress"]["bytes"])) == TABLE
    assert progress == [300, 900]
    assert len({request.body for request in server.sent("POST")}) == 1


def test_query_whose_engine_fails_has_the_error_of_the_session(client: Client, server: Server) -> None:
    error = {"code": "engine_failed", "title": "The engine failed", "detail": "killed by signal 9"}
    server.script("POST", "/traces/a/query", json_answer(session("a", "failed", error=error), 202))
    with pytest.raises(ApiError, match="killed by signal 9") as caught:
        client.query("a", "select 1")
    assert caught.value.code == "engine_failed"


def test_integers_beyond_doubles_stay_exact(client: Client, server: Server) -> None:
    rows = [[9007199254740993, -9223372036854775808, 18446744073709551617]]
    server.script("POST", "/traces/a/query", json_answer(TABLE | {"rows": rows}))
    assert client.query("a", "select 1")["rows"] == rows


def test_problem_becomes_an_error_with_its_code_and_extras(client: Client, server: Server) -> None:
    server.script(
        "POST",
        "/traces/a/query",
        problem(400, "sql_error", "SQL error", "no such table: slic", line=1, column=15),
    )
    with pytest.raises(ApiError) as caught:
        client.query("a", "select * from slic")
    assert (caught.value.code, caught.value.status) == ("sql_error", 400)
    assert caught.value.extras == {"line": 1, "column": 15}
    assert caught.value.position == "line 1, column 15"


def test_refusal_without_a_problem_document_has_status_and_text(client: Client, server: Server) -> None:
    server.script("GET", "/traces/a", Answer(502, b"<h1>Bad Gateway</h1>", "text/html"))
    with pytest.raises(ApiError, match="HTTP 502 Bad Gateway") as caught:
        client.trace("a")
    assert caught.value.code == "http_502"


def test_response_of_another_server_is_reported(client: Client, server: Server) -> None:
    server.script("GET", "/traces/a", Answer(200, b"<h1>Hello</h1>", "text/html"))
    with pytest.raises(ApiError, match="Is it a Tracedock server"):
        client.trace("a")


def test_truncated_response_is_an_error(client: Client, server: Server) -> None:
    server.script("POST", "/traces/a/query", Answer(200, b"a,b\n1,", "text/csv", declared=100))
    with pytest.raises(UnreachableError, match="broke"):
        list(client.export("a", "select 1", "text/csv"))


def test_client_of_plain_http_loads_no_certificate_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("ssl.create_default_context")
    with Client("http://127.0.0.1:1"):
        pass
    with pytest.raises(AttributeError):
        Client("https://127.0.0.1:1")


def test_refused_connection_is_reported_with_the_url_and_a_hint() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with Client(url, retries=ONCE) as client, pytest.raises(UnreachableError, match=f"{url}(.|\n)*tracedock serve"):
            client.sessions()


def test_proxy_of_the_environment_is_not_used_for_loopback(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Client(server.url) as fresh:
        assert list(fresh.traces()) == []


def test_password_in_the_url_is_absent_from_links_and_messages() -> None:
    with Client("https://me:secret@traces.example/dock/") as client:
        assert client.perfetto_url("a") == "https://traces.example/dock/api/v1/traces/a/perfetto"


@pytest.mark.parametrize("url", ["127.0.0.1:8700", "ftp://host", "http://", "http://a:b:c"])
def test_invalid_server_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the URL of a server"):
        Client(url)


def test_url_defaults_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEDOCK_URL", "http://elsewhere:1234")
    with Client() as client:
        assert client.url == "http://elsewhere:1234"


def test_wait_that_takes_too_long_is_an_error(client: Client, server: Server) -> None:
    server.traces = [trace("9f2c41d07a3b", "slow.json", state="ingesting")]
    with pytest.raises(WaitTimeoutError, match="after 0 s"):
        client.wait("9f2c41d07a3b", timeout_s=0)

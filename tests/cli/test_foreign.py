"""URLs that are not those of a Tracedock server: each is named, with what to do, and never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest
from typer.testing import CliRunner, Result

from service.cli import traces
from service.cli.main import TRACEBACK, app
from tests.cli.conftest import Run
from tests.cli.double import Answer, Server, json_answer, problem

COMMANDS = [["ls"], ["show", "latest"], ["jobs"], ["groups"], ["sessions"], ["imports"], ["jobs", "show", "1"]]
PATHS = ["/traces", "/jobs", "/groups", "/sessions", "/imports", "/jobs/1"]


def ask(url: str, *command: str) -> Result:
    return CliRunner().invoke(app, [*command, "--url", url], prog_name="tracedock")


@contextmanager
def port_that_says(text: bytes) -> Iterator[str]:
    """Say a text on each connection, as a program does that speaks another protocol."""

    class Greeting(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(text)

    with ThreadingTCPServer(("127.0.0.1", 0), Greeting) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "answer",
    [json_answer({"status": "ok"}), json_answer([1, 2]), Answer(200, b"<html></html>", "text/html"),
     Answer(200, b"", "text/plain")],
    ids=["object", "list", "page", "nothing"],
)  # fmt: skip
def test_answer_of_another_service_is_named(run: Run, server: Server, command: list[str], answer: Answer) -> None:
    for path in PATHS:
        server.script("GET", path, *[answer] * 3)
    result = run(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: Unexpected answer (unexpected_answer)\n")
    assert "Is it a Tracedock server?" in result.stderr


def test_wrong_path_is_named_with_the_url(run: Run, server: Server) -> None:
    server.script("GET", "/traces", problem(404, "not_found", "Not Found", "Not Found"))
    result = run("ls")
    assert result.exit_code == 1
    assert f"The path may be wrong: {server.url} is the URL of the server" in result.stderr


def test_tls_on_a_plain_port_advises_http(server: Server) -> None:
    with port_that_says(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        result = ask(url.replace("http:", "https:"), "ls")
    assert result.exit_code == 3
    assert f"That port may not use TLS: try {url}." in result.stderr


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"\x00\x01\x02"], ids=["ssh", "none", "bytes"])
def test_port_of_another_protocol_is_named(greeting: bytes) -> None:
    with port_that_says(greeting) as url:
        result = ask(url, "ls")
    assert result.exit_code == 3
    assert f"another program may listen at {url}" in result.stderr


def test_internal_error_is_one_message_without_a_traceback(
    run: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(traces, "print_table", fail)
    result = run("ls")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: internal error: ZeroDivisionError: by zero\n")
    assert "Traceback" not in result.stderr
    monkeypatch.setenv(TRACEBACK, "1")
    assert isinstance(run("ls").exception, ZeroDivisionError)

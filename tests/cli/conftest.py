from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from tracedock.client import Client
from typer.testing import CliRunner, Result

from service.cli.main import app
from tests.cli.double import Server

Run = Callable[..., Result]
COMMAND = [sys.executable, "-m", "service.cli.main"]


@pytest.fixture
def server() -> Iterator[Server]:
    double = Server()
    thread = Thread(target=double.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield double
    double.shutdown()
    thread.join()
    double.server_close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as talking:
        yield talking


@pytest.fixture
def run(server: Server) -> Run:
    """Return a runner of commands in this process, without terminals, against the server double."""

    def invoke(*args: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, ["--url", server.url, *args], input=stdin, prog_name="tracedock")

    return invoke


@pytest.fixture
def environment(server: Server) -> dict[str, str]:
    """Return the environment of a command's process."""
    return {**os.environ, "TRACEDOCK_URL": server.url, "TERM": "xterm-256color", "COLUMNS": "80"}


OnTerminal = Callable[..., tuple[int, str, str]]


@pytest.fixture
def on_terminal(environment: dict[str, str]) -> OnTerminal:
    """Return a runner of commands in a process with the named streams on a pseudo-terminal, the others on pipes.

    It returns the exit code, the output on the terminal, and the output on the pipe.
    """

    def start(*args: str, terminal: tuple[str, ...] = ("stdout", "stderr")) -> tuple[int, str, str]:
        ours, theirs = os.openpty()
        out, err = (theirs if name in terminal else subprocess.PIPE for name in ("stdout", "stderr"))
        with subprocess.Popen(
            [*COMMAND, *args], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        ) as process:
            os.close(theirs)
            drawn = b"".join(iter(lambda: _read(ours), b""))
            piped = b"".join(pipe.read() for pipe in (process.stdout, process.stderr) if pipe)
        os.close(ours)
        return process.returncode, drawn.decode(), piped.decode()

    return start


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO on Linux, when the other end is closed
        return b""

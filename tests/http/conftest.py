"""Fixtures of the HTTP tests: a trace on the shared server, and requests that no client library sends."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
ENDLESS_ROWS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"


@pytest.fixture(scope="session")
def trace(server: Server, step_trace: Path) -> str:
    """The id of a small trace that is ready on the shared server."""
    return str(server.upload(step_trace)["id"])


@pytest.fixture(scope="session")
def large_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of 60 MB, which takes a while to read and to load."""
    path = tmp_path_factory.mktemp("large") / "large.pt.trace.json"
    return write_trace(path, sized(TraceShape(), 60_000_000))


def connected(server: Server) -> socket.socket:
    """Open a TCP connection to the server."""
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S)


def sent_raw(server: Server, request: bytes) -> bytes:
    """Send bytes, and return everything that the server answers until it closes the connection."""
    with connected(server) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount") or ""
    command = [mount, "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    if not mount or os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can't be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)

"""`tracedock upload` over a connection that drops, and to a server that dies."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.link import Link
from tests.server import Server
from tests.test_interruptions import received_bytes
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S

SIZE = 6 * 10**6


@pytest.mark.parametrize("trouble", ["the link drops", "the server dies"])
def test_upload_command_resumes_after_an_interruption(
    start_server: Callable[..., Server], tmp_path: Path, trouble: str
) -> None:
    server = start_server()
    path = write_trace(tmp_path / "resumed.json", sized(TraceShape(), SIZE))
    with Link(server.url, SIZE // 2) as link:
        command = [
            sys.executable,
            "-m",
            "service",
            "--url",
            link.url,
            "upload",
            "--no-wait",
            "--group",
            "run",
            str(path),
        ]
        sending = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        while not (uploads := list((server.data / "incoming").glob("*.upload"))):
            pass
        while received_bytes(server, uploads[0].stem) < SIZE // 3:
            pass
        if trouble == "the link drops":
            link.cut()
        else:
            server.kill()
            server.start()
        out, err = sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode == 0, err
    assert "resumed.json: the connection to the server" in err
    assert "retrying in" in err
    trace = server.api.get(f"/traces/{out.strip()}").json()
    assert (trace["id"], trace["group"]["name"]) == (uploads[0].stem, "run")
    assert trace["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()

"""Direct uploads of the client and the command: past the server, repeated after failures, and given up cleanly."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tracedock import errors

from service.store.locations.location import Location
from tests.client.conftest import Connect
from tests.link import Link
from tests.server import Server
from tests.store.locations.conftest import bucket, s3
from tests.store.s3 import S3Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import PATIENCE_S, until

__all__ = ["bucket", "s3"]

pytestmark = pytest.mark.system

Start = Callable[..., Server]
SIZE = 6 * 10**6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "direct.pt.trace.json", sized(TraceShape(), SIZE))


@pytest.fixture
def server(bucket: Location, start_server: Start) -> Server:
    return start_server(bucket=f"{bucket.url}/direct")


def objects(bucket: Location) -> list[str]:
    return [entry.name.rpartition("/")[2] for entry in bucket.entries("direct")]


def test_file_becomes_a_trace_without_its_bytes_on_the_server(
    server: Server, connect: Connect, bucket: Location, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sent: list[tuple[int, int]] = []
    dock = connect(server.url)
    trace = dock.upload(path, group="direct", direct=True, wait=True, on_bytes=lambda *each: sent.append(each))
    assert (trace["state"], trace["group"]["name"], trace["name"]) == ("ready", "direct", path.name)
    assert trace["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert sent[-1] == (path.stat().st_size, path.stat().st_size)
    assert objects(bucket) == [trace["id"]]
    assert [*(server.data / "originals").iterdir()] == []
    assert "uploads/direct" in caplog.text
    assert "X-Amz" not in caplog.text


def test_short_stream_has_a_known_size_and_a_long_one_is_refused(server: Server, connect: Connect) -> None:
    dock = connect(server.url)
    content = b'{"traceEvents": []}'
    trace = dock.upload(io.BytesIO(content), name="short.json", direct=True)
    assert trace["size"] == len(content)
    with pytest.raises(ValueError, match="needs a file"):
        dock.upload(io.BytesIO(bytes(9 << 20)), name="long.json", direct=True)
    with pytest.raises(ValueError, match="takes no `key`"):
        dock.upload(io.BytesIO(content), name="short.json", direct=True, key="x")


def test_server_without_a_bucket_refuses(start_server: Start, connect: Connect, path: Path) -> None:
    with pytest.raises(errors.ForbiddenError, match="TRACEDOCK_BUCKET"):
        connect(start_server().url).upload(path, direct=True)


def test_refusal_of_the_bucket_is_told_without_its_address_and_leaves_nothing(
    start_server: Start, connect: Connect, bucket: Location, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-of-this-test")
    server = start_server(bucket=f"{bucket.url}/direct")
    with pytest.raises(errors.ApiError, match="bucket_refused") as caught:
        connect(server.url).upload(io.BytesIO(path.read_bytes()[:1000]), name="a.json", direct=True)
    assert "X-Amz" not in str(caught.value)
    assert objects(bucket) == []


def test_command_repeats_a_request_that_a_broken_link_cut(
    start_server: Start, bucket: Location, s3: S3Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Link(s3.url, SIZE // 2) as link:
        monkeypatch.setenv("AWS_ENDPOINT_URL", link.url)
        server = start_server(bucket=f"{bucket.url}/direct")
        command = [sys.executable, "-m", "service", "--url", server.url, "upload", "--direct", str(path)]
        sending = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        until(lambda: link.is_used)
        link.cut()
        out, err = sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode == 0, err
    assert "retrying in" in err
    assert "X-Amz" not in out + err
    assert objects(bucket) == [out.split()[0]]


def test_command_completes_at_a_server_that_was_killed_and_restarted(
    server: Server, bucket: Location, path: Path
) -> None:
    def is_begun() -> bool:
        return bool(objects(bucket))

    command = [sys.executable, "-m", "service", "--url", server.url, "upload", "--direct", "--no-wait", str(path)]
    sending = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    until(is_begun)
    server.kill()
    server.start()
    out, err = sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode == 0, err
    trace = server.api.get(f"/traces/{out.split()[0]}", params={"wait": PATIENCE_S}).json()
    assert (trace["state"], objects(bucket)) == ("ready", [trace["id"]])
    assert len(server.api.get("/traces").json()["traces"]) == 1


def test_interrupted_command_gives_the_upload_up(
    start_server: Start, bucket: Location, s3: S3Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Link(s3.url, SIZE // 4) as link:
        monkeypatch.setenv("AWS_ENDPOINT_URL", link.url)
        server = start_server(bucket=f"{bucket.url}/direct")
        command = [sys.executable, "-m", "service", "--url", server.url, "upload", "--direct", str(path)]
        sending = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        until(lambda: link.is_used)
        sending.send_signal(signal.SIGINT)
        sending.communicate(timeout=PATIENCE_S)
        assert sending.returncode != 0
        with closing(sqlite3.connect(server.data / "catalog.sqlite")) as db:
            assert db.execute("SELECT count(*), count(ended_ns) FROM direct_upload").fetchone() == (1, 1)
    until(lambda: objects(bucket) == [])

from __future__ import annotations

import hashlib
import io
import os
import threading
from pathlib import Path
from typing import Any, BinaryIO, cast

import psutil
import pytest
from tracedock import Client, errors, sources
from tracedock.synchronous import upload as synchronous_upload

from tests.cli.double import Server as Double
from tests.client.conftest import Connect, Driven
from tests.link import Link
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace

MIB = 1 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trace(tmp_path_factory.mktemp("uploads") / "large.pt.trace.json", sized(TraceShape(), 6 * 10**6))


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Pipe(io.RawIOBase):
    """A binary stream without a size, which returns a few bytes at a time."""

    def __init__(self, content: bytes, at_most: int = 100_000) -> None:
        self._content, self._at_most = memoryview(content), at_most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = bytes(self._content[: min(size, self._at_most) if size >= 0 else self._at_most])
        self._content = self._content[len(piece) :]
        return piece


def stream(content: bytes, at_most: int = 100_000) -> BinaryIO:
    return cast("BinaryIO", Pipe(content, at_most))


def test_file_becomes_a_trace(dock: Driven, path: Path) -> None:
    progress: list[tuple[int, int]] = []
    trace = dock.upload(path, group="uploads", on_bytes=lambda *each: progress.append(each))
    size = path.stat().st_size
    assert (trace["name"], trace["size"], trace["group"]["name"]) == (path.name, size, "uploads")
    assert progress[-1] == (size, size)
    assert dock.wait(trace)["state"] == "ready"


@pytest.mark.parametrize("resume", [True, False])
def test_stream_of_unknown_length_becomes_a_trace(
    dock: Driven, path: Path, resume: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "STREAM_CHUNK", MIB)
    content = path.read_bytes()
    totals: set[int] = set()
    trace = dock.upload(
        stream(content), name="piped.json", resume=resume, on_bytes=lambda sent, total: totals.add(total)
    )
    assert (trace["name"], trace["sha256"]) == ("piped.json", digest_of(content))
    assert totals <= {0, len(content)}
    assert dock.wait(trace)["state"] == "ready"


@pytest.mark.parametrize("size", [1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 3 * MIB])
def test_stream_of_any_length_arrives_whole(dock: Driven, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "STREAM_CHUNK", MIB)
    content = os.urandom(size)
    trace = dock.upload(stream(content, at_most=MIB), name="bytes.json")
    assert (trace["sha256"], trace["size"]) == (digest_of(content), size)


def test_stream_without_bytes_is_refused_by_the_server(dock: Driven) -> None:
    with pytest.raises(errors.ApiError) as caught:
        dock.upload(stream(b""), name="empty.json")
    assert caught.value.code == "empty_body"


def test_stream_needs_a_name_and_bytes(dock: Driven) -> None:
    with pytest.raises(ValueError, match="name"):
        dock.upload(stream(b"{}"))
    with pytest.raises(TypeError, match="binary mode"):
        dock.upload(io.StringIO("{}"), name="text.json")


def test_stream_goes_on_after_its_connection_broke(
    connect: Connect, real_server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "STREAM_CHUNK", MIB)
    content = path.read_bytes()
    broken: list[Exception] = []
    with Link(real_server.url) as link:

        def cut(sent: int, total: int) -> None:
            if sent > 2 * MIB and not cuts:
                cuts.append(sent)
                link.cut()

        cuts: list[int] = []
        trace = connect(link.url).upload(
            stream(content), name="cut.json", on_bytes=cut, on_retry=lambda error, pause_s: broken.append(error)
        )
    assert trace["sha256"] == digest_of(content)
    assert cuts
    assert broken


def test_stream_is_held_in_bounded_memory(real_server: Server) -> None:
    class Endless(Pipe):
        peak = 0

        def read(self, size: int = -1) -> bytes:
            Endless.peak = max(Endless.peak, psutil.Process().memory_info().rss)
            piece = bytes(size) if self._at_most > 0 else b""
            self._at_most -= len(piece)
            return piece

    before = psutil.Process().memory_info().rss
    with Client(real_server.url) as client:
        trace = client.upload(cast("BinaryIO", Endless(b"", 150 * MIB)), name="zeros.json")
    assert trace["size"] == 150 * MIB
    assert Endless.peak - before < 60 * MIB


def test_interrupted_upload_with_a_key_goes_on_in_a_later_one(
    connect: Connect, real_server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CHUNK", MIB)
    monkeypatch.setattr(synchronous_upload, "PAUSE_S", 0.01)
    dock = connect(real_server.url)
    sent_again: list[int] = []

    def interrupt(sent: int, total: int) -> None:
        if sent > 3 * MIB:
            raise KeyboardInterrupt

    key = f"key-{os.urandom(8).hex()}"
    with pytest.raises(KeyboardInterrupt):
        dock.upload(path, name=f"{key}.json", key=key, on_bytes=interrupt)
    trace = dock.upload(path, name=f"{key}.json", key=key, on_bytes=lambda sent, total: sent_again.append(sent))
    assert trace["sha256"] == digest_of(path.read_bytes())
    assert dock.upload(path, name=f"{key}.json", key=key)["id"] == trace["id"]
    assert [each["id"] for each in dock.traces(name=key)] == [trace["id"]]
    # the first chunk is refused, because the server has its bytes
    assert next(sent for sent in sent_again if sent > MIB) > 3 * MIB


def test_interrupted_upload_without_a_key_is_removed(connect: Connect, server: Double, path: Path) -> None:
    def interrupt(sent: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connect(server.url).upload(path, on_bytes=interrupt)
    assert [upload.ended for upload in server.uploads] == [True]


def test_threads_share_a_client(real_server: Server) -> None:
    ids: list[str] = []

    def send(client: Client, number: int) -> None:
        trace = client.upload(stream(b'{"traceEvents": [%d]}' % number), name=f"thread{number}.json")
        ids.append(client.trace(trace)["id"])

    with Client(real_server.url) as client:
        threads = [threading.Thread(target=send, args=(client, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(ids)) == 8


def test_failed_trace_is_an_error_of_its_wait(dock: Driven) -> None:
    trace: Any = dock.upload(stream(b"no trace"), name="broken.json", wait=True)
    assert trace["state"] == "failed"
    with pytest.raises(errors.UnreadableTraceError):
        dock.wait(trace)

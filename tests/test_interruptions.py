"""An upload that is interrupted at random arrives unchanged, and acknowledged bytes are not sent again."""

import hashlib
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.link import Link
from tests.server import Server
from tests.traces import TraceShape, sized, write_trace
from tests.tus import begin, id_of
from tests.waiting import PATIENCE_S

CHUNK = 1 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trace(tmp_path_factory.mktemp("trace") / "a.json", sized(TraceShape(), 40 * 10**6))


class UploadClient:
    """A client that uploads a file in a separate process, which a test can restart."""

    def __init__(self, upload_url: str, path: Path, log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.tus", upload_url, str(path), str(log), str(CHUNK)]
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self._process = subprocess.Popen(self._command)

    def wait_for_success(self) -> None:
        assert self._process.wait(timeout=PATIENCE_S) == 0


@contextmanager
def upload_client(upload_url: str, path: Path, log: Path) -> Iterator[UploadClient]:
    client = UploadClient(upload_url, path, log)
    try:
        yield client
    finally:
        client.kill()


def received_bytes(server: Server, upload: str) -> int:
    """Return the number of bytes of an upload on disk, or a huge number once the upload is complete."""
    try:
        return (server.data / "incoming" / id_of(upload)).stat().st_size
    except FileNotFoundError:
        return 1 << 60


def check_interrupted_upload(
    server: Server, path: Path, log: Path, interruptions: Sequence[str], rng: random.Random
) -> None:
    """Upload a file, interrupt the upload at random offsets, and check what arrives and what was sent again."""
    size = path.stat().st_size
    upload = begin(server, size, path.name)
    with Link(server.url) as link, upload_client(f"{link.url}/api/v1/uploads/{id_of(upload)}", path, log) as client:
        offsets = sorted(rng.randrange(size * 9 // 10) for _ in interruptions)
        for offset, interruption in zip(offsets, interruptions, strict=True):
            while received_bytes(server, upload) < offset:
                pass
            assert received_bytes(server, upload) < size, "the upload ended before all interruptions"
            match interruption:
                case "client":
                    client.restart()
                case "server":
                    server.kill()
                    server.start()
                case "link":
                    link.cut()
        client.wait_for_success()

    trace = server.api.get(f"/traces/{id_of(upload)}", params={"wait": PATIENCE_S}).json()
    assert (trace["state"], trace["size"]) == ("ready", size)
    assert trace["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (server.data / "originals" / trace["id"]).read_bytes() == path.read_bytes()
    sent_bytes = acknowledged_bytes = 0
    for entry, offset_text, length_text in (line.split() for line in log.read_text().splitlines()):
        if entry == "kept":
            acknowledged_bytes = int(offset_text)
        else:
            assert int(offset_text) >= acknowledged_bytes
            sent_bytes += int(length_text)
    assert sent_bytes <= size + len(interruptions) * CHUNK  # each interruption costs at most one chunk


def test_an_upload_that_is_interrupted_four_times_arrives(
    start_server: Callable[..., Server], path: Path, tmp_path: Path
) -> None:
    interruptions = ["link", "client", "server", "link"]
    check_interrupted_upload(start_server(), path, tmp_path / "log", interruptions, random.Random(3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_an_upload_that_is_interrupted_twenty_times_arrives(
    start_server: Callable[..., Server], path: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    interruptions = rng.choices(["client", "server", "link"], k=20)
    check_interrupted_upload(start_server(), path, tmp_path / "log", interruptions, rng)

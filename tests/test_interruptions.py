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


class Sending:
    """A client in a separate process that a test can kill."""

    def __init__(self, upload: str, path: Path, log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.tus", upload, str(path), str(log), str(CHUNK)]
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process = subprocess.Popen(self._command)

    def end(self) -> None:
        assert self._process.wait(timeout=PATIENCE_S) == 0


@contextmanager
def sending(upload: str, path: Path, log: Path) -> Iterator[Sending]:
    process = Sending(upload, path, log)
    try:
        yield process
    finally:
        process._process.kill()
        process._process.wait()


def received(server: Server, upload: str) -> int:
    """Return the bytes of an upload on disk, or a huge number once the upload is complete."""
    try:
        return (server.data / "incoming" / id_of(upload)).stat().st_size
    except FileNotFoundError:
        return 1 << 60


def survive(server: Server, path: Path, log: Path, kinds: Sequence[str], chance: random.Random) -> None:
    size, times = path.stat().st_size, len(kinds)
    upload = begin(server, size, path.name)
    with Link(server.url) as link, sending(f"{link.url}/api/v1/uploads/{id_of(upload)}", path, log) as client:
        moments = sorted(chance.randrange(size * 9 // 10) for _ in kinds)
        for at, kind in zip(moments, kinds, strict=True):
            while received(server, upload) < at:
                pass
            assert received(server, upload) < size, "the upload ended before all interruptions"
            match kind:
                case "client":
                    client.kill()
                case "server":
                    server.kill()
                    server.start()
                case "link":
                    link.cut()
        client.end()

    trace = server.api.get(f"/traces/{id_of(upload)}", params={"wait": PATIENCE_S}).json()
    assert (trace["state"], trace["size"]) == ("ready", size)
    assert trace["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (server.data / "originals" / trace["id"]).read_bytes() == path.read_bytes()
    sent_bytes = acknowledged = 0
    for kind, offset, length in (line.split() for line in log.read_text().splitlines()):
        if kind == "kept":
            acknowledged = int(offset)
        else:
            assert int(offset) >= acknowledged
            sent_bytes += int(length)
    assert sent_bytes <= size + times * CHUNK


def test_an_upload_that_is_interrupted_four_times_arrives(
    start_server: Callable[..., Server], path: Path, tmp_path: Path
) -> None:
    kinds = ["link", "client", "server", "link"]
    survive(start_server(), path, tmp_path / "log", kinds, random.Random(3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_an_upload_that_is_interrupted_twenty_times_arrives(
    start_server: Callable[..., Server], path: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    kinds = chance.choices(["client", "server", "link"], k=20)
    survive(start_server(), path, tmp_path / "log", kinds, chance)

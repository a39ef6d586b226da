"""Locations of both kinds: a folder, and a bucket of a real S3 server, where seaweedfs's `weed` is installed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.locations.location import Location, location_of
from tests.store.s3 import S3Server, program, until_it_has_room


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server."""
    if program() is None:
        pytest.skip("weed is not installed: run .ci/programs")
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
    until_it_has_room(place)
    return place


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.system)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A location of each kind."""
    if request.param == "folder":
        (tmp_path / "place").mkdir()
        return location_of(str(tmp_path / "place"))
    found: Location = request.getfixturevalue("bucket")
    return found

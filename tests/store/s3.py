"""An S3 server of seaweedfs for tests, which can be killed and started again."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx

from service.store.locations.location import Location
from service.trace.errors import LocationUnavailable
from tests.ports import free_ports
from tests.waiting import until

KEY, SECRET = "tracekey", "tracesecret"
GRPC = 10_000
"""Each part of the server also listens at this distance from its port."""


def program() -> str | None:
    """Return the path of the server's program, if it is installed. `.ci/programs` installs it."""
    return shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


class S3Server:
    """An S3 server.

    Args:
        folder: an empty folder for its data.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        identity = {"name": "admin", "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        (folder / "s3.json").write_text(json.dumps({"identities": [{**identity, "actions": actions}]}))
        (folder / "data").mkdir()
        self._ports = free_ports(4, pair=GRPC)
        self.url = f"http://127.0.0.1:{self._ports[-1]}"
        self.environment = {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        weed = program()
        assert weed, "The S3 server is not installed: run .ci/programs."
        master, volume, filer, port = self._ports
        folder, address = self._folder, "127.0.0.1"
        command = [
            *(weed, "-logtostderr=true", "server", f"-dir={folder / 'data'}", f"-ip={address}"),
            *(f"-ip.bind={address}", "-volume.max=100", "-master.volumeSizeLimitMB=64", "-master.telemetry=false"),
            *(f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}"),
            *("-s3", f"-s3.port={port}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            f"-s3.config={folder / 's3.json'}",
        ]
        with (folder / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "weed.log").read_text()[-2000:]
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/healthz", trust_env=False).is_success
        return False

    def kill(self) -> None:
        """Kill the server; its data stays."""
        self._process.kill()
        self._process.wait()


def until_it_has_room(bucket: Location) -> None:
    """Wait until a server that answers already also takes objects."""
    until(lambda: _accepts(bucket))
    bucket.remove("ready")


def _accepts(bucket: Location) -> bool:
    with suppress(LocationUnavailable):
        bucket.write("ready", b"")
        return True
    return False

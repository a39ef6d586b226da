"""A real Tracedock server in its own process, which tests start, kill and restart on the same data."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import httpx
import psutil

from tests.forked import WITHOUT_PANDAS, ForkedProcess, WarmInterpreter
from tests.waiting import PATIENCE_S

INTERPRETER = WarmInterpreter()
"""Starts the servers of the tests of this process."""


def bytes_read(process: psutil.Process, name: str) -> int:
    """Return the offset up to which a process has read its open file of that name; 0 if no such file is open."""
    with suppress(psutil.NoSuchProcess):
        return next((file.position for file in process.open_files() if Path(file.path).name == name), 0)
    return 0


class Server:
    """A server on a free port.

    Args:
        data: its data folder.
        settings: further settings, by their names in `Settings`; by default, nothing is kept ready or prepared.

    Attributes:
        command: starts an interpreter with the command line of the service; None for a fork of a warm interpreter.
    """

    def __init__(self, data: Path, **settings: object) -> None:
        self.data = data
        self._settings = {
            "perfetto_port": 0,
            "keep_ready": False,
            "prepare_pages": False,
            "min_free_bytes": 0,
        } | settings
        self.command: tuple[str, ...] | None = None
        self._process: subprocess.Popen[str] | ForkedProcess | None = None
        self._port = 0
        self.log_file: TextIO
        self.url = ""
        self.api = httpx.Client(timeout=PATIENCE_S, trust_env=False)

    def start(self) -> "Server":
        """Start, and return once it listens; a restart keeps the port."""
        environment = os.environ | {f"TRACEDOCK_{name.upper()}": str(value) for name, value in self._settings.items()}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WITHOUT_PANDAS), os.environ.get("PYTHONPATH")]))
        arguments = ["serve", "--port", str(self._port), "--data", str(self.data)]
        self.log_file = (self.data.parent / f"{self.data.name}.log").open("a")
        if self.command is None:
            self._process = INTERPRETER.start(arguments, environment, self.log_file)
        else:
            self._process = subprocess.Popen(
                [*self.command, *arguments],
                env=environment, stdout=subprocess.PIPE, stderr=self.log_file, text=True, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip().split()[-1]
        self._port = int(self.url.rsplit(":", 1)[1])
        self.api.base_url = httpx.URL(f"{self.url}/api/v1")
        return self

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def log_text(self) -> str:
        """Return the server's standard error so far."""
        return Path(self.log_file.name).read_text()

    def children(self, command: str = "") -> list[psutil.Process]:
        """Return the server's descendant processes whose command line contains `command`."""
        matching = []
        for child in psutil.Process(self.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                matching += [child] if command in " ".join(child.cmdline()) else []
        return matching

    def engine(self, trace_id: str) -> psutil.Process:
        """Return the engine process of a trace; a spare engine, if there is one, is another process."""
        return psutil.Process(self.api.get(f"/traces/{trace_id}/session").json()["engine"]["pid"])

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        assert self._process
        self._process.kill()
        self._wait_for_exit()

    def stop(self) -> int:
        """Send SIGTERM, if the server still runs, and return its exit status."""
        assert self._process
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        self.api.close()
        return self._wait_for_exit()

    def _wait_for_exit(self) -> int:
        """Wait for the process, close its files, and return its exit status."""
        assert self._process
        status = self._process.wait(timeout=PATIENCE_S)
        if self._process.stdout:
            self._process.stdout.close()
        self.log_file.close()
        return status

    # -- requests that many tests send ------------------------------------------------------------------------

    def upload(
        self, path: Path, name: str | None = None, wait: float = PATIENCE_S, group: str | None = None
    ) -> dict[str, Any]:
        """Upload a file, wait up to `wait` seconds for its ingest, and return its trace."""
        params = {"wait": wait} | ({} if group is None else {"group": group})
        with path.open("rb") as file:
            answer = self.api.put(
                f"/traces/{name or path.name}", params=params, content=file, timeout=wait + PATIENCE_S
            )
        assert answer.status_code == 201, answer.text
        trace: dict[str, Any] = answer.json()
        return trace

    def query(self, trace_id: object, sql: str, **more: object) -> httpx.Response:
        """Run SQL on a trace and return the response."""
        return self.api.post(f"/traces/{trace_id}/query", json={"sql": sql} | more)

    def rows(self, trace_id: object, sql: str) -> list[list[object]]:
        """Return the rows of a query that succeeds."""
        answer = self.api.post(f"/traces/{trace_id}/query", json={"sql": sql}, params={"wait": PATIENCE_S})
        assert answer.status_code == 200, answer.text
        rows: list[list[object]] = answer.json()["rows"]
        return rows

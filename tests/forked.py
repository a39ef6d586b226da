"""Servers forked from an interpreter that has imported the service, which saves a second of each start.

``python -m tests.forked SOCKET`` is that interpreter.
"""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

WITHOUT_PANDAS = Path(__file__).parent / "without"
NUMBER = struct.Struct("=i")
REQUEST_MAX = 1 << 18


class ForkedProcess:
    """A process with the interface that tests need of `subprocess.Popen`.

    Args:
        numbers: the reading end of a pipe that carries the process id, and the exit status once the process has ended.
        stdout: the standard output of the process.
    """

    def __init__(self, numbers: int, stdout: TextIO) -> None:
        self._numbers = numbers
        self._status: int | None = None
        self.stdout: TextIO | None = stdout
        self.pid = self._next_number()

    def send_signal(self, number: int) -> None:
        """Send a signal; raises `ProcessLookupError` if the process has ended."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process and return its exit status; raises `subprocess.TimeoutExpired`."""
        if self._status is None:
            if not select.select([self._numbers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked server", timeout)
            self._status = self._next_number()
            os.close(self._numbers)
        return self._status

    def _next_number(self) -> int:
        number: int = NUMBER.unpack(os.read(self._numbers, NUMBER.size))[0]
        return number


class WarmInterpreter:
    """Starts servers; each is a fork of one process, which starts with the first of them."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: TextIO) -> ForkedProcess:
        """Run the command line of the service in a fork."""
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            path = os.pathsep.join(filter(None, [str(WITHOUT_PANDAS), os.environ.get("PYTHONPATH")]))
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
                    env={**os.environ, "PYTHONPATH": path}, pass_fds=[theirs.fileno()], start_new_session=True,
                    cwd=Path(__file__).parents[1],
                )  # fmt: skip
        request = json.dumps([str(Path.cwd()), list(arguments), dict(environment)]).encode()
        (output, their_output), (numbers, their_numbers) = os.pipe(), os.pipe()
        socket.send_fds(self._socket, [request], [their_output, stderr.fileno(), their_numbers])
        os.close(their_output)
        os.close(their_numbers)
        return ForkedProcess(numbers, os.fdopen(output))


def serve(requests: socket.socket) -> None:
    """Fork a supervisor for each request, until the tests have ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors report to the tests
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_MAX, 3)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            supervise(*json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def supervise(
    folder: str, arguments: list[str], environment: dict[str, str], stdout: int, stderr: int, numbers: int
) -> NoReturn:
    """Fork a server, and report its process id and its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(numbers)
        run(folder, arguments, environment, stdout, stderr)
    os.close(stdout)
    os.write(numbers, NUMBER.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(numbers, NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def run(folder: str, arguments: list[str], environment: dict[str, str], stdout: int, stderr: int) -> NoReturn:
    """Become the server."""
    os.setsid()
    os.chdir(folder)
    for descriptor, number in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)  # the old ones know other files
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = ["tracedock", *arguments]
    main()
    raise SystemExit


if __name__ == "__main__":
    import service.app  # noqa: F401 - what a server imports
    from service.cli.main import main

    serve(socket.socket(fileno=int(sys.argv[1])))

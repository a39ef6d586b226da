"""Servers forked from an interpreter that has loaded the code of the service and of its children.

That saves a second of each start, and 1.4 s of the first child of each server. The interpreter is
``python -m tests.forked SOCKET``.
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
from itertools import chain, repeat
from pathlib import Path
from typing import NoReturn, TextIO, cast

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
    # The server takes the forked process as its fork server; if that dies, it starts another one itself.
    forked = fork_server_of_this_process()
    starts = chain([lambda: forked], repeat(fork_server._start))
    fork_server._start = lambda: next(starts)()  # noqa: PLW0108 - evaluates `next` at each call
    sys.argv = ["tracedock", *arguments]
    main()
    raise SystemExit


class ForkedForkServer:
    """The process of a fork server, with the interface that the server needs of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def kill(self) -> None:
        """Kill the process."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end of the process and return its exit status."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def fork_server_of_this_process() -> "fork_server._Running":
    """Fork a process that becomes the fork server of this server with the first message that it gets."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.setsid()
        os.umask(UMASK)  # as the server that starts it
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        if theirs.recv(1, socket.MSG_PEEK):
            fork_loop.serve(str(theirs.detach()))
        os._exit(0)
    theirs.close()
    ours.setblocking(False)
    return fork_server._Running(cast("subprocess.Popen[bytes]", ForkedForkServer(pid)), ours)


if __name__ == "__main__":
    from setproctitle import getproctitle

    getproctitle()  # finds the memory of the title, which it can't once the environment has changed

    from service.jobs.children import fork_server

    os.environ.update(fork_server.environment())  # Arrow reads it when it is loaded

    from service.app import UMASK  # with it, all that a server imports
    from service.cli.main import main
    from service.jobs.children import fork_loop

    fork_loop._load_code()  # what each fork server would load
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # DuckDB would report objects that are alive

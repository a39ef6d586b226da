"""The fork server's own process: ``python -m service.jobs.children.fork_loop SOCKET``.

The process has loaded the code of all children. So each child that it forks starts in milliseconds, and shares the
memory of that code with all other children.
"""

import gc
import os
import selectors
import signal
import socket
import sys
import warnings
from contextlib import ExitStack
from importlib import import_module
from importlib.abc import MetaPathFinder
from typing import NoReturn

from setproctitle import setproctitle

from service.analysis.kept_answers import code_digest
from service.jobs.children.entry import run_child
from service.jobs.children.kinds import ENTRIES, FORK_SERVER_TITLE, LATE, OPTIONAL
from service.jobs.children.messages import (
    Exited,
    Fork,
    Forked,
    Kill,
    Message,
    NotForked,
    decode_message,
    encode_message,
)
from service.jobs.machine_code import load_machine_code
from service.rendering.document import prepare as prepare_rendering
from service.rendering.pftrace.document import prepare as prepare_pftrace
from service.streaming.idle_memory import return_start_memory

DATAGRAM_MAX = 1 << 16
"""Maximum number of bytes of a datagram."""


class ForkLoop:
    """Forks children and reports their ends, until the server closes its end of the socket.

    Args:
        server: the socket to the server.
    """

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._children: set[int] = set()
        self._own = ExitStack()
        """Closes the sockets that a child must not keep open."""
        self._own.enter_context(server)
        self._selector = self._own.enter_context(selectors.DefaultSelector())
        # Each signal writes a byte, so that `select` returns when a child has ended.
        self._signals, self._wakeup = (self._own.enter_context(end) for end in socket.socketpair())

    def run(self) -> None:
        """Fork children until the server is gone."""
        self._signals.setblocking(False)
        self._wakeup.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup.fileno())
        self._selector.register(self._server, selectors.EVENT_READ)
        self._selector.register(self._signals, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in self._selector.select()]
            if self._signals in ready:
                self._signals.recv(DATAGRAM_MAX)
                self._report_ends()
            if self._server in ready and not self._receive():
                return

    def _receive(self) -> bool:
        """Do what the next message requests; return False once the server is gone."""
        text, descriptors, _, _ = socket.recv_fds(self._server, DATAGRAM_MAX, 2)
        if not text:
            return False
        match decode_message(text):
            case Fork() as request:
                self._send(self._fork(request, *descriptors))
                for descriptor in descriptors:
                    os.close(descriptor)
            case Kill(pid) if pid in self._children:
                os.kill(pid, signal.SIGKILL)
        return True

    def _fork(self, request: Fork, child_input: int, child_output: int) -> Forked | NotForked:
        try:
            pid = os.fork()
        except OSError as error:
            return NotForked(str(error))
        if pid == 0:
            self._become_child(request, child_input, child_output)
        self._children.add(pid)
        return Forked(pid)

    def _become_child(self, request: Fork, child_input: int, child_output: int) -> NoReturn:
        """Run the child in this process, which has just been forked."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        self._own.close()
        for descriptor, number in ((child_input, 0), (child_output, 1)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        run_child(request.kind, *request.arguments)

    def _report_ends(self) -> None:
        """Report each child that has ended since the last report."""
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._children.discard(pid)
            self._send(Exited(pid, os.waitstatus_to_exitcode(status)))

    def _send(self, message: Message) -> None:
        self._server.send(encode_message(message))


class _WithoutPandas(MetaPathFinder):
    """Makes `import pandas` fail as where it is not installed.

    pyarrow and DuckDB would load it only to recognise its objects, which no child has: 24 MB and 0.3 s.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raise `ModuleNotFoundError` for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError("Children of the fork server work without pandas.", name=fullname)


def _load_code() -> None:
    """Load the code of all children that each server needs, and machine code."""
    sys.meta_path.insert(0, _WithoutPandas())
    for module in (
        *(module for kind, module in ENTRIES.items() if kind not in OPTIONAL),
        *LATE,
    ):
        import_module(module)
    load_machine_code()
    prepare_rendering()
    prepare_pftrace()
    code_digest()
    gc.collect()
    gc.freeze()  # a garbage collection of a child would write to all shared pages
    return_start_memory()


def serve(descriptor: str) -> NoReturn:
    """Serve on the socket of the given file descriptor, until the server is gone."""
    setproctitle(FORK_SERVER_TITLE)
    # Arrow starts its threads again in a child, and no other thread runs here. See
    # https://docs.python.org/3/library/os.html#os.fork and https://github.com/apache/arrow/pull/14594
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    try:
        ForkLoop(socket.socket(fileno=int(descriptor))).run()
    except ConnectionError:  # the server was killed
        os._exit(1)
    os._exit(0)


def main(descriptor: str) -> NoReturn:
    """Load the code of all children, then serve; see `serve`."""
    setproctitle(FORK_SERVER_TITLE)
    _load_code()
    serve(descriptor)


if __name__ == "__main__":
    main(*sys.argv[1:])

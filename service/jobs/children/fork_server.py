"""The fork server, from which the server gets its children."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from asyncio import Future
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TypeVar

from service.jobs.children.kinds import PACKAGE, Kind
from service.jobs.children.messages import Exited, Fork, Forked, Kill, NotForked, decode_message, encode_message
from service.jobs.children.process import ChildProcess
from service.trace.errors import describe_exit

T = TypeVar("T")

log = logging.getLogger(__name__)

DATAGRAM_MAX = 1 << 16
"""Maximum number of bytes of a datagram."""

ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "DUCKDB_JE_MALLOC_CONF": "dirty_decay_ms:100,muzzy_decay_ms:0",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "NUMPY_MADVISE_HUGEPAGE": "0",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment variables of children. The server's own environment overrides them.

Children that read traces spent a third of their time on touching new memory. So Arrow allocates from the C library
like all other code, and all threads share two heaps, which keep freed memory for reuse; a child returns its memory
when it ends. DuckDB, whose allocator (jemalloc) is its own, returns freed memory after a tenth of
a second. NumPy requests no huge pages: in a virtual machine, the first touch of huge pages took twice as long as that
of small ones. See mallopt(3), https://arrow.apache.org/docs/cpp/env_vars.html and
https://numpy.org/doc/stable/reference/global_state.html. OpenBLAS, which no code here uses, starts no threads.
"""


def environment() -> dict[str, str]:
    """Return the environment of the fork server and of all children."""
    return {**ENVIRONMENT, **os.environ}


@dataclass(frozen=True)
class _Running:
    """The process of a fork server, and the socket to it."""

    process: subprocess.Popen[bytes]
    socket: socket.socket


_DEATH = "the process that starts worker processes died"


class _Died(OSError):
    """The fork server died before it had started a child."""


class ForkServer:
    """Starts children. Its process starts with the first child, or earlier by `prepare`, and anew after it has died."""

    def __init__(self) -> None:
        self._running: _Running | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that receives messages from the socket."""
        self._requests: deque[Future[tuple[int, Future[int]]]] = deque()
        """Process ids and exit statuses of the requested children, in order of the requests."""
        self._exit_statuses: dict[int, Future[int]] = {}
        """Exit statuses of the living children, by process id."""

    def prepare(self) -> None:
        """Start the process unless it runs; raises `OSError`."""
        self._prepared()

    async def fork(self, kind: Kind, *arguments: str) -> ChildProcess:
        """Start a child.

        Args:
            kind: the kind of child.
            arguments: further arguments of its ``main``.

        Raises:
            OSError: the child can't be started.
        """
        with suppress(_Died):
            return await self._fork(kind, arguments)
        return await self._fork(kind, arguments)

    async def close(self) -> None:
        """End the process, once all children have ended."""
        if self._running:
            await asyncio.to_thread(self._disconnect(self._running).wait)

    async def _fork(self, kind: Kind, arguments: Sequence[str]) -> ChildProcess:
        running = self._prepared()
        with ExitStack() as our_ends, ExitStack() as child_ends:
            our_input, child_input = _connection(our_ends, child_ends)
            our_output, child_output = _connection(our_ends, child_ends)
            descriptors = [child_input.fileno(), child_output.fileno()]
            try:
                socket.send_fds(running.socket, [encode_message(Fork(kind, list(arguments)))], descriptors)
            except ConnectionError as error:
                self._recover(running)
                raise _Died(_DEATH) from error
            child_ends.close()
            started = asyncio.get_running_loop().create_future()
            self._requests.append(started)
            pid, exit_status = await started
            try:
                child = await ChildProcess.connect(our_input, our_output, pid, exit_status, self._kill)
            except BaseException:
                self._kill(pid)
                raise
            our_ends.pop_all()  # the child process closes them
        return child

    def _prepared(self) -> _Running:
        """Return the process, which is started unless it runs, and receive its messages in the running loop."""
        running = self._running = self._running or _start()
        if self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(running.socket, self._receive, running)
        return running

    def _disconnect(self, running: _Running) -> subprocess.Popen[bytes]:
        """Close the socket, which makes the process end, and return the process."""
        if self._loop is asyncio.get_running_loop():
            self._loop.remove_reader(running.socket)
        self._running = self._loop = None
        running.socket.close()
        return running.process

    def _kill(self, pid: int) -> None:
        # Not os.kill(): only the fork server knows whether the process id still is the child's.
        if self._running:  # otherwise it has died, and all its children have been killed
            with suppress(ConnectionError):  # likewise, but `_receive` has not noticed that yet
                self._running.socket.send(encode_message(Kill(pid)))

    def _receive(self, running: _Running) -> None:
        """Receive the messages that have arrived."""
        with suppress(BlockingIOError):
            while text := _next_text(running.socket):
                match decode_message(text):
                    case Forked(pid):
                        status = self._exit_statuses[pid] = asyncio.get_running_loop().create_future()
                        request = self._requests.popleft()
                        if request.done():  # cancelled; the child ends by itself, unless someone has stopped it
                            self._kill(pid)
                        _settle(request, (pid, status))
                    case NotForked(error):
                        _settle(self._requests.popleft(), OSError(error))
                    case Exited(pid, status):
                        _settle(self._exit_statuses.pop(pid), status)
            self._recover(running)

    def _recover(self, running: _Running) -> None:
        """Kill all children after the death of the fork server, which alone could report their ends."""
        process = self._disconnect(running)
        process.kill()
        log.error("the process that starts worker processes %s, so they are killed", describe_exit(process.wait()))
        for pid, status in self._exit_statuses.items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _settle(status, -signal.SIGKILL)
        self._exit_statuses.clear()
        while self._requests:
            _settle(self._requests.popleft(), _Died(_DEATH))


def _start() -> _Running:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs, ExitStack() as on_failure:
        on_failure.enter_context(ours)
        process = subprocess.Popen(  # noqa: S603 - the command is ours
            [sys.executable, "-m", f"{PACKAGE}.fork_loop", str(theirs.fileno())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            env=environment(), pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        on_failure.pop_all()
    return _Running(process, ours)


def _next_text(ours: socket.socket) -> bytes:
    """Return the next message; empty if the fork server has died. Raises `BlockingIOError` if there is none."""
    try:
        return ours.recv(DATAGRAM_MAX)
    except ConnectionError:
        return b""


def _connection(ours: ExitStack, the_childs: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, each of which is closed by its stack."""
    our_end, child_end = socket.socketpair()
    our_end.setblocking(False)
    return ours.enter_context(our_end), the_childs.enter_context(child_end)


def _settle(future: Future[T], result: T | Exception) -> None:
    """Set the result of a future, unless its reader was cancelled."""
    if not future.done():
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

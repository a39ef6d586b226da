"""The server's end of the pipes to a child."""

import os
import signal
import sys
from asyncio import IncompleteReadError, create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from service.jobs.children.encoding import encode
from service.jobs.children.kinds import PACKAGE, Kind
from service.jobs.children.messages import HEADER, Call, Message, frame_head, message_of

READ_SIZE = 1 << 20
"""Bytes of a child's output that the server reads ahead."""

MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "NUMPY_MADVISE_HUGEPAGE": "0",
}
"""Environment variables of children that control memory allocation. The server's own environment overrides them.

Children that read traces spent a third of their time on touching new memory. So Arrow allocates from the C library
like all other code, and all threads share two heaps, which keep freed memory for reuse; a child returns its memory
when it ends. NumPy requests no huge pages: in a virtual machine, the first touch of huge pages took twice as long as
that of small ones. See mallopt(3), https://arrow.apache.org/docs/cpp/env_vars.html and
https://numpy.org/doc/stable/reference/global_state.html.
"""


async def start_python(*arguments: str) -> Process:
    """Start a Python interpreter with pipes for its input and output; raises `OSError`."""
    return await create_subprocess_exec(
        sys.executable, *arguments,
        stdin=PIPE, stdout=PIPE, env={**MEMORY, **os.environ}, start_new_session=True, limit=READ_SIZE,
    )  # fmt: skip


class ChildProcess:
    """A child process that exchanges messages with the server.

    Args:
        process: the process, with pipes for its input and output.
    """

    def __init__(self, process: Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a child is started with pipes")
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
        self._body_left = 0

    @classmethod
    async def start(cls, kind: Kind, *arguments: str) -> "ChildProcess":
        """Start a child.

        Args:
            kind: the kind of child.
            arguments: further arguments of its command line.

        Raises:
            OSError: the child can't be started.
        """
        return cls(await start_python("-m", PACKAGE, kind, *arguments))

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """True until the server has noticed the end of the process."""
        return self._process.returncode is None

    @property
    def is_busy_reading(self) -> bool:
        """True while the server's buffer holds data that the child has not read yet."""
        return bool(self._input.transport.get_write_buffer_size())

    def call(self, task: object, *, call_id: int = 0, client: str = "", spill_max: int | None = None) -> None:
        """Send the call of a task; see `Call` for the arguments."""
        self.send(Call(type(task).__name__, call_id, client, spill_max), encode(task))

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message, unless the pipe is closed."""
        if not self._input.is_closing():
            self._input.write(frame_head(message, len(body)) + body)

    async def receive(self) -> Message | None:
        """Wait for a message and return it; None once the child has ended.

        The unread rest of the previous message's body is skipped.
        """
        while await self.read_body():
            pass
        try:
            header = await self._output.readexactly(HEADER.size)
            text_size, self._body_left = HEADER.unpack(header)
            return message_of(await self._output.readexactly(text_size))
        except IncompleteReadError:
            self._body_left = 0
            return None

    async def read_body(self) -> bytes:
        """Return the next piece of the last message's body; empty at the end of the body, or if the child has ended."""
        piece = await self._output.read(min(self._body_left, READ_SIZE))
        self._body_left = self._body_left - len(piece) if piece else 0
        return piece

    async def whole_body(self) -> bytes | None:
        """Return the body of the last message; None if the child ended before it sent all of the body."""
        size, self._body_left = self._body_left, 0
        try:
            return await self._output.readexactly(size)
        except IncompleteReadError:
            return None

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                # not Process.kill(): that may reap a process that has just ended, whose status asyncio then never sees
                os.kill(self.pid, signal.SIGKILL)

    def close_input(self) -> None:
        """Close the pipe to the child, which makes the child end."""
        self._input.close()

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit status, negative for a signal."""
        while await self._output.read(READ_SIZE):  # asyncio waits for unread output before it reports the end
            pass
        return await self._process.wait()

    async def end(self) -> int:
        """Kill the process if it still runs, and return its exit status once it is gone."""
        self.kill()
        return await self.wait()

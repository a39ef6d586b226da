"""The server's ends of the connections to a child."""

import asyncio
import socket
from asyncio import Future, IncompleteReadError, StreamReader, StreamWriter
from collections.abc import Callable

from service.jobs.children.encoding import encode
from service.jobs.children.messages import HEADER, Call, Message, decode_message, frame_head

READ_SIZE = 1 << 20
"""Bytes of a child's output that the server reads ahead."""


Connections = tuple[tuple[StreamReader, StreamWriter], tuple[StreamReader, StreamWriter]]


class ChildProcess:
    """A child process that exchanges messages with the server.

    Args:
        connections: the connections to the child's input and from its output.
        pid: the id of the process.
        exit_status: its future exit status, negative for a signal.
        kill: kills the process of an id, if it still runs.
    """

    def __init__(
        self, connections: Connections, pid: int, exit_status: Future[int], kill: Callable[[int], object]
    ) -> None:
        self.pid = pid
        (_, self._input), (self._output, self._output_connection) = connections
        self._exit_status = exit_status
        self._kill = kill
        self._body_left = 0

    @classmethod
    async def connect(
        cls,
        child_input: socket.socket,
        output: socket.socket,
        pid: int,
        exit_status: Future[int],
        kill: Callable[[int], object],
    ) -> "ChildProcess":
        """Return the child process at the other ends of two sockets, which `wait` closes.

        Each socket carries data in one direction only. A single socket could lose the last messages of a child: its
        reader fails as soon as the child has ended without reading all of its input.
        """
        # Not pipes: uvloop closes the file descriptor of a pipe twice, and another thread may have it by then.
        connections = (
            await asyncio.open_unix_connection(sock=child_input, limit=READ_SIZE),
            await asyncio.open_unix_connection(sock=output, limit=READ_SIZE),
        )
        return cls(connections, pid, exit_status, kill)

    @property
    def is_alive(self) -> bool:
        """True until the server has noticed the end of the process."""
        return not self._exit_status.done()

    @property
    def is_busy_reading(self) -> bool:
        """True while the server's buffer holds data that the child has not read yet."""
        return bool(self._input.transport.get_write_buffer_size())

    def call(self, task: object, *, call_id: int = 0, client: str = "", spill_max: int | None = None) -> None:
        """Send the call of a task; see `Call` for the arguments."""
        self.send(Call(type(task).__name__, call_id, client, spill_max), encode(task))

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message, unless the connection is closed."""
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
            return decode_message(await self._output.readexactly(text_size))
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
        if self.is_alive:
            self._kill(self.pid)

    async def kill_and_wait(self) -> None:
        """Kill the process if it still runs, and wait until it is gone; what it has sent can still be read."""
        self.kill()
        await asyncio.shield(self._exit_status)

    def close_input(self) -> None:
        """Close the connection to the child, which makes the child end."""
        self._input.close()

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit status, negative for a signal."""
        while await self._output.read(READ_SIZE):  # the child may wait for its output to be read
            pass
        status = await asyncio.shield(self._exit_status)
        self._input.close()
        self._output_connection.close()
        return status

    async def end(self) -> int:
        """Kill the process if it still runs, and return its exit status once it is gone."""
        self.kill()
        return await self.wait()

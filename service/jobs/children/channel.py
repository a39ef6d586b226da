"""The child's end of the connections to the server."""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.jobs.children.encoding import decode
from service.jobs.children.messages import (
    HEADER,
    Call,
    Crashed,
    Failed,
    Message,
    Progressed,
    decode_message,
    frame_head,
)
from service.jobs.children.tasks import task_type
from service.streaming.source import Progress
from service.trace.errors import TracedockError

PROGRESS_EVERY_S = 0.1
"""Minimum number of seconds between two messages of progress."""


@dataclass(frozen=True)
class ReceivedCall:
    """A call with its task, which is one of `service.jobs.children.tasks`."""

    call: Call
    task: Any


class ServerChannel:
    """Reads messages of the server from standard input, and writes messages to standard output.

    The server keeps the input open as long as the server runs and needs the child.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.buffer
        self._output = sys.stdout.buffer
        self._writing = threading.Lock()
        self._next_progress = 0.0

    def receive(self) -> tuple[Message, bytes] | None:
        """Wait for a message and its body; None once the server has closed the connection."""
        header = self._input.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        text_size, body_size = HEADER.unpack(header)
        text, body = self._input.read(text_size), self._input.read(body_size)
        return (decode_message(text), body) if len(body) == body_size else None

    def receive_call(self) -> ReceivedCall | None:
        """Wait for a call; None once the server has closed the connection."""
        frame = self.receive()
        return call_of(*frame) if frame else None

    def listen(self, on_message: Callable[[Message], object] = lambda _: None) -> None:
        """Pass further messages to a function, in a thread; end this process when the server closes the connection."""

        def read() -> None:
            while frame := self.receive():
                on_message(frame[0])
            os._exit(1)

        threading.Thread(target=read, daemon=True).start()

    def send(self, message: Message, body: bytes | memoryview = b"", *, flush: bool = True) -> None:
        """Write a message and its body; any thread may call this method."""
        size = memoryview(body).nbytes
        with self._writing:
            self._output.write(frame_head(message, size))
            if size:
                self._output.write(body)
            if flush:
                self._output.flush()

    def send_progress(self, progress: Progress) -> None:
        """Send the progress of the only call, at most every `PROGRESS_EVERY_S` seconds."""
        now = time.monotonic()
        if now >= self._next_progress:
            self._next_progress = now + PROGRESS_EVERY_S
            self.send(Progressed(progress))

    def run(self, work: Callable[[], object], fault: type[TracedockError]) -> int:
        """Do the work of the only call; if it fails, send the error.

        Args:
            work: does the work, and sends the result itself.
            fault: base class of the errors whose cause lies in the input.

        Returns:
            The exit status of the child, which must end now.
        """
        try:
            work()
        except ConnectionError:
            raise
        except TracedockError as error:
            self.send(Failed(error.as_document(), in_input=isinstance(error, fault)))
        except Exception as error:  # noqa: BLE001 - the process ends here, and the server logs the reason
            self.send(Crashed(repr(error), traceback.format_exc()))
            return 1
        return 0


def call_of(message: Message, body: bytes) -> ReceivedCall:
    """Decode the task of a call.

    Raises:
        ValueError: the message is not a call.
    """
    if not isinstance(message, Call):
        raise ValueError(f"a call is expected, and {type(message).__name__} came")  # noqa: TRY004 - the data is bad
    return ReceivedCall(message, decode(task_type(message.task), body))

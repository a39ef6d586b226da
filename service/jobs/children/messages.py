"""The protocols between the server, its children and its fork server.

The server and a child exchange frames. A frame consists of a header with two lengths, a message of the first length and
a body of the second length. A message is the name of its class, a space, and its fields as JSON. The meaning of the
body depends on the message.

The server sends `Call` for each task. The child answers with at most one `Begun`, any number of `Progressed` and
`Output`, and then one of `Done`, `Failed` and `Crashed`. The server sends `Drop` for a call whose answer is no longer
needed, and `Grown` and `Complete` about a file that is still being received.

The server and the fork server exchange datagrams, each of one message. The server sends `Fork` for each child and
`Kill` for each child that it no longer needs. The fork server answers each `Fork`, in order, with `Forked` or
`NotForked`, and sends `Exited` for each child that has ended.
"""

import struct
from dataclasses import dataclass
from typing import get_args

from service.jobs.children.encoding import decode, encode
from service.jobs.children.kinds import Kind
from service.streaming.source import Progress
from service.trace.errors import ErrorDocument

HEADER = struct.Struct(">IQ")
"""The header of a frame: the lengths of the message and of its body, in bytes."""


@dataclass(frozen=True)
class Call:
    """Server to child: run a task; the body is the JSON of the task's fields.

    Attributes:
        task: name of the task's class.
        id: number of the call; answers to the call repeat it.
        client: identity of the client that waits for the answer.
        spill_max: maximum number of bytes to spill to disk; None for no bound.
    """

    task: str
    id: int = 0
    client: str = ""
    spill_max: int | None = None


@dataclass(frozen=True)
class Drop:
    """Server to child: the answer to a call is no longer needed."""

    id: int


@dataclass(frozen=True)
class Grown:
    """Server to child: the file that the child reads is still being received, and has grown to a size in bytes."""

    to_bytes: int


@dataclass(frozen=True)
class Complete:
    """Server to child: the file that the child reads is complete, and safe on disk."""


@dataclass(frozen=True)
class Begun:
    """Child to server: work on a call has begun."""

    id: int


@dataclass(frozen=True)
class Progressed:
    """Child to server: progress of a call."""

    progress: Progress
    id: int = 0


@dataclass(frozen=True)
class Output:
    """Child to server: the body is a piece of a call's output."""

    id: int = 0


@dataclass(frozen=True)
class Done:
    """Child to server: a call has succeeded; the body is its result."""

    id: int = 0


@dataclass(frozen=True)
class Failed:
    """Child to server: a call has failed with a `TracedockError`.

    Attributes:
        error: the error.
        in_input: whether the cause lies in the trace or in the request, so that another attempt would fail, too.
        id: number of the call.
    """

    error: ErrorDocument
    in_input: bool = False
    id: int = 0


@dataclass(frozen=True)
class Crashed:
    """Child to server: a call has failed with any other exception, which is a bug.

    Attributes:
        error: the exception's `repr`.
        traceback: its traceback, for the log.
        id: number of the call.
    """

    error: str
    traceback: str
    id: int = 0


@dataclass(frozen=True)
class Fork:
    """Server to fork server: fork a child. The datagram carries the child's input and output as file descriptors."""

    kind: Kind
    arguments: list[str]


@dataclass(frozen=True)
class Kill:
    """Server to fork server: kill a child, unless it has ended."""

    pid: int


@dataclass(frozen=True)
class Forked:
    """Fork server to server: the child of the oldest unanswered `Fork` runs."""

    pid: int


@dataclass(frozen=True)
class NotForked:
    """Fork server to server: the system refused the oldest unanswered `Fork`."""

    error: str


@dataclass(frozen=True)
class Exited:
    """Fork server to server: a child has ended; the status is negative if a signal killed the child."""

    pid: int
    status: int


ChildMessage = Call | Drop | Grown | Complete | Begun | Progressed | Output | Done | Failed | Crashed
ForkMessage = Fork | Kill | Forked | NotForked | Exited
Message = ChildMessage | ForkMessage

_MESSAGES: dict[str, type[Message]] = {
    message.__name__: message for message in (*get_args(ChildMessage), *get_args(ForkMessage))
}


def encode_message(message: Message) -> bytes:
    """Encode a message."""
    return b"%s %s" % (type(message).__name__.encode(), encode(message))


def decode_message(text: bytes) -> Message:
    """Decode a message.

    Raises:
        KeyError: no message has that name.
        pydantic.ValidationError: the message does not have these fields.
    """
    name, _, fields = text.partition(b" ")
    return decode(_MESSAGES[name.decode()], fields)


def frame_head(message: Message, body_size: int = 0) -> bytes:
    """Encode the part of a frame before the body."""
    text = encode_message(message)
    return HEADER.pack(len(text), body_size) + text

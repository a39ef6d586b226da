"""Messages between the server and its children arrive unchanged, and other text is refused."""

import asyncio
import socket

import pytest
from pydantic import ValidationError

from service.jobs.children.kinds import Kind
from service.jobs.children.messages import (
    HEADER,
    Begun,
    Call,
    Complete,
    Crashed,
    Done,
    Drop,
    Exited,
    Failed,
    Fork,
    Forked,
    Grown,
    Kill,
    Message,
    NotForked,
    Output,
    Progressed,
    decode_message,
    frame_head,
)
from service.jobs.children.process import ChildProcess
from service.streaming.source import Progress
from service.trace.errors import ErrorDocument, NothingSelected, error_from_document
from tests.jobs.frames import frames_of

MESSAGES: list[Message] = [
    Fork(Kind.ANALYSIS, ["/a folder/é"]),
    Kill(1),
    Forked(2),
    NotForked("no memory"),
    Exited(3, -9),
    Call("SplitTask", 3, "a client", 1 << 40),
    Drop(1),
    Grown(1 << 50),
    Complete(),
    Begun(7),
    Progressed(Progress(1, 2, 3, 4)),
    Output(),
    Done(9),
    Failed(ErrorDocument("bad", "é\u2028", "x", {"known": [1, None], "last": {"code": "bad"}}), in_input=True, id=2),
    Crashed("KeyError('a b')", "Traceback\n  …", 4),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_is_received_as_it_was_sent(message: Message) -> None:
    assert frames_of(frame_head(message, 4) + b"body" + frame_head(Complete())) == [
        (message, b"body"),
        (Complete(), b""),
    ]


@pytest.mark.parametrize("text", [b"Grown {}", b'Grown {"to_bytes":"x"}', b"Grown", b'Shrunk {"a":1}', b""])
def test_text_that_is_no_message_is_refused(text: bytes) -> None:
    with pytest.raises((ValidationError, KeyError)):
        decode_message(text)


def test_error_of_a_failure_is_raised_again_as_it_was() -> None:
    error = NothingSelected("no step 7", known_steps=[1, 2])
    failed = decode_message(frame_head(Failed(error.as_document()))[HEADER.size :])
    assert isinstance(failed, Failed)
    raised = error_from_document(failed.error)
    assert (type(raised), raised.as_dict()) == (NothingSelected, error.as_dict())


async def child_that_sent(output: bytes) -> ChildProcess:
    """Return a child that has sent this output and has ended."""
    (child_input, its_input), (our_output, its_output) = socket.socketpair(), socket.socketpair()
    with its_input, its_output:
        its_output.sendall(output)
    exit_status = asyncio.get_running_loop().create_future()
    exit_status.set_result(0)
    return await ChildProcess.connect(child_input, our_output, 0, exit_status, lambda _: None)


async def exchanged(output: bytes) -> tuple[list[Message], int]:
    """Return the messages that the server receives from a child with this output, and the exit status."""
    child, messages = await child_that_sent(output), []
    while message := await child.receive():
        messages.append(message)
    return messages, await child.wait()


def test_server_skips_bodies_that_it_does_not_read() -> None:
    output = frame_head(Output(), 5) + b"hello" + frame_head(Done())
    assert asyncio.run(exchanged(output)) == ([Output(), Done()], 0)


@pytest.mark.parametrize("cut", [1, HEADER.size, HEADER.size + 3])
def test_child_that_ends_within_a_message_has_ended(cut: int) -> None:
    whole = frame_head(Begun(1))
    assert asyncio.run(exchanged(whole + frame_head(Done(1))[:cut])) == ([Begun(1)], 0)


def test_child_that_ends_within_a_body_has_no_whole_body() -> None:
    async def body() -> bytes | None:
        output = frame_head(Done(), 100) + b"short"
        child = await child_that_sent(output)
        assert await child.receive() == Done()
        result = await child.whole_body()
        await child.end()
        return result

    assert asyncio.run(body()) is None

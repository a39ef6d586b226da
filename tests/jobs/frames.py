"""Frames of the protocol between the server and its children, for tests that start a child themselves."""

import subprocess
import sys
from typing import Any

import orjson

from service.jobs.children.encoding import encode
from service.jobs.children.kinds import PACKAGE, Kind
from service.jobs.children.messages import HEADER, Call, Message, decode_message, frame_head

Frame = tuple[Message, bytes]


def command(kind: Kind, *arguments: str) -> list[str]:
    """Return the command line of a child."""
    return [sys.executable, "-m", PACKAGE, kind, *arguments]


def started(kind: Kind, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a child with pipes for its input, its output and its log."""
    pipe = subprocess.PIPE
    # in a session of its own: an ingest lowers the priority of its session, which would be that of all tests
    return subprocess.Popen(command(kind, *arguments), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)


def call(task: object) -> bytes:
    """Return the frame that calls a task."""
    body = encode(task)
    return frame_head(Call(type(task).__name__), len(body)) + body


def send(child: subprocess.Popen[bytes], frame: bytes) -> None:
    """Send a frame to a child."""
    assert child.stdin
    child.stdin.write(frame)
    child.stdin.flush()


def frames_of(output: bytes) -> list[Frame]:
    """Return the complete frames at the start of a child's output."""
    frames, place = [], 0
    while len(output) >= place + HEADER.size:
        text_size, body_size = HEADER.unpack_from(output, place)
        text_end = place + HEADER.size + text_size
        place = text_end + body_size
        frames.append((decode_message(output[text_end - text_size : text_end]), output[text_end:place]))
    return frames


def result_of(frame: Frame) -> Any:
    """Return the JSON result in the frame of a finished call."""
    return orjson.loads(frame[1])

"""The part of the engine's RPC that the doubles need: parsing requests and writing responses."""

import os
import sys
from collections.abc import Iterator

APPEND, FINALIZE, QUERY, STATUS = 1, 2, 3, 10


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, payload: bytes) -> bytes:
    """Return a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def requests() -> Iterator[int]:
    """Confirm the requests of the load, and yield the method of each other request, until the input ends."""
    for method in all_requests():
        if method in (APPEND, FINALIZE):
            loaded(method)
        else:
            yield method


def all_requests() -> Iterator[int]:
    """Yield the method of each request, until the input ends."""
    while sys.stdin.buffer.read(1):
        size = shift = 0
        while (byte := sys.stdin.buffer.read(1)[0]) & 128:
            size |= (byte & 127) << shift
            shift += 7
        size |= byte << shift
        yield sys.stdin.buffer.read(size)[1]


def loaded(method: int) -> None:
    """Confirm a piece of the trace, or its end."""
    send(field(1, b"\x18" + bytes([method])))


def send(data: bytes) -> None:
    os.write(1, data)


def status() -> None:
    """Send the status."""
    send(field(1, b"\x18\x0a" + field(210, field(2, b"double") + b"\x18\x0e" + field(4, b"double"))))


def rows(last: bool) -> None:
    """Send a batch with the single cell 1 in the column `n`; `last` marks it as the last batch."""
    batch = field(1, b"\x02") + field(2, b"\x01") + (b"\x30\x01" if last else b"")
    send(field(1, b"\x18\x03" + field(203, field(1, b"n") + field(3, batch))))

"""Compiled writing of protobuf fields into an array of bytes."""

import numpy as np
import numpy.typing as npt

from service.streaming.scan.compiled import inlined

Bytes = npt.NDArray[np.uint8]


@inlined
def put(out: Bytes, end: int, content: bytes) -> int:
    """Write constant bytes from the index `end` on; return the new end."""
    for at in range(len(content)):
        out[end + at] = content[at]
    return int(end + len(content))


@inlined
def put_slice(out: Bytes, end: int, values: Bytes, start: int, stop: int) -> int:
    """Copy bytes from the index `end` on; return the new end."""
    here, there = np.uintp(start), np.uintp(end)  # unsigned indices; see `service.rendering.text`
    for at in range(np.uintp(stop - start)):
        out[there + at] = values[here + at]
    return int(end + stop - start)


@inlined
def put_varint(out: Bytes, end: int, number: int) -> int:
    """Write an integer; a negative one takes ten bytes, as protobuf's 64-bit integers do."""
    left = np.uint64(number)
    while left > np.uint64(0x7F):
        out[end] = np.uint8(left & np.uint64(0x7F)) | np.uint8(0x80)
        left >>= np.uint64(7)
        end += 1
    out[end] = np.uint8(left)
    return int(end + 1)


@inlined
def close_message(out: Bytes, start: int, end: int) -> int:
    """Write the size of a message before it, and return its new end.

    Args:
        out: has the message, with one byte of room for its size before it.
        start: index of its first byte.
        end: index after its last byte.
    """
    size = end - start
    more, left = 0, size >> 7
    while left:
        more, left = more + 1, left >> 7
    if more:
        for at in range(end - 1, start - 1, -1):
            out[at + more] = out[at]
    put_varint(out, start - 1, size)
    return int(end + more)

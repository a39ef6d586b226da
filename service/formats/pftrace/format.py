"""Recognition of Perfetto's protobuf traces."""

import re
from collections.abc import Iterable
from pathlib import Path

from service.formats.pftrace.reader import PerfettoReader
from service.formats.reader import Head

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SHOWN = 64  # bytes in which a protobuf has a control character; text that starts with an empty line has none
_WIRE_TYPES = (0, 1, 2, 5)


def is_perfetto_trace(start: bytes) -> bool:
    """Return whether bytes start with two packets of a Perfetto trace, or with a long one.

    Each packet is field 1 of the message ``Trace``: https://perfetto.dev/docs/reference/trace-packet-proto.
    """
    if not _CONTROL.search(start[:_SHOWN]):
        return False
    at, packets = 0, 0
    while packets < 2 and start[at : at + 1] == b"\n":
        size, shift, at = 0, 0, at + 1
        while at < len(start) and shift < 35:
            byte = start[at]
            size, shift, at = size | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                break
        if size and at < len(start) and not (start[at] & 7 in _WIRE_TYPES and start[at] >> 3):
            return False
        packets, at = packets + 1, at + size
    return packets == 2 or (packets == 1 and at >= len(start))


class PerfettoTrace:
    """The format of Perfetto's protobuf traces."""

    name = "pftrace"

    def recognises(self, head: Head) -> bool:
        """Return whether the decompressed content starts with packets of a trace."""
        return is_perfetto_trace(head.plain)

    def reader(self, chunks: Iterable[bytes], scratch: Path) -> PerfettoReader:
        """Return the reader of a trace."""
        return PerfettoReader(chunks, scratch)


FORMAT = PerfettoTrace()

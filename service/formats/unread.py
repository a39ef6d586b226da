"""Files of profilers that are known, but not read as traces: what they are, and what to upload instead."""

import re
from collections.abc import Callable
from typing import NamedTuple

from service.trace.errors import NotATrace

_HEAD = 4096  # bytes in which a report shows what it is
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class UnreadFile(NamedTuple):
    """A kind of file that is not read.

    Attributes:
        is_start: returns whether a file's decompressed content starts with these bytes.
        text: what the file is, and what to do.
    """

    is_start: Callable[[bytes], bool]
    text: str


def _matches(pattern: bytes) -> Callable[[bytes], bool]:
    compiled = re.compile(pattern)
    return lambda start: compiled.search(start) is not None


def is_perfetto_trace(start: bytes) -> bool:
    """Return whether bytes start with two packets of a Perfetto trace, or with a long one.

    Each packet is field 1 of the message ``Trace``: https://perfetto.dev/docs/reference/trace-packet-proto.
    """
    if not _CONTROL.search(start[:64]):  # text that starts with an empty line has none
        return False
    at, packets = 0, 0
    while packets < 2 and start[at : at + 1] == b"\n":
        size, shift, at = 0, 0, at + 1
        while at < len(start) and shift < 35:
            byte = start[at]
            size, shift, at = size | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                break
        packets, at = packets + 1, at + size
    return packets == 2 or (packets == 1 and at >= len(start))


UNREAD = (
    UnreadFile(
        is_perfetto_trace,
        "a protobuf, as Perfetto's own traces are. Open those at ui.perfetto.dev; or write JSON instead, as"
        ' torch.profiler does with `export_chrome_trace("trace.json.gz")`, and rocprofv3 with `--output-format json`',
    ),
    UnreadFile(
        _matches(rb'\A\s*\{\s*"schema"\s*:\s*"\d+\.\d+[^"]*"(?!(?s:.)*"traceEvents")(?s:.)*"nodes"\s*:\s*\['),
        "an execution trace: it has operators, but no times of GPU work. Upload the trace that torch.profiler wrote"
        " in the same run",
    ),
    UnreadFile(
        _matches(rb"\A\s*\[\s*\[\s*-?\d"),
        "a memory timeline of `export_memory_timeline`, which PyTorch has deprecated. Record a memory snapshot instead:"
        " `torch.cuda.memory._record_memory_history()`, and later `torch.cuda.memory._dump_snapshot(path)`",
    ),
    UnreadFile(
        _matches(
            rb"\A\s*(?:-{5,} DeepSpeed Flops Profiler|Comm\. Op\s+Message Size|\[\d{4}-\d\d-\d\d [^\n]*\| comm op: )"
        ),
        "a report of DeepSpeed, whose figures are rounded. Upload the trace that torch.profiler wrote in the same run",
    ),
    UnreadFile(
        _matches(rb"\A-{5,}[- ]*\s+Name\b.*\bSelf C(?:PU|UDA)"),
        "the table of `key_averages()`, whose figures are rounded. Upload the trace that"
        " `export_chrome_trace` writes; the analysis `operators` has the exact figures",
    ),
    UnreadFile(
        _matches(rb"\A(?:(?![{\[])[^\n]*\n)*Time \(%\),Total Time \(ns\),"),
        "a summary of `nsys stats`. Upload the SQLite file that"
        " `nsys export --type sqlite --output out.sqlite report.nsys-rep` writes",
    ),
)
"""The kinds of files that are known and not read."""


def check_is_not_unread(start: bytes) -> None:
    """Check that a file is none of `UNREAD`.

    Args:
        start: the first bytes of its decompressed content.

    Raises:
        NotATrace: it is one of them; the message says what to upload instead.
    """
    head = start[:_HEAD]
    for kind in UNREAD:
        if kind.is_start(head):
            raise NotATrace(f"The file is {kind.text}.")

"""Files of profilers that are known, but not read as traces: what they are, and what to upload instead."""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from service.trace.errors import NotATrace

ReportKind = Literal["execution_trace", "deepspeed_flops", "deepspeed_comms", "key_averages", "nsys_summary"]
"""The kinds of these files that can be attached to a trace or a run; see `service.formats.attachments`."""

_HEAD = 4096  # bytes in which a report shows what it is


class UnreadFile(NamedTuple):
    """A kind of file that is not read.

    Attributes:
        is_start: returns whether a file's decompressed content starts with these bytes.
        text: what the file is, and what to do.
        attached_as: its kind as an attachment; None if it can't be attached.
    """

    is_start: Callable[[bytes], bool]
    text: str
    attached_as: ReportKind | None = None


def _matches(pattern: bytes) -> Callable[[bytes], bool]:
    compiled = re.compile(pattern)
    return lambda start: compiled.search(start) is not None


_DEEPSPEED = (
    "a report of DeepSpeed, whose figures are rounded. Upload the trace that torch.profiler wrote in the same run"
)
_ATTACH = "`tracedock attach TRACE FILE` keeps the file beside that trace or its run"

UNREAD = (
    UnreadFile(
        _matches(rb'\A\s*\{\s*"schema"\s*:\s*"\d+\.\d+[^"]*"(?!(?s:.)*"traceEvents")(?s:.)*"nodes"\s*:\s*\['),
        "an execution trace: it has operators, but no times of GPU work. Upload the trace that torch.profiler wrote"
        " in the same run",
        "execution_trace",
    ),
    UnreadFile(
        _matches(rb"\A\s*-{5,} DeepSpeed Flops Profiler"),
        _DEEPSPEED,
        "deepspeed_flops",
    ),
    UnreadFile(
        _matches(rb"\A\s*(?:Comm\. Op\s+Message Size|\[\d{4}-\d\d-\d\d [^\n]*\| comm op: )"),
        _DEEPSPEED,
        "deepspeed_comms",
    ),
    UnreadFile(
        _matches(rb"\A-{5,}[- ]*\s+Name\b.*\bSelf C(?:PU|UDA)"),
        "the table of `key_averages()`, whose figures are rounded. Upload the trace that"
        " `export_chrome_trace` writes; the analysis `operators` has the exact figures",
        "key_averages",
    ),
    UnreadFile(
        _matches(rb"\A(?:(?![{\[])[^\n]*\n)*Time \(%\),Total Time \(ns\),"),
        "a summary of `nsys stats`. Upload the SQLite file that"
        " `nsys export --type sqlite --output out.sqlite report.nsys-rep` writes",
        "nsys_summary",
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
    if kind := unread_kind(start):
        raise NotATrace(f"The file is {kind.text}." + (f" {_ATTACH}." if kind.attached_as else ""))


def unread_kind(start: bytes) -> UnreadFile | None:
    """Return which of `UNREAD` a file is, by the first bytes of its decompressed content; None if it is none."""
    head = start[:_HEAD]
    return next((kind for kind in UNREAD if kind.is_start(head)), None)

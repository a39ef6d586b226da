"""The kinds of files that are kept beside traces, recognised by their content."""

import codecs
import io
import re
from typing import Literal

from service.formats.unread import ReportKind, unread_kind
from service.streaming.codec import compression_of, decompressed
from service.trace.errors import BadAttachment, BadCompression, Truncated

AttachmentKind = Literal[ReportKind, "text"]
"""The kinds of attachments: reports of profilers that are known, and any other text."""
HEAD_SIZE = 1 << 16
"""Bytes of a file by which its kind is recognised."""

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # an escape, \x1b, begins the colours of a log
_TRACE = re.compile(rb'\A\s*(?:\{(?s:.)*"traceEvents"\s*:|\[\s*\{[^}]*"ph"\s*:|\[\s*\[\s*-?\d)')


def attachment_kind(head: bytes) -> AttachmentKind:
    """Return the kind of a file.

    Args:
        head: the first `HEAD_SIZE` bytes of the file: plain, gzip or zstd.

    Raises:
        BadAttachment: the file is a trace, or neither a known report nor text.
    """
    start = _decompressed_start(head)
    if (kind := unread_kind(start)) is not None:
        if kind.attached_as is None:
            raise BadAttachment(f"The file is {kind.text}.")
        return kind.attached_as
    if _TRACE.match(start):
        raise BadAttachment("The file is a trace: `tracedock upload` sends it.")
    if not _is_text(start):
        raise BadAttachment(
            "The file is neither a known report nor text in UTF-8. `tracedock upload` sends traces, exports of Nsight"
            " Systems and memory snapshots."
        )
    return "text"


def _decompressed_start(head: bytes) -> bytes:
    """Return the beginning of the decompressed content; raises `BadAttachment` if nothing of it can be read."""
    try:
        start = next(decompressed(io.BufferedReader(io.BytesIO(head))), b"")
    except (BadCompression, Truncated) as error:
        raise BadAttachment(f"The file can't be read. {error.detail}") from error
    if not start:
        raise BadAttachment(f"The file has no content, as its {compression_of(head)[1:]} stream is empty.")
    return start[:HEAD_SIZE]


def _is_text(start: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)  # a character may be cut at the end
    except UnicodeDecodeError:
        return False
    return not _CONTROL.search(text)

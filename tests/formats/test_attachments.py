"""The kind of an attachment is that of its content; traces and binary files are refused."""

import gzip
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats.attachments import HEAD_SIZE, attachment_kind
from service.trace.errors import BadAttachment
from tests.conftest import DATA, needs_shared
from tests.formats.test_unread import INPUTS, PACKET

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

KINDS = {
    b'{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": []}': "execution_trace",
    b"\n------ DeepSpeed Flops Profiler ------\nProfile Summary": "deepspeed_flops",
    b"Comm. Op            Message Size        Count\n": "deepspeed_comms",
    b"-------  ------\n   Name    Self CPU %   \n": "key_averages",
    b"Time (%),Total Time (ns),Instances,Name\n": "nsys_summary",
    b'{"lr": 0.1}': "text",
    b"\x1b[32mstep 7\x1b[0m \xc3\xa9\n": "text",
    b"{}": "text",
}
FILES = {
    "et_chakra_schema_trimmed.json": "execution_trace",
    "et_simple_add.json": "execution_trace",
    "text_deepspeed_comms.txt": "deepspeed_comms",
    "text_deepspeed_comms_verbose.log": "deepspeed_comms",
    "text_deepspeed_flops.txt": "deepspeed_flops",
    "text_key_averages.txt": "key_averages",
    "text_nsys_kern_sum.csv": "nsys_summary",
}
REFUSED = {
    b'{"schemaVersion": 1, "traceEvents": []}': "is a trace",
    b'[{"name": "a", "ph": "X"}]': "is a trace",
    b"SQLite format 3\0": "neither a known report nor text",
    b"\x80\x04\x95": "neither a known report nor text",
    "UTF-16".encode("utf-16"): "neither a known report nor text",
    b"\xff\xfe": "neither a known report nor text",
    PACKET + PACKET: "neither a known report nor text",
    b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]": "a trace",
    b"\x1f\x8b\x08": "can't be read",
    b"\x1f\x8bnot gzip": "can't be read",
    gzip.compress(b"", mtime=0): "no content",
}


@pytest.mark.parametrize(("content", "kind"), KINDS.items())
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd.compress], ids=["plain", "gzip", "zstd"])
def test_kind_is_that_of_the_content(content: bytes, kind: str, compress: Callable[[bytes], bytes]) -> None:
    assert attachment_kind(compress(content)) == kind


def test_kind_is_known_from_the_head_of_a_large_file() -> None:
    content = "é".encode() * HEAD_SIZE
    assert attachment_kind(b"a" + content[: HEAD_SIZE - 1]) == "text"  # the head ends within a character
    assert (
        attachment_kind(gzip.compress(b'{"schema": "1.0.1", "nodes": []' + content, 1)[:HEAD_SIZE]) == "execution_trace"
    )


@pytest.mark.parametrize(("content", "reason"), REFUSED.items())
def test_traces_and_binary_files_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(BadAttachment, match=reason):
        attachment_kind(content)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json*")), ids=lambda path: path.name)
def test_real_traces_are_refused(path: str) -> None:
    with pytest.raises(BadAttachment, match="is a trace"):
        attachment_kind((DATA / path).read_bytes()[:HEAD_SIZE])


@needs_shared
@pytest.mark.parametrize("name", FILES)
def test_real_reports_have_their_kinds(name: str) -> None:
    assert attachment_kind((INPUTS / name).read_bytes()[:HEAD_SIZE]) == FILES[name]


@given(st.binary(min_size=1))
def test_any_bytes_have_a_kind_or_are_refused(content: bytes) -> None:
    try:
        kind = attachment_kind(content)
    except BadAttachment:
        return
    assert kind == "text"

"""Files of profilers that are no traces are named, with what to do; traces are never taken for one."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats.pftrace.format import is_perfetto_trace
from service.formats.pftrace.reader import PerfettoReader
from service.formats.registry import open_trace
from service.formats.unread import check_is_not_unread
from service.trace.errors import NotATrace
from tests.conftest import DATA, SHARED, needs_shared

INPUTS = SHARED.parent / "inputs"
PACKET = b"\n\x12\xe2\x03\x0f\x08\x01\x1a\x0b\x08\x92\x21\x32\x06python"
PERFETTO = (PACKET, PACKET + PACKET, b"\n\xff\xff\x03\xe2\x03" + bytes(2000))
KINDS = {
    b'{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": []}': "an execution trace",
    b'{\n  "schema": "1.0.1", "nodes": []}': "an execution trace",
    b"\n------ DeepSpeed Flops Profiler ------\nProfile Summary": "a report of DeepSpeed",
    b"Comm. Op            Message Size        Count\n": "a report of DeepSpeed",
    b"[2026-06-26 01:39:55,722] [INFO] rank=0 | comm op: all_gather | time (ms): 9.46": "a report of DeepSpeed",
    b"-------  ------\n   Name    Self CPU %   \n": "the table of `key_averages()`",
    b"Processing [report.sqlite]...\n\nTime (%),Total Time (ns),Instances,Name\n": "a summary of `nsys stats`",
}
FILES = {
    "et_*.json": "an execution trace",
    "text_deepspeed_*": "a report of DeepSpeed",
    "text_key_averages.txt": "the table of `key_averages()`",
    "text_nsys_*": "a summary of `nsys stats`",
}


@pytest.mark.parametrize(("content", "kind"), KINDS.items(), ids=[*KINDS.values()])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_known_file_is_named_with_what_to_do(
    content: bytes, kind: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(compress(content))

    with path.open("rb") as file, pytest.raises(NotATrace) as refusal:
        open_trace(file, tmp_path)

    assert refusal.value.detail.startswith(f"The file is {kind}")
    assert refusal.value.detail.endswith(".")


@needs_shared
@pytest.mark.parametrize("pattern", FILES)
def test_real_files_are_named(pattern: str, tmp_path: Path) -> None:
    paths = [path for path in INPUTS.glob(pattern) if "golden" not in path.name and "kineto" not in path.name]

    assert paths
    for path in paths:
        with path.open("rb") as file, pytest.raises(NotATrace, match=re.escape(f"The file is {FILES[pattern]}")):
            open_trace(file, tmp_path)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json*")), ids=lambda path: path.name)
def test_traces_are_taken_for_no_other_file(path: Path) -> None:
    content = path.read_bytes()
    check_is_not_unread(gzip.decompress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize(
    "content",
    [
        b"\n[]", b"\n{}", b'\n{\t"traceEvents":[]}', b'\n \r\n{"traceEvents": []}', b'\n[\t{"ph":"X","name":"a"}]',
        b"\nHello", b'\n\t\t{"a": 1,\n\t\t"traceEvents": [{}]}', b"", b"\n", b"\n\n{", b"[", b"[]",
        b'\n{"traceEvents": []}', b'{"schemaVersion": 1, "traceEvents": []}', b'{"schema": "1.0", "traceEvents": []}',
        b'[{"ph": "X"}]', b'{"traceEvents": [{"name": "Comm. Op"}]}', b'{"schema": "mine", "nodes": [1], "traceE',
        b'{"about": "------ DeepSpeed Flops Profiler ------ | comm op: x", "traceEvents": []}', b'{"schema": "1.0", "b',
        b'[{"name": "[2026-06-26 01:39:55,722] | comm op: x"}, {"name": "Time (%),Total Time (ns),"}]',
    ],
)  # fmt: skip
def test_beginnings_of_json_are_taken_for_no_other_file(content: bytes) -> None:
    check_is_not_unread(content)
    assert not is_perfetto_trace(content)


@pytest.mark.parametrize("content", PERFETTO, ids=["one packet", "two packets", "a long packet"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_packets_are_a_perfetto_trace_by_their_content(
    content: bytes, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(compress(content))

    with path.open("rb") as file:
        reader, name = open_trace(file, tmp_path)

    assert isinstance(reader, PerfettoReader)
    assert name.startswith("pftrace")


JSON_VALUES = st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner))


@given(st.text("\n \t\r", max_size=300), st.dictionaries(st.text(), JSON_VALUES))
def test_white_space_before_a_trace_is_no_perfetto_trace(space: str, members: dict[str, object]) -> None:
    document = f"{space}{json.dumps({**members, 'traceEvents': []})}".encode()
    check_is_not_unread(document)
    assert not is_perfetto_trace(document)

"""Ingest recognises each registered format by its content: a new format needs one folder and one line of code."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.formats import registry
from service.formats.chrome_json.document import Document
from service.formats.names import FOLDERS, SUFFIXES
from service.formats.reader import Head, TraceReader
from service.formats.registry import open_trace
from service.jobs.ingest import ingest
from service.store.export import document
from service.streaming.schema import SCHEMA
from service.trace.errors import BadCompression, NotATrace, NotJson, Truncated
from service.trace.health import Health
from service.trace.summary import Summary
from tests.traces import TraceShape, write_trace

CSV = b"""name,ts_ns,dur_ns
forward,1000,500
damaged row
backward,1600,250
"""


class CsvReader:
    """Reader of a toy format: slices of one thread, as lines of name, start and duration."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.kept = 0
        self.refused = 0
        self.health = Health()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield one batch of all lines."""
        _, *lines = b"".join(self._chunks).decode().splitlines()
        rows: list[dict[str, Any]] = []
        for line in lines:
            name, *times = line.split(",")
            if len(times) != 2:
                self.refused += 1
                self.health.add("unreadable_event", text=line)
                continue
            start, duration = map(int, times)
            rows.append({
                **dict.fromkeys(SCHEMA.names),
                "position": len(rows), "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2,
                "ts_ns": start, "ts_digits": 3, "dur_ns": duration, "dur_digits": 3, "verbatim": False,
            })  # fmt: skip
        self.kept = len(rows)
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)

    def envelope(self) -> tuple[bytes, dict[str, Any]]:
        """Return the document around the events, and its parsed members."""
        return b'{"host_name": "toy", "traceEvents": []}', {"host_name": "toy"}


class Csv:
    """The toy format."""

    name = "csv"

    def recognises(self, head: Head) -> bool:
        """Return whether the content starts with the header line."""
        return head.plain.startswith(b"name,ts_ns,dur_ns\n")

    def reader(self, chunks: Iterable[bytes], scratch: Path) -> TraceReader:
        """Return the reader."""
        return CsvReader(chunks)


@pytest.fixture
def csv_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FORMATS", (Csv(), *registry.FORMATS))


def ingested(content: bytes, columns: Path) -> Summary:
    return ingest(BufferedReader(BytesIO(content)), columns, "a name without meaning", lambda _: None)


@pytest.mark.usefixtures("csv_registered")
@pytest.mark.parametrize(("compress", "name"), [(bytes, "csv"), (gzip.compress, "csv.gz")])
def test_registered_format_is_ingested(tmp_path: Path, compress: Callable[[bytes], bytes], name: str) -> None:
    summary = ingested(compress(CSV), tmp_path / "columns")

    assert summary.format == name
    assert summary.events == {"in": 3, "kept": 2, "refused": 1}
    assert (summary.host, summary.bounds) == ("toy", {"start_ns": 1000, "end_ns": 1850})
    assert [note["code"] for note in summary.health["notes"] if note["kind"] == "refused"] == ["unreadable_event"]
    exported = json.loads(b"".join(document(tmp_path / "columns")))
    assert exported["traceEvents"] == [
        {"ph": "X", "cat": "cpu_op", "name": "forward", "pid": 1, "tid": 2, "ts": 1, "dur": 0.5},
        {"ph": "X", "cat": "cpu_op", "name": "backward", "pid": 1, "tid": 2, "ts": 1.6, "dur": 0.25},
    ]


@pytest.mark.usefixtures("csv_registered")
def test_other_files_are_still_chrome_json(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.json", TraceShape(), compress="gzip")

    assert ingested(trace.read_bytes(), tmp_path / "columns").format == "json.gz"


def test_chrome_json_is_chosen_for_damaged_text(tmp_path: Path) -> None:
    reader, name = open_trace(BufferedReader(BytesIO(b'noise {"traceEvents": [{"ph": "X"}]}')), tmp_path)

    assert isinstance(reader, Document)
    assert name == "json"


@pytest.mark.parametrize(
    ("head", "reason"),
    [(b"PK\x03\x04", "zip"), (b"NVIDIA Tegra Profiler Report 2026", "nsys export --type sqlite")],
)
def test_known_foreign_format_is_refused(tmp_path: Path, head: bytes, reason: str) -> None:
    with pytest.raises(NotJson, match=reason):
        open_trace(BufferedReader(BytesIO(head + bytes(100))), tmp_path)


def test_unrecognised_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FORMATS", (Csv(),))

    with pytest.raises(NotATrace):
        open_trace(BufferedReader(BytesIO(b'{"traceEvents": []}')), tmp_path)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (gzip.compress(b'{"traceEvents": [', mtime=0)[:-9], Truncated),
        (b"\x1f\x8b\x08".ljust(10, b"\0") + b"\xff" * 40, BadCompression),
    ],
)
def test_error_within_the_first_bytes_is_raised_by_the_reader(
    tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    reader, name = open_trace(BufferedReader(BytesIO(content)), tmp_path)

    assert name == "json.gz"
    with pytest.raises(error):
        list(reader.batches())


def test_reader_receives_all_bytes_after_recognition(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.json", TraceShape(steps=20))
    sizes: list[int] = []

    with trace.open("rb") as file:
        reader, _ = open_trace(file, tmp_path, sizes.append)
        count = sum(map(len, reader.batches()))

    assert count == reader.kept == len(json.loads(trace.read_bytes())["traceEvents"])
    assert sizes[-1] == trace.stat().st_size


def test_each_format_has_the_name_under_which_it_is_listed() -> None:
    assert [each.name for each in registry.FORMATS] == [name for name, folders in FOLDERS.items() for _ in folders]
    assert {f".{name}" for name in FOLDERS} <= {*SUFFIXES}

"""An ingest leaves its result whole, or none."""

import json
import os
import resource
from pathlib import Path

import pytest

from service.jobs.ingest import ingest
from service.trace.errors import DiskFull, NotJson
from tests.traces import TraceShape, write_trace


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "original", TraceShape())


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    (tmp_path / "columns").mkdir()
    return tmp_path / "columns" / "9f2c41d07a3b"


def test_what_stands_around_the_events_is_kept(original: Path, columns: Path) -> None:
    summary = ingest(original, columns, "t.json", lambda _: None)

    document = json.loads(original.read_bytes())
    assert json.loads((columns / "envelope.json").read_bytes()) == document | {"traceEvents": []}
    assert summary.events["in"] == len(document["traceEvents"])
    assert os.listdir(columns.parent) == [columns.name]  # noqa: PTH208 - names are asked for


def test_what_a_killed_worker_left_is_replaced(original: Path, columns: Path) -> None:
    for leftover in (columns, columns.with_name(f"{columns.name}.partial")):
        leftover.mkdir()
        (leftover / "stale").write_bytes(b"x")

    ingest(original, columns, "t.json", lambda _: None)

    assert [path.name for path in columns.parent.rglob("*")] == [columns.name, "envelope.json"]


def test_a_file_that_is_no_trace_leaves_nothing(tmp_path: Path, columns: Path) -> None:
    (tmp_path / "original").write_bytes(b"no JSON")

    with pytest.raises(NotJson):
        ingest(tmp_path / "original", columns, "t.json", lambda _: None)

    assert list(columns.parent.iterdir()) == []


def test_no_room_for_the_result_is_told_and_gives_no_result(original: Path, columns: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # the kernel's own refusal to write more
    try:
        with pytest.raises(DiskFull):
            ingest(original, columns, "t.json", lambda _: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert not columns.exists()

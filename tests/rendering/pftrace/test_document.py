"""A Perfetto trace holds a selection, hides secrets and answers analyses like the JSON document of the same trace."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from service.cutting.cut import cut_document
from service.cutting.source import Source
from service.formats.pftrace.packets import packets
from service.jobs.ingest import ingest
from service.rendering.pftrace import document as written_document
from service.rendering.pftrace.document import pftrace
from service.store.export import document
from service.trace.errors import FormatUnavailable, NothingSelected
from service.trace.selection import Selection
from tests.conftest import DATA
from tests.cutting.test_cut import ingested, plain
from tests.formats.pftrace.reading import read
from tests.rendering.pftrace.reading import comparable, read_back, rows_of, written
from tests.traces import TraceShape, trace_chunks

STEPS = DATA / "cpu_train_steps.pt.trace.json.gz"
HF = "hf_abcdefghijklmnopqrstuvwxyz01234567"


@pytest.fixture
def steps(tmp_path: Path) -> Source:
    return ingested(plain(STEPS), tmp_path / "steps")


@pytest.mark.parametrize(
    "selection",
    [{"steps": [3]}, {"steps": [3], "straddle": "clip"}, {"names": ["aten::*"]}],
    ids=["step", "clip", "names"],
)
def test_a_cut_has_the_events_and_the_provenance_of_the_json_cut(
    steps: Source, tmp_path: Path, selection: dict[str, object]
) -> None:
    chosen = Selection.parsed(selection)
    text = b"".join(cut_document(steps.columns, chosen, steps.summary, source="it"))
    cut = ingested(text, tmp_path / "cut")

    found = read_back(steps, selection=chosen, source="it")

    assert comparable(found.rows) == comparable(rows_of(cut.columns))
    assert found.members["tracedock"] == json.loads(text)["tracedock"]


def test_a_selection_without_events_is_refused_before_the_first_piece(steps: Source) -> None:
    with pytest.raises(NothingSelected):
        next(pftrace(steps.columns, steps.summary, selection=Selection.parsed({"names": ["nothing*"]})))


def test_the_summary_of_the_ingested_trace_is_that_of_the_document(steps: Source, tmp_path: Path) -> None:
    (tmp_path / "again.pftrace").write_bytes(written(steps))
    with (tmp_path / "again.pftrace").open("rb") as original:
        summary = ingest(original, tmp_path / "again", "again.pftrace", lambda _: None)

    own, again = steps.summary.as_dict(), summary.as_dict()
    for key in ("counts", "steps", "streams", "bounds", "base_ns", "rank", "processes", "threads", "attribution"):
        assert again[key] == own[key], key


def test_secrets_are_hidden_as_in_the_redacted_document(tmp_path: Path) -> None:
    secretive = {
        "password": "sesame", "baseTimeNanoseconds": 1_711_964_646_000_000_000,
        "traceEvents": [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": f"thread {HF}"}},
            {"ph": "X", "name": f"name {HF}", "cat": HF, "pid": f"pid {HF}", "tid": 2, "ts": 1, "dur": 2,
             "args": {"api_key": "sesame", "plain": "shown", HF: 1}},
            {"ph": "X", "name": "rest", "pid": 1, "tid": 2, "ts": 1, "dur": 2, "env": {"HOME": "sesame"}},
            {"ph": "X", "name": "null", "pid": 1, "tid": 2, "ts": 1, "dur": 2, "args": {"token": "sesame", "no": None}},
        ],
    }  # fmt: skip
    trace = ingested(json.dumps(secretive), tmp_path / "trace")
    redacted = ingested(b"".join(document(trace.columns, redact=True)), tmp_path / "redacted")

    content = written(trace, redact=True)
    found = read_back(trace, redact=True)

    assert HF.encode() in written(trace)
    assert b"sesame" in written(trace)
    assert HF.encode() not in content
    assert b"sesame" not in content
    assert comparable(found.rows) == comparable(rows_of(redacted.columns))
    assert found.members == json.loads((redacted.columns / "envelope.json").read_text())


def test_a_document_with_too_much_around_its_events_is_refused_with_other_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = ingested(json.dumps({"words": "x" * 500, "traceEvents": [{"ph": "X", "ts": 1, "dur": 1}]}), tmp_path / "t")
    monkeypatch.setattr(written_document, "AROUND_MAX", 100)
    with pytest.raises(FormatUnavailable, match="has 507 bytes around its events"):
        next(pftrace(trace.columns, trace.summary))


def test_a_file_that_is_cut_keeps_its_first_events(steps: Source) -> None:
    content = written(steps)
    whole = comparable(read(content).rows)

    found = read(content[: len(content) // 2])

    assert found.notes["cut"] == 1
    slices = comparable(row for row in found.rows if row["ph"] == "X" and "args" in row)
    assert slices.total() > 50
    assert (slices - whole).total() <= 1  # the slice whose end is lost


def test_facts_that_are_not_tracedocks_do_not_change_how_a_trace_is_read(steps: Source) -> None:
    content = written(steps)
    damaged = content.replace(b'"version": 1', b'"version": 9')

    found = read(damaged)

    assert found.notes["unread_packets"] > 0
    assert len(found.slices()) == sum(row["ph"] == "X" for row in rows_of(steps.columns))


def test_pieces_are_bounded_and_end_between_packets(tmp_path: Path) -> None:
    trace = ingested(b"".join(trace_chunks(TraceShape(steps=40))), tmp_path / "trace")
    groups = pq.read_metadata(trace.columns / "events.parquet").num_row_groups

    pieces = [*pftrace(trace.columns, trace.summary)]

    assert len(pieces) >= groups + 2
    assert all(packet.damage is None for piece in pieces for packet in packets([piece]))


def test_arguments_that_are_too_large_for_a_packet_come_back_from_json(tmp_path: Path) -> None:
    large = {"ph": "X", "name": "large", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {"n": [-1] * (6 << 20)}}
    trace = ingested(json.dumps([large, large, large | {"args": {"n": 1}}], separators=(",", ":")), tmp_path / "trace")

    found = read_back(trace)

    assert comparable(found.rows) == comparable(rows_of(trace.columns))
    assert (found.refused, found.notes) == (0, {})

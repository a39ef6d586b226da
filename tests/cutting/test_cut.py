"""A cut document has exactly the events that the oracle keeps, and the provenance of the whole trace."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.cutting.cut import cut_document
from service.cutting.source import Source
from service.jobs.ingest import ingest
from service.store.export import document
from service.trace.errors import NothingSelected, SelectionError
from service.trace.selection import Selection
from tests import brute
from tests.columns import Object, envelope_of, events_of, parsed, unordered, written
from tests.conftest import DATA, SHARED, scaled
from tests.cutting.choices import Chosen, documents, edges_of, selection_of, text_of
from tests.traces import TraceShape, trace_chunks

SMALL = [
    path
    for path in (*sorted(DATA.glob("*.pt.trace.json.gz")), SHARED / "h100_bert_small.pt.trace.json.gz")
    if path.exists()
]
HERE = {"pid": 1, "tid": 1}


def ingested(text: str | bytes, folder: Path, name: str = "trace.json", *, rank: int | None = None) -> Source:
    """Return the source of an ingested document."""
    folder.mkdir(parents=True)
    (folder / "original").write_bytes(text.encode() if isinstance(text, str) else text)
    with (folder / "original").open("rb") as original:
        summary = ingest(original, folder / "columns", name, lambda _: None)
    raw = (folder / "original").read_bytes()
    return Source(folder / "columns", name, summary, sha256(raw).hexdigest(), rank)


def plain(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def synthetic(**shape: Any) -> bytes:
    return b"".join(trace_chunks(TraceShape(**shape)))


def line(event: Object) -> str:
    """Return an event as text that does not depend on the order of its keys."""
    return written(Object(unordered(event)))


def lines(text: str | bytes) -> list[str]:
    """Return the text of each event of a document."""
    return [*map(line, events_of(parsed(text)))]


def document_of(source: Source) -> bytes:
    return b"".join(document(source.columns))


def cut_text(source: Source, selection: Chosen, *, redact: bool = False) -> bytes:
    """Return the document of the events that a selection keeps."""
    parsed_selection = Selection.parsed(selection)
    return b"".join(cut_document(source.columns, parsed_selection, source.summary, source=source.source, redact=redact))


def by_time(document: brute.Document, positions: Iterable[int]) -> list[int]:
    """Return positions in the order of a cut document: by time, then by position, with untimed events last."""
    starts = {at: document.events[at].start for at in positions}
    return sorted(starts, key=lambda at: (starts[at] is None, starts[at] or 0, at))


def kept_of(document: brute.Document, selection: Chosen) -> list[int] | None:
    with suppress(brute.NoTime, brute.UnknownSlice):
        return by_time(document, brute.kept(document, selection))
    return None


def check(text: str | bytes, source: Source, random: Random, count: int) -> None:
    document, events, envelope = brute.Document(text), lines(text), envelope_of(parsed(text))
    cuts = 0
    for _ in range(count):
        selection = selection_of(document, random)
        if selection.get("straddle") == "clip":
            selection["straddle"] = "start"
        oracle = kept_of(document, selection)
        if not oracle:
            with pytest.raises(SelectionError):
                cut_text(source, selection)
            continue
        cuts += 1
        result = cut_text(source, selection)
        assert lines(result) == [events[at] for at in oracle], selection
        check_envelope(envelope_of(parsed(result)), envelope, source, selection)
    assert cuts or count < 6


def check_envelope(result: str, envelope: str, source: Source, selection: Chosen) -> None:
    (key, facts), *members = parsed(result)
    assert written(Object(members)) == envelope
    provenance = json.loads(written(facts))
    assert key == "tracedock"
    assert provenance["part"].keys() == {"of", "selection", "external_ids", "steps"}
    assert provenance["part"]["of"] == source.source
    assert Selection.parsed(provenance["part"]["selection"]) == Selection.parsed(selection)


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.partition(".")[0])
def test_cut_document_of_a_real_trace_matches_the_oracle(path: Path, tmp_path: Path) -> None:
    text = plain(path)

    check(text, ingested(text, tmp_path / "whole"), Random(path.name), 6)


@pytest.mark.parametrize("era", ["us_int", "us_float", "relative"])
def test_cut_document_of_a_synthetic_trace_matches_the_oracle(era: Any, tmp_path: Path) -> None:
    text = synthetic(era=era, kernels=6, devices=(0, 1), steps=2)

    check(text, ingested(text, tmp_path / "whole"), Random(era), 9)


@settings(max_examples=scaled(10))
@given(documents(), st.randoms(use_true_random=False))
def test_cut_document_of_a_hostile_document_matches_the_oracle(text: str, random: Random) -> None:
    with TemporaryDirectory() as folder:
        check(text, ingested(text, Path(folder) / "whole"), random, 3)


ODD = (
    '{"schemaVersion": 1, "traceEvents": ['
    '{"ph": "X", "name": "a", "ts": 1e3, "dur": 2, "pid": 1, "tid": 1, "weight": 1.50},'
    '{"ph": "X", "name": "b", "ts": 5, "ts": 6, "dur": 1.0, "pid": 1, "tid": 1},'
    '{"ph": "X", "name": "\\ud83d", "ts": 7.0005, "dur": 3, "pid": null, "args": {"a": -0, "a": 1E400}},'
    '{"ph": "i", "ts": 4458676416431397123, "name": "late", "id": 123456789012345678901, "s": "g"}'
    '], "last": [1.0, {"x": 1e1}]}'
)


def test_verbatim_events_are_unchanged_in_a_cut(tmp_path: Path) -> None:
    source = ingested(ODD, tmp_path / "whole")

    result = cut_text(source, {"phases": ["X", "i"]})

    assert Counter(lines(result)) == Counter(lines(ODD))
    assert envelope_of(parsed(result)).endswith('"schemaVersion": 1, "traceEvents": [], "last": [1.0, {"x": 1e1}]}')


def test_part_of_a_part_refers_to_the_whole_and_has_its_own_selection(tmp_path: Path) -> None:
    text = plain(DATA / "cpu_train_steps.pt.trace.json.gz")
    whole = ingested(text, tmp_path / "whole")
    start, end = edges_of(whole.summary)
    half = {"window": {"start_ns": start, "end_ns": (start + end) // 2}, "straddle": "start"}

    first = cut_text(whole, half)
    part = ingested(first, tmp_path / "part")
    second = cut_text(part, {"phases": ["X"]})

    assert part.whole_id == whole.source
    facts = {"of": whole.source, "selection": {"phases": ["X"]}, "external_ids": "unknown"}
    steps = json.loads(first)["tracedock"]["part"]["steps"]
    assert json.loads(second)["tracedock"] == {"part": {**facts, "steps": steps}}
    assert next(iter(parsed(second)))[0] == "tracedock"
    assert envelope_of(Object(parsed(second)[1:])) == envelope_of(parsed(text))
    assert lines(cut_text(part, half)) == lines(first)  # a second cut by the same selection changes nothing
    assert lines(document_of(part)) == lines(first)


def test_cut_document_can_be_redacted(tmp_path: Path) -> None:
    secret = "sk-ant-" + "a1B2" * 12
    event = {"ph": "X", "ts": 1, "dur": 2, **HERE, "name": "a", "args": {"api_key": secret}}
    source = ingested(text_of(event, event, api_key=secret), tmp_path / "whole")

    assert cut_text(source, {"phases": ["X"]}).decode().count(secret) == 3
    redacted = cut_text(source, {"phases": ["X"]}, redact=True).decode()
    assert secret not in redacted
    assert len(json.loads(redacted)["traceEvents"]) == 2


def test_empty_selection_is_refused_before_the_first_byte(tmp_path: Path) -> None:
    source = ingested(synthetic(), tmp_path / "whole")
    parsed_selection = Selection.parsed({"names": ["no such"], "closure": {"metadata": False}})

    with pytest.raises(NothingSelected) as caught:
        next(cut_document(source.columns, parsed_selection, source.summary, source="0"))

    assert caught.value.as_dict()["counts"] == source.summary.counts


def test_bare_list_of_events_gets_no_provenance(tmp_path: Path) -> None:
    source = ingested(synthetic(document="array"), tmp_path / "whole")

    assert isinstance(json.loads(cut_text(source, {"phases": ["X"]})), list)

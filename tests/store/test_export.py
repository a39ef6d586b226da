"""An exported document has the original events, with the same keys, values and text of numbers."""

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.store.export import Order, _time, document, envelope, packed
from service.trace.errors import ExportFailed
from tests.columns import Number, Object, envelope_of, events_of, parsed, unordered, write_columns, written
from tests.traces import TraceShape, trace_chunks

WriteColumns = Callable[[str], Path]


@pytest.fixture
def columns(tmp_path: Path) -> WriteColumns:
    """Return a function that writes the columns of a document."""
    return lambda text: write_columns(tmp_path / "columns", text)


def exported(columns: Path, *, order: Order = "time", redact: bool = False) -> str:
    return b"".join(document(columns, order=order, redact=redact)).decode()


def same_events(actual: Any, expected: Any) -> bool:
    return [*map(unordered, events_of(actual))] == [*map(unordered, events_of(expected))]


def lines_of(text: str) -> list[str]:
    """Return the sorted lines of a document."""
    return sorted(line.removesuffix(",") for line in text.split("\n"))


# -- events of any content -----------------------------------------------------------------------------------------

strings = st.text(st.characters(codec=None, categories=None), max_size=8)
numbers = st.builds(
    Number,
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
    | st.sampled_from(["-0", "-0.0", "-0.5", "-0.001", "1.50", "1e5", str(2**63), str(-(2**63)), str(2**70)]),
)
scalars = strings | numbers | st.booleans() | st.none()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(strings, inner), max_size=3).map(Object),
    max_leaves=6,
)
times = st.builds(
    Number,
    st.from_regex(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,4})?", fullmatch=True),
)
members = (
    st.tuples(st.sampled_from(["ph", "cat", "name"]), strings | st.sampled_from(["X", "M", "kernel"]))
    | st.tuples(st.sampled_from(["ts", "dur"]), times)
    | st.tuples(st.sampled_from(["ph", "cat", "name", "pid", "tid", "id", "ts", "dur", "args"]) | strings, values)
)
events = st.lists(members, max_size=8).map(Object)
envelopes = st.lists(st.tuples(strings.filter(lambda key: key != "traceEvents"), values), max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> str:
    elements = draw(st.lists(events, max_size=6))
    if draw(st.booleans()):
        return written(elements)
    around = draw(envelopes)
    around.insert(draw(st.integers(0, len(around))), ("traceEvents", elements))
    return written(Object(around))


@given(documents())
def test_any_document_is_exported_unchanged_in_either_order(text: str) -> None:
    with TemporaryDirectory() as folder:
        columns = write_columns(Path(folder, "columns"), text)
        original, timely = exported(columns, order="original"), exported(columns)
    expected, actual = parsed(text), parsed(original)
    assert same_events(actual, expected)
    assert envelope_of(actual) == envelope_of(expected)
    assert lines_of(timely) == lines_of(original)


@given(st.integers(-(2**62), 2**62), st.sampled_from([0, 1, 2, 3]))
def test_time_of_any_size_keeps_its_text(ns: int, digits: int) -> None:
    unit = 10 ** (3 - digits)
    integer, part = divmod(abs(ns // unit), 10**digits)
    sign = "-" if ns // unit < 0 else ""
    written_time = f"{sign}{integer}.{part:0{digits}}" if digits else f"{sign}{integer}"
    sql = f"SELECT {_time('ts')} FROM (SELECT {ns // unit * unit} AS ts_ns, {digits} AS ts_digits)"
    assert duckdb.execute(sql).fetchall() == [(written_time,)]


def test_event_of_any_layout_is_one_line(columns: WriteColumns) -> None:
    text = '{"traceEvents": [\r\n{"ph": "X", "ts": 1, "args":\n{"a":\n1}\r\n}, {"ts": 2,\n"name": "a\\nb"}\n]}'
    folder = columns(text)
    lines = exported(folder).splitlines()
    assert [json.loads(line.rstrip(",")) for line in lines[1:-1]] == json.loads(text)["traceEvents"]


@pytest.mark.parametrize(
    "text", ["[]", " [ \n] ", '{"traceEvents": []}', '{"a": {"traceEvents": []}, "\\u0074raceEvents":[ ]  , "b": [[]]}']
)
def test_a_document_without_events_is_its_envelope(columns: WriteColumns, text: str) -> None:
    folder = columns('{"traceEvents": []}')
    (folder / "envelope.json").write_text(text)
    assert json.loads(exported(folder)) == json.loads(text)


def test_events_are_sorted_by_time_with_untimed_ones_last(columns: WriteColumns) -> None:
    folder = columns('[{"ph": "M", "ts": 0}, {"ts": 2.5}, {"ts": -0.5}, {"ts": 1e3, "dur": 0.10}]')
    assert [event.get("ts") for event in json.loads(exported(folder), parse_float=str)] == ["-0.5", "2.5", "1e3", 0]


def test_events_replace_the_last_of_equal_keys(columns: WriteColumns) -> None:
    folder = columns('[{"ph": "X"}]')
    (folder / "envelope.json").write_text('{"traceEvents": [], "a": "traceEvents", "b": [], "traceEvents": []}')
    assert json.loads(exported(folder)) == {"a": "traceEvents", "b": [], "traceEvents": [{"ph": "X"}]}


def test_packed_document_is_one_gzip_of_the_same_bytes(columns: WriteColumns) -> None:
    folder = columns(b"".join(trace_chunks(TraceShape(steps=3))).decode())
    unpacked = zlib.decompressobj(31)
    assert unpacked.decompress(b"".join(packed(document(folder)))) == exported(folder).encode()
    assert (unpacked.eof, unpacked.unused_data) == (True, b"")


# -- secrets -------------------------------------------------------------------------------------------------------

HF = "hf_abcdefghijklmnopqrstuvwxyz01234567"


def test_a_redacted_document_hides_secrets_in_envelope_and_events_and_nothing_else(columns: WriteColumns) -> None:
    text = f"""{{"numbers": [1.50, 1e5, {2**70}], "metadata": {{"env": {{"HOME": "/home/me", "N": 1}}}},
        "traceEvents": [
        {{"name": "load {HF}", "ts": 1.500}},
        {{"name": "plain", "args": {{"api_key": "open sesame", "n": 1.0}}}},
        {{"name": "num_tokens", "args": {{"num_tokens": 5}}}}]}}"""
    folder = columns(text)
    expected = text.replace(HF, "[redacted]").replace("open sesame", "[redacted]")
    expected = expected.replace('"/home/me"', '"[redacted]"').replace('"N": 1', '"N": "[redacted]"')
    assert same_events(parsed(exported(folder, order="original", redact=True)), parsed(expected))
    assert json.loads(envelope(folder, redact=True))["metadata"] == {"env": {"HOME": "[redacted]", "N": "[redacted]"}}
    assert b"[1.50, 1e5, 1180591620717411303424]" in envelope(folder, redact=True)
    assert HF in exported(folder)


# -- unreadable columns --------------------------------------------------------------------------------------------


def test_missing_or_damaged_columns_are_reported(columns: WriteColumns) -> None:
    folder = columns('[{"ph": "X"}]')
    shutil.copy(folder / "events.parquet", folder / "whole")
    (folder / "events.parquet").write_bytes((folder / "whole").read_bytes()[:-100])
    with pytest.raises(ExportFailed, match=r"events\.parquet can't be read"):
        exported(folder)
    (folder / "events.parquet").unlink()
    with pytest.raises(ExportFailed, match=r"events\.parquet can't be read"):
        exported(folder)
    (folder / "envelope.json").write_text("{}")
    with pytest.raises(ExportFailed, match="no place"):
        exported(folder)
    (folder / "envelope.json").unlink()
    with pytest.raises(ExportFailed, match="envelope can't be read"):
        exported(folder)


def test_columns_of_another_version_are_refused(columns: WriteColumns) -> None:
    folder = columns('[{"ph": "X"}]')
    events = folder / "events.parquet"
    duckdb.execute(f"COPY (FROM '{events}') TO '{events}2' (FORMAT parquet, KV_METADATA {{'tracedock.columns': '2'}})")
    shutil.move(f"{events}2", events)
    with pytest.raises(ExportFailed, match="not of version 1"):
        exported(folder)


# -- events of many megabytes ------------------------------------------------------------------------------------------

LARGE = "0123456789" * 4_500_000


@pytest.mark.system
@pytest.mark.parametrize("order", ["time", "original"])
@pytest.mark.parametrize("large", [[{"name": LARGE}], [{"cat": LARGE}], [{"args": {"x": LARGE}}] * 6])
def test_large_events_are_exported_unchanged(columns: WriteColumns, large: list[dict[str, Any]], order: Order) -> None:
    small = [{"ph": "X", "name": "small", "pid": 1, "tid": 1, "ts": 5 - at, "dur": 1} for at in range(3)]
    events = [
        *small,
        *({"ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": 9, "dur": 1, **event} for event in large),
        small[0],
    ]
    actual = json.loads(exported(columns(json.dumps({"traceEvents": events})), order=order))["traceEvents"]
    assert actual == (events if order == "original" else sorted(events, key=lambda event: event["ts"]))

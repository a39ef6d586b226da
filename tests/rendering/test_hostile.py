"""The engine loads documents with any content, and has all their slices and counters."""

import json
from pathlib import Path
from random import Random

import pytest

from service.trace.selection_fields import Args
from tests.cutting.choices import text_of
from tests.cutting.test_cut import ingested
from tests.rendering.hostile import document
from tests.rendering.loads import LoadResult, load

pytestmark = pytest.mark.system

BATCH = 20
FEW, MANY = 60, 500
ARGS: tuple[Args, ...] = ("all", "all", "essential", "none")


def batches() -> list[object]:
    """Return the first seed of each batch of documents; most batches are slow tests."""
    fast_seeds = range(0, FEW, BATCH)
    return [
        pytest.param(first, marks=() if first in fast_seeds else pytest.mark.slow) for first in range(0, MANY, BATCH)
    ]


def check(result: LoadResult, name: object) -> None:
    """Check that the report covers all events, and that only arrows and ends without a counterpart are missing."""
    if result.document.startswith(b"{"):
        json.loads(result.document)
    report, rendered = result.report, result.rendered
    notes = {note.code: note.count for note in report.notes}
    stats = {stat.name: stat.value for stat in report.stats}
    assert report.slices.engine == report.slices.expected, name
    assert report.counters.engine == report.counters.expected, name
    undrawn = report.flows.missing
    assert notes.get("undrawn_flows", 0) == undrawn, name
    assert all(code == "misplaced_end_event" or code.startswith("flow_") for code in stats), name
    unbegun = notes.get("unbegun", 0)
    assert unbegun <= rendered.phases["E"] + rendered.phases["e"], name
    assert report.complete == (not undrawn and not unbegun), name
    expected_count = sum(rendered.phases.values()) + rendered.metadata - undrawn - unbegun
    assert report.shown == expected_count, name
    assert rendered.events == sum(rendered.phases.values()) + rendered.metadata + rendered.untimed + rendered.loose_ends


@pytest.mark.parametrize("first", batches())
def test_hostile_documents_are_loaded_completely(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + BATCH):
        args = ARGS[seed % len(ARGS)]
        trace = ingested(document(Random(seed)).encode("utf-8", "surrogatepass"), tmp_path / str(seed))
        result = load(trace, args=args)
        assert result.rendered.events == trace.summary.events["kept"], seed
        check(result, seed)


HERE = {"pid": 1, "tid": 1, "ph": "X", "ts": 1, "dur": 1, "name": "one"}


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("args", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),
        ("args", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("args", "[" * 2000 + "]" * 2000),
        ("args", '{"a":' * 500 + "1" + "}" * 500),
        ("args", '"text"'),
        ("args", '{"a":"' + "x" * 5_000_000 + '"}'),
        ("args", '{"a":NaN,"b":"\\ud83d","c":18446744073709551615,"d":1}'),
        ("args", '{"a":1,"a":2,"a":{"a":3}}'),
        ("name", '"' + "x" * 5_000_000 + '"'),
        ("name", '"\\u0000\\ud83d"'),
        ("name", "null"),
        ("cat", "7"),
        ("id", '"\\ud83d"'),
        ("stack", '"\\ud83d\\ude00"'),
        ("tts", '"none"'),
        ("tts", "1E+400"),
        ("tdur", "9" * 400),
        ("dur", "NaN"),
        ("dur", "-5"),
        ("pid", "-9223372036854775809"),
        ("tid", '{"a":1}'),
        ("ph", "null"),
    ],
    ids=lambda value: value[:12],
)
def test_harmful_value_affects_no_other_value(member: str, value: str, tmp_path: Path) -> None:
    text = text_of({**HERE, member: "@@"}, {**HERE, "ts": 5, "args": {"b": 1}}).replace('"@@"', value)
    trace = ingested(text, tmp_path / "trace")
    result = load(trace, "SELECT key, int_value FROM args WHERE key = 'args.b'")
    check(result, member)
    assert result.report.complete
    assert result.report.shown == trace.summary.events["kept"]  # ingest refuses events that nest too deep
    assert ("args.b", 1) in result.answers[0]


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"text"', "[1]", "null", "true", "1e999", "9" * 400])
def test_counter_values_that_are_no_numbers_are_reported(value: str, tmp_path: Path) -> None:
    counter = {"ph": "C", "pid": 1, "name": "memory", "ts": 3, "args": {"good": 5, "bad": "@@"}}
    text = text_of(HERE, counter).replace('"@@"', value)
    result = load(ingested(text, tmp_path / "trace"), "SELECT value FROM counter")
    check(result, value)
    assert result.answers[0] == [(5.0,)]
    assert [note.count for note in result.report.notes if note.code == "no_numbers"] == [1]


def test_arrow_ends_at_the_slice_that_begins_then(tmp_path: Path) -> None:
    arrow = {"id": 1, "cat": "cpu_to_cuda", "pid": 1, "name": "launch"}
    events = [
        {**HERE, "name": "call"},
        {**arrow, "ph": "s", "tid": 1, "ts": 1},
        {**HERE, "name": "kernel", "tid": 2, "ts": 10},
        {**arrow, "ph": "f", "tid": 2, "ts": 10},
        {**HERE, "name": "next", "tid": 2, "ts": 20},
    ]
    sql = "SELECT a.name, b.name FROM flow JOIN slice AS a ON a.id = slice_out JOIN slice AS b ON b.id = slice_in"
    result = load(ingested(text_of(*events), tmp_path / "trace"), sql)
    assert result.answers[0] == [("call", "kernel")]
    events[3]["bp"] = "e"
    result = load(ingested(text_of(*events), tmp_path / "bound"), sql)
    assert result.answers[0] == [("call", "kernel")]

"""Records have the times, names and arguments of events, whatever these are, and fit into the format."""

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.rendering.document import render
from service.rendering.fuchsia.records import TEXTS_MAX
from service.rendering.render_report import RenderReport
from service.store.folder import COLUMNS_VERSION, EVENTS
from tests.cutting.choices import text_of
from tests.cutting.test_cut import ingested
from tests.rendering.fuchsia.decoded import Decoder, Event
from tests.rendering.loads import load

INSTANT, BEGIN, END, SLICE, FLOW_BEGIN, FLOW_END = 0, 2, 3, 4, 8, 10
SAFE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
NESTED = st.recursive(
    st.none() | st.booleans() | SAFE | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SAFE, inner, max_size=3),
    max_leaves=6,
).filter(lambda value: isinstance(value, list | dict))
ARGS = st.dictionaries(SAFE, st.none() | st.booleans() | SAFE | INTEGERS | DOUBLES | NESTED, max_size=12)
HERE = {"ph": "X", "pid": 1, "tid": 2, "cat": "cpu_op", "name": "op", "ts": 1, "dur": 4}


def decoded(*events: dict[str, Any], ascii_only: bool = False) -> tuple[list[Event], RenderReport]:
    """Return the events of the document of a trace, and the report on it."""
    document, report = document_of(events, ascii_only=ascii_only)
    return [*Decoder(document).events()], report


def document_of(events: Iterable[dict[str, Any]], *, ascii_only: bool = False) -> tuple[bytes, RenderReport]:
    """Return the document of a trace, and the report on it."""
    with TemporaryDirectory() as folder:
        text = json.dumps({"traceEvents": [*events]}, ensure_ascii=ascii_only)
        trace = ingested(text.encode(), Path(folder, "trace"))
        report = RenderReport()
        return b"".join(render(trace.columns, trace.summary, report)), report


def shown(value: Any) -> Any:
    """Return a value as an argument: lists and objects are text."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


@settings(max_examples=60)
@given(st.lists(ARGS, min_size=1, max_size=4), st.booleans())
def test_arguments_keep_their_values_and_types(args: list[dict[str, Any]], ascii_only: bool) -> None:
    events = [HERE | {"ts": 10 * number, "args": each} for number, each in enumerate(args)]
    records, _ = decoded(*events, ascii_only=ascii_only)
    for record, each in zip(records, args, strict=True):
        expected = [(f"args.{name}", value) for name, value in each.items() if value is not None]
        found = [
            (name, json.loads(value) if isinstance(wanted, list | dict) else value)
            for (name, value), (_, wanted) in zip(record.args, expected, strict=True)
        ]
        assert found == expected
        assert [type(value) for _, value in found] == [type(value) for _, value in expected]


@pytest.mark.parametrize(
    "number",
    ["0", "7", "-7", "999999999999999999", "-999999999999999999", "1000000000000000000", "9223372036854775807",
     "-9223372036854775808", "0.1", "123456.7891234", "1e-300", "4.9e-324", "1.7976931348623157e308",
     "0.30000000000000004", "-0.0", "12345678901234567890.5", "1e22", "1e23", "9007199254740993.0", "2147483648",
     "-2147483649", "2147483647"],
)  # fmt: skip
def test_numbers_are_exact(number: str) -> None:
    [[record], _] = decoded(HERE | {"args": {"n": json.loads(number)}})
    assert repr(record.args) == repr([("args.n", json.loads(number))])


def test_texts_that_differ_in_one_character_stay_apart() -> None:
    texts = ["x" * size for size in range(34)]
    texts += ["x" * at + "y" + "x" * (size - at - 1) for size in (1, 7, 8, 9, 15, 16, 17, 33) for at in range(size)]
    args = [{text: text} for text in texts]
    records, _ = decoded(*(HERE | {"ts": 10 * n, "args": each} for n, each in enumerate([*args, *args])))
    assert [record.args for record in records] == 2 * [[(f"args.{text}", text)] for text in texts]


@pytest.mark.parametrize("at", range(20))
def test_quotes_and_backslashes_are_found_at_each_place_of_a_text(at: int) -> None:
    texts = [
        before * at + odd + after for before in "x\\" for odd in ('"', "\\", '\\"', "[{") for after in ("", "}]xxx")
    ]
    [[record], _] = decoded(
        HERE | {"args": {f"{n}{text}": text for n, text in enumerate(texts[:8])} | {"z": texts[8:]}}
    )
    assert record.args[:8] == [(f"args.{n}{text}", text) for n, text in enumerate(texts[:8])]
    assert json.loads(record.args[8][1]) == texts[8:]


def test_times_and_threads_are_those_of_the_slice() -> None:
    events = [HERE | {"ts": 1, "dur": 3}, HERE | {"ts": 1, "dur": 2, "name": "inner"}, HERE | {"ts": 3.5, "tid": 9}]
    records, _ = decoded(*events)
    assert [(r.kind, r.pid, r.tid, r.category, r.name, r.ts, r.last) for r in records] == [
        (SLICE, 1, 2, "cpu_op", "op", 0, 3000),
        (SLICE, 1, 2, "cpu_op", "inner", 0, 2000),
        (SLICE, 1, 9, "cpu_op", "op", 2500, 6500),
    ]


def test_slices_of_one_start_are_in_order_of_their_ends() -> None:
    records, _ = decoded(*(HERE | {"dur": dur} for dur in (2, 9, 4, 7)))
    assert [record.last for record in records] == [9000, 7000, 4000, 2000]


def test_engine_has_the_time_of_an_event_to_release_the_memory_of_each_8192_events(tmp_path: Path) -> None:
    events = [HERE | {"ts": 10 * n, "tid": 1 + n % 300} for n in range(20_000)]
    trace = ingested(text_of(*events), tmp_path / "trace")
    result = load(
        trace, "SELECT ts, tid FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)"
    )
    decoder = Decoder(result.document)
    assert sum(1 for _ in decoder.events()) == len(events)
    assert decoder.releases == [10_000 * number for number in (8_191, 16_383)]
    assert result.report.complete
    assert result.report.stats == []
    assert sorted(result.answers[0]) == [(10_000 * n, 1 + n % 300) for n in range(20_000)]


def test_more_names_than_numbers_are_written_in_full() -> None:
    count = 33_000
    records, _ = decoded(
        *(HERE | {"ts": 10 * n, "name": f"name {n}", "args": {"s": f"text {n}"}} for n in range(count))
    )
    assert [record.name for record in records] == [f"name {n}" for n in range(count)]
    assert [record.args for record in records] == [[("args.s", f"text {n}")] for n in range(count)]


def test_large_names_without_numbers_are_written_in_full() -> None:
    names = [f"name {n} " + "x" * 700 for n in range(17_000)]
    records, _ = decoded(*(HERE | {"ts": 10 * n, "name": name, "cat": name[:9]} for n, name in enumerate(names)))
    assert [(record.name, record.category) for record in records] == [(name, name[:9]) for name in names]


@pytest.mark.parametrize(
    ("count", "numbered"), [(0, 2), (1, 3), (2, 4), (3, 4), (4, 6), (6, 8), (7, 8), (8, 10), (14, 16), (15, 16)]
)
@pytest.mark.parametrize("texts", [{"cat": "cuda_runtime"}, {"name": "aten::addmm"}])
def test_text_is_in_full_if_its_number_takes_more_memory_in_the_engine(
    count: int, numbered: int, texts: dict[str, str]
) -> None:
    event = HERE | {"cat": "user_annotation", "name": "Optimizer.step#Adam"} | texts
    args = {f"a{n}": 0.98765432109876543 if n % 3 == 0 else n for n in range(count)}
    decoder = Decoder(document_of([event | {"args": args}])[0])
    [record] = decoder.events()
    assert decoder.numbered == numbered
    assert (record.category, record.name) == (event["cat"], event["name"])
    assert record.args == [(f"args.{name}", value) for name, value in args.items()]


def test_essential_arguments_may_have_64_bits(tmp_path: Path) -> None:
    args = dict.fromkeys(("correlation", "device", "stream", "bytes"), 2**40)
    events = [HERE | {"cat": "gpu_memcpy", "ts": 10 * n, "tid": n, "args": args} for n in range(600)]
    trace = ingested(text_of(*events), tmp_path / "trace")
    records = [*Decoder(b"".join(render(trace.columns, trace.summary, RenderReport(), args="essential"))).events()]
    assert [record.args for record in records] == [[(f"args.{name}", value) for name, value in args.items()]] * 600


@pytest.mark.parametrize("count", [15, 16, 30, 31, 60])
def test_many_arguments_take_a_begin_and_an_end(count: int) -> None:
    args = {f"a{n}": n for n in range(count)}
    records, _ = decoded(HERE | {"args": args})
    assert [record.kind for record in records] == ([SLICE] if count <= 15 else [BEGIN, END])
    assert records[-1].last == (5000 - 1000 if count <= 15 else None)
    assert records[-1].ts == (0 if count <= 15 else 4000)
    found = [entry for record in records for entry in record.args]
    if count <= 30:
        assert found == [(f"args.a{n}", n) for n in range(count)]
    else:
        assert found[:-1] == [(f"args.a{n}", n) for n in range(29)]
        assert json.loads(found[-1][1]) == {f"a{n}": n for n in range(29, count)}


@pytest.mark.parametrize("inner", [{"ts": 3, "dur": 2}, {"ts": 2, "dur": 0}])
def test_slice_that_ends_with_its_parent_or_takes_no_time_is_one_record(inner: dict[str, int]) -> None:
    args = {f"a{n}": n for n in range(20)}
    records, _ = decoded(HERE | {"args": args}, HERE | inner | {"args": args, "name": "inner"})
    assert [(record.kind, record.name) for record in records if record.kind != END] == [(BEGIN, "op"), (SLICE, "inner")]
    [found] = [record.args for record in records if record.name == "inner"]
    assert found[:14] == [(f"args.a{n}", n) for n in range(14)]
    assert json.loads(found[14][1]) == {f"a{n}": n for n in range(14, 20)}


@pytest.mark.parametrize(("kept", "change"), [(30, {}), (15, {"ph": "i", "s": "t"}), (15, {"dur": 0})])
@pytest.mark.parametrize("last", [0.12345678901234567, "text", 7, [1, 2], None])
def test_argument_at_the_limit_is_in_the_text_of_further_arguments(kept: int, change: Any, last: Any) -> None:
    args = {**{f"a{n}": n for n in range(kept - 1)}, "last": last, "x": 0.98765432109876543, "y": 1}
    records, _ = decoded(HERE | change | {"args": args}, HERE | {"ts": 20, "args": {"z": 0.98765432109876543}})
    found: dict[str, Any] = dict(entry for record in records[:-1] for entry in record.args)
    more = json.loads(str(found.pop("args.tracedock.more", "{}")))
    shown_args = {name.removeprefix("args."): value for name, value in found.items()} | more
    assert {**shown_args, "last": last} == args  # a null is left out of the records
    assert ("last" in shown_args) == (last is not None or "last" in more)
    assert records[-1].args == [("args.z", 0.98765432109876543)]


def test_line_breaks_in_lists_are_blanks(tmp_path: Path) -> None:
    text = b'{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": '
    text += b'{"grid": [\n\t1,\n 2], "long": [' + b",\n".join([b"12345"] * 90) + b"]}}]}"
    sql = "SELECT string_value FROM args WHERE key GLOB 'args.*' ORDER BY key"
    whole = load(ingested(text, tmp_path / "whole"), sql).answers[0]
    chosen = load(ingested(text, tmp_path / "chosen"), sql, selection={"names": ["a"]}).answers[0]
    assert whole == chosen == [("[  1,  2]",), ("[" + ", ".join(["12345"] * 90) + "]",)]


def test_engine_has_the_arguments_of_nested_slices_with_many(tmp_path: Path) -> None:
    events = [
        HERE | {"ts": ts, "dur": dur, "name": name, "args": {f"{name}{n}": n for n in range(20)}}
        for name, ts, dur in (("a", 1, 9), ("b", 2, 8), ("c", 3, 7), ("d", 3, 2), ("e", 10, 4), ("f", 14, 1))
    ]
    sql = """SELECT name, ts, dur, depth, (SELECT group_concat(substr(key, 6, 1), '') FROM args
             WHERE args.arg_set_id = slice.arg_set_id AND key <> 'args.tracedock.more') FROM slice"""
    result = load(ingested(text_of(*events), tmp_path / "trace"), sql)
    assert result.report.complete
    rows = {name: (ts, dur, depth, {*str(keys)}) for name, ts, dur, depth, keys in result.answers[0]}
    assert rows == {
        "a": (0, 9000, 0, {"a"}), "b": (1000, 8000, 1, {"b"}), "c": (2000, 7000, 2, {"c"}),
        "d": (2000, 2000, 3, {"d"}), "e": (9000, 4000, 0, {"e"}), "f": (13000, 1000, 0, {"f"}),
    }  # fmt: skip


def test_arrow_with_several_ends_becomes_several_arrows(tmp_path: Path) -> None:
    arrow = {"id": 7, "cat": "ac2g", "name": "ac2g", "pid": 1}
    events: list[dict[str, Any]] = [HERE | {"name": "launch", "dur": 9}, arrow | {"ph": "s", "tid": 2, "ts": 2}]
    for number in range(3):
        events += [
            HERE | {"tid": 5, "ts": 20 * number + 20, "name": f"kernel {number}"},
            arrow | {"ph": "f", "bp": "e", "tid": 5, "ts": 20 * number + 20},
        ]
    records, _ = decoded(*events)
    starts = [record.last for record in records if record.kind == FLOW_BEGIN]
    assert len({*starts}) == 3
    assert starts == [record.last for record in records if record.kind == FLOW_END]
    sql = "SELECT a.name, b.name FROM flow JOIN slice AS a ON a.id = slice_out JOIN slice AS b ON b.id = slice_in"
    result = load(ingested(text_of(*events), tmp_path / "trace"), sql)
    assert sorted(map(str, result.answers[0])) == [str(("launch", f"kernel {number}")) for number in range(3)]


def test_arrow_that_goes_on_after_its_end_is_written_as_json(tmp_path: Path) -> None:
    arrow = {"cat": "ac2g", "name": "ac2g", "pid": 1, "id": 7, "bp": "e"}
    events = [HERE | {"name": name, "tid": tid, "ts": 10 * tid} for tid, name in enumerate("akl")]
    events += [arrow | {"ph": phase, "tid": tid, "ts": 10 * tid + 1} for tid, phase in enumerate("sft")]
    sql = "SELECT a.name, b.name FROM flow JOIN slice AS a ON a.id = slice_out JOIN slice AS b ON b.id = slice_in"
    result = load(ingested(text_of(*events), tmp_path / "trace"), sql)
    assert result.document.startswith(b"{")
    assert sorted(map(str, result.answers[0])) == ["('a', 'k')", "('a', 'l')"]


@pytest.mark.parametrize("selection", [None, {"categories": ["cpu_op"]}], ids=["records", "JSON"])
def test_ends_of_arrows_without_an_id_draw_no_arrow(selection: dict[str, Any] | None, tmp_path: Path) -> None:
    arrow = {"cat": "ac2g", "name": "ac2g", "pid": 1, "bp": "e"}
    events = [HERE | {"name": name, "tid": tid, "ts": 10 * tid} for tid, name in enumerate("ak")]
    events += [arrow | {"ph": phase, "tid": tid, "ts": 10 * tid + 1} for tid, phase in enumerate("sf")]
    result = load(ingested(text_of(*events), tmp_path / "trace"), "SELECT count(*) FROM flow", selection=selection)
    assert result.answers[0] == [(0,)]
    assert result.report.stats == []


CHARACTERS = TEXTS_MAX // 3
LARGE = [
    {"name": "\0" * (CHARACTERS - 9)}, {"cat": "c" * (CHARACTERS - 3)},
    *({"args": args} for args in (
        {"a": "x" * (TEXTS_MAX // 2 - 50), "b": 1}, {"a": [1] * (TEXTS_MAX // 6 - 20), "b": 1},
        {f"k{n}": n for n in range(1_100)} | {"b": 1}, {"k" * (TEXTS_MAX // 2 - 50): 1, "b": 1},
        {f"{n:02}" * 45: "y" * 60 for n in range(90)} | {"b": 1},
        {"a": json.loads("[" * 70 + ",".join(['""'] * (TEXTS_MAX // 8 - 60)) + "]" * 70), "b": 1},
    )),
]  # fmt: skip


@pytest.mark.parametrize("change", LARGE, ids=["name", "category", "text", "list", "many", "key", "texts", "depth"])
def test_large_texts_are_whole(change: dict[str, Any], tmp_path: Path) -> None:
    events = [HERE | change, HERE | {"ts": 9, "name": "b"}]
    records, _ = decoded(*events)
    assert [record.kind for record in records if record.kind != END] in ([SLICE, SLICE], [BEGIN, SLICE])
    assert records[0].name == str(change.get("name", "op")).replace("\0", "\N{REPLACEMENT CHARACTER}")
    assert records[0].category == change.get("cat", "cpu_op")
    args = dict(entry for record in records for entry in record.args)
    shown_args = json.loads(str(args.pop("args.tracedock.more", "{}"))) | {
        name[5:]: value for name, value in args.items()
    }
    assert shown_args.keys() == change.get("args", {}).keys()
    assert all(len(str(value)) >= len(str(change["args"][name])) for name, value in shown_args.items())
    result = load(ingested(text_of(*events), tmp_path / "trace"), "SELECT length(name), length(category) FROM slice")
    assert result.report.complete
    assert result.report.stats == []
    assert result.answers[0][0] == (len(records[0].name), len(records[0].category))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "é" * CHARACTERS}, {"cat": "c" * TEXTS_MAX}, {"args": {"a": "x" * TEXTS_MAX, "b": 1}},
        {"args": {"a": [1] * TEXTS_MAX, "b": 1}}, {"name": "n" * (CHARACTERS // 2), "cat": "c" * (CHARACTERS // 2 + 9)},
        {"ph": "M", "name": "process_name", "args": {"name": "p" * CHARACTERS}},
    ],
    ids=["name", "category", "text", "list", "together", "process"],
)  # fmt: skip
def test_traces_with_larger_texts_are_written_as_json(change: dict[str, Any], tmp_path: Path) -> None:
    events = [HERE | change, HERE | {"ts": 9, "name": "b"}]
    result = load(ingested(text_of(*events), tmp_path / "trace"))
    shown_events = json.loads(result.document)["traceEvents"]
    expected = {name: shown(value) for name, value in change.get("args", {}).items()} or change
    texts = [value for event in shown_events for value in (*event.values(), *event.get("args", {}).values())]
    assert all(value in texts for name, value in expected.items() if name != "ph")
    assert result.report.complete


@pytest.mark.parametrize("selection", [None, {"categories": ["cpu_op"]}], ids=["records", "JSON"])
def test_instant_is_on_the_track_of_its_thread(selection: dict[str, Any] | None, tmp_path: Path) -> None:
    instants = [HERE | {"ph": "i", "ts": 2, "name": scope, "s": scope} for scope in "gpt"]
    sql = "SELECT slice.name, tid FROM slice JOIN thread_track ON track_id = thread_track.id JOIN thread USING (utid)"
    result = load(ingested(text_of(HERE, *instants), tmp_path / "trace"), sql, selection=selection)
    assert result.document.startswith(b"{") == bool(selection)
    assert sorted(map(str, result.answers[0])) == [str((name, 2)) for name in ("g", "op", "p", "t")]


def test_trace_whose_members_all_differ_is_written_as_json(tmp_path: Path) -> None:
    events = [HERE | {"ts": n, "dur": 1, "number": n} for n in range(2000)]
    result = load(ingested(text_of(*events), tmp_path / "trace"), "SELECT count(*) FROM slice")
    assert len(json.loads(result.document)["traceEvents"]) >= len(events)
    assert result.answers[0] == [(len(events),)]


def test_columns_of_an_earlier_version_are_written_as_json(tmp_path: Path) -> None:
    trace = ingested(text_of(HERE), tmp_path / "trace")
    path = trace.columns / EVENTS
    events = pq.read_table(path)
    pq.write_table(events.replace_schema_metadata({"tracedock.columns": COLUMNS_VERSION}), path)
    assert json.loads(b"".join(render(trace.columns, trace.summary, RenderReport())))["traceEvents"]


@pytest.mark.parametrize(
    "other",
    [
        {"ph": "C", "name": "memory", "args": {"bytes": 5}}, {"ph": "B", "name": "open"},
        {"ph": "b", "id": 1, "cat": "c"}, {"ph": "f", "id": 1, "cat": "c"}, {"ph": "X", "dur": 1, "tts": 4, "tdur": 1},
        {"ph": "X", "dur": 1, "bind_id": "0x1", "flow_out": True}, {"ph": "i", "number": 1, "flow_in": 1},
    ],
    ids=["counter", "begin", "async", "next slice", "processor time", "named arrow", "end of it"],
)  # fmt: skip
def test_events_that_records_show_otherwise_are_written_as_json(other: dict[str, Any], tmp_path: Path) -> None:
    events = [HERE | {"args": {"dims": [[1, 2], []]}}, {"pid": 1, "tid": 2, "ts": 2} | other]
    result = load(ingested(text_of(*events), tmp_path / "trace"), "SELECT key, string_value FROM args")
    document = json.loads(result.document, parse_float=Decimal)
    assert {event["ph"] for event in document["traceEvents"]} >= {"X"}
    assert ("args.dims", "[[1, 2], []]") in [(key, str(value)) for key, value in result.answers[0]]

"""The event of a slice has the arguments that an engine with all arguments shows, whatever an engine has loaded."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.operations.views import View
from tests.http.test_opening import write_opening
from tests.server import Server

HOSTILE = [
    '{"a": NaN, "b": Infinity}',
    '{"a": 1e999, "b": -1e999, "c": 1.0, "d": -0.0, "e": 1e22, "f": 123456789.123456789, "g": 1.5e300}',
    '{"a": 9223372036854775807, "b": -9223372036854775808, "c": 9007199254740993, "d": 0}',
    '{"a": 18446744073709551615, "b": -9223372036854775809, "c": 123456789012345678901234567890}',
    '{"a": [1, {"b": null}], "b":{ "c" : [] ,\n\t"d": "x\\ny"}, "c": [NaN, "\\ud800"]}',
    '{"a": null, "b": true, "c": false, "d": "", "e": "5", "f": "true"}',
    r'{"a": "é\u0000x", "b": "\ud83d", "c": "\ud83d\ude00", "k\u0000": 1, "l": "\u0001\u001f\u2028\ufeff"}',
    r'{"a": "x\ny\tz", "b": "it\'s \"q\" \\"}'.replace(r"\'", "'"),
    '{"": 1, "a.b": 2, "a[0]": 3, "args.x": 4, "é": 5, "it\'s": 6}',
    '{"a": 1, "b": 0, "a": 2, "c": 3, "a": null, "b": 7}',
    '{"correlation": 5, "External id": 7, "device": 0, "stream": 7, "bytes": 12}',
    *('{"a": "%s"}' % ("x" * 70_000), json.dumps({f"k{n}": n for n in range(40)})),
    *("[1, 2, 3]", '"text"', "5", "{}", "null"),
]  # fmt: skip

ARGUMENTS = """
    select s.id, a.key, a.value_type, a.int_value, a.string_value, a.real_value
    from slice as s left join args as a using (arg_set_id) order by s.id, a.id
"""

Pairs = list[tuple[str, object]]


def write_hostile(path: Path) -> Path:
    """Write a trace with two slices for each of the hostile arguments: one with a duration, and an instant."""
    events = [
        f'{{"cat": "cpu_op", "name": "h{n}", "pid": 1, "tid": 1, "ts": {1000 + 10 * n}, {more}, "args": {args}}}'
        for n, args in enumerate(HOSTILE)
        for more in ('"ph": "X", "dur": 5', '"ph": "i", "s": "t"')
    ]
    events.append('{"ph": "X", "name": "without", "pid": 1, "tid": 1, "ts": 9000, "dur": 1}')
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{", ".join(events)}]}}')
    return path


@pytest.fixture(scope="module")
def hostile(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(server.upload(write_hostile(tmp_path_factory.mktemp("slices") / "hostile.pt.trace.json"))["id"])


@pytest.fixture(scope="module")
def opening_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_opening(tmp_path_factory.mktemp("opening") / "opening.pt.trace.json")


@pytest.fixture(scope="module")
def opening(server: Server, opening_path: Path) -> str:
    return str(server.upload(opening_path)["id"])


def engine_arguments(server: Server, trace: str, **view: Any) -> dict[int, Pairs]:
    """Return the arguments of each slice in an engine that has them all."""
    answer = server.query(trace, ARGUMENTS, limit=None, **view)
    assert answer.status_code == 200, answer.text
    slices: dict[int, Pairs] = defaultdict(list)
    for number, key, kind, integer, text, real in answer.json()["rows"]:
        pairs = slices[number]
        if key is not None:
            values = {"int": integer, "uint": integer, "bool": bool(integer), "string": text, "real": real}
            pairs.append((key, values[kind]))
    return slices


def found(server: Server, trace: str, reference: str, **view: Any) -> Any:
    answer = server.api.get(f"/traces/{trace}/slice", params={"slice": reference, **view})
    assert answer.status_code == 200, answer.text
    return answer.json()


def pairs_of(details: Any) -> Pairs:
    return [(argument["key"], argument["value"]) for argument in details["args"]]


@pytest.mark.parametrize("args", ["essential", "none"])
def test_slice_has_the_arguments_that_an_engine_with_all_shows(server: Server, hostile: str, args: str) -> None:
    expected = engine_arguments(server, hostile)
    assert len(expected) == 2 * len(HOSTILE) + 1
    for number, pairs in expected.items():
        details = found(server, hostile, f"id:{number}", args=args)
        assert repr(pairs_of(details)) == repr(pairs), details["name"]  # 1 and 1.0 and True differ


@pytest.mark.parametrize(
    "selection", [None, {"steps": [4]}, {"window": {"start_ns": 0, "end_ns": 2**62}, "straddle": "clip"}]
)
def test_equal_slices_have_their_own_arguments(server: Server, opening: str, selection: dict[str, Any] | None) -> None:
    expected = engine_arguments(server, opening, selection=selection)
    part = {} if selection is None else {"selection": json.dumps(selection)}
    marks = []
    for number, pairs in expected.items():
        if dict(pairs).get("args.mark") is not None:
            details = found(server, opening, f"id:{number}", args="essential", **part)
            assert pairs_of(details) == pairs
            assert details["position"] == dict(pairs)["args.mark"]
            marks.append(details["position"])
    assert len(set(marks)) == len(marks) > 10


EQUAL = st.lists(st.tuples(st.integers(0, 1), st.sampled_from("zzizfsx")), min_size=2, max_size=12)
"""Events of two threads at one time: slices without duration, instants, ends of arrows, and slices with a duration."""


def equal_events(kinds: list[tuple[int, str]], ts: int) -> list[dict[str, Any]]:
    phases: dict[str, dict[str, Any]] = {
        "z": {"ph": "X", "dur": 0},
        "x": {"ph": "X", "dur": 5},
        "i": {"ph": "i", "s": "t"},
    }
    return [
        {"name": "equal", "cat": "c", "pid": 1, "tid": tid, "ts": ts, "id": 1, "args": {"mark": f"{ts}-{at}"}}
        | phases.get(kind, {"ph": kind})
        for at, (tid, kind) in enumerate(kinds)
    ]


@settings(max_examples=5, deadline=None)
@given(st.lists(EQUAL, min_size=40, max_size=40))
def test_slices_of_one_time_have_their_own_arguments_though_arrows_end_there(
    server: Server, tmp_path_factory: pytest.TempPathFactory, groups: list[list[tuple[int, str]]]
) -> None:
    events = [event for at, kinds in enumerate(groups) for event in equal_events(kinds, 100 + 10 * at)]
    path = tmp_path_factory.mktemp("equal") / "equal.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace = str(server.upload(path)["id"])
    marks = {event["args"]["mark"]: at for at, event in enumerate(events)}
    for number, pairs in engine_arguments(server, trace).items():
        details = found(server, trace, f"id:{number}")
        assert (pairs_of(details), details["position"]) == (pairs, marks[dict(pairs)["args.mark"]])
    server.api.delete(f"/traces/{trace}")


def test_slice_that_a_selection_cuts_has_its_original_times_as_an_argument(server: Server, opening: str) -> None:
    window = {"window": {"start_ns": 4_458_676_420_999_505, "end_ns": 4_458_676_420_999_510}, "straddle": "clip"}
    expected = engine_arguments(server, opening, selection=window)
    cut = {number: pairs for number, pairs in expected.items() if "args.clipped" in dict(pairs)}
    assert cut
    for number, pairs in cut.items():
        details = found(server, opening, f"id:{number}", args="essential", selection=json.dumps(window))
        assert pairs_of(details) == pairs
        assert (details["ts_ns"], details["dur_ns"]) == (4_458_676_420_999_505, 5)


def test_forms_of_a_reference_find_one_event(server: Server, opening: str, opening_path: Path) -> None:
    events = json.loads(opening_path.read_text())["traceEvents"]
    position = next(at for at, event in enumerate(events) if event.get("name") == "later")
    [[number]] = server.rows(opening, "select id from slice where name = 'later'")
    by_position = found(server, opening, f"position:{position}")
    assert by_position == {
        "position": position, "name": "later", "ts_ns": 4_458_676_420_999_500, "dur_ns": 20_000,
        "args": [{"key": "args.mark", "value": position}],
    }  # fmt: skip
    assert found(server, opening, "at:4458676420999500:later") == by_position
    assert found(server, opening, f"id:{number}") == by_position


@pytest.mark.parametrize(
    ("reference", "status", "text"),
    [
        ("id:100000", 422, "No slice has the id 100000: the trace has "),
        ("position:100000", 422, "The trace has no event at position 100000"),
        ("at:5:later", 422, "the nearest begins at 4458676420999500 ns"),
        ("later", 422, "position:"),
    ],
)
def test_unknown_slice_is_refused(server: Server, opening: str, reference: str, status: int, text: str) -> None:
    answer = server.api.get(f"/traces/{opening}/slice", params={"slice": reference})
    assert answer.status_code == status
    assert text in answer.json()["detail"]


def test_slice_of_two_events_is_refused(server: Server, opening: str) -> None:
    [[number]] = server.rows(opening, "select id from slice where name = 'other'")  # begun, and never ended
    answer = server.api.get(f"/traces/{opening}/slice", params={"slice": f"id:{number}"})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_slice")
    assert "is not one event of the trace" in answer.json()["detail"]


def test_slice_by_id_starts_the_engine_again(server: Server, opening: str) -> None:
    [[number]] = server.rows(opening, "select id from slice where name = 'later'")
    expected = found(server, opening, f"id:{number}")
    assert server.api.delete(f"/traces/{opening}/session").status_code == 204
    answer = server.api.get(f"/traces/{opening}/slice", params={"slice": f"id:{number}", "wait": 0})
    assert (answer.status_code, answer.json()["state"], answer.headers["Retry-After"]) == (202, "loading", "1")
    assert found(server, opening, f"id:{number}") == expected


def test_link_to_the_ui_loads_fewer_arguments_of_a_large_trace_unless_told(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server(ui_all_args_events=100)

    def args_of(trace: str, **params: Any) -> str:
        answer = server.api.get(f"/traces/{trace}/perfetto", params=params)
        assert answer.status_code == 307, answer.text
        return str(View.parsed(urlsplit(answer.headers["Location"]).path.split("/")[2]).args)

    def upload(name: str, events: list[dict[str, Any]]) -> str:
        path = tmp_path / f"{name}.pt.trace.json"
        path.write_text(json.dumps({"traceEvents": events}))
        return str(server.upload(path)["id"])

    slices = [{"ph": "X", "name": "s", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 5} for n in range(101)]
    large = upload("large", slices)
    assert args_of(upload("small", slices[1:])) == "all"
    assert args_of(large) == "essential"
    assert [args_of(large, args=args) for args in ("all", "essential", "none")] == ["all", "essential", "none"]
    assert args_of(large, start_ns=0, end_ns=200, relative="true") == "all"  # that part is small
    for phase in ("B", "b", "n"):
        other = upload(phase, [*slices, {"ph": phase, "name": "other", "pid": 1, "tid": 1, "ts": 0, "id": 1}])
        assert args_of(other) == "all"  # the UI could not get its arguments later
    crowded = [{"ph": "X", "name": "last", "pid": 1, "tid": 2, "ts": 1_000_000, "dur": 5}, *slices]
    trace = upload("crowded", crowded)
    window = {"start_ns": 0, "end_ns": 2_000_000, "relative": "true"}  # 101 events in 0.2 % of the time
    assert args_of(trace, **window) == "essential"
    assert args_of(trace, threads="1/2") == "all"
    assert args_of(trace, threads="1/2", slice="position:0") == "all"
    assert args_of(trace, slice="position:0") == "essential"

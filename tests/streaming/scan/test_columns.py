"""Each column holds the value of its key, in every form that profilers have written."""

from typing import Any

import pytest

from service.streaming.scan.events import ELEMENT_OR_CLOSE
from service.streaming.scan.reader import Reader
from service.streaming.schema import SCHEMA
from tests.columns import parsed, unordered
from tests.events import written_back

READER = Reader()


def row_of(event: str) -> dict[str, Any]:
    """Return the row of an event, and check that it restores the event."""
    events = READER.read(f"{event}]".encode(), 0, ELEMENT_OR_CLOSE, last=True)
    assert not events.refused
    (batch,) = events.batches
    assert batch.schema == SCHEMA
    (row,) = batch.to_pylist()
    assert unordered(written_back(row)) == unordered(parsed(event))
    assert row["position"] == 0
    return {key: value for key, value in row.items() if value is not None and key not in ("position", "args", "rest")}


def typed(event: str) -> dict[str, Any]:
    row = row_of(event)
    return {key: value for key, value in row.items() if key not in ("ph", "cat", "name") and value is not False}


@pytest.mark.parametrize(
    ("text", "ns", "digits"),
    [
        ("1712195495406752", 1712195495406752000, 0),  # to April 2024
        ("1712195495406752.8", 1712195495406752800, 1),  # April and May 2024
        ("4458676416.397", 4458676416397, 3),  # since May 2024
        ("0", 0, 0),
        ("0.0", 0, 1),
        ("-5", -5000, 0),
        ("-5.25", -5250, 2),
        ("8999999999999999.999", 8999999999999999999, 3),
        ("1e3", 1_000_000, None),
        ("1.5E-2", 15, None),
        ("1.2345", 1234, None),
        ("-1.2345", -1235, None),
        ("-0", 0, None),
        ("-0.0", 0, None),
        ("1e400", None, None),
        ("9999999999999999", None, None),
        ('"12"', None, None),
        ("null", None, None),
        ("[1]", None, None),
    ],
)
def test_times_are_integer_nanoseconds_of_their_text(text: str, ns: int | None, digits: int | None) -> None:
    expected: dict[str, Any] = {}
    for key in ("ts", "dur"):
        expected |= {f"{key}_ns": ns} if ns is not None else {}
        expected |= {f"{key}_digits": digits} if digits is not None else {}
    if digits is None and text[0] not in '"n[':
        expected["verbatim"] = True

    assert typed(f'{{"ph":"X","ts":{text},"dur":{text}}}') == expected


def test_metadata_has_no_time() -> None:
    assert row_of('{"ph":"M","name":"process_name","ts":1.5}') == {"ph": "M", "name": "process_name", "verbatim": False}
    assert "ts_ns" not in row_of('{"ts":1.5,"ph":"M"}')
    assert "ts_ns" not in row_of('{"ts":1e3,"ph":"M"}')
    assert row_of('{"ph":"M","ph":"X","ts":1}')["ts_ns"] == 1000
    assert "ts_ns" not in row_of('{"ph":"X","ph":"M","ts":1}')


@pytest.mark.parametrize("key", ["pid", "tid", "id"])
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-1", -1),
        ("0", 0),
        ("9" * 18, int("9" * 18)),
        ("1" + "0" * 18, None),
        (str(2**64), None),
        ("-0", None),
        ("1.0", None),
        ("1e2", None),
        ('"Spans"', None),
        ('""', None),
        ('"\\u00e9"', None),
    ],
)
def test_ids_are_integers_or_their_text(key: str, text: str, number: int | None) -> None:
    assert typed(f'{{"{key}":{text}}}') == ({key: number} if number is not None else {f"{key}_text": text})


@pytest.mark.parametrize("value", ["null", "true", "[1]", '{"a":1}'])
def test_unusable_ids_are_in_rest_alone(value: str) -> None:
    assert typed(f'{{"pid":{value},"tid":{value},"id":{value}}}') == {}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            '{"device": 0, "stream": 7, "correlation": 12, "External id": 5, "bytes": 64}',
            {"device": 0, "stream": 7, "correlation": 12, "external_id": 5, "bytes": 64},
        ),
        ('{"external id": 5, "Bytes": -512}', {"external_id": 5, "bytes": -512}),
        ('{"External Id": 5, "BYTES": 1, "streams": 2, "devic": 3, "": 1}', {}),
        ('{"device": "0", "stream": null, "correlation": 1.5, "bytes": 1e3}', {}),
        ('{"a": {"stream": 3}, "b": [{"device": 4}]}', {}),
        ('{"stream": 1, "stream": 2}', {"stream": 2}),
        ('{"stream": 1, "stream": "2"}', {}),
        ('{ "stream" : 7 }', {"stream": 7}),
        ("{}", {}),
        ("[1, 2]", {}),
        ('"text"', {}),
        ("null", {}),
    ],
)
def test_numbers_of_args_have_columns(args: str, expected: dict[str, int]) -> None:
    assert typed(f'{{"args":{args}}}') == expected


@pytest.mark.parametrize("cat", ["kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "mtia_ccp_events"])
@pytest.mark.parametrize(
    ("event", "device", "stream"),
    [
        ('"pid":1,"tid":7', 1, 7),
        ('"pid":1,"tid":7,"args":{"device":0,"stream":20}', 0, 20),
        ('"pid":1,"tid":7,"args":{"stream":20}', 1, 20),
        ('"pid":1,"tid":"stream 7"', 1, 7),
        ('"pid":1,"tid":"stream 7 "', 1, 7),
        ('"pid":1,"tid":"7"', 1, 7),
        ('"pid":"1","tid":"stream seven"', None, None),
        ('"pid":1', 1, None),
    ],
)
def test_work_on_a_device_is_on_its_pid_and_tid_unless_args_say_more(
    cat: str, event: str, device: int | None, stream: int | None
) -> None:
    row = row_of(f'{{"cat":"{cat}",{event}}}')

    assert (row.get("device"), row.get("stream")) == (device, stream)


def test_other_work_is_on_no_device() -> None:
    for cat in ('"cpu_op"', '"gpu_user_annotation"', "null", '"cuda_sync"'):
        row = row_of(f'{{"cat":{cat},"pid":1,"tid":7}}')
        assert "device" not in row
        assert "stream" not in row


def test_strings_are_decoded() -> None:
    row = row_of('{"ph":"\\u0058","cat":"a\\/b\\n","name":"\\ud83d\\ude00é"}')
    assert row == {"ph": "X", "cat": "a/b\n", "name": "😀é", "verbatim": False}

    row = row_of('{"name":"\\ud83d!"}')
    assert row == {"name": "\ufffd!", "verbatim": True}
    assert row_of('{"ph":1,"cat":null,"name":["x"]}') == {"verbatim": False}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ('{"name":"a","name":"b"}', {"name": "b"}),
        ('{"name":"a","name":null}', {}),
        ('{"pid":1,"pid":"x"}', {"pid_text": '"x"'}),
        ('{"pid":"x","pid":1}', {"pid": 1}),
        ('{"pid":"x","pid":null}', {}),
        ('{"ts":1,"ts":2.5}', {"ts_ns": 2500, "ts_digits": 1}),
        ('{"ts":1,"ts":"x"}', {}),
        ('{"args":{"stream":1},"args":{"device":2}}', {"device": 2}),
        ('{"bp":1,"\\u0062p":2}', {}),
    ],
)
def test_last_of_equal_keys_counts_and_the_text_is_kept(event: str, expected: dict[str, Any]) -> None:
    assert row_of(event) == {**expected, "verbatim": True}


def test_dictionary_keeps_each_text_once_for_any_number_of_texts() -> None:
    names = [f"name {n % 3000} {'x' * (n % 40)}" for n in range(20_000)]
    text = ",".join(f'{{"name":"{name}"}}' for name in names) + "]"
    READER.read(text.encode(), 0, ELEMENT_OR_CLOSE, last=True)  # from now on, a batch has room for so many events

    (batch,) = READER.read(text.encode(), 0, ELEMENT_OR_CLOSE, last=True).batches

    assert batch["name"].to_pylist() == names
    assert sorted(batch["name"].dictionary.to_pylist()) == sorted(set(names))
    assert batch["position"].to_pylist() == list(range(20_000))

"""Arbitrary events come back from a Perfetto trace with the values that they have in the columns."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from service.rendering.pftrace.annotations import AnnotationWriter, annotations_of
from service.rendering.text import PackedTexts
from tests.cutting.test_cut import ingested
from tests.rendering.pftrace.reading import comparable, read_back, rows_of

NUMBERS = (
    st.integers(-(1 << 65), 1 << 65)
    | st.floats()
    | st.integers(-9, 9)
    | st.sampled_from([0.1, 1e22, 1e23, 5e-324, -0.0])
)
TEXTS = st.text(max_size=6) | st.sampled_from(["nan", "\0", '"\\\n', "火"])
VALUES = st.recursive(
    st.booleans() | st.none() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGS = st.dictionaries(TEXTS | st.sampled_from(["correlation", "External id", "device"]), VALUES, max_size=4)
PLACES = st.integers(-1, 3) | st.sampled_from(["Spans", "7", "", 1 << 63, 2_000_000_001])
TIMES = st.integers(0, 12) | st.integers(-3, 60_000).map(lambda ns: ns / 1000)


def event(phase: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of events of a phase with further members."""
    optional = {"cat": st.sampled_from(["cpu_op", "kernel", "", "ac2g"]), "args": ARGS}
    common = {"ph": st.just(phase), "name": st.sampled_from(["a", "b", ""]), "pid": PLACES, "tid": PLACES, "ts": TIMES}
    return st.fixed_dictionaries(
        common | more, optional={key: value for key, value in optional.items() if key not in more}
    )


IDS = st.integers(0, 3) | st.sampled_from([(1 << 64) - 1, (1 << 63) - 1, -4, "0x1f"])
EVENTS = st.one_of(
    event("X", dur=TIMES),
    event("X", dur=st.integers(0, 12)),
    event("i", s=st.sampled_from("tpg")),
    *(event(phase, id=IDS) for phase in "stbne"),
    event("f", id=IDS, bp=st.just("e")),
    event("C", args=st.dictionaries(st.sampled_from(["value", "a", "b"]), NUMBERS, max_size=3)),
    event("B"),
    event("E"),
)
BASES = st.none() | st.sampled_from([1_711_964_646_000_000_000, 1_735_689_600_000_000_001, 5, -7, 1 << 62])


@given(st.lists(EVENTS, min_size=1, max_size=25), BASES)
def test_events_come_back_with_their_values(events: list[dict[str, Any]], base: int | None) -> None:
    around = {} if base is None else {"baseTimeNanoseconds": base}
    with tempfile.TemporaryDirectory() as folder:
        trace = ingested(json.dumps(around | {"traceEvents": events}), Path(folder) / "trace")

        found = read_back(trace)

        assert comparable(found.rows) == comparable(rows_of(trace.columns))
        assert json.dumps(found.members) == json.dumps(json.loads((trace.columns / "envelope.json").read_text()))


@given(st.lists(ARGS, min_size=1, max_size=8), st.sampled_from([(",", ":"), (" , ", " : "), (",\n", ":\t")]))
def test_compiled_annotations_have_the_values_of_a_plain_conversion(
    arguments: list[dict[str, Any]], separators: tuple[str, str]
) -> None:
    texts = [json.dumps(value, separators=separators, ensure_ascii=False).encode() for value in arguments]
    writer = AnnotationWriter()

    written = writer.write(PackedTexts.of(texts))

    for row, text in enumerate(texts):
        content, exact = annotations_of(text.decode())
        assert bool(written.exact[row]) == (exact or text == b"{}")
        compiled = written.values[written.starts[row] : written.stops[row]].tobytes()
        assert _named(compiled, writer.keys) == _named(content, [])


def test_a_null_after_a_double_with_many_digits_is_no_double() -> None:
    text = b'{"a": 0.12345678901234567, "b": null, "c": {"d": 0.12345678901234567}}'
    written = AnnotationWriter().write(PackedTexts.of([text, b'{"a": 0.12345678901234567}']))
    assert written.exact.tolist() == [False, True]


def _named(content: bytes, keys: list[bytes]) -> str:
    """Return annotations as text, with the names that their numbers stand for."""
    parsed = TrackEvent.FromString(content)
    pending = [*parsed.debug_annotations]
    while pending:
        annotation = pending.pop()
        if annotation.HasField("name_iid"):
            annotation.name = keys[annotation.name_iid - 1].decode()
        pending += [*annotation.dict_entries, *annotation.array_values]
    return str(parsed)

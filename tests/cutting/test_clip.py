"""Slices that cross an edge of the selected time are cut there, and keep their original times."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.trace.errors import SelectionError
from tests import brute
from tests.columns import Number, Object, events_of, parsed, unordered
from tests.conftest import scaled
from tests.cutting.choices import Chosen, documents, edges_of, selection_of, text_of
from tests.cutting.test_cut import HERE, SMALL, cut_text, ingested, kept_of, plain, synthetic
from tests.traces_plan import BASE_NS


def us(value: Number) -> Decimal:
    """Return a time in µs as a decimal number."""
    return Decimal(value.text)


def clipped(document: brute.Document, at: int, selection: Chosen) -> tuple[int, int] | None:
    """Return the start and end in ns to which an event is clipped; None if it is not clipped."""
    event = document.events[at]
    if event.ph != "X" or event.start is None:
        return None
    if event.lasts:
        met = [
            interval
            for interval in brute.time_of(document, selection)
            if event.start < interval[1] and event.end > interval[0]
        ]
    else:
        met = []
    if not met:
        return None
    start, end = int(max(event.start, met[0][0])), int(min(event.end, met[-1][1]))
    return None if (start, end) == (event.start, event.end) else (start, end)


def plainly(event: Object, span: tuple[int, int] | None) -> str:
    """Return an event as comparable text, with numeric times; a clipped event has the expected times and mark."""
    members = [(key, value) for key, value in unordered(event) if key not in ("ts", "dur") or span is None]
    if span:
        original = Object(sorted((key, value) for key, value in event if key in ("ts", "dur"))[::-1])
        args = dict(event).get("args", Object())
        if isinstance(args, Object):
            members = [(key, value) for key, value in members if key != "args"]
            members.append(("args", Object((*args, ("clipped", original)))))
        members += [("ts", Decimal(span[0]) / 1000), ("dur", Decimal(span[1] - span[0]) / 1000)]
    return repr(sorted(((key, _plain(key, value)) for key, value in members), key=lambda member: member[0]))


def _plain(key: str, value: Any) -> Any:
    value = us(value) if key in ("ts", "dur") and isinstance(value, Number) else value
    return value.normalize() if isinstance(value, Decimal) else value


def check(text: str | bytes, source: Any, selection: Chosen) -> int:
    """Check the events of a clipping selection, and return the number of clipped slices."""
    document, events = brute.Document(text), events_of(parsed(text))
    oracle = kept_of(document, selection)
    if not oracle:
        with pytest.raises(SelectionError):
            cut_text(source, selection)
        return 0
    result = cut_text(source, selection)
    cuts = {at: clipped(document, at, selection) for at in oracle}
    expected = Counter(plainly(events[at], cuts[at]) for at in oracle)
    assert Counter(plainly(event, None) for event in events_of(parsed(result))) == expected, selection
    starts = [event.start for event in brute.Document(result).events if event.start is not None]
    assert starts == sorted(starts)
    return sum(cut is not None for cut in cuts.values())


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.partition(".")[0])
def test_slices_of_a_real_trace_are_clipped_at_the_edges(path: Path, tmp_path: Path) -> None:
    text, random = plain(path), Random(path.name)
    source = ingested(text, tmp_path / "whole")
    start, end = edges_of(source.summary)
    count = 0
    for _ in range(2):
        window = dict(zip(("start_ns", "end_ns"), sorted(random.sample(range(start, end), 2)), strict=True))
        out = random.randrange(window["start_ns"], window["end_ns"])
        hole = {"start_ns": out, "end_ns": out + (window["end_ns"] - out) // 3 + 1}
        count += check(text, source, {"window": window, "straddle": "clip"})
        count += check(text, source, {"window": window, "straddle": "clip", "exclude": {"window": hole}})

    assert count


@pytest.mark.parametrize("era", ["us_int", "us_float", "us_decimal", "relative"])
def test_slices_of_any_profiler_version_are_clipped_to_the_nanosecond(era: Any, tmp_path: Path) -> None:
    text = synthetic(era=era, kernels=6)
    source = ingested(text, tmp_path / "whole")
    start, end = (source.summary.steps[1][edge] for edge in ("start_ns", "end_ns"))
    assert (start > BASE_NS) == (era != "relative")

    window = {"start_ns": start + (end - start) // 3 + 1, "end_ns": end - (end - start) // 3 - 3}
    assert check(text, source, {"window": window, "straddle": "clip"})


@settings(max_examples=scaled(12))
@given(documents(), st.randoms(use_true_random=False))
def test_slices_of_a_hostile_document_are_clipped_at_the_edges(text: str, random: Random) -> None:
    document = brute.Document(text)
    with TemporaryDirectory() as folder:
        source = ingested(text, Path(folder) / "whole")
        for _ in range(3):
            check(text, source, {**selection_of(document, random), "straddle": "clip"})


def first_of(event: str, start: int, end: int, tmp_path: Path) -> Any:
    """Return the only event of a document, clipped."""
    text = f'{{"traceEvents": [{event}]}}'
    source = ingested(text, tmp_path / "whole")
    result = cut_text(source, {"window": {"start_ns": start, "end_ns": end}, "straddle": "clip"})
    (clipped_event,) = json.loads(result, parse_int=str, parse_float=str)["traceEvents"]
    return clipped_event


@pytest.mark.parametrize(
    ("times", "span"),
    [
        ('"ts": 1, "dur": 9', ("2.500", "3.250")),
        ('"ts": 1.0, "dur": 9.00', ("2.500", "3.250")),
        ('"ts": 3, "dur": 9', ("3", "2.750")),
        ('"ts": 3.1, "dur": 1.50', None),
        ('"ts": 1e0, "dur": 9', ("2.5", "3.25")),
        ('"ts": 1.00049, "dur": 9', ("2.5", "3.25")),
    ],
)
@pytest.mark.parametrize("args", ["", ', "args": {"a": 1, "a": 2}', ', "args": [1]'])
def test_mark_has_the_original_text_of_the_times(
    times: str, span: tuple[str, str] | None, args: str, tmp_path: Path
) -> None:
    members = json.loads(f"{{{times}{args}}}", parse_int=str, parse_float=str)

    event = first_of(f'{{"ph": "X", "pid": 1, "tid": 1, {times}{args}}}', 2500, 5750, tmp_path)

    if span is None:
        assert event == {"ph": "X", "pid": "1", "tid": "1", **members}
        return
    assert (Decimal(event["ts"]), Decimal(event["dur"])) == (Decimal(span[0]), Decimal(span[1]))
    if isinstance(members.get("args", {}), dict):
        assert event["args"] == {**members.get("args", {}), "clipped": {"ts": members["ts"], "dur": members["dur"]}}
    else:
        assert event["args"] == members["args"]


def test_slice_that_begins_far_before_the_edge_is_clipped_in_order_of_time(tmp_path: Path) -> None:
    events = [{"ph": "X", **HERE, "name": f"long {at}", "ts": at, "dur": 1000 - at} for at in range(50)]
    events += [{"ph": "i", **HERE, "name": f"mark {at}", "ts": 99 + at} for at in range(50)]
    text = text_of(*events)
    source = ingested(text, tmp_path / "whole")

    assert check(text, source, {"window": {"start_ns": 100_000, "end_ns": 500_001}, "straddle": "clip"}) == 50

"""Arrows have their categories and names in the engine, whatever their order, and few numbers serve all of them."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.rendering.document import render
from service.rendering.render_report import RenderReport
from tests.cutting.choices import text_of
from tests.cutting.test_cut import ingested
from tests.rendering.fuchsia.decoded import Decoder
from tests.rendering.loads import load

FLOWS = """
SELECT
    extract_arg(flow.arg_set_id, 'cat'), extract_arg(flow.arg_set_id, 'name'),
    a.name, b.name
FROM flow JOIN slice AS a ON a.id = slice_out JOIN slice AS b ON b.id = slice_in
"""
KINDS = [("ac2g", "ac2g"), ("fwdbwd", "fwdbwd"), ("ac2g", "other"), ("with 'quotes' é", "")]
FLOW_BEGIN, FLOW_END = 8, 10


def threads(count: int) -> list[dict[str, Any]]:
    """Return threads with a slice at each µs, whose name says when and where it is."""
    return [
        {"ph": "X", "pid": 1, "tid": tid, "ts": ts, "dur": 1, "name": f"{ts} on {tid}"}
        for tid in range(1, 4) for ts in range(count)
    ]  # fmt: skip


def arrow(kind: tuple[str | None, str | None], number: int, *places: tuple[int, int], last: str = "f") -> list[Any]:
    """Return an arrow from place to place; each is the time of a slice and its thread."""
    shared = {"pid": 1, "id": number, "bp": "e"}
    shared |= {key: word for key, word in zip(("cat", "name"), kind, strict=True) if word is not None}
    phases = ["s", *"t" * (len(places) - 2), last]
    return [shared | {"ph": phase, "ts": ts, "tid": tid} for phase, (ts, tid) in zip(phases, places, strict=True)]


def drawn(random: Random, count: int) -> list[tuple[tuple[str, str], int, list[tuple[int, int]], str]]:
    """Return arrows with different ids, some of which have steps, no end, or an end at their begin's time."""
    arrows = []
    for number in range(count):
        times = sorted(random.choices(range(2, 40), k=random.choice((2, 2, 2, 3, 4))))
        places = [(ts, random.randrange(1, 4)) for ts in times]
        arrows.append((random.choice(KINDS), number, places, random.choice("ffft")))
    return arrows


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_arrows_of_whole_traces_are_those_of_selections(random: Random, count: int) -> None:
    """Whole traces are in Fuchsia's format and selections are JSON; the expected arrows are taken from the events."""
    arrows = drawn(random, count)
    expected = Counter(
        (kind[0], kind[1] or None, f"{a[0]} on {a[1]}", f"{b[0]} on {b[1]}")
        for kind, _, places, _ in arrows for a, b in pairwise(places)
    )  # fmt: skip
    events = threads(40)
    for kind, number, places, last in arrows:
        events += arrow(kind, number, *places, last=last)
    with TemporaryDirectory() as folder:
        trace = ingested(text_of(*events), Path(folder, "trace"))
        whole = load(trace, FLOWS)
        chosen = load(trace, FLOWS, selection={"processes": [1]})
    assert not whole.document.startswith(b"{")
    assert chosen.document.startswith(b"{")
    assert Counter(map(tuple, whole.answers[0])) == expected
    assert Counter(map(tuple, chosen.answers[0])) == expected
    assert whole.report.stats == []
    assert whole.report.complete


def test_arrows_one_after_the_other_share_a_number(tmp_path: Path) -> None:
    events = threads(1000)
    for number in range(1000):
        events += arrow(KINDS[number % 2], number, (number, 1), (number, 2))
    events += arrow(KINDS[0], 1000, (0, 1), (999, 3)) + arrow(KINDS[0], 1001, (0, 1), (999, 3), last="t")
    trace = ingested(text_of(*events), tmp_path / "trace")
    decoder = Decoder(b"".join(render(trace.columns, trace.summary, RenderReport())))
    ends = [event.last for event in decoder.events() if event.kind == FLOW_END]
    assert len(ends) == 1001
    assert {*ends} == {0, 2, 3}, "1 is that of the arrow that goes on and never ends"
    assert Counter(decoder.introduced) == {KINDS[0]: 3, KINDS[1]: 1}


def test_begin_without_an_end_takes_no_number(tmp_path: Path) -> None:
    begins = [event for number in range(50) for event in arrow(KINDS[0], number, (number, 1), (0, 0))[:1]]
    trace = ingested(text_of(*threads(50), *begins), tmp_path / "trace")
    decoder = Decoder(b"".join(render(trace.columns, trace.summary, RenderReport())))
    numbers = [event.last for event in decoder.events() if event.kind == FLOW_BEGIN]
    assert len({*numbers}) == 50
    assert min(number or 0 for number in numbers) >= 1 << 63
    assert decoder.introduced == []


@pytest.mark.parametrize("kind", [(None, "name"), ("category", None), (None, None), ("", "")])
def test_arrow_without_a_category_or_a_name_has_null(kind: tuple[str | None, str | None], tmp_path: Path) -> None:
    trace = ingested(text_of(*threads(9), *arrow(kind, 7, (3, 1), (5, 2))), tmp_path / "trace")
    expected = [(kind[0] or None, kind[1] or None, "3 on 1", "5 on 2")]
    assert [tuple(row) for row in load(trace, FLOWS).answers[0]] == expected
    assert [tuple(row) for row in load(trace, FLOWS, selection={"processes": [1]}).answers[0]] == expected


def test_arrow_with_several_ends_has_its_category_at_each(tmp_path: Path) -> None:
    begin, end = arrow(KINDS[0], 7, (3, 1), (5, 2))
    events = [begin, end, end | {"ts": 6}, end | {"ts": 7, "tid": 3}, *arrow(KINDS[0], 8, (7, 1), (8, 2))]
    rows = load(ingested(text_of(*threads(9), *events), tmp_path / "trace"), FLOWS).answers[0]
    ends = ["5 on 2", "6 on 2", "7 on 3"]
    assert sorted(map(tuple, rows)) == [
        *((*KINDS[0], "3 on 1", name) for name in ends),
        (*KINDS[0], "7 on 1", "8 on 2"),
    ]


def test_number_of_an_arrow_whose_end_is_in_no_slice_is_not_used_again(tmp_path: Path) -> None:
    """The engine does not end such an arrow: the next arrow of that number would begin where this one did."""
    nowhere = (5, 9)
    events = [
        *arrow(KINDS[0], 1, (3, 1), nowhere),
        *arrow(KINDS[0], 2, (6, 1), (7, 2)),
        *arrow(KINDS[0], 3, (7, 1), (8, 2)),
    ]
    trace = ingested(text_of(*threads(9), *events), tmp_path / "trace")
    expected = [(*KINDS[0], "6 on 1", "7 on 2"), (*KINDS[0], "7 on 1", "8 on 2")]
    whole, chosen = load(trace, FLOWS), load(trace, FLOWS, selection={"processes": [1]})
    assert sorted(map(tuple, whole.answers[0])) == sorted(map(tuple, chosen.answers[0])) == expected
    assert whole.report.stats == chosen.report.stats
    decoder = Decoder(whole.document)
    assert [event.last for event in decoder.events() if event.kind == FLOW_END] == [0, 1, 1]


@pytest.mark.parametrize("phase", ["X", "i"])
def test_arrows_among_slices_without_duration_are_in_the_order_of_the_file(phase: str, tmp_path: Path) -> None:
    events = threads(5)
    for number in (1, 2):
        begin, end = arrow(KINDS[0], number, (number, 1), (9, 7))
        events += [
            begin,
            {"ph": phase, "pid": 1, "tid": 7, "ts": 9, "dur": 0, "s": "t", "name": f"kernel {number}"},
            end,
        ]
    trace = ingested(text_of(*events), tmp_path / "trace")
    expected = [(*KINDS[0], f"{number} on 1", f"kernel {number}") for number in (1, 2)]
    whole, chosen = load(trace, FLOWS), load(trace, FLOWS, selection={"processes": [1]})
    assert sorted(map(tuple, whole.answers[0])) == sorted(map(tuple, chosen.answers[0])) == expected
    assert not whole.document.startswith(b"{")

"""Selections keep exactly the events that an oracle in plain Python keeps."""

import gzip
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.attribution.file import LinkReader
from service.cutting.rows import AT_ONCE
from service.store.parts import Parts
from service.trace.errors import SelectionError
from tests.brute import OF_PROCESS, Document, NoTime, UnknownSlice, kept
from tests.conftest import DATA, SHARED, few_of, scaled
from tests.cutting.choices import Chosen, cut, documents, edges_of, selection_of, selections_of, text_of
from tests.traces import TraceShape, expected, trace_chunks

TRACES = sorted([*DATA.glob("*.pt.trace.json.gz"), *SHARED.rglob("*.pt.trace.json.gz")])
OF_SMALL, OF_LARGE = 14, 8


def oracle_of(document: Document, selection: Chosen) -> list[int] | None:
    """Return the positions that the oracle keeps; None for an invalid or empty selection."""
    try:
        return kept(document, selection)
    except (NoTime, UnknownSlice):
        return None


def chosen(document: Document, random: Random, count: int) -> list[tuple[Chosen, list[int]]]:
    """Return valid random selections, each with the positions that the oracle keeps."""
    cases = ((selection, oracle_of(document, selection)) for selection in selections_of(document, random))
    return list(islice(((selection, positions) for selection, positions in cases if positions is not None), count))


def check(text: str | bytes, seed: str, row_group: int) -> None:
    document, random = Document(text), Random(seed)
    cases = chosen(document, random, OF_LARGE if len(document.events) > 10_000 else OF_SMALL)
    selections = [selection for selection, _ in cases]
    with cut(text, row_group=row_group) as columns:
        kept_positions = columns.kept(*selections)
    for (selection, oracle), positions in zip(cases, kept_positions, strict=True):
        assert positions == oracle, selection
        check_whole(document, selection, positions)
    assert sum(map(bool, kept_positions)) > len(kept_positions) / 2


def check_whole(document: Document, selection: Chosen, positions: list[int]) -> None:
    """Check that each kept arrow has all its ends, and that each thread with kept events has its names."""
    closure, kept_positions = selection.get("closure", {}), set(positions)
    if closure.get("flows", True):
        for ends in document.flows.values():
            assert len({end.index in kept_positions for end in ends}) == 1
    if closure.get("metadata", True):
        tracks = {document.events[at].track for at in positions if document.events[at].ph != "M"}
        assert {event.index for event in document.events if event.ph == "M" and event.track in tracks} <= kept_positions


@pytest.mark.parametrize("path", few_of(TRACES), ids=lambda path: path.name.partition(".")[0])
def test_selections_of_a_real_trace_match_the_oracle(path: Path) -> None:
    text = gzip.decompress(path.read_bytes())

    check(text, path.name, max(7, text.count(b'"ph"') // 60))


@pytest.mark.parametrize("era", ["us_int", "us_decimal", "relative"])
def test_selections_of_a_synthetic_trace_match_the_oracle(era: Any) -> None:
    shape = TraceShape(era=era, devices=(0, 1), stacks=True, kernels=12)

    check(b"".join(trace_chunks(shape)), era, 37)


@settings(max_examples=scaled(20))
@given(documents(), st.integers(1, 7), st.booleans(), st.randoms(use_true_random=False))
def test_selections_of_a_hostile_document_match_the_oracle(
    text: str, row_group: int, untimed_apart: bool, random: Random
) -> None:
    document = Document(text)
    selections = [selection_of(document, random) for _ in range(8)]
    with cut(text, row_group=row_group, untimed_apart=untimed_apart) as columns:
        for selection in selections:
            if (oracle := oracle_of(document, selection)) is None:
                with pytest.raises(SelectionError):
                    columns.kept(selection)
            else:
                assert columns.kept(selection) == [oracle], selection
                check_whole(document, selection, oracle)


@pytest.mark.parametrize("count", [2, 9, 17, AT_ONCE])
def test_selections_in_one_pass_keep_the_same_as_one_by_one(count: int) -> None:
    text = b"".join(trace_chunks(TraceShape(steps=2, kernels=8, devices=(0, 1))))
    cases = chosen(Document(text), Random(count), count)
    with cut(text, row_group=50) as columns:
        together = columns.kept(*(selection for selection, _ in cases))
        separately = [columns.kept(selection)[0] for selection, _ in cases]

    assert len(cases) == count
    assert together == separately == [positions for _, positions in cases]


@pytest.mark.parametrize("selection", [{}, {"window": {}}, {"exclude": {}}, {"exclude": {"names": ["no such"]}}])
def test_selection_without_criteria_keeps_everything(selection: Chosen) -> None:
    shape = TraceShape()
    with cut(b"".join(trace_chunks(shape)), row_group=100) as columns:
        assert columns.kept(selection) == [list(range(expected(shape).events))]
        events, name_count = columns.summary.events["kept"], columns.summary.counts["M|"]
        (unnamed,) = columns.kept({**selection, "closure": {"metadata": False}})
        assert len(unnamed) == events - name_count


def test_selection_of_a_stream_reads_the_tracks_of_each_part_once() -> None:
    read: list[int] = []
    read_parts = Parts._read

    def recorded(parts: Parts, names: Any, indexes: list[int]) -> Any:
        read.extend(indexes if "pid" in names else [])
        return read_parts(parts, names, indexes)

    with cut(b"".join(trace_chunks(TraceShape(steps=4))), row_group=50) as columns:
        timed = [index for index in range(len(columns.parts)) if not columns.parts.has_untimed(index)]
        with mock.patch.object(Parts, "_read", recorded):
            (kept_positions,) = columns.kept({"streams": columns.summary.streams[:1]})
    assert kept_positions
    assert sorted(set(read).intersection(timed)) == timed
    assert len([index for index in read if index in timed]) == len(timed)


def test_short_window_reads_only_the_parts_that_its_arrows_and_links_need() -> None:
    read: set[int] = set()
    read_parts = Parts._read

    def recorded(parts: Parts, names: Any, indexes: list[int]) -> Any:
        read.update(indexes)
        return read_parts(parts, names, indexes)

    with cut(b"".join(trace_chunks(TraceShape(steps=40, kernels=20))), row_group=50) as columns:
        start, end = edges_of(columns.summary)
        middle, count = (start + end) // 2, len(columns.parts)
        selection = {"window": {"start_ns": middle, "end_ns": middle + (end - start) // 100}}
        with mock.patch.object(Parts, "_read", recorded):
            (kept_positions,) = columns.kept(selection)
        rows = np.zeros(columns.parts.rows, np.bool_)
        rows[[columns.positions.index(at) for at in kept_positions]] = True
        links = LinkReader(columns.parts.folder, columns.summary)
        near, everything = links.touching(rows).rows, links.all().rows

    assert kept_positions
    assert len(read) < count / 4
    assert 0 < len(near) < len(everything) / 4


# -- connected events -------------------------------------------------------------------------------------------

HERE, THERE = {"pid": 1, "tid": 1}, {"pid": 0, "tid": 7}
LINKED = {"correlation": 5, "External id": 9}
OP, LAUNCH, WORK, TAIL, HEAD, AFTER = (
    {"ph": "X", **HERE, "ts": 0, "dur": 9, "cat": "cpu_op", "name": "aten::mm", "args": {"External id": 9}},
    {"ph": "X", **HERE, "ts": 2, "dur": 3, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": LINKED},
    {"ph": "X", **THERE, "ts": 20, "dur": 5, "cat": "kernel", "name": "gemm", "args": LINKED},
    {"ph": "s", **HERE, "ts": 2, "cat": "ac2g", "name": "ac2g", "id": 5},
    {"ph": "f", **THERE, "ts": 20, "cat": "ac2g", "name": "ac2g", "id": 5, "bp": "e"},
    {"ph": "i", **HERE, "ts": 90, "name": "mark"},
)
EVENTS = (OP, LAUNCH, WORK, TAIL, HEAD, AFTER)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"names": ["gemm"]}, [OP, LAUNCH, WORK, TAIL, HEAD]),
        ({"names": ["gemm"], "closure": {"launches": False}}, [WORK]),
        ({"names": ["gemm"], "closure": {"flows": False}}, [OP, LAUNCH, WORK]),
        ({"names": ["cudaLaunchKernel"], "closure": {"launches": False}}, [LAUNCH, WORK, TAIL, HEAD]),
        ({"names": ["cudaLaunchKernel"], "closure": {"kernels": False}}, [LAUNCH]),
        ({"names": ["aten::mm"]}, [OP]),
        ({"names": ["gemm"], "exclude": {"categories": ["cpu_op"]}}, [LAUNCH, WORK, TAIL, HEAD]),
        ({"names": ["gemm"], "exclude": {"categories": ["cuda_runtime"]}}, [OP, WORK]),
        ({"window": {"start_ns": 20_000, "end_ns": 21_000}, "exclude": {"window": {"end_ns": 9000}}}, [*EVENTS[:-1]]),
        ({"categories": ["ac2g"]}, []),
        ({"categories": ["ac2g"], "closure": {"flows": False}}, [TAIL, HEAD]),
    ],
)
@pytest.mark.parametrize("row_group", [1, 6])
def test_closure_adds_events_that_belong_to_kept_ones(
    selection: Chosen, expected: list[dict[str, Any]], row_group: int
) -> None:
    with cut(text_of(*EVENTS), row_group=row_group) as columns:
        assert columns.kept(selection) == [[at for at, event in enumerate(EVENTS) if event in expected]]


SECOND = {**LAUNCH, "ts": 50, "args": {"correlation": 6}}
NAMELESS = [
    {"ph": "M", "name": "thread_name", "pid": 1},
    {"ph": "X", "pid": 1, "ts": 1, "name": "a"},
    {"ph": "X", "pid": 1, "tid": "", "ts": 2, "name": "b"},
]


@pytest.mark.parametrize(("row_group", "untimed_apart"), [(1, True), (2, False), (9, False)])
@pytest.mark.parametrize(
    ("case", "events", "selection"),
    [
        ("no phase is no slice", [{**HERE, "ts": 1, "dur": 9}, AFTER], {"window": {"start_ns": 5000}}),
        ("no phase is no name", [{**HERE, "ts": 1}, AFTER], {"window": {"end_ns": 5000}}),
        ("no time is before all", [OP, {"ph": "i", **HERE}, AFTER], {"window": {"start_ns": 1, "end_ns": 9}}),
        ("no time is at an open start", [OP, {"ph": "i", **HERE}, AFTER], {"window": {"end_ns": 9}}),
        ("an arrow by its id alone", [LAUNCH, {**TAIL, "ts": 80}, AFTER], {"names": ["cudaLaunchKernel"]}),
        (
            "both ends by their id alone",
            [LAUNCH, OP, SECOND, WORK, {**TAIL, "ts": 80}, {**HEAD, "ts": 85}, AFTER],
            {"names": ["gemm"]},
        ),
        (
            "an end that says it is work",
            [LAUNCH, {**TAIL, "cat": "kernel", "ts": 30, "args": LINKED}, {**HEAD, "cat": "kernel", "ts": 40}],
            {"window": {"end_ns": 5000}},
        ),
        (
            "a name that says it is work",
            [LAUNCH, {**WORK, "ph": "M"}, {**OP, "ts": 50}],
            {"window": {"end_ns": 5000}},
        ),
        (
            "an arrow on a thread without a tid",
            [{**TAIL, "cat": "fwdbwd", "tid": ""}, {"ph": "X", "pid": 1, "ts": 2, "dur": 1, "name": "a"}, AFTER],
            {"names": ["a"]},
        ),
        (
            "a name of a thread without a tid",
            NAMELESS,
            {"names": ["a"]},
        ),
        (
            "the same, by its other events",
            NAMELESS,
            {"names": ["b"]},
        ),
        ("an arrow behind its slice", [OP, LAUNCH, {**TAIL, "cat": "fwdbwd"}, AFTER], {"names": ["cudaLaunchKernel"]}),
        ("an arrow before its slice", [OP, {**TAIL, "cat": "fwdbwd"}, LAUNCH, AFTER], {"names": ["cudaLaunchKernel"]}),
        (
            "an arrow far behind its slice",
            [OP, LAUNCH, *[{**HERE, "ts": 2}] * 5, {**TAIL, "cat": "fwdbwd"}, AFTER],
            {"names": ["cudaLaunchKernel"]},
        ),
        ("a line behind a name", [OP, {**OP, "name": "aten::mm\n"}], {"names": ["aten::m?", "*:mm"]}),
        ("a process without a name", [AFTER, {"ph": "M", "name": "process_name", "pid": 8}], {"phases": ["i"]}),
        ("a process that loses all", [AFTER, WORK, {"ph": "M", "name": "process_name", **THERE}], {"phases": ["i"]}),
        (
            "a thread that loses all of a process that does not",
            [OP, {**OP, "tid": 2, "name": "b"}]
            + [
                {"ph": "M", "name": name, "pid": 1, "tid": tid}
                for name in OF_PROCESS | {"thread_name"}
                for tid in (1, 2)
            ],
            {"names": ["b"]},
        ),
    ],
)
def test_selections_of_odd_traces_match_the_oracle(
    case: str, events: list[dict[str, Any]], selection: Chosen, row_group: int, untimed_apart: bool
) -> None:
    text = text_of(*events)
    with cut(text, row_group=row_group, untimed_apart=untimed_apart) as columns:
        assert columns.kept(selection) == [kept(Document(text), selection)]

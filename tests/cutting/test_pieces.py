"""Pieces divide a trace, and invalid splits are refused."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.cutting.children import write_children
from service.cutting.pieces import PIECES_MAX, Piece, split_into_pieces
from service.cutting.source import Source
from service.trace.errors import BadSelection, UnknownChoice
from service.trace.piece import By
from service.trace.selection import Selection
from tests.conftest import scaled
from tests.cutting.choices import Chosen, edges_of, text_of
from tests.cutting.test_cut import HERE, cut_text, ingested, synthetic
from tests.cutting.test_merge import merged


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    text = synthetic(kernels=8, devices=(0, 1), steps=3)
    return ingested(text, tmp_path_factory.mktemp("pieces") / "whole", "rank0.pt.trace.json.gz")


def split(source: Source, selection: Chosen, by: By | None, value: int | None = None) -> list[Piece]:
    return split_into_pieces(source.columns, source.summary, Selection.parsed(selection), by, value)


def spans(planned: list[Piece]) -> list[tuple[int | None, int | None]]:
    windows = [piece.selection.window for piece in planned]
    return [(window.start_ns, window.end_ns) for window in windows if window]


def check_divided(source: Source, planned: list[Piece]) -> None:
    """Check that the pieces divide the time without overlaps or gaps."""
    divided = spans(planned)
    assert len(divided) == len(planned)
    assert divided[0][0] is divided[-1][1] is None
    assert all(earlier[1] == later[0] is not None for earlier, later in pairwise(divided))
    first, last = edges_of(source.summary)
    assert all(start is None or first < start <= last for start, _ in divided)


@given(value=st.integers(1, 200))
@settings(max_examples=scaled(20))
def test_split_by_parts_divides_the_time_equally(source: Source, value: int) -> None:
    planned = split(source, {}, "parts", value)

    assert len(planned) == value
    check_divided(source, planned)
    inner = spans(planned)[1:-1]
    assert {end - start for start, end in inner if start and end and value > 2} <= {
        *range((bounds_of(source) // value) - 1, bounds_of(source) // value + 2)
    }


def bounds_of(source: Source) -> int:
    start, end = edges_of(source.summary)
    return end - start


@given(share=st.integers(1, 300))
@settings(max_examples=scaled(20))
def test_split_by_duration_divides_the_time_into_pieces_of_that_duration(source: Source, share: int) -> None:
    lasts = bounds_of(source) // share + 1

    planned = split(source, {}, "duration", lasts)

    check_divided(source, planned)
    assert {end - start for start, end in spans(planned) if start and end} <= {lasts}


def test_split_by_time_divides_the_window(source: Source) -> None:
    start, end = edges_of(source.summary)
    middle = (start + end) // 2

    first, second = split(source, {"window": {"start_ns": start, "end_ns": middle}}, "parts", 2)
    relative, _ = split(source, {"window": {"start_ns": 10, "relative": True}}, "parts", 2)

    assert spans([first, second]) == [(start, (start + middle) // 2), ((start + middle) // 2, middle)]
    assert spans([relative])[0][0] == start + 10


@pytest.mark.parametrize(("by", "field"), [("step", "steps"), ("stream", "streams"), ("device", "devices")])
def test_split_by_an_entity_has_a_piece_for_each(source: Source, by: By, field: str) -> None:
    summary = source.summary
    values: dict[str, list[Any]] = {
        "steps": [step["number"] for step in summary.steps],
        "streams": summary.streams,
        "devices": [device["id"] for device in summary.devices if device["events"]],
    }

    assert [getattr(piece.selection, field) for piece in split(source, {}, by)] == [[value] for value in values[field]]
    chosen = values[field][:2]
    assert [getattr(piece.selection, field) for piece in split(source, {field: chosen}, by)] == [
        [value] for value in chosen
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Two ranks of two hosts, merged; each has the devices 0 and 1, and one of them also the device 2."""
    folder = tmp_path_factory.mktemp("run")
    ranks = [
        ingested(synthetic(kernels=12, devices=devices, steps=1), folder / f"{rank}", f"rank{rank}.json", rank=rank)
        for rank, devices in enumerate([(0, 1), (0, 1, 2)])
    ]
    return merged(ranks, folder)


def test_split_of_a_run_by_device_has_a_piece_for_each_device_of_each_rank(run: Source, tmp_path: Path) -> None:
    planned = split(run, {}, "device")
    gpus = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]

    assert [(piece.selection.ranks, piece.selection.devices) for piece in planned] == [([r], [d]) for r, d in gpus]
    assert [piece.suffix for piece in planned] == [f"rank{rank}-device{device}" for rank, device in gpus]
    children = write_children(
        run, tmp_path, planned, new_id=iter("abcde").__next__, on_written=lambda written, total: None
    )
    work = [sum(device["events"] for device in child.summary.devices) for child in children]
    assert [child.summary.rank for child in children] == [rank for rank, _ in gpus]
    assert [[device["id"] for device in child.summary.devices if device["events"]] for child in children] == [
        [device] for _, device in gpus
    ]
    assert min(work) > 0
    assert sum(work) == sum(device["events"] for device in run.summary.devices)


def test_split_of_a_part_of_a_run_by_device_has_the_chosen_devices(run: Source) -> None:
    assert [piece.suffix for piece in split(run, {"ranks": [1], "devices": [0, 2]}, "device")] == [
        "rank1-device0", "rank1-device2",
    ]  # fmt: skip
    assert [piece.suffix for piece in split(run, {"devices": [2]}, "device")] == ["rank1-device2"]
    with pytest.raises(UnknownChoice) as caught:
        split(run, {"ranks": [0], "devices": [2]}, "device")
    assert caught.value.as_dict()["known_devices"] == [0, 1, 2]


@pytest.mark.parametrize("straddle", ["keep", "start", "clip"])
@pytest.mark.parametrize("share", [2, 4])
def test_split_by_size_keeps_documents_below_the_limit(straddle: str, share: int, tmp_path: Path) -> None:
    source = ingested(synthetic(kernels=40, steps=8), tmp_path / "whole")
    limit = len(cut_text(source, {})) // share

    planned = split(source, {"straddle": straddle}, "size", limit)

    check_divided(source, planned)
    assert len(planned) >= share
    for piece in planned:
        assert len(cut_text(source, piece.selection.as_dict())) <= limit


def test_split_by_size_accounts_for_clipped_slices(tmp_path: Path) -> None:
    events = [
        {"ph": "X", **HERE, "name": "a", "ts": at, "dur": 100_000 - 2 * at, "args": {"n": at}} for at in range(300)
    ]
    events += [{"ph": "i", **HERE, "name": "b" * 40, "ts": 1000 + at} for at in range(3000)]
    source = ingested(text_of(*events), tmp_path / "whole")
    limit = len(cut_text(source, {})) // 2

    planned = split(source, {"straddle": "clip"}, "size", limit)

    assert len(planned) > 1
    assert max(len(cut_text(source, piece.selection.as_dict())) for piece in planned) <= limit


@pytest.mark.parametrize(
    ("by", "value"),
    [
        ("parts", None),
        ("duration", None),
        ("size", None),
        ("parts", 0),
        ("duration", -1),
        ("step", 3),
        ("stream", 1),
        ("rank", 1),
        (None, 1),
        ("parts", PIECES_MAX + 1),
        ("duration", 10),
        ("size", 2000),
    ],
)
def test_invalid_split_is_refused(source: Source, by: By | None, value: int | None) -> None:
    with pytest.raises(BadSelection):
        split(source, {}, by, value)


def test_split_by_an_absent_entity_is_refused(source: Source, tmp_path: Path) -> None:
    host = ingested(text_of({"ph": "X", **HERE, "name": "a", "ts": 1, "dur": 2}), tmp_path / "host")
    untimed = ingested(text_of({"ph": "X", **HERE, "name": "a"}), tmp_path / "untimed")

    kinds: tuple[By, ...] = ("step", "stream", "device", "rank")
    for by in kinds:
        with pytest.raises(UnknownChoice):
            split(host, {}, by)
    timed: tuple[tuple[By, int], ...] = (("parts", 2), ("duration", 5), ("size", 100_000))
    for by, value in timed:
        with pytest.raises(BadSelection):
            split(untimed, {}, by, value)
    with pytest.raises(UnknownChoice):
        split(source, {}, "rank")
    with pytest.raises(BadSelection):
        split(source, {"window": {"end_ns": 5}}, "parts", 2)

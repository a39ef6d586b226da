"""A selection keeps the annotations of the steps of its events, so that these are in the same steps as in the trace."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.cutting.source import Source
from service.trace.rank import ranks_by_pid
from tests import brute
from tests.attribution.oracle import WORK
from tests.conftest import DATA, scaled
from tests.cutting.choices import Chosen, cut, documents, selection_of, text_of
from tests.cutting.test_children import split
from tests.cutting.test_cut import cut_text, document_of, ingested, kept_of, lines, plain
from tests.cutting.test_merge import merged

ON_DEVICES = {"gpu_user_annotation", "cuda_sync"}  # their steps are those of slices that they do not keep
HOST, WORKER, GPU = {"pid": 1, "tid": 1}, {"pid": 1, "tid": 2}, {"pid": 0, "tid": 7}


def step(number: int, start: float, end: float, **track: Any) -> dict[str, Any]:
    return slice_of(f"ProfilerStep#{number}", start, end, cat="user_annotation", **(track or HOST))


def slice_of(name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": start, "dur": end - start, **HOST, **more}


def launched(number: int, start: float, work_start: float) -> list[dict[str, Any]]:
    """Return a launch and its kernel, which takes 5 µs."""
    linked = {"args": {"correlation": number, "device": 0, "stream": 7}}
    return [
        slice_of("cudaLaunchKernel", start, start + 1, cat="cuda_runtime", args={"correlation": number}),
        slice_of(f"kernel {number}", work_start, work_start + 5, cat="kernel", **GPU, **linked),
    ]


def names_kept(selection: Chosen, *events: dict[str, Any]) -> list[str]:
    with cut(text_of(*events)) as columns:
        [positions] = columns.kept(selection)
    return [events[at]["name"] for at in positions]


# -- invariants -------------------------------------------------------------------------------------------------


@settings(max_examples=scaled(150))
@given(documents(), st.randoms(use_true_random=False))
def test_events_of_a_cut_have_the_steps_of_the_trace(text: str, random: Random) -> None:
    document = brute.Document(text)
    selection = selection_of(document, random)
    for field in ("closure", "exclude", "straddle"):
        selection.pop(field, None)
    if not (positions := kept_of(document, selection)):
        return
    with TemporaryDirectory() as folder:
        part = brute.Document(cut_text(ingested(text, Path(folder) / "whole"), selection))
    for event, at in zip(part.events, positions, strict=True):
        if event.ph not in {"M", *brute.ENDS} and event.cat not in ON_DEVICES:
            assert part.attributed.step(event) == document.attributed.step(document.events[at]), selection


@pytest.mark.parametrize(
    "path", sorted(DATA.glob("cuda_*s.pt.trace.json.gz")), ids=lambda path: path.name.split(".")[0]
)
def test_work_of_a_real_cut_has_the_steps_of_the_trace(path: Path, tmp_path: Path) -> None:
    text = plain(path)
    document, source = brute.Document(text), ingested(text, tmp_path / "whole", path.name)
    choices: list[Chosen] = [{"streams": [stream]} for stream in source.summary.streams]
    choices += [{"devices": [0]}, {"categories": ["kernel"]}, {"names": ["*Memcpy*"]}]
    for selection in choices:
        positions = kept_of(document, selection)
        assert positions
        part = brute.Document(cut_text(source, selection))
        steps = {
            document.attributed.step(document.events[at]) for at in positions if document.events[at].cat in WORK
        } - {None}
        assert steps
        assert steps <= part.steps.keys()
        for event, at in zip(part.events, positions, strict=True):
            if event.cat in WORK:
                assert part.attributed.step(event) == document.attributed.step(document.events[at])


@pytest.mark.parametrize("by", ["stream", "step"])
def test_pieces_share_only_annotations_of_steps_and_a_merge_has_each_once(by: Any, tmp_path: Path) -> None:
    source = ingested(plain(DATA / "cuda_train_steps.pt.trace.json.gz"), tmp_path / "whole")
    pieces = [piece for _, piece in split(source, tmp_path / "made", {}, by)]

    counts = Counter(line for piece in pieces for line in slices_in(piece))
    names = {json.loads(line)["name"] for line, count in counts.items() if count > 1}

    assert names == ({step["name"] for step in source.summary.steps} if by == "stream" else set())
    assert sorted(slices_in(merged(pieces, tmp_path / "merged"))) == sorted(counts)


def slices_in(source: Source) -> list[str]:
    return [line for line in lines(document_of(source)) if json.loads(line)["ph"] == "X"]


# -- rules ------------------------------------------------------------------------------------------------------


def test_steps_without_kept_events_are_left_out() -> None:
    events = [step(1, 0, 10), *launched(1, 2, 5), step(2, 10, 20), *launched(2, 12, 15), step(3, 20, 30)]
    assert names_kept({"names": ["kernel 2"]}, *events) == ["ProfilerStep#2", "cudaLaunchKernel", "kernel 2"]


def test_step_of_work_that_trails_into_a_window_is_kept() -> None:
    events = [step(1, 0, 10), *launched(1, 2, 40), step(2, 10, 20), step(3, 35, 60)]
    window = {"window": {"start_ns": 41_000, "end_ns": 42_000}}
    expected = ["ProfilerStep#1", "cudaLaunchKernel", "kernel 1", "ProfilerStep#3"]
    assert names_kept(window, *events) == expected
    assert names_kept(window | {"straddle": "clip"}, *events) == expected


def test_annotations_of_all_threads_of_a_step_are_kept_and_repeated_numbers_are_other_steps() -> None:
    first = [step(1, 0, 10), step(1, 1, 12, **WORKER), slice_of("a", 3, 4)]
    later = [step(1, 100, 110), step(1, 101, 112, **WORKER)]
    assert names_kept({"names": ["a"]}, *first, *later) == ["ProfilerStep#1", "ProfilerStep#1", "a"]


def test_event_between_steps_of_its_thread_keeps_the_step_that_tells_it_from_those_of_other_threads() -> None:
    steps = [step(1, 0, 10), step(2, 10, 20), step(1, 0, 5, **WORKER)]
    events = [*steps, slice_of("a", 12, 13), slice_of("b", 14, 15, **WORKER)]
    assert names_kept({"names": ["a"]}, *events) == ["ProfilerStep#2", "a"]
    assert names_kept({"names": ["b"]}, *events) == ["ProfilerStep#1", "ProfilerStep#1", "b"]


def test_excluded_annotations_are_not_added_and_the_closure_can_be_off() -> None:
    events = [step(1, 0, 10), *launched(1, 2, 5)]
    work = ["cudaLaunchKernel", "kernel 1"]
    assert names_kept({"names": ["kernel*"], "closure": {"annotations": False}}, *events) == work
    assert names_kept({"names": ["kernel*"], "exclude": {"names": ["ProfilerStep*"]}}, *events) == work


def test_annotations_on_devices_are_no_steps() -> None:
    on_device = step(1, 4, 11, **GPU) | {"cat": "gpu_user_annotation"}
    assert names_kept({"categories": ["kernel"]}, on_device, *launched(1, 2, 5)) == ["cudaLaunchKernel", "kernel 1"]


def test_steps_in_a_merged_trace_are_kept_for_the_ranks_with_events_in_them(tmp_path: Path) -> None:
    events = [step(1, 0, 10), *launched(1, 2, 5), step(2, 10, 20)]
    texts = [
        text_of(*events, *(launched(2, 12, 15) if rank else ()), distributedInfo={"rank": rank}) for rank in range(2)
    ]
    ranks = [ingested(text, tmp_path / f"rank{rank}") for rank, text in enumerate(texts)]
    both = merged(ranks, tmp_path / "both", align="none")
    for selection, expected in (({}, [(0, 1), (1, 1), (1, 2)]), ({"ranks": [0]}, [(0, 1)])):
        [(_, piece)] = split(both, tmp_path / f"made{len(expected)}", {"categories": ["kernel"], **selection})
        rank_of = ranks_by_pid(both.summary.ranks)
        assert sorted((rank_of[int(one["pid"])], one["number"]) for one in piece.summary.steps) == expected

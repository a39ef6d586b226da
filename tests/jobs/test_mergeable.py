"""Traces that are merged are of one cycle, of several kinds, or parts of one trace."""

from dataclasses import replace
from pathlib import Path

import pytest

from service.cutting.source import Source
from service.jobs.mergeable import mergeable
from service.trace.errors import CannotMerge, UnknownCycle
from tests.cutting.test_children import split
from tests.cutting.test_cut import ingested, synthetic


@pytest.fixture(scope="module")
def cycles(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    """Two ranks with two traces each."""
    folder = tmp_path_factory.mktemp("cycles")
    return [
        ingested(synthetic(rank=rank, world_size=2, steps=2, first_step=first), folder / f"{rank}.{first}", f"{rank}")
        for first in (13, 3)
        for rank in range(2)
    ]


def itself(source: Source) -> Source:
    return source


def test_traces_of_several_cycles_need_a_choice(cycles: list[Source]) -> None:
    assert mergeable(cycles, 0, itself) == cycles[2:]
    assert mergeable(cycles, 1, itself) == cycles[:2]
    assert mergeable(cycles[:2], None, itself) == cycles[:2]
    listed = r"the cycles 0 \(steps 3 to 4\), 1 \(steps 13 to 14\)\."
    with pytest.raises(CannotMerge, match=f"{listed} Choose one with `cycle`"):
        mergeable(cycles, None, itself)
    with pytest.raises(UnknownCycle, match=listed):
        mergeable(cycles, 2, itself)


def test_given_ranks_decide_about_cycles(cycles: list[Source]) -> None:
    numbered = [replace(source, rank=rank) for rank, source in enumerate(cycles)]
    assert mergeable(numbered, None, itself) == numbered
    with pytest.raises(CannotMerge):
        mergeable([replace(source, rank=7) for source in cycles[:2]], None, itself)


def test_parts_of_one_trace_are_no_cycles(cycles: list[Source], tmp_path: Path) -> None:
    parts = [part for _, part in split(cycles[0], tmp_path, {"straddle": "start"}, "parts", 2)]
    assert mergeable([*parts, cycles[1]], None, itself) == [*parts, cycles[1]]
    with pytest.raises(CannotMerge):
        mergeable([*parts, cycles[2]], None, itself)


def test_inputs_of_other_kinds_are_no_cycles(cycles: list[Source]) -> None:
    exports = [replace(source, summary=replace(source.summary, format="sqlite")) for source in cycles[:2]]
    assert mergeable([*cycles[2:], *exports], None, itself) == [*cycles[2:], *exports]
    with pytest.raises(CannotMerge, match="the cycles 0"):
        mergeable([*cycles, *exports], None, itself)

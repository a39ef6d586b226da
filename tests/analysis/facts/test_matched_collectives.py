"""Figures of the ranks of matched collectives equal those of plain masks, one pass over all rows for each rank."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.collective_report import CollectiveReport
from service.analysis.facts.communications import SCHEMA
from service.analysis.facts.intervals import Flags, Ints
from service.analysis.facts.lateness import CAUSES, DELAY_INTERVALS, DelaySplitter
from service.analysis.facts.matched_collectives import MatchedCollectives

RANKS = 5
TIMES = st.integers(0, 60)


class Communication(NamedTuple):
    """A communication: the index of its rank, its number, its start and length, and its launch."""

    rank: int
    number: int
    start: int
    length: int
    launch: int | None


class Run(NamedTuple):
    """The communications of a run, and of each rank the causes of its delays, its first time and its clock."""

    communications: list[Communication]
    intervals: list[pa.Table]
    begins: list[int | None]
    shifts: Ints

    @property
    def matched(self) -> MatchedCollectives:
        constant = {"process_group": "0", "by_seq": 1, "occurrence": 0, "group_size": 2, "calls": 1, "index": 0}
        constant |= {"collective": "allreduce"}
        rows = [
            {**constant, "number": number, "start_ns": start, "end_ns": start + length, "launch_ns": launch}
            for _, number, start, length, launch in self.communications
        ]
        ranks = np.array([each.rank for each in self.communications], np.int64)
        return MatchedCollectives(pa.Table.from_pylist(rows, SCHEMA), ranks, self.shifts)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    communication = st.builds(
        Communication, st.integers(0, RANKS - 1), st.integers(0, 4), TIMES, st.integers(0, 30), st.none() | TIMES
    )
    cause = st.fixed_dictionaries({"cause": st.sampled_from(CAUSES), "start_ns": TIMES, "length": st.integers(0, 20)})

    def of_each(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.lists(values, min_size=RANKS, max_size=RANKS))

    intervals = [
        pa.Table.from_pylist([{**row, "end_ns": row["start_ns"] + row["length"]} for row in rows], DELAY_INTERVALS)
        for rows in of_each(st.lists(cause, max_size=4))
    ]
    communications = draw(st.lists(communication, min_size=1, max_size=30))
    return Run(communications, intervals, of_each(st.none() | TIMES), np.array(of_each(st.integers(-9, 9)), np.int64))


def masks(matched: MatchedCollectives) -> list[Flags]:
    return [matched.rank_indices == rank for rank in range(RANKS)]


def plain_delays(run: Run, matched: MatchedCollectives) -> dict[str, Ints]:
    """Split the delays by cause with a mask for each rank."""
    causes = {cause: np.zeros(len(run.communications), np.int64) for cause in CAUSES}
    launches = matched.rows["launch_ns"]
    known, times = launches.is_valid().to_numpy(), launches.fill_null(0).to_numpy()
    starts = matched.rows["start_ns"].to_numpy()
    for mask, intervals, first in zip(masks(matched), run.intervals, run.begins, strict=True):
        splitter = DelaySplitter(intervals, np.iinfo(np.int64).min if first is None else first)
        parts = splitter.split(starts[mask] - matched.delays[mask], times[mask], known[mask], starts[mask])
        for cause, part in parts.items():
            causes[cause][mask] = part
    return causes


@given(runs(), st.data())
def test_sum_of_each_rank_equals_that_of_its_mask(run: Run, data: st.DataObject) -> None:
    matched, count = run.matched, len(run.communications)
    integers = np.array(data.draw(st.lists(st.integers(-(2**40), 2**40), min_size=count, max_size=count)))
    for values in (integers, integers > 0, integers / 3):
        assert matched.sum_by_rank(values) == [int(values[mask].sum()) for mask in masks(matched)]


@given(runs())
def test_delays_by_cause_equal_those_of_a_mask_for_each_rank(run: Run) -> None:
    matched = run.matched
    causes, expected = matched.delays_by_cause(run.intervals, run.begins), plain_delays(run, matched)
    assert {cause: delays.tolist() for cause, delays in causes.items()} == {
        cause: delays.tolist() for cause, delays in expected.items()
    }


@given(runs())
def test_lateness_and_main_cause_of_each_rank_equal_those_of_its_mask(run: Run) -> None:
    matched = run.matched
    causes = matched.delays_by_cause(run.intervals, run.begins)
    report = CollectiveReport(matched, [*range(RANKS)], causes)
    late, main = [], {}
    for rank, mask in enumerate(masks(matched)):
        complete = matched.in_complete & mask
        last = complete & matched.is_last & (matched.rank_counts[matched.collective_of] > 1)
        delays = {cause: int(causes[cause][complete].sum()) for cause in CAUSES}
        late += [(rank, cause, delay, int(causes[cause][last].sum())) for cause, delay in delays.items() if delay]
        main[rank] = max(delays, key=lambda cause: delays[cause]) if any(delays.values()) else None
    rows = report.lateness().to_pylist()
    columns = report.lateness().column_names
    assert [tuple(row[name] for name in (*columns[:3], columns[4])) for row in rows] == late
    assert {row["rank"]: row["late_cause"] for row in report.ranks([0] * RANKS, []).to_pylist()} == main

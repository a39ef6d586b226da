"""Arithmetic of intervals and groups agrees with plain Python."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.intervals import (
    covered,
    group_rows,
    merge_intervals,
    outline_indices,
    overlap_length,
    quartiles,
    repeat_per_row,
    saturating_sum,
)
from tests.analysis.conftest import Ask
from tests.analysis.gpu import call, step, work

PAIRS = st.lists(st.tuples(st.integers(-30, 60), st.integers(0, 20)), max_size=12)


def edges(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    starts = np.array([start for start, _ in pairs], np.int64)
    return starts, starts + np.array([length for _, length in pairs], np.int64)


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {instant for start, length in pairs for instant in range(start, start + length)}


@given(PAIRS, PAIRS)
def test_covered_time_counts_once(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert covered(*edges(first)) == len(instants(first))
    assert overlap_length(edges(first), edges(second)) == len(instants(first) & instants(second))
    starts, ends = merge_intervals(*edges(first))
    assert (starts[1:] > ends[:-1]).all()


@given(st.lists(st.tuples(st.sampled_from([None, -5, 0, 7]), st.sampled_from([None, 1, 2**60])), max_size=12))
def test_groups_are_sorted_and_keep_the_order_of_their_rows(rows: list[tuple[int | None, int | None]]) -> None:
    columns = [pa.chunked_array([pa.array([row[column] for row in rows], pa.int64())]) for column in range(2)]
    expected: dict[Any, list[int]] = {}
    for index, row in enumerate(rows):
        expected.setdefault(row, []).append(index)
    groups = [(values, np.arange(len(rows))[indices].tolist()) for values, indices in group_rows(*columns)]
    assert dict(groups) == expected
    keys = [tuple((value is not None, value or 0) for value in values) for values, _ in groups]
    assert keys == sorted(keys)
    assert len(keys) == len(expected)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30))
def test_quartiles_are_interpolated(values: list[int]) -> None:
    assert quartiles(np.array(values)) == pytest.approx(np.quantile(values, (0.25, 0.5, 0.75)).tolist())


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(3, 12))
def test_outline_has_the_extremes_and_the_last_value_of_each_run(values: list[int], points: int) -> None:
    outline = outline_indices(np.array(values, np.int64), points).tolist()
    assert outline == sorted(set(outline))
    assert len(outline) <= points
    if len(values) <= points:
        assert outline == [*range(len(values))]
        return
    edges = np.linspace(0, len(values), points // 3 + 1).astype(int).tolist()
    for first, end in itertools.pairwise(edges):
        run, chosen = values[first:end], [index for index in outline if first <= index < end]
        assert chosen[-1] == end - 1
        assert {*chosen} == {first + run.index(max(run)), first + run.index(min(run)), end - 1}


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_sums_are_exact_or_clamped_to_64_bits(values: list[int]) -> None:
    assert saturating_sum(np.array(values, np.int64)) == max(-(2**63), min(sum(values), 2**63 - 1))


def test_values_are_repeated_for_their_rows() -> None:
    rows = [np.zeros(2, np.int64), np.zeros(0, np.int64), np.zeros(1, np.int64)]
    assert repeat_per_row([5, 6, None], rows).to_pylist() == [5, 5, None]


@pytest.mark.parametrize("parameters", [{}, {"types": "hta"}])
@pytest.mark.parametrize("name", [
    "temporal_breakdown", "idle_breakdown", "comm_overlap", "kernel_breakdown", "launch_stats", "queue_length",
    "memory_bandwidth", "annotations",
])  # fmt: skip
def test_durations_stay_positive_for_times_far_apart(name: str, parameters: dict[str, str], ask: Ask) -> None:
    last = 9e14
    trace = [
        *(call(-last, 1, dur=last), call(last, 2, dur=last), call(-last, 3), call(0, 4), call(1, 4)),
        *(work(-last, last, correlation=1), work(-last, 2 * last, name="ncclKernel", correlation=3)),
        *(work(0, last, "gpu_memcpy", "Memcpy HtoD", bytes=2**58), work(last, last, correlation=2, stream=9)),
        *(work(-last, 1, stream=8), work(last, 1, stream=8, correlation=4), work(last, 1, "gpu_memset", "Memset")),
        *(step(1, -last, last), step(1, 0, last), step(2, last, last)),
    ]
    answer = ask(name, trace, **parameters)
    if name == "idle_breakdown" and parameters:
        return  # as in HTA, overlapping work counts as a negative gap
    assert all(
        row[column.name] is None or row[column.name] >= 0
        for table, columns in answer.answer.question.tables.items()
        for row in answer[table]
        for column in columns
        if column.unit == "ns" and column.name not in {"at_ns", "start_ns", "call_start_ns", "min_ns"}
    )

"""Cycles: traces of a run from the same repetition of the profiler's schedule."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.trace.cycles import Cycles, cycles_of
from service.trace.summary import Summary


def summary(
    rank: int | None, steps: tuple[int, ...] = (), start: int = 0, *, base: int | None = 0, host: str | None = None
) -> Summary:
    return Summary(
        rank=rank,
        host=host,
        processes=[
            {"pid": pid, "name": None, "labels": labels, "events": 1} for pid, labels in ((7, "CPU"), (0, "GPU 0"))
        ],
        steps=[
            {"number": number, "name": "", "start_ns": start, "end_ns": start, "pid": 7, "tid": 7} for number in steps
        ],
        bounds={"start_ns": start, "end_ns": start + 10},
        base_ns=base,
    )


def test_traces_of_distinct_ranks_are_one_cycle() -> None:
    assert cycles_of([summary(0, (3,)), summary(1, (9,), 50), summary(None)]) == Cycles([0, 0, 0], "rank")
    assert cycles_of([summary(None), summary(None)]) == Cycles([0, 0], "rank")
    assert cycles_of([]).count == 0


def test_steps_separate_cycles_if_a_rank_lacks_the_first() -> None:
    traces = [summary(0, (3, 4)), summary(0, (13, 14)), summary(1, (13, 14)), summary(2, (3,))]
    assert cycles_of(traces) == Cycles([0, 1, 1, 0], "steps")


def test_times_separate_cycles_if_steps_do_not() -> None:
    steps = (3, 4)
    traces = [summary(0, steps, 0, base=1000), summary(1, steps, 505), summary(0, steps, 500), summary(1, steps, 1002)]
    assert cycles_of(traces) == Cycles([1, 0, 0, 1], "time")


def test_order_separates_cycles_if_steps_and_times_overlap() -> None:
    traces = [summary(0, (), 8), summary(1, (), 5), summary(0, (), 0), summary(1, (), 9)]
    assert cycles_of(traces) == Cycles([1, 0, 0, 1], "order")


@pytest.mark.parametrize(("host", "numbers"), [("node1", [0, 1]), (None, [0, 0])])
def test_process_without_a_rank_is_identified_by_host_and_pid(host: str | None, numbers: list[int]) -> None:
    assert cycles_of([summary(None, (1,), host=host), summary(None, (2,), host=host)]).numbers == numbers


@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1), st.booleans(), st.randoms())
def test_traces_belong_to_the_cycle_that_wrote_them(pairs: set[tuple[int, int]], has_steps: bool, random: Any) -> None:
    traces = sorted(pairs)
    random.shuffle(traces)
    cycles = cycles_of([
        summary(rank, (10 * cycle + 2, 10 * cycle + 3) if has_steps else (), 100 * cycle + rank)
        for rank, cycle in traces
    ])  # fmt: skip
    several = len({rank for rank, _ in traces}) < len(traces)
    order = sorted({cycle for _, cycle in traces}) if several else []
    assert cycles.numbers == [order.index(cycle) if several else 0 for _, cycle in traces]
    assert cycles.rule == (("steps" if has_steps else "time") if several else "rank")


@pytest.mark.parametrize("events", ["i|memory_snapshot", "X|memory_block", "C|memory_timeline"])
def test_memory_histories_beside_traces_are_no_cycle(events: str) -> None:
    memory = replace(summary(0, (), 3), counts={events: 1})
    traces = [summary(0, (3, 4)), summary(0, (13, 14), 50), summary(1, (13, 14), 50)]

    later = replace(memory, bounds={"start_ns": 90, "end_ns": 99})
    assert cycles_of([memory, *traces]) == Cycles([0, 0, 1, 1], "steps")
    assert cycles_of([summary(0), memory]) == Cycles([0, 0], "rank")
    assert cycles_of([later, summary(0), memory]) == Cycles([1, 0, 0], "rank")
    assert cycles_of([memory, later]) == Cycles([0, 1], "time")

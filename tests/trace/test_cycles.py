"""Cycles: traces of a run from the same repetition of the profiler's schedule."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.trace.cycles import Cycles, by_cycle, chosen_cycle, cycles_of, of_cycles
from service.trace.errors import BadAnalysisRequest, UnknownCycle
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


def test_merged_traces_of_the_same_ranks_are_several_cycles() -> None:
    def merged(steps: tuple[int, ...], *ranks: int) -> Summary:
        parts = [
            {"rank": rank, "name": None, "trace": "", "shift_ns": 0, "collectives": 0, "residual_ns": None}
            for rank in ranks
        ]
        return replace(summary(None, steps), ranks=parts)  # type: ignore[arg-type] # a summary lists dicts

    assert cycles_of([merged((3,), 0, 1), merged((13,), 0, 1)]) == Cycles([0, 1], "steps")
    assert cycles_of([merged((3,), 0, 1), merged((13,), 2, 3)]) == Cycles([0, 0], "rank")
    assert cycles_of([merged((), 0, 1), summary(1)]) == Cycles([0, 1], "order")


# -- one of several cycles ------------------------------------------------------------------------------------

SEVERAL = [summary(0, (13, 15)), summary(0, (3, 5)), summary(1, (3, 4)), summary(1, (13, 14))]
SINGLE = [summary(0, (7,)), summary(1, (7,))]


def itself(trace: Summary) -> Summary:
    return trace


def test_traces_are_listed_by_their_cycle() -> None:
    cycles = by_cycle(SEVERAL, itself)
    assert [(cycle.number, cycle.name, cycle.traces) for cycle in cycles] == [
        (0, "0 (steps 3 to 5)", SEVERAL[1:3]),
        (1, "1 (steps 13 to 15)", [SEVERAL[0], SEVERAL[3]]),
    ]
    assert [cycle.name for cycle in by_cycle(SINGLE, itself)] == ["0 (step 7)"]
    assert [cycle.name for cycle in by_cycle([summary(0), summary(0)], itself)] == ["0", "1"]


def test_unknown_cycle_is_refused_with_those_that_there_are() -> None:
    assert chosen_cycle(by_cycle(SEVERAL, itself), 1).traces == [SEVERAL[0], SEVERAL[3]]
    for number in (-1, 2):
        with pytest.raises(UnknownCycle) as error:
            chosen_cycle(by_cycle(SEVERAL, itself), number)
        assert error.value.detail == (
            f"There is no cycle {number}. The traces are of the cycles 0 (steps 3 to 5), 1 (steps 13 to 15)."
        )
        assert error.value.extra == {"known": [0, 1]}
    with pytest.raises(UnknownCycle, match=r"of the cycle 0 \(step 7\)\."):
        chosen_cycle(by_cycle(SINGLE, itself), 1)
    many = [summary(0, (number,)) for number in range(10)]
    with pytest.raises(UnknownCycle, match=r"7 \(step 7\) and 2 more\."):
        chosen_cycle(by_cycle(many, itself), 10)


def test_compared_sides_are_of_one_cycle_if_any_is_chosen() -> None:
    def compared(
        traces: list[Summary], base: list[Summary], cycle: int | None = None, base_cycle: int | None = None
    ) -> tuple[list[Summary], list[Summary]]:
        return of_cycles(traces, base, cycle, base_cycle, itself)

    first, second = SEVERAL[1:3], [SEVERAL[0], SEVERAL[3]]
    assert compared(SEVERAL, SEVERAL) == (SEVERAL, SEVERAL)
    assert compared(SEVERAL, SEVERAL, 1) == (second, second)
    assert compared(SEVERAL, SEVERAL, 1, 0) == (second, first)
    assert compared(SEVERAL, SINGLE, 1) == (second, SINGLE)
    assert compared(SINGLE, SEVERAL, None, 1) == (SINGLE, second)
    with pytest.raises(BadAnalysisRequest, match="The traces are of the cycles"):
        compared(SEVERAL, SEVERAL, None, 1)
    with pytest.raises(UnknownCycle, match="The traces of the base are of the cycles"):
        compared(SEVERAL, SEVERAL, 0, 2)
    with pytest.raises(BadAnalysisRequest, match="name the base"):
        compared(SEVERAL, [], 0, 0)
    assert compared(SEVERAL, [], 0) == (first, [])

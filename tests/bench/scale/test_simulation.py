"""The simulation of an ingest keeps what any ingest keeps: each rank is done once, and more of anything never hurts."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.scale.parameters import Assumptions, Costs, Line, Requests, Work
from tests.bench.scale.simulation import simulate

NO_REQUESTS = Requests(0, 0, 0, 0, 0, 0, 0)
FREE = Costs(
    reading=Line(1, 4), facts=Line(1, 1), answers=Line(1, 1), task_gap_s=0, head_s=0, heartbeat_s=0, merge_trace_s=0,
    packed_ratio=0.1, columns_ratio=0.1, requests=NO_REQUESTS,
)  # fmt: skip
"""Costs of the work on tasks alone: 9 s for a trace of a GB."""
IDEAL = Assumptions(store_gb_s=1e9, worker_gb_s=1e9, lifetime_s=1e9, start_s=0, deaths_per_hour=0)

costs = st.builds(
    Costs, *[st.builds(Line, st.floats(0.1, 2), st.floats(0.1, 2))] * 3, st.floats(0, 1), st.floats(0, 0.5),
    st.floats(0, 0.01), st.floats(0, 1), st.floats(0.01, 0.2), st.floats(0.01, 0.2), st.just(NO_REQUESTS),
)  # fmt: skip
assumptions = st.builds(
    Assumptions, st.floats(0.5, 10), st.floats(0.1, 10), st.floats(60, 300), st.floats(0, 30), st.floats(0, 60)
)
works = st.builds(
    Work, st.integers(1, 60), st.just(1.0), st.integers(1, 20), st.integers(1, 40), st.integers(1, 20),
    st.floats(0, 0.2), st.integers(0, 9),
)  # fmt: skip


@given(works, costs, assumptions)
def test_each_rank_is_done_once_and_merged(work: Work, costs: Costs, assumptions: Assumptions) -> None:
    outcome = simulate(work, costs, assumptions)
    assert outcome.done == [1] * work.ranks
    assert outcome.parts == -(-work.ranks // work.part)
    assert outcome.merging_s == pytest.approx(work.ranks * costs.merge_trace_s)


@given(works, costs, assumptions)
def test_time_of_workers_goes_to_tasks_that_are_done_or_lost(
    work: Work, costs: Costs, assumptions: Assumptions
) -> None:
    outcome = simulate(work, costs, assumptions)
    assert outcome.attempts >= work.ranks
    assert outcome.lost_s <= outcome.busy_s <= work.workers * outcome.wall_s * (1 + 1e-9)
    assert (outcome.lost_s > 0) == (outcome.attempts > work.ranks)


@given(works, costs, assumptions)
def test_equal_seeds_have_equal_outcomes(work: Work, costs: Costs, assumptions: Assumptions) -> None:
    assert simulate(work, costs, assumptions) == simulate(work, costs, assumptions)


@given(works, costs, assumptions)
def test_an_ingest_takes_at_least_the_longest_of_its_bounds(work: Work, costs: Costs, assumptions: Assumptions) -> None:
    """No more bytes pass the store than it can move, and neither the head nor a worker does more than one thing."""
    work = replace(work, spread=0)
    wall = simulate(work, costs, assumptions).wall_s * (1 + 1e-9)
    moved = work.ranks * (costs.packed_ratio + costs.columns_ratio) * work.gigabytes
    assert wall >= moved / assumptions.store_gb_s
    assert wall >= work.ranks * costs.head_s
    assert wall >= work.ranks * costs.merge_trace_s
    assert wall >= work.ranks * costs.seconds(work.gigabytes) / work.workers


@given(st.integers(1, 20), st.integers(1, 20))
def test_without_overhead_the_time_is_that_of_the_tasks_over_the_workers(rounds: int, workers: int) -> None:
    outcome = simulate(Work(rounds * workers, 1.0, workers, flight=400, spread=0), FREE, IDEAL)
    assert outcome.wall_s == pytest.approx(rounds * FREE.seconds(1.0), rel=1e-6)
    assert (outcome.attempts, outcome.lost_s) == (rounds * workers, 0)


def walls_by_workers(ranks: int, costs: Costs, store_gb_s: float, seed: int) -> dict[int, float]:
    """Return the wall times of ingests without heartbeats, by the number of workers, each twice the one before."""
    costs, limited = replace(costs, heartbeat_s=0), replace(IDEAL, store_gb_s=store_gb_s, worker_gb_s=1.0)
    return {
        workers: simulate(Work(ranks, 1.0, workers, flight=200, spread=0, seed=seed), costs, limited).wall_s
        for workers in (1, 2, 4, 8, 16)
    }


@given(st.integers(1, 80), costs, st.integers(0, 9))
def test_twice_the_workers_never_take_longer(ranks: int, costs: Costs, seed: int) -> None:
    """Tasks of equal length have no order that more workers could spoil."""
    walls = walls_by_workers(ranks, costs, IDEAL.store_gb_s, seed)
    assert all(more <= fewer * (1 + 1e-6) for fewer, more in pairwise(walls.values()))


@given(st.integers(1, 80), costs, st.floats(0.05, 5), st.integers(0, 9))
def test_twice_the_workers_lose_at_most_the_turns_of_tasks_that_a_shared_store_ends_together(
    ranks: int, costs: Costs, store_gb_s: float, seed: int
) -> None:
    """Such tasks wait for the head and for the merge one after another, which fewer workers would do meanwhile."""
    walls = walls_by_workers(ranks, costs, store_gb_s, seed)
    for (_, fewer), (workers, more) in pairwise(walls.items()):
        assert more <= (fewer + workers * (costs.head_s + costs.merge_trace_s)) * (1 + 1e-6)


def test_head_limits_the_rate_of_tasks() -> None:
    outcome = simulate(Work(1000, 1.0, 1000, spread=0), replace(FREE, head_s=0.1), IDEAL)
    assert outcome.wall_s == pytest.approx(1000 * 0.1 + 9, rel=1e-6)
    assert outcome.head_s / outcome.wall_s == pytest.approx(100 / 109, rel=1e-6)


def test_flight_limits_the_workers_that_have_tasks() -> None:
    outcome = simulate(Work(1000, 1.0, 100, flight=50, spread=0), FREE, IDEAL)
    assert outcome.wall_s == pytest.approx(1000 / 50 * 9, rel=1e-6)


def test_store_limits_the_rate_of_bytes() -> None:
    slow = replace(IDEAL, store_gb_s=1.0)
    outcome = simulate(Work(1000, 1.0, 500, spread=0), FREE, slow)
    assert outcome.wall_s == pytest.approx(1000 * 0.2 / 1.0, rel=0.1)


def test_task_that_is_cut_by_the_end_of_a_job_runs_again() -> None:
    """Two tasks of 9 s fit into a job of 20 s, and the third one is lost after 2 s."""
    outcome = simulate(Work(3, 1.0, 1, spread=0), FREE, replace(IDEAL, lifetime_s=20, start_s=0))
    assert (outcome.attempts, outcome.jobs) == (4, 2)
    assert outcome.lost_s == pytest.approx(2, abs=1e-6)
    assert outcome.wall_s == pytest.approx(29, rel=1e-6)


def test_task_longer_than_a_job_is_refused() -> None:
    with pytest.raises(ValueError, match="A task of 9 s never ends in a job of 8 s"):
        simulate(Work(1, 1.0, 1, spread=0), FREE, replace(IDEAL, lifetime_s=8))


def test_workers_that_always_die_are_refused() -> None:
    with pytest.raises(ValueError, match="0 of 1 ranks are done after 101 attempts"):
        simulate(Work(1, 1.0, 1, spread=0), FREE, replace(IDEAL, deaths_per_hour=36_000))


def test_heartbeats_that_take_the_whole_head_are_refused() -> None:
    with pytest.raises(ValueError, match="Heartbeats of 10 workers take 200% of the head's time"):
        simulate(Work(1, 1.0, 10), replace(FREE, heartbeat_s=0.1), IDEAL)

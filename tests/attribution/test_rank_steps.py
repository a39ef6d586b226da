"""Work belongs to the annotation of its step that began last before it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.attribution.rank_steps import steps_of_numbers

NUMBERS, TIMES = st.integers(-2, 4), st.integers(0, 20)


def index_of(steps: list[tuple[int, int]], number: int, time: int) -> int:
    found = [index for index, (other, _) in enumerate(steps) if other == number]
    begun = [index for index in found if steps[index][1] <= time]
    return begun[-1] if begun else found[0] if found else -1


@given(st.lists(st.tuples(NUMBERS, TIMES)), st.lists(st.tuples(NUMBERS, TIMES)))
def test_step_of_a_number_is_the_last_that_began_by_the_time(
    steps: list[tuple[int, int]], chosen: list[tuple[int, int]]
) -> None:
    steps.sort(key=lambda step: step[1])
    arrays = [np.array([row[place] for row in rows], np.int64) for rows in (steps, chosen) for place in (0, 1)]

    assert steps_of_numbers(*arrays).tolist() == [index_of(steps, *row) for row in chosen]


def test_a_number_that_each_step_has_takes_no_longer() -> None:
    starts = np.arange(200_000)
    zeros = np.zeros(len(starts), np.int64)

    assert (steps_of_numbers(zeros, starts, zeros, starts) == starts).all()

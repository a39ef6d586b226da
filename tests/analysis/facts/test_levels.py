"""Points of a level over time, compared with a plain loop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.analysis.facts.levels import thinned


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(-5, 5)), min_size=1, max_size=200),
    st.integers(2, 50),
)
def test_points_have_the_extremes_and_the_last_of_each_interval(changes: list[tuple[int, int]], points: int) -> None:
    at = np.array(sorted(time for time, _ in changes))
    level = np.array([value for _, value in changes])

    rows = thinned(at, level, points).tolist()

    assert rows == sorted(set(rows))
    count = max(points // 3, 1)
    assert len(rows) <= max(points, 3 * (count + 1))
    intervals: dict[int, list[int]] = {}
    for row, time in enumerate(at.tolist()):
        place = row if len(at) <= points else int((time - at[0]) * count / max(int(at[-1] - at[0]), 1))
        intervals.setdefault(place, []).append(row)
    for members in intervals.values():
        values, shown = level[members], level[[row for row in rows if row in members]]
        assert (shown.min(), shown.max(), shown[-1]) == (values.min(), values.max(), values[-1])

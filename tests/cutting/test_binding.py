"""Ends of flow arrows bind to the slices on their tracks that begin at their times."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.cutting.binding import bound_ends

EVENTS = st.lists(
    st.tuples(
        st.integers(-3, 3), st.integers(0, 2), st.sampled_from(["slice", "end", "other"]), st.integers(0, 1 << 63)
    ),
    max_size=30,
)


@given(EVENTS, st.integers(0, 3))
def test_ends_bind_to_the_slices_of_their_time_and_track(events: list[tuple[int, int, str, int]], untimed: int) -> None:
    events.sort(key=lambda event: event[0])
    times, tracks, kinds, bits = (np.array([event[column] for event in events]) for column in range(4))
    timed = max(len(events) - untimed, 0)
    slices, ends = (kinds == "slice") & (np.arange(len(events)) < timed), np.flatnonzero(kinds == "end")
    found, bound = bound_ends(
        times[:timed].astype(np.int64), tracks.astype(np.int64), slices, bits.astype(np.uint64), ends
    )
    for place, end in enumerate(ends.tolist()):
        beside = [
            event for event in np.flatnonzero(slices).tolist() if end < timed and events[event][:2] == events[end][:2]
        ]
        assert bound[place] == bool(beside)
        assert int(found[place]) == int(np.bitwise_or.reduce([events[event][3] for event in beside] or [0]))


def test_bits_keep_their_type_and_all_of_their_places() -> None:
    ones = np.ones(2, np.int64)
    for width in (8, 16, 32, 64):
        bits = np.array([(1 << width) - 1, 0], f"uint{width}")
        found, bound = bound_ends(ones, ones, np.array([True, False]), bits, ones[:1])
        assert (found.dtype, found.tolist(), bound.tolist()) == (bits.dtype, [(1 << width) - 1], [True])

"""The matcher finds the same ends of arrows without a start as a plain set does, for pieces of any size."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.rendering.flows import FlowMatcher
from service.store.parts import mixed

EVENTS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=100)


def expected(events: list[tuple[int, bool]]) -> list[bool]:
    """Return for each event whether it is an end whose key no earlier event has started."""
    started: set[int] = set()
    loose = []
    for key, starts in events:
        started |= {key} if starts else set()
        loose.append(key not in started)
    return loose


def loose_of(matcher: FlowMatcher, events: list[tuple[int, bool]]) -> list[bool]:
    keys = mixed(np.array([key for key, _ in events], np.int64))
    loose: list[bool] = matcher.loose(keys, np.array([starts for _, starts in events], np.bool_)).tolist()
    return loose


@given(EVENTS, st.integers(1, 30))
def test_arrow_ends_without_a_start_are_loose(events: list[tuple[int, bool]], size: int) -> None:
    matcher = FlowMatcher()
    loose = [flag for first in range(0, len(events), size) for flag in loose_of(matcher, events[first : first + size])]
    assert loose == expected(events)


def test_matcher_grows_with_its_keys() -> None:
    matcher = FlowMatcher()
    for first in range(0, 300_000, 1000):
        starts = [(key, True) for key in range(first, first + 1000)]
        assert not any(loose_of(matcher, starts))
    assert not any(loose_of(matcher, [(key, False) for key in range(300_000)]))
    assert all(loose_of(matcher, [(key, False) for key in range(300_000, 310_000)]))

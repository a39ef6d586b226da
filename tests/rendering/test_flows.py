"""The ends of arrows that have not begun are those that a plain dict finds, however the events are cut."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.rendering.flows import FlowMatcher
from service.store.parts import mixed

EVENTS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=100)


def loose(events: list[tuple[int, bool]]) -> list[bool]:
    begun: set[int] = set()
    found = []
    for key, starts in events:
        begun |= {key} if starts else set()
        found.append(key not in begun)
    return found


def found(flows: FlowMatcher, events: list[tuple[int, bool]]) -> list[bool]:
    keys = mixed(np.array([key for key, _ in events], np.int64))
    answer: list[bool] = flows.loose(keys, np.array([starts for _, starts in events], np.bool_)).tolist()
    return answer


@given(EVENTS, st.integers(1, 30))
def test_ends_that_nothing_begins_are_loose(events: list[tuple[int, bool]], size: int) -> None:
    flows = FlowMatcher()
    told = [flag for at in range(0, len(events), size) for flag in found(flows, events[at : at + size])]
    assert told == loose(events)


def test_it_holds_many_more_than_it_began_with() -> None:
    flows = FlowMatcher()
    for first in range(0, 300_000, 1000):
        starts = [(key, True) for key in range(first, first + 1000)]
        assert not any(found(flows, starts))
    assert not any(found(flows, [(key, False) for key in range(300_000)]))
    assert all(found(flows, [(key, False) for key in range(300_000, 310_000)]))

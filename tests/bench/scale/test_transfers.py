"""Transfers share a store fairly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.scale.transfers import Transfers


def ended(transfers: Transfers) -> dict[int, float]:
    """Run all transfers, and return the time at which each ends."""
    times = {}
    while len(transfers):
        now = transfers.next_end
        times[transfers.end_next()] = now
    return times


def test_transfer_alone_has_its_limit() -> None:
    transfers = Transfers(total=10, limit=2)
    transfers.start(1, 8, now=3)
    assert ended(transfers) == {1: 7}


def test_transfers_share_the_store_and_speed_up_as_others_end() -> None:
    transfers = Transfers(total=10, limit=8)
    transfers.start(1, 10, now=0)
    transfers.start(2, 26, now=0)
    assert ended(transfers) == {1: 2, 2: 4}


def test_cancelled_transfer_leaves_its_share() -> None:
    transfers = Transfers(total=10, limit=10)
    transfers.start(1, 10, now=0)
    transfers.start(2, 20, now=0)
    transfers.cancel(1, now=1)
    assert ended(transfers) == {2: 2.5}


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 50)), min_size=1, max_size=20), st.floats(0.5, 20))
def test_bytes_and_time_obey_the_limits(starts: list[tuple[float, float]], total: float) -> None:
    limit = 2.0
    transfers = Transfers(total, limit)
    times: dict[int, float] = {}
    for key, (now, size) in enumerate(sorted(starts)):
        while transfers.next_end <= now:
            end = transfers.next_end
            times[transfers.end_next()] = end
        transfers.start(key, size, now)
    times |= ended(transfers)
    for key, (start, size) in enumerate(sorted(starts)):
        assert times[key] - start >= size / min(limit, total) * (1 - 1e-6)
    first, last = min(start for start, _ in starts), max(times.values())
    assert (last - first) * total >= sum(size for _, size in starts) * (1 - 1e-6)
    assert times.keys() == set(range(len(starts)))


def test_no_transfer_ends_never() -> None:
    assert Transfers(1, 1).next_end == pytest.approx(float("inf"))

"""The time without a worker is what checks have seen of it."""

import pytest

from service.fleet.workers.absence import Absence


class Clock:
    """A clock that tests set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def after(clock: Clock, passed_s: float, absence: Absence, workers: int) -> float:
    clock.now += passed_s
    return absence.check(workers)


def test_time_without_a_worker_adds_up(clock: Clock) -> None:
    absence = Absence(2, clock)
    assert [after(clock, 1.5, absence, 0) for _ in range(3)] == [1.5, 3, 4.5]


def test_worker_ends_the_absence(clock: Clock) -> None:
    absence = Absence(2, clock)
    assert [after(clock, 1, absence, workers) for workers in (0, 0, 3, 0)] == [1, 2, 0, 1]


def test_suspended_machine_has_not_waited_for_a_worker(clock: Clock) -> None:
    absence = Absence(2, clock)
    assert [after(clock, passed_s, absence, 0) for passed_s in (1, 3600, 1)] == [1, 3, 4]


def test_time_since_the_last_check_is_whole(clock: Clock) -> None:
    absence = Absence(2, clock)
    clock.now += 3600
    assert absence.since_check_s == 3600
    absence.check(0)
    assert absence.since_check_s == 0

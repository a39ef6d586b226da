"""The remaining time is estimated from the recent speed, and is unknown without enough progress."""

import pytest

from service.jobs.eta import EtaEstimator, share_of
from service.streaming.source import Progress


def at(share: float) -> Progress:
    return Progress(bytes=round(share * 1e9), bytes_total=10**9)


def test_eta_follows_the_recent_speed() -> None:
    estimator = EtaEstimator()
    for second in range(11):
        estimator.note(at(second / 20), now=second)
    assert estimator.left_s(now=10) == pytest.approx(10)


def test_eta_ignores_speed_before_its_window() -> None:
    estimator = EtaEstimator()
    for second in range(11):
        estimator.note(at(second * 0.05), now=second)
    for second in range(11, 31):
        estimator.note(at(0.5 + (second - 10) * 0.01), now=second)
    assert estimator.left_s(now=30) == pytest.approx(30, rel=0.02)


def test_eta_grows_without_progress_and_is_then_unknown() -> None:
    estimator = EtaEstimator()
    for second in range(6):
        estimator.note(at(second / 10), now=second)
    assert estimator.left_s(now=5) == pytest.approx(5)
    assert estimator.left_s(now=10) == pytest.approx(10)
    assert estimator.left_s(now=16) is None


@pytest.mark.parametrize(
    "marks",
    [
        [],
        [(0.0, 0.0)],
        [(0.0, 0.0), (0.5, 0.3)],  # too little time
        [(0.0, 0.2), (5.0, 0.2)],  # no progress
        [(0.0, 0.0), (5.0, 0.005)],  # hardly any progress
        [(0.0, 0.0), (5.0, 1.0)],  # everything is read
        [(0.0, 0.8), (5.0, 0.1)],  # the work has restarted
    ],
)
def test_eta_is_unknown_without_enough_progress(marks: list[tuple[float, float]]) -> None:
    estimator = EtaEstimator()
    for now, share in marks:
        estimator.note(at(share), now)
    assert estimator.left_s(now=marks[-1][0] if marks else 0) is None


def test_eta_includes_the_end_without_progress() -> None:
    estimator = EtaEstimator(end=0.5)
    for second in range(11):
        estimator.note(at(second / 10), now=second)
        assert estimator.left_s(second) == (pytest.approx(15 - second) if second else None)
    assert estimator.left_s(now=12) == pytest.approx(3)
    assert estimator.left_s(now=16) is None
    assert estimator.measured_end(now=15) == pytest.approx(0.5)
    assert EtaEstimator(end=None).left_s(now=3) is None


def test_eta_ignores_time_before_first_progress() -> None:
    estimator = EtaEstimator()
    for second in range(20):
        estimator.note(at(0), now=second)
    for second in range(20, 25):
        estimator.note(at((second - 19) / 10), now=second)
    assert estimator.left_s(now=24) == pytest.approx(5)
    assert estimator.measured_end(now=29) == pytest.approx(0.0)
    assert estimator.measured_end(now=34) == pytest.approx(0.5)


def test_share_is_unknown_without_a_total() -> None:
    assert share_of(Progress(bytes=5, events=7)) is None
    assert share_of(Progress(events=5, events_total=10)) == 0.5
    assert share_of(Progress(bytes=20, bytes_total=10)) == 1


def test_estimator_keeps_few_of_many_marks() -> None:
    estimator = EtaEstimator()
    for step in range(100_000):
        estimator.note(at(step / 200_000), now=step / 1000)
    assert len(estimator._marks) < 250
    assert estimator.left_s(now=100) == pytest.approx(100, rel=0.02)

"""Detection of stalled loads."""

from service.engine.stall import FINISH_FACTOR, StallDetector


def test_load_that_uses_time_without_progress_is_stalled() -> None:
    detector = StallDetector(30)
    assert not detector.is_stalled(0, 0.0, is_fed=False)
    assert not detector.is_stalled(1000, 25.0, is_fed=False)
    assert not detector.is_stalled(1000, 55.0, is_fed=False)
    assert detector.is_stalled(1000, 55.1, is_fed=False)


def test_load_with_progress_is_not_stalled() -> None:
    detector = StallDetector(30)
    assert not any(detector.is_stalled(step, 29.0 * step, is_fed=False) for step in range(100))


def test_load_that_waits_for_its_source_is_not_stalled() -> None:
    detector = StallDetector(30)
    assert not any(detector.is_stalled(1000, 2.0, is_fed=False) for _ in range(10_000))


def test_end_of_a_load_gets_time_in_proportion_to_the_feeding() -> None:
    detector = StallDetector(30)
    assert not detector.is_stalled(10**9, 50.0, is_fed=False)
    assert not detector.is_stalled(10**9, 52.0, is_fed=True)
    assert not detector.is_stalled(10**9, 52 + 30 + FINISH_FACTOR * 52, is_fed=True)
    assert detector.is_stalled(10**9, 52.1 + 30 + FINISH_FACTOR * 52, is_fed=True)


def test_sleeping_engine_is_stalled_only_if_it_has_work() -> None:
    detector = StallDetector(30)
    assert not detector.is_stalled(1000, 2.0, is_fed=False, waited_s=60.0)
    assert not detector.is_stalled(1000, 2.5, is_fed=False)
    assert not detector.is_stalled(1000, 4.0, is_fed=False, waited_s=61.0)  # it used processor time: slow, not asleep
    assert detector.is_stalled(2000, 4.5, is_fed=False, waited_s=61.0)

"""What the system tells of processes, and when a load stands still."""

import os
import sys

import psutil
import pytest

from service.engine.watch import FINISH_FACTOR, LoadWatch, machine_memory, reading

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells through /proc")


@on_linux
def test_a_process_is_read_as_others_read_it() -> None:
    found, psutils = reading(os.getpid()), psutil.Process()
    assert found
    assert found.resident_bytes == pytest.approx(psutils.memory_info().rss, rel=0.05)
    assert found.peak_bytes >= found.resident_bytes
    assert found.cpu_s == pytest.approx(sum(psutils.cpu_times()[:2]), abs=0.1)


def test_of_a_process_that_is_gone_nothing_is_told() -> None:
    child = psutil.Popen([sys.executable, "-c", ""])
    child.wait()
    assert reading(child.pid) is None


@on_linux
def test_of_a_process_that_has_ended_and_was_not_waited_for_nothing_is_told() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert reading(child) is None
    os.waitpid(child, 0)


def test_the_machine_has_no_more_memory_than_it_has() -> None:
    assert 1 << 28 < machine_memory() <= psutil.virtual_memory().total


def test_a_load_that_burns_time_without_progress_is_stuck() -> None:
    watch = LoadWatch(30)
    assert not watch.stuck(0, 0.0, fed=False)
    assert not watch.stuck(1000, 25.0, fed=False)
    assert not watch.stuck(1000, 55.0, fed=False)
    assert watch.stuck(1000, 55.1, fed=False)


def test_a_load_that_comes_further_is_not_stuck() -> None:
    watch = LoadWatch(30)
    assert not any(watch.stuck(step, 29.0 * step, fed=False) for step in range(100))


def test_a_load_that_waits_for_its_source_is_not_stuck() -> None:
    watch = LoadWatch(30)
    assert not any(watch.stuck(1000, 2.0, fed=False) for _ in range(10_000))


def test_the_end_of_a_load_may_take_as_long_as_is_due_to_what_came_before() -> None:
    watch = LoadWatch(30)
    assert not watch.stuck(10**9, 50.0, fed=False)
    assert not watch.stuck(10**9, 52.0, fed=True)
    assert not watch.stuck(10**9, 52 + 30 + FINISH_FACTOR * 52, fed=True)
    assert watch.stuck(10**9, 52.1 + 30 + FINISH_FACTOR * 52, fed=True)


def test_an_engine_that_sleeps_over_its_work_is_stuck_and_one_without_work_is_not() -> None:
    watch = LoadWatch(30)
    assert not watch.stuck(1000, 2.0, fed=False, waited_s=60.0)
    assert not watch.stuck(1000, 2.5, fed=False)
    assert not watch.stuck(1000, 4.0, fed=False, waited_s=61.0)  # slow, for others take the processors
    assert watch.stuck(2000, 4.5, fed=False, waited_s=61.0)

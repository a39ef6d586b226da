"""Memory and processor time, as reported by the system."""

import os
import sys

import psutil
import pytest

from service.engine.resources import machine_memory, resource_usage

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


@on_linux
def test_usage_of_a_process_agrees_with_psutil() -> None:
    usage, process = resource_usage(os.getpid()), psutil.Process()
    assert usage
    assert usage.resident_bytes == pytest.approx(process.memory_info().rss, rel=0.05)
    assert usage.peak_bytes >= usage.resident_bytes
    assert usage.cpu_s == pytest.approx(sum(process.cpu_times()[:2]), abs=0.1)


def test_usage_of_an_ended_process_is_none() -> None:
    child = psutil.Popen([sys.executable, "-c", ""])
    child.wait()
    assert resource_usage(child.pid) is None


@on_linux
def test_usage_of_a_zombie_is_none() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert resource_usage(child) is None
    os.waitpid(child, 0)


def test_machine_memory_is_at_most_the_physical_memory() -> None:
    assert 1 << 28 < machine_memory() <= psutil.virtual_memory().total

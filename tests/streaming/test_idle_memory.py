"""A process that has started returns the pages of its libraries that it has not changed, and still works."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system has no /proc")

PROGRAM = """
import threading
import duckdb
import llvmlite.binding
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from service.streaming.idle_memory import return_start_memory

def works():
    assert duckdb.sql("select sum(i) from range(1000) t(i)").fetchall() == [(499500,)]
    assert np.ones((50, 50)).dot(np.ones((50, 50))).sum() == 125000
    assert pc.sum(pa.array([1, 2, 3])).as_py() == 6
    llvmlite.binding.initialize_native_target()
    assert llvmlite.binding.Target.from_default_triple().create_target_machine()

def sizes():
    maps = [mapping for mapping in psutil.Process().memory_maps() if mapping.path.startswith("/")]
    return sum(mapping.rss - mapping.anonymous for mapping in maps), sum(mapping.anonymous for mapping in maps)

works()
before, changed = sizes()
return_start_memory()
after, still_changed = sizes()
works()
print(before, after, changed, still_changed)
"""


def test_unchanged_pages_of_libraries_are_returned_and_changed_ones_are_kept() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, stdout=subprocess.PIPE)
    before, after, changed, still_changed = map(int, done.stdout.split())
    assert before > 80_000_000
    assert after < before / 4
    assert changed <= still_changed < changed + 1_000_000

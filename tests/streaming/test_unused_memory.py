"""A process that reads a trace returns freed memory beyond a limit, and keeps what is within it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.jobs.children.fork_server import ENVIRONMENT

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system has no /proc")

FREED, USED = 300_000_000, 60_000_000
PROGRAM = f"""
import sys
import numpy as np
from service.streaming import unused_memory
from service.streaming.unused_memory import UnusedMemory, resident_bytes

start = resident_bytes()
unused_memory.LIMIT, unused_memory.ROOM = start + int(sys.argv[1]), int(sys.argv[2])
unused_memory.processor_count = lambda: int(sys.argv[4])
unused = UnusedMemory()
freed, used = [], []
for _ in range(30):  # what is in use lies between what is freed, so that the heap can't shrink at its end
    freed.append(np.ones({FREED} // 30, np.uint8))
    used.append(np.ones({USED} // 30, np.uint8))
full = resident_bytes()
freed.clear()
kept = resident_bytes()
unused.return_beyond_limit(int(sys.argv[3]))
first = resident_bytes()
freed.append(np.ones(20_000_000, np.uint8))
freed.clear()
unused.return_beyond_limit()
print(*(size - start for size in (full, kept, first, resident_bytes())))
"""


def sizes(limit: int, room: int = 0, soon: int = 0, processors: int = 1) -> list[int]:
    """Return the growth of a process that uses and frees memory: full, freed, and after each of two returns.

    Args:
        limit: the growth at which it returns memory, on up to two processors.
        room: by how much it may grow afterwards.
        soon: bytes that it says it will need when it first may return memory.
        processors: number of processors that it may use.
    """
    command = [sys.executable, "-c", PROGRAM, *map(str, (limit, room, soon, processors))]
    environment = os.environ | ENVIRONMENT
    return [*map(int, subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout.split())]


def test_freed_memory_is_kept_within_the_limit() -> None:
    full, kept, first, _ = sizes(limit=FREED + 2 * USED)
    assert full == pytest.approx(FREED + USED, rel=0.1)
    assert kept == pytest.approx(full, rel=0.1)
    assert first == kept


def test_freed_memory_is_returned_beyond_the_limit() -> None:
    _, kept, first, second = sizes(limit=USED // 2)
    assert kept == pytest.approx(FREED + USED, rel=0.1)
    assert first == pytest.approx(USED, rel=0.3)
    assert second == pytest.approx(first, rel=0.1)


def test_freed_memory_is_returned_before_more_than_the_limit_is_needed() -> None:
    limit = FREED + 2 * USED
    _, kept, first, _ = sizes(limit, soon=USED // 2)
    assert first == kept
    _, _, first, _ = sizes(limit, soon=2 * USED)
    assert first == pytest.approx(USED, rel=0.3)


def test_limit_grows_with_the_processors() -> None:
    _, _, first, _ = sizes(limit=FREED, processors=2)
    assert first == pytest.approx(USED, rel=0.3)
    _, kept, first, _ = sizes(limit=FREED, processors=4)
    assert first == kept


def test_some_freed_memory_is_kept_where_more_than_the_limit_is_in_use() -> None:
    _, _, first, second = sizes(limit=USED // 2, room=FREED)
    assert first == pytest.approx(USED, rel=0.3)
    assert second == pytest.approx(first + 20_000_000, rel=0.1)

"""Results on disk: one budget for all, complete reads, no files left."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.engine.spool import MEMORY_MAX, Spool, SpoolBudget
from service.store.room import Room
from service.trace.errors import DiskFull, InsufficientStorage

BLOCK = b"x" * (1 << 20)


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files of this process to 10 MiB: writes beyond this size fail as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def filled(spool: Spool) -> None:
    for _ in range(100):
        spool.append(BLOCK)


def test_results_together_stay_within_the_disk_budget(tmp_path: Path) -> None:
    budget = SpoolBudget(tmp_path, max_bytes=32 << 20)
    first, second = Spool(budget), Spool(budget)
    with pytest.raises(InsufficientStorage, match="Query results take") as refused:
        filled(first)
    assert refused.value.extra["quota"] == 32 << 20
    second.append(BLOCK * (MEMORY_MAX >> 20))  # this part stays in memory
    with pytest.raises(InsufficientStorage):
        second.append(BLOCK)
    assert first.read(first.size - 1, 1) == b"x"
    first.close()
    second.append(BLOCK)
    second.close()
    assert budget.reserved_bytes == 0


def test_results_count_in_the_quota_of_the_data_folder(tmp_path: Path) -> None:
    room = Room(tmp_path, quota=20 << 20)
    spool = Spool(SpoolBudget(tmp_path, room))
    with pytest.raises(InsufficientStorage) as refused:
        filled(spool)
    assert refused.value.extra["quota"] == 20 << 20
    with pytest.raises(InsufficientStorage):  # the same quota limits uploads
        room.check(10 << 20)
    spool.close()
    room.check(10 << 20)


def test_results_leave_the_floor_of_the_disk_free(tmp_path: Path) -> None:
    spool = Spool(SpoolBudget(tmp_path, Room(tmp_path, floor=100 << 20, free=lambda _: (100 << 20) + 1)))
    with pytest.raises(InsufficientStorage) as refused:
        filled(spool)
    assert refused.value.extra["floor"] == 100 << 20
    assert spool.size <= MEMORY_MAX
    spool.close()


def test_full_disk_raises_and_written_bytes_remain_readable(small_files: None, tmp_path: Path) -> None:
    budget = SpoolBudget(tmp_path)
    spool = Spool(budget)
    with pytest.raises(DiskFull):
        filled(spool)
    assert spool.size == 10 << 20
    assert spool.read(spool.size - len(BLOCK), len(BLOCK)) == BLOCK
    with pytest.raises(DiskFull, match="can't be read back"):
        spool.read(spool.size - 1, len(BLOCK))
    spool.close()
    assert budget.reserved_bytes == 0

"""Room counts each file once, with its size on disk, and its refusals report the numbers."""

import os
from pathlib import Path

import pytest

from service.store.room import Room, bytes_below
from service.trace.errors import DiskFull, InsufficientStorage


def filled(folder: Path, **sizes: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in sizes.items():
        (folder / name).write_bytes(bytes(size))
    return folder


def test_file_with_several_links_counts_once(tmp_path: Path) -> None:
    filled(tmp_path, one=100)
    filled(tmp_path / "below", two=10)
    for name in ("second", "third"):
        (tmp_path / "below" / name).hardlink_to(tmp_path / "one")
    (tmp_path / "link").symlink_to(tmp_path / "one")

    assert bytes_below(tmp_path) == 110 + len(str(tmp_path / "one"))


def test_bytes_beyond_the_quota_are_refused_with_the_numbers(tmp_path: Path) -> None:
    room = Room(filled(tmp_path, one=600), quota=1000)

    room.check(400)
    with pytest.raises(
        InsufficientStorage, match="no room for 401 bytes more: the data folder takes 600 of its quota of 1,000"
    ) as refused:
        room.check(401)

    facts = refused.value.extra
    numbers = [facts[key] for key in ("needed", "used", "quota", "floor")]
    assert (refused.value.code, numbers) == ("no_room", [401, 600, 1000, 0])
    assert facts["free"] > 0
    assert isinstance(refused.value, DiskFull)


def test_reported_bytes_count_before_the_next_count(tmp_path: Path) -> None:
    room = Room(filled(tmp_path, one=600), quota=1000)
    room.check()
    filled(tmp_path, two=300)
    room.grew(300)

    with pytest.raises(InsufficientStorage):
        room.check(200)


def test_deleted_files_free_space_at_once(tmp_path: Path) -> None:
    room = Room(filled(tmp_path, one=600, two=400), quota=1000)
    with pytest.raises(InsufficientStorage):
        room.check(1)

    (tmp_path / "two").unlink()

    room.check(400)


def test_the_floor_stays_free(tmp_path: Path) -> None:
    room = Room(tmp_path, floor=1000, free=lambda _: 1500)

    room.check(500)
    with pytest.raises(
        InsufficientStorage, match="501 bytes more: 1,500 are free on the disk, of which 1,000 must"
    ) as refused:
        room.check(501)
    assert refused.value.extra["quota"] is None


def test_linked_bytes_count_but_need_no_free_space(tmp_path: Path) -> None:
    room = Room(filled(tmp_path, one=600), quota=1000, floor=1000, free=lambda _: 1000)

    room.check(400, linked=True)
    with pytest.raises(InsufficientStorage, match="takes 600 of its quota of 1,000"):
        room.check(401, linked=True)
    with pytest.raises(InsufficientStorage, match="must stay free"):
        room.check(1)


def test_files_are_not_counted_without_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(tmp_path)
    monkeypatch.setattr(os, "fwalk", None)

    room.check(1 << 20)

"""Room is counted as the disk has it: each file once, and what is refused is told with its numbers."""

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


def test_each_file_counts_once_however_many_names_it_has(tmp_path: Path) -> None:
    filled(tmp_path, one=100)
    filled(tmp_path / "below", two=10)
    for name in ("second", "third"):
        (tmp_path / "below" / name).hardlink_to(tmp_path / "one")
    (tmp_path / "link").symlink_to(tmp_path / "one")

    assert bytes_below(tmp_path) == 110 + len(str(tmp_path / "one"))


def test_more_than_the_quota_is_refused_with_the_numbers(tmp_path: Path) -> None:
    room = Room(filled(tmp_path, one=600), quota=1000)

    room.check(400)
    with pytest.raises(
        InsufficientStorage, match="no room for 401 bytes more: the data folder takes 600 of the 1,000"
    ) as refused:
        room.check(401)

    told = refused.value.as_dict()
    assert (told["code"], told["needed"], told["used"], told["quota"], told["floor"]) == ("no_room", 401, 600, 1000, 0)
    assert told["free"] > 0
    assert isinstance(refused.value, DiskFull)


def test_bytes_that_are_told_count_before_the_next_count(tmp_path: Path) -> None:
    room = Room(filled(tmp_path, one=600), quota=1000)
    room.check()
    filled(tmp_path, two=300)
    room.grew(300)

    with pytest.raises(InsufficientStorage):
        room.check(200)


def test_what_was_deleted_makes_room_at_once(tmp_path: Path) -> None:
    room = Room(filled(tmp_path, one=600, two=400), quota=1000)
    with pytest.raises(InsufficientStorage):
        room.check(1)

    (tmp_path / "two").unlink()

    room.check(400)


def test_the_floor_stays_free(tmp_path: Path) -> None:
    room = Room(tmp_path, floor=1000, free=lambda _: 1500)

    room.check(500)
    with pytest.raises(
        InsufficientStorage, match="501 bytes more: 1,500 are free on the disk, of which 1,000 are left"
    ) as refused:
        room.check(501)
    assert refused.value.extra["quota"] is None


def test_what_lies_on_the_disk_already_counts_and_takes_no_free_space(tmp_path: Path) -> None:
    room = Room(filled(tmp_path, one=600), quota=1000, floor=1000, free=lambda _: 1000)

    room.check(400, linked=True)
    with pytest.raises(InsufficientStorage, match="takes 600 of the 1,000"):
        room.check(401, linked=True)
    with pytest.raises(InsufficientStorage, match="are left"):
        room.check(1)


def test_without_quota_nothing_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(tmp_path)
    monkeypatch.setattr(os, "fwalk", None)

    room.check(1 << 20)

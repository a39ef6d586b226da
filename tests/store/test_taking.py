"""Files are taken over as told: linked, copied or left where they lie; what can't be taken leaves nothing behind."""

import fcntl
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from service.store.folder import Folder
from service.store.outside import mark_of
from service.store.room import Room
from service.store.taking import HEADER_MAX, Mode, Taking
from service.trace.errors import Cancelled, EmptyBody, ImportRefused, InsufficientStorage, OriginalChanged, TooLarge

CONTENT = b'{"traceEvents": []}' + b" " * 3_000_000
OTHER_DISK = Path("/dev/shm")
"""A file system of its own, if there is one."""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    one = Folder(tmp_path.resolve() / "data")
    one.open()
    return one


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "a.json"
    path.write_bytes(CONTENT)
    return path


def taking(folder: Folder, on_bytes: Callable[[int], object] = lambda _: None, quota: int | None = None) -> Taking:
    return Taking(folder, Room(folder.root, quota=quota), limit=len(CONTENT), on_bytes=on_bytes)


def leftovers(folder: Folder) -> list[str]:
    return [path.name for part in (folder.incoming, folder.originals) for path in part.iterdir()]


@pytest.mark.parametrize(("mode", "linked"), [("auto", True), ("link", True), ("copy", False)])
def test_a_file_is_linked_where_it_may_be_and_else_copied(
    folder: Folder, source: Path, mode: Mode, linked: bool
) -> None:
    received = taking(folder).take(source, "t", mode)

    assert (received.size, received.sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    assert folder.original("t").read_bytes() == CONTENT
    assert folder.original("t").samefile(source) == linked
    assert (received.path, received.mark) == (None, mark_of(source.stat()) if linked else None)


def test_a_copy_takes_no_room_where_the_file_system_can_share(
    folder: Folder, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[bytes] = []

    def clone(target: int, _: int, file: int) -> None:
        shared.append(os.pread(file, len(CONTENT), 0))
        os.pwrite(target, shared[0], 0)

    monkeypatch.setattr(fcntl, "ioctl", clone)

    received = taking(folder).take(source, "t", "copy")

    assert shared == [CONTENT]
    assert (received.sha256, received.mark) == (hashlib.sha256(CONTENT).hexdigest(), None)
    assert folder.original("t").read_bytes() == CONTENT
    assert leftovers(folder) == ["t"]


def test_a_reference_leaves_everything_where_it_is(folder: Folder, source: Path) -> None:
    received = taking(folder, quota=4_000_000).take(source, "t", "reference")

    assert (received.path, received.mark) == (str(source), mark_of(source.stat()))
    assert leftovers(folder) == []


@pytest.mark.skipif(not os.access(OTHER_DISK, os.W_OK), reason="there is no other file system here")
@pytest.mark.parametrize(("mode", "path"), [("link", False), ("auto", True)])
def test_of_another_file_system_there_are_no_links(folder: Folder, mode: Mode, path: bool) -> None:
    far = OTHER_DISK / f"tracedock-{os.getpid()}.json"
    far.write_bytes(CONTENT)
    try:
        received = taking(folder).take(far, "t", mode)

        assert received.path == (str(far) if path else None)
        assert folder.original("t").exists() != path
    finally:
        far.unlink()


@pytest.mark.parametrize("mode", ["auto", "copy", "reference"])
def test_a_file_that_changes_meanwhile_is_not_taken(folder: Folder, source: Path, mode: Mode) -> None:
    def append(_: int) -> None:
        with source.open("ab") as file:
            file.write(b" ")
        os.truncate(source, len(CONTENT))

    with pytest.raises((OriginalChanged, TooLarge)):
        taking(folder, append).take(source, "t", mode)

    assert leftovers(folder) == []


@pytest.mark.parametrize("mode", ["link", "copy", "reference"])
def test_who_takes_can_be_stopped(folder: Folder, source: Path, mode: Mode) -> None:
    def stop(_: int) -> None:
        raise Cancelled("Enough.")

    with pytest.raises(Cancelled):
        taking(folder, stop).take(source, "t", mode)

    assert leftovers(folder) == []


@pytest.mark.parametrize("mode", ["link", "copy", "reference"])
def test_what_is_empty_too_large_or_gone_is_not_taken(folder: Folder, source: Path, mode: Mode) -> None:
    with source.open("ab") as file:
        file.write(b" ")
    with pytest.raises(TooLarge):
        taking(folder).take(source, "t", mode)
    source.write_bytes(b"")
    with pytest.raises(EmptyBody):
        taking(folder).take(source, "t", mode)
    source.unlink()
    with pytest.raises(ImportRefused, match="No such file"):
        taking(folder).take(source, "t", mode)
    source.symlink_to("/etc/passwd")
    with pytest.raises(ImportRefused, match="can't be opened"):
        taking(folder).take(source, "t", mode)


@pytest.mark.parametrize("mode", ["link", "copy"])
def test_there_must_be_room(folder: Folder, source: Path, mode: Mode) -> None:
    with pytest.raises(InsufficientStorage):
        taking(folder, quota=1_000_000).take(source, "t", mode)

    assert leftovers(folder) == []


def test_a_path_that_is_no_text_is_no_reference(folder: Folder, source: Path) -> None:
    odd = source.rename(source.with_name(os.fsdecode(b"caf\xe9.json")))

    with pytest.raises(ImportRefused, match="no text"):
        taking(folder).take(odd, "t", "reference")
    assert taking(folder).take(odd, "t", "link").path is None


def test_an_archive_with_a_header_that_would_fill_the_memory_is_refused(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path.resolve() / "bomb.tar"
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, HEADER_MAX + 1
    with path.open("wb") as file:
        file.write(header.tobuf())
        file.truncate(HEADER_MAX * 3)

    with pytest.raises(ImportRefused, match="larger than any name"):
        list(taking(folder).members(path))


def test_members_of_an_archive_are_read_one_by_one(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path.resolve() / "a.tar"
    with tarfile.open(path, "w") as archive:
        for number in range(3):
            info = tarfile.TarInfo(f"deep/{number}.json")
            info.size = 2
            archive.addfile(info, io.BytesIO(b"{}"))
        folder_info = tarfile.TarInfo("deep")
        folder_info.type = tarfile.DIRTYPE
        archive.addfile(folder_info)

    found = []
    for member in taking(folder).members(path):
        assert member.stream
        found.append((member.name, member.size, member.stream.read()))

    assert found == [(f"{number}.json", 2, b"{}") for number in range(3)]

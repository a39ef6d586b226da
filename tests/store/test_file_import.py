"""Files are imported as requested: linked, copied or referenced; a failed import leaves nothing behind."""

import fcntl
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from service.store.external_files import mark_of
from service.store.file_import import HEADER_MAX, FileImporter, Mode
from service.store.folder import Folder
from service.store.room import Room
from service.trace.errors import Cancelled, EmptyBody, ImportRefused, InsufficientStorage, OriginalChanged, TooLarge

CONTENT = b'{"traceEvents": []}' + b" " * 3_000_000
OTHER_DISK = Path("/dev/shm")
"""A folder on another file system, if the machine has one."""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    data_folder = Folder(tmp_path.resolve() / "data")
    data_folder.open()
    return data_folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "a.json"
    path.write_bytes(CONTENT)
    return path


def importer(
    folder: Folder, on_bytes: Callable[[int], object] = lambda _: None, quota: int | None = None
) -> FileImporter:
    return FileImporter(folder, Room(folder.root, quota=quota), limit=len(CONTENT), on_bytes=on_bytes)


def leftovers(folder: Folder) -> list[str]:
    return [path.name for part in (folder.incoming, folder.originals) for path in part.iterdir()]


@pytest.mark.parametrize(("mode", "linked"), [("auto", True), ("link", True), ("copy", False)])
def test_file_is_linked_if_possible_and_copied_otherwise(
    folder: Folder, source: Path, mode: Mode, linked: bool
) -> None:
    received = importer(folder).import_file(source, "t", mode)

    assert (received.size, received.sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    assert folder.original("t").read_bytes() == CONTENT
    assert folder.original("t").samefile(source) == linked
    assert (received.path, received.mark) == (None, mark_of(source.stat()) if linked else None)


def test_copy_is_cloned_if_the_file_system_can(folder: Folder, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[bytes] = []

    def clone(target: int, _: int, file: int) -> None:
        shared.append(os.pread(file, len(CONTENT), 0))
        os.pwrite(target, shared[0], 0)

    monkeypatch.setattr(fcntl, "ioctl", clone)

    received = importer(folder).import_file(source, "t", "copy")

    assert shared == [CONTENT]
    assert (received.sha256, received.mark) == (hashlib.sha256(CONTENT).hexdigest(), None)
    assert folder.original("t").read_bytes() == CONTENT
    assert leftovers(folder) == ["t"]


def test_reference_leaves_the_file_in_place(folder: Folder, source: Path) -> None:
    received = importer(folder, quota=4_000_000).import_file(source, "t", "reference")

    assert (received.path, received.mark) == (str(source), mark_of(source.stat()))
    assert leftovers(folder) == []


@pytest.mark.skipif(not os.access(OTHER_DISK, os.W_OK), reason="there is no other file system")
@pytest.mark.parametrize(("mode", "path"), [("link", False), ("auto", True)])
def test_file_of_another_file_system_is_not_linked(folder: Folder, mode: Mode, path: bool) -> None:
    far = OTHER_DISK / f"tracedock-{os.getpid()}.json"
    far.write_bytes(CONTENT)
    try:
        received = importer(folder).import_file(far, "t", mode)

        assert received.path == (str(far) if path else None)
        assert folder.original("t").exists() != path
    finally:
        far.unlink()


@pytest.mark.parametrize("mode", ["auto", "copy", "reference"])
def test_file_that_changes_during_import_is_refused(folder: Folder, source: Path, mode: Mode) -> None:
    def append(_: int) -> None:
        with source.open("ab") as file:
            file.write(b" ")
        os.truncate(source, len(CONTENT))

    with pytest.raises((OriginalChanged, TooLarge)):
        importer(folder, append).import_file(source, "t", mode)

    assert leftovers(folder) == []


@pytest.mark.parametrize("mode", ["link", "copy", "reference"])
def test_import_can_be_stopped(folder: Folder, source: Path, mode: Mode) -> None:
    def stop(_: int) -> None:
        raise Cancelled("Enough.")

    with pytest.raises(Cancelled):
        importer(folder, stop).import_file(source, "t", mode)

    assert leftovers(folder) == []


@pytest.mark.parametrize("mode", ["link", "copy", "reference"])
def test_empty_oversized_or_missing_file_is_refused(folder: Folder, source: Path, mode: Mode) -> None:
    with source.open("ab") as file:
        file.write(b" ")
    with pytest.raises(TooLarge):
        importer(folder).import_file(source, "t", mode)
    source.write_bytes(b"")
    with pytest.raises(EmptyBody):
        importer(folder).import_file(source, "t", mode)
    source.unlink()
    with pytest.raises(ImportRefused, match="No such file"):
        importer(folder).import_file(source, "t", mode)
    source.symlink_to("/etc/passwd")
    with pytest.raises(ImportRefused, match="can't be opened"):
        importer(folder).import_file(source, "t", mode)


@pytest.mark.parametrize("mode", ["link", "copy"])
def test_import_without_space_is_refused(folder: Folder, source: Path, mode: Mode) -> None:
    with pytest.raises(InsufficientStorage):
        importer(folder, quota=1_000_000).import_file(source, "t", mode)

    assert leftovers(folder) == []


def test_path_that_is_no_text_is_not_referenced(folder: Folder, source: Path) -> None:
    odd = source.rename(source.with_name(os.fsdecode(b"caf\xe9.json")))

    with pytest.raises(ImportRefused, match="not valid text"):
        importer(folder).import_file(odd, "t", "reference")
    assert importer(folder).import_file(odd, "t", "link").path is None


def test_an_archive_with_a_header_that_would_fill_the_memory_is_refused(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path.resolve() / "bomb.tar"
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, HEADER_MAX + 1
    with path.open("wb") as file:
        file.write(header.tobuf())
        file.truncate(HEADER_MAX * 3)

    with pytest.raises(ImportRefused, match="header is too large"):
        list(importer(folder).members(path))


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

    members_read = []
    for member in importer(folder).members(path):
        assert member.stream
        members_read.append((member.name, member.size, member.stream.read()))

    assert members_read == [(f"{number}.json", 2, b"{}") for number in range(3)]

"""External files are opened without following links, and their changes are detected."""

import os
from pathlib import Path

import pytest

from service.store.external_files import mark_of, open_external, open_unchanged
from service.trace.errors import OriginalChanged


def read(path: Path) -> bytes:
    with os.fdopen(open_external(path), "rb") as file:
        return file.read()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(b"content")
    return path


def test_regular_file_is_opened(file: Path) -> None:
    assert read(file) == b"content"


def test_link_at_any_place_of_a_path_is_not_followed(file: Path) -> None:
    (file.parent / "link").symlink_to(file)
    (file.parent.parent / "other").symlink_to(file.parent)

    for path in (file.parent / "link", file.parent.parent / "other" / "file"):
        assert path.read_bytes() == b"content"
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            open_external(path)


def test_special_file_is_refused_without_blocking(file: Path) -> None:
    os.mkfifo(file.parent / "pipe")

    for path in (file.parent / "pipe", file.parent, Path("/dev/null"), Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            open_external(path)


def test_mark_stays_until_the_file_is_replaced(file: Path) -> None:
    mark = mark_of(file.stat())
    os.close(open_unchanged(file, mark))

    content = file.read_bytes()
    file.with_name("new").write_bytes(content)
    file.with_name("new").replace(file)
    with pytest.raises(OriginalChanged, match="was changed"):
        open_unchanged(file, mark)

    file.unlink()
    with pytest.raises(OriginalChanged, match="file can't be read any more: No such file"):
        open_unchanged(file, mark)


def test_mark_changes_when_the_file_grows(file: Path) -> None:
    mark = mark_of(file.stat())
    with file.open("ab") as stream:
        stream.write(b"!")

    with pytest.raises(OriginalChanged):
        open_unchanged(file, mark)


def test_refusals_leave_no_file_open(file: Path) -> None:
    handles = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for path in (file.parent, file / "x", file.with_name("none")):
        with pytest.raises(OSError, match=r"regular|directory"):
            open_external(path)
    with pytest.raises(OriginalChanged):
        open_unchanged(file, "other")

    assert len(os.listdir("/proc/self/fd")) == handles  # noqa: PTH208

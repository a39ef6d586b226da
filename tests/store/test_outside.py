"""Files of somebody else are opened as what they are, through no link, and known again when they change."""

import os
from pathlib import Path

import pytest

from service.store.outside import mark_of, opened, opened_unchanged
from service.trace.errors import OriginalChanged


def read(path: Path) -> bytes:
    with os.fdopen(opened(path), "rb") as file:
        return file.read()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(b"content")
    return path


def test_a_plain_file_is_opened(file: Path) -> None:
    assert read(file) == b"content"


def test_a_link_is_not_followed_wherever_it_stands(file: Path) -> None:
    (file.parent / "link").symlink_to(file)
    (file.parent.parent / "other").symlink_to(file.parent)

    for path in (file.parent / "link", file.parent.parent / "other" / "file"):
        assert path.read_bytes() == b"content"
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            opened(path)


def test_what_is_no_plain_file_is_refused_and_waited_for_by_nobody(file: Path) -> None:
    os.mkfifo(file.parent / "pipe")

    for path in (file.parent / "pipe", file.parent, Path("/dev/null"), Path("/dev/zero")):
        with pytest.raises(OSError, match="no plain file"):
            opened(path)


def test_a_file_is_known_again_until_it_is_another(file: Path) -> None:
    mark = mark_of(file.stat())
    os.close(opened_unchanged(file, mark))

    content = file.read_bytes()
    file.with_name("new").write_bytes(content)
    file.with_name("new").replace(file)
    with pytest.raises(OriginalChanged, match="was changed"):
        opened_unchanged(file, mark)

    file.unlink()
    with pytest.raises(OriginalChanged, match="file can't be read any more: No such file"):
        opened_unchanged(file, mark)


def test_a_file_that_grows_is_another(file: Path) -> None:
    mark = mark_of(file.stat())
    with file.open("ab") as more:
        more.write(b"!")

    with pytest.raises(OriginalChanged):
        opened_unchanged(file, mark)


def test_refusals_leave_no_file_open(file: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for path in (file.parent, file / "x", file.with_name("none")):
        with pytest.raises(OSError, match=r"plain|directory"):
            opened(path)
    with pytest.raises(OriginalChanged):
        opened_unchanged(file, "other")

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

"""The data folder: one server at a time, atomic files, and no leftovers."""

import errno
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from service.store.export import spill_of
from service.store.folder import Folder, disk_errors, new_file, syncing, write_whole
from service.trace.errors import CatalogInUse, DiskFull
from tests.waiting import PATIENCE_S

HOLD_THE_LOCK = """
import sys
import threading
from pathlib import Path
from service.store.folder import Folder
folder = Folder(Path(sys.argv[1]))
folder.open()
print("open", flush=True)
sys.stdin.read()
"""


def test_missing_data_folder_is_created(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a" / "b")

    folder.open()
    folder.close()

    assert sorted(part.name for part in (tmp_path / "a" / "b").iterdir()) == [
        "attachments",
        "columns",
        "incoming",
        "lock",
        "making",
        "originals",
    ]


def test_second_server_is_refused_with_the_path(folder: Folder) -> None:
    with pytest.raises(CatalogInUse, match=str(folder.root)):
        Folder(folder.root).open()


def test_the_lock_is_free_again_after_close(folder: Folder) -> None:
    folder.close()

    second = Folder(folder.root)
    second.open()
    second.close()


def test_the_lock_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(CatalogInUse):
            Folder(tmp_path).open()
        holder.kill()

    folder = Folder(tmp_path)
    folder.open()
    folder.close()


def test_a_child_process_does_not_keep_the_lock(folder: Folder) -> None:
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout
        assert child.stdout.readline() == b"up\n"
        folder.close()

        second = Folder(folder.root)
        second.open()
        second.close()
        child.kill()


def test_a_failed_open_leaves_no_handle_behind(folder: Folder) -> None:
    handles = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(CatalogInUse):
        Folder(folder.root).open()

    assert len(list(Path("/proc/self/fd").iterdir())) == handles


def test_sweep_removes_the_spill_of_a_killed_analysis(folder: Folder) -> None:
    spilled = spill_of(folder.incoming, 4711) / "duckdb_temp_storage.tmp"
    spilled.parent.mkdir()
    spilled.write_bytes(b"gigabytes")
    folder.sweep([])
    assert not spilled.parent.exists()


def test_sweep_removes_exactly_the_files_without_a_trace(folder: Folder) -> None:
    for name in ("known", "unknown"):
        folder.original(name).write_bytes(b"x")
        folder.columns_of(name).mkdir()
        (folder.columns_of(name) / "envelope.json").write_bytes(b"{}")
    folder.columns_of("known.partial").mkdir()
    (folder.incoming / "known").write_bytes(b"half")

    folder.sweep(["known"])

    assert [path.name for path in folder.originals.iterdir()] == ["known"]
    assert [path.name for path in folder.columns.iterdir()] == ["known"]
    assert (folder.columns_of("known") / "envelope.json").read_bytes() == b"{}"
    assert list(folder.incoming.iterdir()) == []


def test_removal_of_a_trace_removes_all_its_files_and_is_repeatable(folder: Folder) -> None:
    folder.original("a").write_bytes(b"x")
    for columns in ("a", "a.partial"):
        folder.columns_of(columns).mkdir()
        (folder.columns_of(columns) / "f").write_bytes(b"x")

    folder.remove("a")
    folder.remove("a")

    assert [*folder.originals.iterdir(), *folder.columns.iterdir()] == []


def test_start_removes_the_unfinished_files_of_a_trace(folder: Folder) -> None:
    columns = folder.columns_of("a")
    (columns / "answers").mkdir(parents=True)
    for name in (
        ".memory.parquet.7.partial",
        "answers/.steps.arrow.8.partial",
        "events.parquet",
        "answers/steps.arrow",
    ):
        (columns / name).touch()
    folder.sweep(["a"])
    assert sorted(path.name for path in columns.rglob("*.*")) == ["events.parquet", "steps.arrow"]


def test_columns_are_removed_while_an_analysis_writes_there(folder: Folder) -> None:
    columns = folder.columns_of("a")
    columns.mkdir()
    with ExitStack() as stack:
        stack.enter_context(new_file(columns / "memory.parquet")).write(b"x")
        folder.remove_columns("a")
        with pytest.raises(FileNotFoundError):
            stack.close()
    assert [*folder.columns.iterdir()] == []


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "f"

    write_whole(path, b"one")
    write_whole(path, b"two")

    assert path.read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


REWRITE = """
import sys
import threading
from pathlib import Path
from service.store.folder import write_whole
while True:
    for letter in (b"a", b"b"):
        write_whole(Path(sys.argv[1]), letter * 100_000)
    print("written", flush=True)
"""


def test_killed_writer_leaves_one_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with subprocess.Popen([sys.executable, "-c", REWRITE, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == b"written\n"
        contents = {path.read_bytes() for _ in range(200)}
        writer.kill()

    assert contents | {path.read_bytes()} <= {b"a" * 100_000, b"b" * 100_000}


def test_full_disk_has_its_own_error() -> None:
    with pytest.raises(DiskFull, match="no room"), disk_errors(), Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"x")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_disk_quotas_and_limits_count_as_full_disk(number: int) -> None:
    with pytest.raises(DiskFull), disk_errors():
        raise OSError(number, os.strerror(number))


def test_other_disk_errors_are_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), disk_errors():
        (tmp_path / "missing").read_bytes()


@pytest.mark.parametrize(
    "parts", [("events.parquet", "envelope.json", "attribution.parquet"), ("events.parquet", "envelope.json")]
)
def test_columns_are_shared_with_all_files_of_the_twin(folder: Folder, parts: tuple[str, ...]) -> None:
    twin = folder.columns_of("twin")
    twin.mkdir()
    for part in parts:
        (twin / part).write_bytes(part.encode())

    assert folder.share_columns("trace", "twin")

    shared = sorted(folder.columns_of("trace").iterdir())
    assert [file.name for file in shared] == sorted(parts)
    assert all(file.samefile(twin / file.name) for file in shared)


def test_a_file_becomes_durable_while_other_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    begun, worked = threading.Event(), threading.Event()

    def fsync(_: int) -> None:
        begun.set()
        assert worked.wait(PATIENCE_S)

    monkeypatch.setattr(os, "fsync", fsync)
    with syncing(path):
        assert begun.wait(PATIENCE_S)
        worked.set()


def test_a_file_that_does_not_become_durable_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DiskFull), disk_errors(), syncing(path):
        pass

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tracedock.spool import Spool, public_url

DESCRIPTION = {"name": "a.pt.trace.json.gz", "group": "run", "url": "http://here:1"}


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "spool")
    spool.create()
    return spool


def write(spool: Spool, identity: str, content: bytes = b"{}") -> None:
    with spool.writing(identity, DESCRIPTION) as path:
        path.write_bytes(content)


def names(spool: Spool) -> list[str]:
    return sorted(path.name for path in spool.folder.iterdir())


def test_trace_appears_only_when_it_is_whole(spool: Spool) -> None:
    with spool.writing("a", DESCRIPTION) as path:
        path.write_bytes(b"{")
        assert not spool.has_plain("a")
        with spool.claimed("a") as entry:
            assert entry is None
        path.write_bytes(b"{}")
    assert names(spool) == ["a.json", "a.trace.json"]
    assert spool.description("a") == DESCRIPTION


def test_failed_write_leaves_nothing(spool: Spool) -> None:
    with pytest.raises(TypeError), spool.writing("a", DESCRIPTION) as path:
        path.write_bytes("{")  # type: ignore[arg-type] # the error of this test
    assert names(spool) == []


def test_claimed_trace_is_no_one_elses_until_it_is_released(spool: Spool) -> None:
    write(spool, "a")
    with spool.claimed("a") as first:
        assert first
        with spool.claimed("a") as second:
            assert second is None
    with spool.claimed("a") as third:
        assert third


def test_child_that_the_trainer_forked_meanwhile_does_not_keep_the_lock(spool: Spool) -> None:
    program = """
import os, sys
from pathlib import Path
from tracedock.spool import Spool
spool = Spool(Path(sys.argv[1]))
with spool.writing("a", {}) as path:
    path.write_bytes(b"{}")
    if os.fork() == 0:  # a worker of a data loader, which lives on
        sys.stdin.read()
        os._exit(0)
with spool.claimed("a") as entry:
    print(entry is not None, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, spool.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as trainer:
        assert trainer.stdout
        assert trainer.stdout.readline() == "True\n"


def test_what_a_killed_trainer_left_unfinished_is_removed(spool: Spool) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from tracedock.spool import Spool
with Spool(Path(sys.argv[1])).writing("a", {}) as path:
    path.write_bytes(b"{")
    path.with_name(path.name + ".tmp").write_bytes(b"{")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program, spool.folder], check=False).returncode == -9
    assert names(spool) == [".a.partial", ".a.partial.tmp", "a.json"]
    with spool.claimed("a") as entry:
        assert entry is None
    assert names(spool) == []


def test_compression_replaces_the_plain_trace_and_gives_the_same_bytes_again(spool: Spool) -> None:
    content = bytes(range(256)) * 9000
    compressed = set()
    for _ in range(2):
        write(spool, "a", content)
        with spool.claimed("a") as entry:
            assert entry
            entry.compress()
            assert names(spool) == ["a.json", "a.trace.json.gz"]
            compressed.add(entry.compressed.read_bytes())
            entry.remove()
    assert [gzip.decompress(data) for data in compressed] == [content]
    assert names(spool) == []


def test_oldest_trace_is_first(spool: Spool) -> None:
    for age, identity in enumerate(["b", "c", "a"]):
        write(spool, identity)
        os.utime(spool.folder / f"{identity}.json", (age, age))
    assert spool.identities() == ["b", "c", "a"]
    assert spool.size() == sum(path.stat().st_size for path in spool.folder.iterdir())


def test_folder_is_private_and_one_that_others_can_write_to_is_refused(spool: Spool) -> None:
    assert spool.folder.stat().st_mode & 0o777 == 0o700
    spool.folder.chmod(0o777)
    with pytest.raises(PermissionError, match="other users"):
        spool.create()


def test_only_old_strays_are_removed(spool: Spool) -> None:
    for name in (".old.partial", ".new.partial", "old.log", "new.log", "old.trace.json.gz"):
        (spool.folder / name).write_bytes(b"x")
        if "old" in name:
            os.utime(spool.folder / name, (0, 0))
    spool.remove_strays()
    assert names(spool) == [".new.partial", "new.log", "old.trace.json.gz"]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"name": 1, "url": "http://here:1"}'])
def test_damaged_description_is_an_error(spool: Spool, text: bytes) -> None:
    (spool.folder / "a.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"."):
        spool.description("a")


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("http://me:secret@here:1/dock/", "http://here:1/dock"),
        ("https://here", "https://here"),
        ("http://here/a@b", "http://here/a@b"),
        ("nonsense", "nonsense"),
    ],
)
def test_url_on_disk_has_no_password(url: str, public: str) -> None:
    assert public_url(url) == public

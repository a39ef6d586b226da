"""An upload becomes an original once it is complete and verified, and otherwise leaves nothing."""

import hashlib
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.formats.names import NAME_MAX_BYTES
from service.store.folder import Folder
from service.store.uploads import Upload, plain_name
from service.trace.errors import BadName, DigestMismatch, DiskFull, EmptyBody, TooLarge

CONTENT = b'{"traceEvents": []}'
ID = "9f2c41d07a3b"


def files(folder: Folder) -> list[Path]:
    return [*folder.incoming.iterdir(), *folder.originals.iterdir()]


# -- content ----------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=50), min_size=1).filter(any))
def test_original_equals_the_received_bytes(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    folder = Folder(tmp_path_factory.mktemp("data"))
    folder.open()

    with Upload(folder, ID, limit=1 << 20) as upload:
        for piece in pieces:
            upload.write(bytearray(piece))
        received = upload.keep()

    content = b"".join(pieces)
    assert folder.original(ID).read_bytes() == content
    assert (received.size, received.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert list(folder.incoming.iterdir()) == []
    folder.close()


def test_original_does_not_exist_before_the_upload_is_kept(folder: Folder) -> None:
    with Upload(folder, ID, limit=100) as upload:
        upload.write(CONTENT)

        assert list(folder.originals.iterdir()) == []
        assert [path.name for path in folder.incoming.iterdir()] == [ID]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_abandoned_upload_leaves_nothing(folder: Folder, error: type[BaseException]) -> None:
    with suppress(error), Upload(folder, ID, limit=100) as upload:
        upload.write(CONTENT)
        raise error

    assert files(folder) == []


def test_original_that_could_not_be_recorded_is_removed(folder: Folder) -> None:
    with pytest.raises(DiskFull), Upload(folder, ID, limit=100) as upload:  # noqa: PT012 - the order is the claim
        upload.write(CONTENT)
        upload.keep()
        raise DiskFull("The catalog has no room.")

    assert files(folder) == []


def test_upload_with_an_id_in_use_is_refused(folder: Folder) -> None:
    with Upload(folder, ID, limit=100) as first:
        first.write(CONTENT)
        with pytest.raises(FileExistsError), Upload(folder, ID, limit=100):
            pass
        first.keep()

    assert folder.original(ID).read_bytes() == CONTENT


def test_empty_upload_is_refused(folder: Folder) -> None:
    with pytest.raises(EmptyBody), Upload(folder, ID, limit=100) as upload:  # noqa: PT012 - the order is the claim
        upload.write(b"")
        upload.keep()

    assert files(folder) == []


# -- limits -----------------------------------------------------------------------------------------------------


def test_upload_may_reach_but_not_exceed_the_limit(folder: Folder) -> None:
    with Upload(folder, ID, limit=10) as upload:
        upload.write(b"x" * 4)
        upload.write(b"x" * 6)
        upload.check_size(10)
        with pytest.raises(TooLarge) as caught:
            upload.write(b"x")
        with pytest.raises(TooLarge):
            upload.check_size(11)

        assert caught.value.extra == {"limit": 10}
        assert upload.keep().size == 10
    assert folder.original(ID).read_bytes() == b"x" * 10


def test_full_disk_is_reported_and_leaves_nothing(folder: Folder) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))  # the kernel refuses to write more
    try:
        with pytest.raises(DiskFull), Upload(folder, ID, limit=1 << 20) as upload:
            upload.write(b"x" * (1 << 17))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert files(folder) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount point of a file system of 64 KiB."""
    root = tmp_path / "disk"
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(root)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this process may not mount")
    yield root
    subprocess.run(["umount", str(root)], check=True)


def test_disk_that_runs_full_is_reported_and_freed_again(tiny_disk: Path) -> None:
    folder = Folder(tiny_disk)
    folder.open()

    with pytest.raises(DiskFull), Upload(folder, ID, limit=1 << 30) as upload:
        upload.write(b"x" * (1 << 18))

    assert files(folder) == []
    with Upload(folder, ID, limit=1 << 30) as upload:
        upload.write(b"x" * 4096)
        upload.keep()
    folder.close()


# -- digests ----------------------------------------------------------------------------------------------------


def test_expected_digests_are_verified(folder: Folder) -> None:
    promised = {name: hashlib.new(name, CONTENT).digest() for name in ("sha256", "sha512")}

    with Upload(folder, ID, limit=100, digests=promised) as upload:
        upload.write(CONTENT)

        assert upload.keep().sha256 == promised["sha256"].hex()


@pytest.mark.parametrize("name", ["sha256", "sha512"])
def test_bytes_with_another_digest_are_refused_and_removed(folder: Folder, name: str) -> None:
    promised = hashlib.new(name, CONTENT).digest()

    with Upload(folder, ID, limit=100, digests={name: promised}) as upload:
        upload.write(CONTENT + b" ")
        with pytest.raises(DigestMismatch) as caught:
            upload.keep()

    actual = hashlib.new(name, CONTENT + b" ").hexdigest()
    assert caught.value.extra == {"expected": promised.hex(), "found": actual}
    assert files(folder) == []


# -- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["rank0.pt.trace.json.gz", "Ünïcode 名前.json", "a b.json", ".hidden", "-rf", "a..b", "%2e", "x" * 255]
)
def test_plain_name_is_unchanged(name: str) -> None:
    assert plain_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        ".",
        "..",
        "a/b",
        "/etc/passwd",
        "..\\x",
        "a\nb",
        "a\0b",
        "\x7f",
        "a\u202eb",
        "\ud800",
        "x" * 256,
        "é" * 128,
    ],
)
def test_a_name_that_is_a_path_or_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(BadName) as caught:
        plain_name(name)

    caught.value.detail.encode()  # the refusal can be encoded


@given(st.text(max_size=300) | st.text("./\\a\0\n", max_size=5))
def test_accepted_name_makes_one_file_in_its_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    with suppress(BadName):
        accepted = plain_name(name)
        folder = tmp_path_factory.getbasetemp() / "names"
        folder.mkdir(exist_ok=True)
        (folder / accepted).write_bytes(b"x")

        assert [path.name for path in folder.iterdir()] == [name]
        assert name.isprintable()
        assert len(name.encode()) <= NAME_MAX_BYTES
        (folder / accepted).unlink()

"""Offset and digest of a resumable upload are those of the bytes on disk."""

import hashlib
import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.store.folder import Folder
from service.store.resumable import Announced, Chunk, Resumable, finished, forget_old, unfinished
from service.trace.errors import ChecksumMismatch, DiskFull, EmptyBody, TooLarge, UnknownUpload, UploadGone

ID = "9f2c41d07a3b"
LIMIT = 1 << 30


def begin(folder: Folder, length: int | None = None) -> Resumable:
    return Resumable.create(folder, Announced(ID, "a.json", length))


def add(folder: Folder, upload: Resumable, content: bytes, promised: bytes | None = None) -> None:
    """Add a chunk; if `promised` is given, verify the chunk against its SHA-1."""
    checksum = ("sha1", hashlib.sha1(promised).digest()) if promised is not None else None
    chunk = Chunk(folder, upload, limit=LIMIT, checksum=checksum)
    chunk.write(content)
    chunk.keep()


steps = st.lists(st.tuples(st.binary(max_size=40), st.sampled_from(["plain", "verified", "damaged", "restart"])))


@given(steps)
def test_digest_is_that_of_the_kept_bytes_for_any_chunks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bytes, str]]
) -> None:
    folder = Folder(tmp_path_factory.mktemp("data"))
    folder.open()
    upload, expected = begin(folder), b""

    for content, how in [*steps, (b"end", "plain")]:
        if how == "restart":
            upload = Resumable.reopen(folder, ID)
        elif how == "damaged":
            with pytest.raises(ChecksumMismatch):
                add(folder, upload, content, content + b" ")
        else:
            add(folder, upload, content, content if how == "verified" else None)
            expected += content
        assert upload.offset == len(expected)

    received = upload.keep()
    assert folder.original(ID).read_bytes() == expected
    assert (received.size, received.sha256) == (len(expected), hashlib.sha256(expected).hexdigest())
    folder.close()


def test_upload_is_whole_once_all_bytes_are_received(folder: Folder) -> None:
    upload = begin(folder)
    add(folder, upload, b"0123")
    assert not upload.whole
    upload.announce(6)
    add(folder, upload, b"45")
    assert upload.whole
    assert Resumable.reopen(folder, ID).announced == Announced(ID, "a.json", 6)


def test_bytes_beyond_the_announced_length_are_refused(folder: Folder) -> None:
    upload = begin(folder, 6)
    add(folder, upload, b"0123")
    chunk = Chunk(folder, upload, limit=LIMIT, checksum=None)
    chunk.check_size(2)
    with pytest.raises(TooLarge):
        chunk.check_size(3)
    chunk.write(b"4")
    with pytest.raises(TooLarge):
        chunk.write(b"56")
    chunk.leave()
    assert upload.offset == 5


def test_chunk_that_ends_early_counts_unless_it_must_be_verified(folder: Folder) -> None:
    upload = begin(folder)
    for checksum, counts in ((None, 4), (("md5", b""), 4)):
        chunk = Chunk(folder, upload, limit=LIMIT, checksum=checksum)
        chunk.write(b"0123")
        chunk.leave()
        assert (upload.offset, folder.received(ID).stat().st_size) == (counts, counts)


def test_chunk_unverified_at_a_crash_does_not_count(folder: Folder) -> None:
    upload = begin(folder)
    add(folder, upload, b"0123")
    chunk = Chunk(folder, upload, limit=LIMIT, checksum=("md5", b""))
    chunk.write(b"45678")
    chunk._file.close()  # the only file that a killed process leaves

    folder.sweep([])

    assert Resumable.reopen(folder, ID).offset == 4
    assert sorted(path.name for path in folder.incoming.iterdir()) == [ID, f"{ID}.upload"]


def test_full_disk_keeps_received_bytes(folder: Folder) -> None:
    upload, content = begin(folder), os.urandom(1 << 17)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the kernel refuses to write more
    chunk = Chunk(folder, upload, limit=LIMIT, checksum=None)
    try:
        with pytest.raises(DiskFull):
            chunk.write(content)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    chunk.leave()
    assert upload.offset == 100_000

    add(folder, upload, content[100_000:])

    assert upload.keep().sha256 == hashlib.sha256(content).hexdigest()


def test_empty_upload_does_not_become_a_trace(folder: Folder) -> None:
    with pytest.raises(EmptyBody):
        begin(folder).keep()


def test_upload_that_could_not_be_recorded_is_restored(folder: Folder) -> None:
    upload = begin(folder, 4)
    add(folder, upload, b"0123")
    first = upload.keep()
    upload.undo_keep()
    assert folder.received(ID).read_bytes() == b"0123"
    assert upload.keep() == first


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_sweep_keeps_resumable_uploads(folder: Folder) -> None:
    add(folder, begin(folder, 10), b"0123")
    (folder.incoming / "aaaaaaaaaaaa").write_bytes(b"of a PUT")
    (folder.incoming / f".{ID}.upload.partial").write_bytes(b"half a note")
    folder.sweep([])
    assert unfinished(folder) == [ID]
    assert sorted(path.name for path in folder.incoming.iterdir()) == [ID, f"{ID}.upload"]


def test_sweep_distinguishes_recorded_and_unrecorded_uploads(folder: Folder) -> None:
    upload = begin(folder, 4)
    add(folder, upload, b"0123")
    upload.keep()

    folder.sweep([])
    assert Resumable.reopen(folder, ID).whole
    assert not folder.original(ID).exists()

    Resumable.reopen(folder, ID).keep()
    folder.sweep([ID])
    assert folder.original(ID).exists()
    assert finished(folder, ID).name == "a.json"
    assert unfinished(folder) == []


def test_finished_upload_is_known_for_a_while(folder: Folder) -> None:
    upload = begin(folder, 4)
    add(folder, upload, b"0123")
    upload.keep()
    upload.done()
    forget_old(folder, 60)
    assert finished(folder, ID).length == 4
    with pytest.raises(UnknownUpload):
        Resumable.reopen(folder, ID)

    age(folder)
    forget_old(folder, 60)
    with pytest.raises(UnknownUpload):
        finished(folder, ID)


def test_expired_upload_is_reported_as_gone_for_a_while(folder: Folder) -> None:
    begin(folder, 4).expire()
    forget_old(folder, 60)
    with pytest.raises(UploadGone):
        Resumable.reopen(folder, ID)

    age(folder)
    forget_old(folder, 60, excluding=[ID])
    with pytest.raises(UploadGone):
        Resumable.reopen(folder, ID)
    forget_old(folder, 60)
    with pytest.raises(UnknownUpload):
        Resumable.reopen(folder, ID)


def test_removed_upload_leaves_nothing(folder: Folder) -> None:
    upload = begin(folder, 4)
    add(folder, upload, b"0123")
    upload.remove()
    assert list(folder.incoming.iterdir()) == []


@pytest.mark.parametrize("name", ["../catalog", "", "9F2C41D07A3B", "9f2c41d07a3b0"])
def test_invalid_upload_id_is_unknown(folder: Folder, name: str) -> None:
    with pytest.raises(UnknownUpload):
        Resumable.reopen(folder, name)


def age(folder: Folder) -> None:
    for path in (*folder.incoming.iterdir(), Path(folder.incoming)):
        os.utime(path, (0, 0))

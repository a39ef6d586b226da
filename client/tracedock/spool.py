"""Folder with traces that wait to be sent. The files are the only state, so that each process can go on after a kill.

| file | content |
|---|---|
| `ID.json` | `{"name", "group", "url"}`: how to send the trace; written first, removed last |
| `ID.trace.json` | the whole trace, not yet compressed |
| `ID.trace.json.gz` | the whole trace, compressed |
| `.ID.…` | a file that is being written |
| `NAME.log` | messages of a background process |

Whole files appear by a rename. A process that works on a trace holds a lock (flock) on `ID.json`; the kernel releases
it when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Optional

COMPRESSION_LEVEL = 3
_PIECE = 1 << 20
_STRAY_S = 7 * 86400
"""Age of files of ended processes at which they are removed."""
_HIDDEN = ("new", "partial", "partial.tmp", "gz")  # the profiler itself writes to `….tmp` and renames


class SpooledTrace(NamedTuple):
    """The file of a trace, and how to send it.

    Attributes:
        path: path of its file, compressed if it is there.
        name: its name.
        group: name of its group.
        url: the server that it is meant for.
        key: the `Idempotency-Key` of its upload: two processes that send it make one trace.
    """

    path: Path
    name: str
    group: Optional[str]
    url: str
    key: str


class Entry:
    """A trace in the spool, while this process holds its lock.

    Attributes:
        identity: the `ID` of its files.
        plain: path of the trace before compression.
        compressed: path of the compressed trace.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self.identity = identity
        self.plain = folder / f"{identity}.trace.json"
        self.compressed = folder / f"{identity}.trace.json.gz"
        self._described = folder / f"{identity}.json"
        self._hidden = folder / f".{identity}"

    def exists(self) -> bool:
        """Return whether the trace is there, compressed or not."""
        return self.compressed.exists() or self.plain.exists()

    def compress(self) -> None:
        """Replace the plain trace by the compressed one; the same trace gives the same bytes.

        Raises:
            OSError: a file can't be read or written; the plain trace is still there.
        """
        partial = self._hidden.with_name(f"{self._hidden.name}.gz")
        try:
            with self.plain.open("rb") as source, partial.open("wb") as target:
                with gzip.GzipFile("", "wb", COMPRESSION_LEVEL, target, mtime=0) as packed:
                    shutil.copyfileobj(source, packed, _PIECE)
                target.flush()
                os.fsync(target.fileno())  # the plain trace is about to be removed
            partial.rename(self.compressed)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self.plain.unlink()

    def remove(self) -> None:
        """Remove all files of the trace."""
        hidden = [self._hidden.with_name(f"{self._hidden.name}.{suffix}") for suffix in _HIDDEN]
        for path in [self.plain, self.compressed, *hidden, self._described]:
            path.unlink(missing_ok=True)


class Spool:
    """A spool folder.

    Args:
        folder: path of the folder; see `create`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self) -> None:
        """Create the folder for this user alone, if it is missing.

        Raises:
            OSError: the folder can't be created, or other users can put files into it, which would be sent as ours.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
            raise PermissionError(f"other users can write to the folder {self.folder}")

    def description(self, identity: str) -> dict[str, Any]:
        """Return the members `name`, `group` and `url` of `ID.json`, which never changes.

        Raises:
            FileNotFoundError: the trace is gone.
            ValueError: the file holds no such object.
        """
        document = json.loads((self.folder / f"{identity}.json").read_bytes())
        members = document if isinstance(document, dict) else {}
        is_described = all(isinstance(members.get(key), str) for key in ("name", "url"))
        if not is_described or not isinstance(members.get("group"), (str, type(None))):
            raise ValueError("it is no object with a name, a url and at most one group")
        return members

    def trace(self, entry: Entry) -> SpooledTrace:
        """Return a claimed trace; raises what `description` raises."""
        members = self.description(entry.identity)
        name, group, url = members["name"], members.get("group"), members["url"]
        key = "spool-" + hashlib.sha256(f"{entry.identity}.json\n{name}".encode()).hexdigest()
        if entry.compressed.exists():
            return SpooledTrace(entry.compressed, name, group, url, key)
        return SpooledTrace(entry.plain, re.sub(r"\.gz$", "", name), group, url, key)

    def has_plain(self, identity: str) -> bool:
        """Return whether the trace is there, and not yet compressed."""
        return Entry(self.folder, identity).plain.exists()

    def identities(self) -> list[str]:
        """Return the ids of all traces, oldest first; a trace that is being written is among them."""
        found = []
        for entry in os.scandir(self.folder):
            name = entry.name
            if name.endswith(".json") and not name.startswith(".") and not name.endswith(".trace.json"):
                try:
                    found.append((entry.stat().st_mtime_ns, name[: -len(".json")]))
                except FileNotFoundError:  # another process has just sent it
                    continue
        return [identity for _, identity in sorted(found)]

    def size(self) -> int:
        """Return the number of bytes of all files."""
        total = 0
        for entry in os.scandir(self.folder):
            try:
                total += entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:  # another process has just sent it
                continue
        return total

    @contextmanager
    def writing(self, identity: str, description: Mapping[str, object]) -> Iterator[Path]:
        """Yield the path for a new plain trace, which appears in the spool at the end; on an error nothing remains."""
        entry = Entry(self.folder, identity)
        new, partial = self.folder / f".{identity}.new", self.folder / f".{identity}.partial"
        with new.open("x", encoding="utf-8") as file, _locked(file):  # locked before other processes can see it
            try:
                json.dump(description, file)
                file.flush()
                new.rename(self.folder / f"{identity}.json")
                yield partial
                partial.rename(entry.plain)
            except BaseException:
                entry.remove()
                raise

    @contextmanager
    def claimed(self, identity: str) -> Iterator[Entry | None]:
        """Lock a trace and yield it; None if another process works on it, or if it is gone.

        What a killed trainer left of an unfinished trace is removed.
        """
        try:
            file = (self.folder / f"{identity}.json").open("r+b")  # NFS locks only files that are open for writing
        except FileNotFoundError:
            yield None
            return
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            try:
                entry = Entry(self.folder, identity)
                if entry.exists():
                    yield entry
                else:
                    entry.remove()
                    yield None
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def remove_strays(self) -> None:
        """Remove logs and unfinished files that no process has touched for a week."""
        oldest = time.time() - _STRAY_S
        for path in [*self.folder.glob(".*"), *self.folder.glob("*.log")]:
            try:
                if path.is_file() and path.stat().st_mtime < oldest:
                    path.unlink()
            except FileNotFoundError:  # another process has just removed it
                continue


def public_url(url: str) -> str:
    """Return a server's URL as it is written to disk: without a password, and in one form."""
    return re.sub(r"(?<=://)[^/?#]*@", "", url).rstrip("/")


@contextmanager
def _locked(file: IO[Any]) -> Iterator[None]:
    """Hold the lock of a file that no other process has.

    The lock is released explicitly: a child that the trainer forked meanwhile holds the same open file.
    """
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)

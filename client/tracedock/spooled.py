"""Traces that a training process has left in its spool folder, because no server took them.

| file | content |
|---|---|
| `ID.json` | `{"name", "group", "url"}` |
| `ID.trace.json.gz` | the whole trace |
| `ID.trace.json` | the whole trace, not yet compressed; counts if the compressed one is missing |

A process that works on a trace holds a lock (flock) on `ID.json`, which it removes last.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from tracedock.errors import ClientError

_TRACES = (".trace.json.gz", ".trace.json")


class DamagedSpoolError(ClientError):
    """The description beside a spooled trace can't be read; the trace stays."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path}: {reason}. The trace beside it stays; `tracedock upload FILE` sends it.")


@dataclass(frozen=True)
class SpooledTrace:
    """A trace in a spool.

    Attributes:
        description: path of its description.
        path: path of its file.
        name: its name.
        group: name of its group.
        url: the server that it is meant for.
    """

    description: Path
    path: Path
    name: str
    group: Optional[str]
    url: str

    @property
    def key(self) -> str:
        """The `Idempotency-Key` of its upload: two processes that send it make one trace."""
        return "spool-" + hashlib.sha256(f"{self.description.name}\n{self.name}".encode()).hexdigest()

    def remove(self) -> None:
        """Remove all its files, the description last."""
        for suffix in _TRACES:
            self.description.with_name(self.description.stem + suffix).unlink(missing_ok=True)
        self.description.unlink(missing_ok=True)


def descriptions(folder: Path) -> list[Path]:
    """Return the descriptions in a spool, oldest first."""
    names = [path for path in folder.glob("*.json") if not path.name.startswith(".") and not _is_trace(path)]
    return sorted(names, key=lambda path: (path.stat().st_mtime_ns, path.name))


@contextmanager
def claimed(description: Path) -> Iterator[Optional[SpooledTrace]]:
    """Lock a trace, and yield it; None if another process works on it, or if it is not there.

    Raises:
        DamagedSpoolError: the description can't be read.
    """
    try:
        file = description.open("r+b")  # NFS locks only files that are open for writing
    except FileNotFoundError:
        yield None
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        path = next((path for path in _candidates(description) if path.exists()), None)
        yield None if path is None else _read(description, path, file.read())


def _candidates(description: Path) -> list[Path]:
    return [description.with_name(description.stem + suffix) for suffix in _TRACES]


def _is_trace(path: Path) -> bool:
    return path.name.endswith(_TRACES)


def _read(description: Path, path: Path, text: bytes) -> SpooledTrace:
    try:
        members = json.loads(text)
        name, group, url = members["name"], members.get("group"), members["url"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedSpoolError(description, f"it does not describe a trace ({error!r})") from error
    if not isinstance(name, str) or not isinstance(url, str) or not isinstance(group, (str, type(None))):
        raise DamagedSpoolError(description, "its name, group or url is not a text")
    is_plain = not path.name.endswith(".gz")
    return SpooledTrace(description, path, re.sub(r"\.gz$", "", name) if is_plain else name, group, url)

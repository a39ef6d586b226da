"""The conventions of the Perfetto traces that Tracedock writes, by which they are read back without loss.

The file is an ordinary Perfetto trace. Its Chrome metadata has the members of the document around the events, as JSON,
and two further members with facts on the file. The description of a track has the pid and tid of its events. Events
that packets do not hold in full are there as JSON, too, and their packets have a sequence of their own, `SHOWN`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.formats.pftrace.sequences import Budget
from service.trace.summary import FLOW_PHASES

MARK = "tracedock.pftrace"
"""Name of the first member.

It has the ``version`` of these conventions; ``zero_ns``, the time of packets at which the trace's own clock is 0; and
``is_array``, whether the document is the array of events itself.
"""

COUNTS = "tracedock.counts"
"""Name of the last member.

It has the number of ``events``; of those that only their JSON holds in full (``copied``); and of those that no packet
shows, because they name processes and threads (``metadata``) or have no time (``untimed``).
"""

VERSION = 1
"""Version of these conventions."""

EXACT, SHOWN = 1, 2
"""Sequences of packets: events that are read back from them, and events that the file also has as JSON."""

WITH_ID = (*FLOW_PHASES, "b", "n", "e")
"""Phases of events that a packet has by their phase and their id."""

_PREFIX = "In the document: "
_DIGITS_MAX = 4000  # Python refuses to convert longer integers


def parsed(text: bytes | str) -> Any:
    """Return the value of a JSON text; integers of thousands of digits are infinite."""
    return json.loads(text, parse_int=_integer, strict=False)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS_MAX else float(digits)


def described(pid: int | str, tid: int | str, lane: int) -> bytes:
    """Return the description of a lane's track."""
    return f"{_PREFIX}{json.dumps({'pid': pid, 'tid': tid, 'lane': lane}, ensure_ascii=False)}".encode(errors="replace")


def place_described(description: str) -> tuple[int | str, int | str] | None:
    """Return the pid and tid in the description of a track; None if it has none."""
    if not description.startswith(_PREFIX):
        return None
    try:
        place: Any = parsed(description.removeprefix(_PREFIX))
        pid, tid = place["pid"], place["tid"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    is_place = all(isinstance(part, int | str) and not isinstance(part, bool) for part in (pid, tid))
    return (pid, tid) if is_place else None


class Document:
    """The parts of the document that Tracedock wrote a Perfetto trace from.

    Args:
        copies: path of a new file for events that the trace has as JSON.
        budget: the memory that members may take.

    Attributes:
        is_written: whether Tracedock wrote the trace.
        zero_ns: the time of packets at which the trace's own clock is 0.
    """

    def __init__(self, copies: Path, budget: Budget) -> None:
        self._path = copies
        self._file = copies.open("xb")
        self._budget = budget
        self._pieces: list[tuple[int, int]] = []
        self._members: list[tuple[str, str]] = []
        self._is_array = False
        self.is_written = False
        self.zero_ns = 0

    @property
    def has_events(self) -> bool:
        """Tell whether the trace has events as JSON."""
        return bool(self._pieces)

    def add_member(self, name: str, text: bytes) -> bool:
        """Add a member of the document or the facts on the file; return False for metadata of other programs."""
        try:
            value = parsed(text)
        except (ValueError, RecursionError):
            return False
        if name == MARK and not self.is_written:
            self._add_facts(value)
        elif self.is_written and name not in (MARK, COUNTS):
            self._budget.take(len(text))
            self._members.append((name, text.decode(errors="replace")))
        return self.is_written

    def _add_facts(self, facts: Any) -> None:
        if isinstance(facts, dict) and facts.get("version") == VERSION and isinstance(facts.get("zero_ns"), int):
            self.is_written = True
            self.zero_ns, self._is_array = facts["zero_ns"], facts.get("is_array") is True

    def add_events(self, offset: int, text: bytes) -> None:
        """Add events as JSON, with commas between them, of the packet at an offset."""
        self._budget.take(0)
        self._pieces.append((offset, len(text)))
        self._file.write(text)

    def events(self) -> Iterator[tuple[int, bytes]]:
        """Yield the events as JSON, with the offset of their packet."""
        self._file.flush()
        with self._path.open("rb") as file:
            for offset, size in self._pieces:
                yield offset, file.read(size)

    def envelope(self) -> str:
        """Return the document without its events."""
        if self._is_array:
            return "[]"
        members = (f"{json.dumps(name)}: {text}" for name, text in [*self._members, ("traceEvents", "[]")])
        return f"{{{', '.join(members)}}}"

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)

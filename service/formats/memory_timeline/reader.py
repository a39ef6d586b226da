"""Reader of a memory timeline: changes of memory by category, and counters of the bytes of each category."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.formats.events import MICROSECONDS, NANOSECONDS, events
from service.formats.memory_timeline.items import Items
from service.trace.errors import BadCompression, Truncated
from service.trace.health import Health
from service.trace.summary import TIMELINE_CATEGORY

CATEGORIES = (
    *("PARAMETER", "OPTIMIZER_STATE", "INPUT", "TEMPORARY", "ACTIVATION", "GRADIENT", "AUTOGRAD_DETAIL"),
    "unknown",
)
"""Names of categories by their codes; the last one is null in PyTorch."""
PREEXISTING, CREATE, INCREMENT_VERSION, DESTROY = range(1, 5)
_ACTIONS = {
    PREEXISTING: ("[alive at start]", TIMELINE_CATEGORY),
    CREATE: ("[memory]", "cpu_instant_event"),
    INCREMENT_VERSION: ("[new version]", TIMELINE_CATEGORY),
    DESTROY: ("[memory]", "cpu_instant_event"),
}
"""Name and category of the events of each action; those of allocations and frees are PyTorch's own."""
COUNTER = "memory by category"

_INTEGER = rb"\s*(-?[0-8]?\d{1,18})\s*"  # below 2**63
_OPEN, _COMMA, _CLOSE = re.compile(rb"\s*\[\s*"), re.compile(rb"\s*,\s*"), re.compile(rb"\s*\]\s*")
_ROW = re.compile(rb"\s*\[" + _INTEGER + rb",\s*([1-4])\s*," + _INTEGER + rb",\s*([0-7])\s*\]")
_RAW = re.compile(_OPEN.pattern + _ROW.pattern + rb"(?!\s*,\s*\[\s*\[)")
_TIME = re.compile(_INTEGER)
_SIZES = re.compile(rb"\s*\[((?:\s*\d{1,18}\s*,){8}\s*\d{1,18}\s*)\]")
_HEAD = 1 << 12  # bytes that show the form
_ROWS = 1 << 15
_AT_START = -1  # time of blocks that were alive at the start


class _Event(NamedTuple):
    phase: str
    name: str
    category: str
    ns: int
    args: str


class TimelineReader:
    """The `TraceReader` of memory timelines in both forms.

    The raw form has a row ``[ns, action, bytes, category]`` for each change. The other form has an array of times in
    µs, and an array with the bytes of each category at each time.

    Args:
        chunks: the document, in order.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.health = Health()
        self.kept = 0
        self.refused = 0
        self._chunks = iter(chunks)
        self._zero: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events in the order of the file; those before a cut are kept.

        Raises:
            NotATrace: the file has other values than a timeline.
            Truncated: the file ends before the first event.
        """
        head = b""
        while len(head) < _HEAD and (piece := next(self._chunks, b"")):
            head += piece
        items = Items(chain([head], self._chunks))
        is_raw = _RAW.match(head) is not None
        found = self._until_cut(items, self._changes(items) if is_raw else self._samples(items))
        while rows := [*islice(found, _ROWS)]:
            batch = _batch(rows, NANOSECONDS if is_raw else MICROSECONDS)
            self.kept += len(batch)
            yield batch
        self.kept += 1
        yield events(1, ph="M", name="process_name", pid=np.array([0]), tid=np.array([0]), args='{"name": "memory"}')

    def envelope(self) -> tuple[bytes, dict[str, Any]]:
        """Return the document around the events, with the zero of its clock."""
        members = {"schemaVersion": 1, "baseTimeNanoseconds": self._zero or 0}
        return json.dumps({**members, "traceEvents": []}).encode(), members

    def _until_cut(self, items: Items, found: Iterator[_Event]) -> Iterator[_Event]:
        """Yield events; where the file is cut or damaged after the first one, end with a note."""
        any_found = False
        try:
            for event in found:
                any_found = True
                yield event
            if rest := items.rest():
                self.health.add("envelope", offset=items.offset, text=rest.decode("utf-8", "replace"))
        except (Truncated, BadCompression) as error:
            if not any_found:
                raise
            code = "cut" if isinstance(error, Truncated) else "bad_compression"
            self.health.add(code, offset=items.offset, text=error.detail)

    def _changes(self, items: Items) -> Iterator[_Event]:
        """Yield an event for each row, and a counter for each time."""
        held = [0] * len(CATEGORIES)
        total = 0
        last = _AT_START
        items.take(_OPEN, "an array")
        for row in items.until_close(_ROW, "[ns, action, bytes, category]"):
            ns, action, size, category = map(int, row.groups())
            if ns != last and any(held):
                yield self._counter(last, held)
            if _AT_START < ns < last:
                self.health.add("unordered_times", offset=items.offset)
                ns = last
            last = ns
            held[category] += size
            total += size
            name, kind = _ACTIONS[action]
            values = {"Bytes": size, "Category": CATEGORIES[category]}
            if kind == "cpu_instant_event":
                values["Total Allocated"] = total
            yield _Event("i", name, kind, self._time(ns), json.dumps(values))
        yield self._counter(last, held)

    def _samples(self, items: Items) -> Iterator[_Event]:
        """Yield a counter for each time."""
        items.take(_OPEN, "an array")
        items.take(_OPEN, "the array of times")
        times = np.fromiter((int(time[1]) for time in items.until_close(_TIME, "a time in µs")), np.int64)
        items.take(_COMMA, "a comma")
        items.take(_OPEN, "the array of sizes")
        for time, sizes in zip(times.tolist(), items.until_close(_SIZES, "[0, 8 sizes]"), strict=True):
            yield self._counter(time * 1000, [*map(int, sizes[1].split(b",")[1:])])
        items.take(_CLOSE, "the end of the document")

    def _counter(self, ns: int, held: Iterable[int]) -> _Event:
        return _Event(
            "C", COUNTER, TIMELINE_CATEGORY, self._time(ns), json.dumps(dict(zip(CATEGORIES, held, strict=True)))
        )

    def _time(self, ns: int) -> int:
        """Return a time on the trace's clock, whose zero is the first time; blocks of the start are at 0."""
        if ns == _AT_START:
            return 0
        if self._zero is None:
            self._zero = ns
        return ns - self._zero


def _batch(rows: list[_Event], digits: int) -> pa.RecordBatch:
    phases, names, categories, times, args = zip(*rows, strict=True)
    count = len(rows)
    return events(
        count,
        ph=pa.array(phases, pa.string()).dictionary_encode(),
        cat=pa.array(categories, pa.string()).dictionary_encode(),
        name=pa.array(names, pa.string()).dictionary_encode(),
        ts=np.array(times, np.int64),
        digits=digits,
        pid=np.zeros(count, np.int64),
        tid=np.zeros(count, np.int64),
        args=pa.array(args, pa.string()),
        rest=pa.array(['{"s":"t"}' if phase == "i" else None for phase in phases], pa.string()),
    )

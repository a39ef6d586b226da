"""Sums over the rows of a tally: what a trace's summary says of its events, tracks, streams and devices."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from service.store.tally import TallyRow
from service.trace.summary import GPU_CATEGORIES, HOST_CATEGORIES, TIMELESS_PHASES, Bounds, Key, is_launch, key_of


class Extent:
    """The number of some events, and the first start and the last end of those that have a time.

    Attributes:
        events: the number of events.
        bounds: the times in ns; None without any.
    """

    def __init__(self) -> None:
        self.events = 0
        self.bounds: Bounds | None = None

    def add(self, row: TallyRow) -> None:
        """Add the events of a row."""
        self.events += row.events
        if row.start_ns is not None and row.end_ns is not None:
            start, end = row.start_ns, row.end_ns
            if self.bounds:
                start, end = min(start, self.bounds["start_ns"]), max(end, self.bounds["end_ns"])
            self.bounds = {"start_ns": start, "end_ns": end}


class Track:
    """The events of a track.

    Attributes:
        events: their number.
        device: the device that runs them, None on the host.
        host: True if any of them are host events.
    """

    def __init__(self) -> None:
        self.events = 0
        self.device: int | None = None
        self.host = False

    def add(self, row: TallyRow) -> None:
        """Add the events of a row."""
        self.events += row.events
        if _is_work(row) and row.device is not None:
            self.device = row.device if self.device is None else max(self.device, row.device)
        self.host = self.host or _on_host(row.cat or "")


class TallySums:
    """Sums over a tally.

    Args:
        rows: the rows of the tally.

    Attributes:
        counts: number of events of each phase and category; null counts as empty.
        timed: the events that extend the trace's bounds.
        tracks: the tracks by pid and tid, which may be spelled in several ways. Metadata events belong to none.
        streams: device and stream of work.
        devices: the work of each device.
        with_time: number of events with a start.
        before_zero: number of events that start before 0.
        at_zero: number of events that start at 0.
        without_time: number of events without a start, but for metadata.
        without_duration: number of slices without a duration.
        negative: number of events with a negative duration.
    """

    def __init__(self, rows: Iterable[TallyRow]) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.timed = Extent()
        self.tracks: dict[tuple[Key, Key], Track] = {}
        self.streams: set[tuple[int, int]] = set()
        self.devices: dict[int, Extent] = {}
        self.with_time = self.before_zero = self.at_zero = 0
        self.without_time = self.without_duration = self.negative = 0
        for row in rows:
            self._add(row)

    def _add(self, row: TallyRow) -> None:
        self.counts[row.ph or "", row.cat or ""] += row.events
        self.with_time += row.timed
        self.before_zero += row.before_zero
        self.at_zero += row.at_zero
        self.negative += row.negative
        if row.ph == "X":
            self.without_duration += row.events - row.lasting
        if row.ph not in TIMELESS_PHASES and not row.is_mark:
            self.timed.add(row)
        if row.ph != "M":
            self.without_time += row.events - row.timed
            key = key_of(row.pid, row.pid_text), key_of(row.tid, row.tid_text)
            self.tracks.setdefault(key, Track()).add(row)
        if _is_work(row) and row.device is not None:
            self.devices.setdefault(row.device, Extent()).add(row)
            if row.stream is not None:
                self.streams.add((row.device, row.stream))


def _is_work(row: TallyRow) -> bool:
    return row.cat in GPU_CATEGORIES


@cache
def _on_host(category: str) -> bool:
    return category in HOST_CATEGORIES or is_launch(category)

"""Sums over the rows of a tally: what a trace's summary says of its events, tracks, streams and devices."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from service.store.tally import TallyRow
from service.trace.summary import GPU_CATEGORIES, HOST_CATEGORIES, TIMELESS_PHASES, Bounds, Key, is_launch


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
        device = row.event_class.device
        if _is_work(row) and device is not None:
            self.device = device if self.device is None else max(self.device, device)
        self.host = self.host or _on_host(row.event_class.cat or "")


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
        kind = row.event_class
        self.counts[kind.ph or "", kind.cat or ""] += row.events
        self.with_time += row.timed
        self.before_zero += row.before_zero
        self.at_zero += row.at_zero
        self.negative += row.negative
        if kind.ph == "X":
            self.without_duration += row.events - row.lasting
        if kind.ph not in TIMELESS_PHASES and not kind.is_mark:
            self.timed.add(row)
        if kind.ph != "M":
            self.without_time += row.events - row.timed
            self.tracks.setdefault(kind.track, Track()).add(row)
        if _is_work(row) and kind.device is not None:
            self.devices.setdefault(kind.device, Extent()).add(row)
            if kind.stream is not None:
                self.streams.add((kind.device, kind.stream))


def _is_work(row: TallyRow) -> bool:
    return row.event_class.cat in GPU_CATEGORIES


@cache
def _on_host(category: str) -> bool:
    return category in HOST_CATEGORIES or is_launch(category)

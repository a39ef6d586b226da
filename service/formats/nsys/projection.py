"""Projection of NVTX ranges to devices: the span of the work that was launched inside of a range."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.formats.nsys.calls import Launches
from service.formats.nsys.combinations import combinations
from service.formats.nsys.identifiers import Ints

LOOKUPS_MAX = 1 << 28
"""Largest number of lookups in an export: a lookup searches one range in the work of one stream."""

STREAMS_MAX = 10_000
"""Largest number of pairs of a thread and a stream whose work is projected."""

_LARGEST = np.iinfo(np.int64).max


class Spans(NamedTuple):
    """Spans of work: the index of their range, the device, the stream, the start and the end."""

    ranges: Ints
    device: int
    stream: int
    starts: Ints
    ends: Ints


class _Stream(NamedTuple):
    """Work of a stream that a thread launched, in order of the launches."""

    device: int
    stream: int
    launches: Ints
    starts: Ints
    ends: Ints


class Projection:
    """Collects work with its launches, and projects ranges of the launching threads.

    Args:
        launches: the calls that launch work.
        wanted: whether there are ranges; otherwise nothing is collected.
    """

    def __init__(self, launches: Launches, *, wanted: bool) -> None:
        self._launches = launches
        self._wanted = wanted
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._pieces: list[tuple[npt.NDArray[Any], ...]] = []
        self._streams: dict[int, list[_Stream]] = {}
        self._lookups = 0
        self._has_too_many_streams = False
        self.left_out = 0
        """Number of ranges of which some spans were not computed, because there are too many."""

    def add(self, launch: Ints, starts: Ints, ends: Ints, device: Ints, stream: Ints) -> None:
        """Add work, with the index of its launch."""
        if not self._wanted:
            return
        threads = self._launches.threads[launch]
        firsts, places = combinations([threads, device, stream], len(launch))
        keys = zip(*(column[firsts].tolist() for column in (threads, device, stream)), strict=True)
        numbers = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.int32)
        self._pieces.append((numbers[places], launch.astype(np.int32), starts, ends))

    def complete(self) -> None:
        """Group the work by thread and stream, once all of it was added."""
        if not self._pieces:
            return
        numbers, launch, starts, ends = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        self._pieces = []
        order = np.argsort(numbers, kind="stable")
        order = order[: np.searchsorted(numbers[order], STREAMS_MAX)]
        self._has_too_many_streams = len(self._numbers) > STREAMS_MAX
        changes = np.searchsorted(numbers[order], np.arange(1, min(len(self._numbers), STREAMS_MAX)))
        for (thread, device, stream), rows in zip(self._numbers, np.split(order, changes), strict=False):
            at = self._launches.starts[launch[rows]]
            if (np.diff(at) < 0).any():
                rows = rows[np.argsort(at, kind="stable")]  # noqa: PLW2901 - the same rows in order of time
                at = self._launches.starts[launch[rows]]
            self._streams.setdefault(thread, []).append(_Stream(device, stream, at, starts[rows], ends[rows]))

    def spans(self, thread: int, starts: Ints, ends: Ints) -> Iterator[Spans]:
        """Yield the spans of the ranges of a thread, by stream; a range without work on a stream has no span there.

        Args:
            thread: the ``globalTid`` of the thread.
            starts: start of each range.
            ends: end of each range.
        """
        if self._has_too_many_streams:
            self.left_out += len(starts)
        for stream in self._streams.get(thread, ()):
            self._lookups += len(starts)
            if self._lookups > LOOKUPS_MAX:
                self.left_out += 0 if self._has_too_many_streams else len(starts)
                return
            first = np.searchsorted(stream.launches, starts, "left")
            after = np.searchsorted(stream.launches, ends, "right")
            ranges = np.flatnonzero(after > first)
            if len(ranges):
                first, after = first[ranges], after[ranges]
                begin = smallest(stream.starts, first, after)
                end = -smallest(-stream.ends, first, after)
                yield Spans(ranges, stream.device, stream.stream, begin, end)


def smallest(values: Ints, first: Ints, after: Ints) -> Ints:
    """Return the minimum of ``values[first:after]`` for each pair of bounds; no interval may be empty.

    The array is halved by minima of pairs, so that the number of steps is logarithmic in its length.
    """
    result = np.full(len(first), _LARGEST)
    low, high = first.copy(), after.copy()
    while (open_ := low < high).any():
        odd = open_ & (low & 1 == 1)
        result[odd] = np.minimum(result[odd], values[low[odd]])
        low[odd] += 1
        odd = open_ & (high & 1 == 1) & (low < high)
        high[odd] -= 1
        result[odd] = np.minimum(result[odd], values[high[odd]])
        low, high = low >> 1, high >> 1
        if len(values) & 1:
            values = np.append(values, _LARGEST)
        values = np.minimum(values[::2], values[1::2])
    return result

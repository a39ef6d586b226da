"""Binding of the ends of flow arrows to the slices on their tracks that begin at their times."""

from typing import Any

import numpy as np
import numpy.typing as npt

from service.store.parts import Flags, Ints
from service.streaming.buffers import fixed
from service.streaming.scan.compiled import compiled

Bits = npt.NDArray[Any]


def bound_ends(times: Ints, tracks: Ints, slices: Flags, bits: Bits, ends: Ints) -> tuple[Bits, Flags]:
    """Return the bits of the slices to which each end binds, and whether there is any.

    Args:
        times: the times of the events that have one, in order; the events after them have none.
        tracks: the track of each event, a number from 0 on.
        slices: whether an event is a slice.
        bits: the bits of each event, of which those of slices are combined by OR.
        ends: rows of the ends, in order.
    """
    found, bound = np.zeros(len(ends), np.uint64), np.zeros(len(ends), np.bool_)
    count = int(tracks.max(initial=-1)) + 1
    latest, of_tracks = np.full(count, -1), np.zeros(count, np.uint64)
    _bind(fixed(times), tracks, slices, bits.astype(np.uint64), ends, latest, of_tracks, found, bound)
    return found.astype(bits.dtype), bound


def prepare_binding() -> None:
    """Load or compile the code."""
    row, one = np.zeros(1, np.int64), np.ones(1, np.bool_)
    bound_ends(row, row, one, one, row)


@compiled
def _bind(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    times: Any, tracks: Ints, slices: Flags, bits: Any, ends: Ints, latest: Ints, of_tracks: Any, found: Any,
    bound: Flags,
) -> None:  # fmt: skip
    """Bind ends; see `bound_ends`.

    Args:
        times: see there.
        tracks: see there.
        slices: see there.
        bits: see there.
        ends: see there.
        latest: scratch: for each track, the first event at the time of its latest slice; -1 before any.
        of_tracks: scratch: for each track, the bits of its slices of that time.
        found: output: the bits of each end; 0 before.
        bound: output: whether each end binds to a slice; false before.
    """
    end = 0
    while end < len(ends) and ends[end] < len(times):
        first = last = ends[end]
        while first > 0 and times[first - 1] == times[last]:
            first -= 1
        while last < len(times) and times[last] == times[first]:
            last += 1
        for event in range(first, last):
            if slices[event]:
                track = tracks[event]
                if latest[track] != first:
                    latest[track], of_tracks[track] = first, 0
                of_tracks[track] |= bits[event]
        while end < len(ends) and ends[end] < last:
            track = tracks[ends[end]]
            if latest[track] == first:
                found[end], bound[end] = of_tracks[track], True
            end += 1

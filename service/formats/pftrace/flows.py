"""The flows between slices, as Kineto writes them: from a launch to its work."""

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from service.formats.pftrace.tracks import Place

_DEVICE, _TERMINATING, _STAGE = 1, 2, 4
_BLOCK = 1 << 16  # flow events that are made at once


class Flows:
    """The slices that each flow passes, in the order of the file."""

    def __init__(self) -> None:
        self._ids = array("Q")
        self._times = array("q")
        self._places = array("q")
        self._flags = array("b")

    def add(self, flow: int, place: Place, time: int, *, terminating: bool = False) -> None:
        """Add a slice of a flow of track events."""
        self._add(flow, place, time, _TERMINATING if terminating else 0)

    def add_launch(self, stage: int, place: Place, time: int) -> None:
        """Add a slice that launches a GPU stage."""
        self._add(stage, place, time, _STAGE)

    def add_stage(self, stage: int, place: Place, time: int) -> None:
        """Add a GPU stage."""
        self._add(stage, place, time, _STAGE)

    def events(self, places: Sequence[Place]) -> Iterator[str]:
        """Yield the flow events as JSON.

        The first slice of a flow, or that on the host of one with work on a device, starts it; the last one and each
        work on a device end it.
        """
        if not self._ids:
            return
        ids, flags = np.frombuffer(self._ids, np.uint64), np.frombuffer(self._flags, np.int8)
        times, numbers = np.frombuffer(self._times, np.int64), np.frombuffer(self._places, np.int64)
        order = np.lexsort((times, flags & _DEVICE, ids, flags & _STAGE))
        ids, flags, times, numbers = ids[order], flags[order], times[order], numbers[order]
        starts = np.ones(len(ids), np.bool_)
        starts[1:] = (np.diff(ids) != 0) | (np.diff(flags & _STAGE) != 0) | ((flags[:-1] & _TERMINATING) != 0)
        first = np.flatnonzero(starts)
        sizes = np.diff(np.append(first, len(ids)))
        has_device = np.logical_or.reduceat((flags & _DEVICE) != 0, first)
        joined = (sizes > 1) & ~(has_device & ((flags[first] & _DEVICE) != 0))
        last = np.zeros(len(ids), np.bool_)
        last[first + sizes - 1] = True
        of_device = np.repeat(has_device, sizes)
        ends = np.where(of_device, (flags & _DEVICE) != 0, last)
        phases = np.where(starts, 0, np.where(ends, 2, 1))
        chosen = np.flatnonzero(np.repeat(joined, sizes))
        for at in range(0, len(chosen), _BLOCK):
            rows = chosen[at : at + _BLOCK]
            columns = (values[rows].tolist() for values in (ids, times, numbers, phases, of_device))
            for flow, time, number, phase, is_work in zip(*columns, strict=True):
                yield _event(flow, time, places[number], phase, "ac2g" if is_work else "flow")

    def _add(self, flow: int, place: Place, time: int, flags: int) -> None:
        self._ids.append(flow)
        self._times.append(time)
        self._places.append(place.number)
        self._flags.append(flags | (_DEVICE if place.device is not None else 0))


def _event(flow: int, time: int, place: Place, phase: int, name: str) -> str:
    end = ',"bp":"e"' if phase == 2 else ""
    return (
        f'{{"ph":"{"stf"[phase]}","cat":"{name}","name":"{name}","id":{flow},{place.members},'
        f'"ts":{microseconds(time)}{end}}}'
    )


def microseconds(time: int) -> str:
    """Return a time in ns as one in µs with three decimals."""
    sign, time = ("-", -time) if time < 0 else ("", time)
    return f"{sign}{time // 1000}.{time % 1000:03d}"

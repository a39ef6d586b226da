"""The steps of events: of those on devices by what launched them, of all others by when they begin."""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from service.attribution.file import links_of
from service.attribution.links import Links
from service.attribution.steps import NO_STEP, StepClock
from service.store.parts import UNTIMED, Ints, Part, Parts, Tracks


class EventSteps:
    """Tells the step of each event of a trace.

    Args:
        parts: the trace's columns.
        tracks: their tracks.
        summary: of the trace, as the catalog has it.
    """

    columns = ("ph", "ts_ns", *Tracks.columns)
    """What `of` reads of a part."""

    def __init__(self, parts: Parts, tracks: Tracks, summary: Mapping[str, Any]) -> None:
        self._parts = parts
        self._tracks = tracks
        self._summary = summary
        self._clock = StepClock(summary)
        self._last: tuple[int, Ints] | None = None  # several selections ask for the same part in turn

    @cached_property
    def links(self) -> Links:
        """The links of what devices do."""
        return links_of(self._parts.folder, self._summary)

    def of(self, part: Part) -> Ints:
        """The number of the step of each event of a part, `NO_STEP` for none."""
        if self._last is None or self._last[0] != part.index:
            self._last = part.index, self._read(part)
        return self._last[1]

    def _read(self, part: Part) -> Ints:
        tracks = self._tracks.of(part)
        numbers = self._clock.at(part.starts, tracks, self._tracks.keys)
        numbers[part.starts == UNTIMED] = NO_STEP
        here = slice(*np.searchsorted(self.links.rows, [part.rows.start, part.rows.stop]))
        numbers[self.links.rows[here] - part.first] = self.links.steps[here]
        return numbers

    def parts_with_linked(self, numbers: Collection[int]) -> set[int]:
        """The parts in which something on a device is of one of some steps."""
        rows = np.zeros(self._parts.rows, np.bool_)
        rows[self.links.rows[np.isin(self.links.steps, list(numbers))]] = True
        return set(self._parts.holding(rows))

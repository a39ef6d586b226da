"""Steps of events: GPU work belongs to the step of its launch, all other events to the step in which they begin."""

from collections.abc import Collection
from functools import cached_property

import numpy as np

from service.attribution.file import LinkReader
from service.attribution.links import Links
from service.attribution.steps import NO_STEP, StepClock
from service.store.parts import UNTIMED, Flags, Ints, Part, Parts, Tracks
from service.trace.summary import Summary


class EventSteps:
    """Lookup of the step of each event of a trace.

    Args:
        parts: the trace's columns.
        tracks: the tracks of the columns.
        summary: the trace's summary, as in the catalog.
    """

    columns = ("ph", "ts_ns", *Tracks.columns)
    """Columns of a part that `of` reads."""

    def __init__(self, parts: Parts, tracks: Tracks, summary: Summary) -> None:
        self._parts = parts
        self._tracks = tracks
        self._summary = summary
        self._last: tuple[int, Ints] | None = None  # a cache: several selections read the same part in succession

    @cached_property
    def _clock(self) -> StepClock:
        return StepClock(self._summary)  # a window needs none, and a trace can have many steps

    @cached_property
    def _links(self) -> LinkReader:
        return LinkReader(self._parts.folder, self._summary)

    def links_near(self, rows: Flags) -> Links:
        """Return at least the links from and to the flagged events."""
        return self._links.touching(rows)

    def of(self, part: Part) -> Ints:
        """Return the number of the step of each event of a part; `NO_STEP` outside of steps."""
        if self._last is None or self._last[0] != part.index:
            self._last = part.index, self._read(part)
        return self._last[1]

    def _read(self, part: Part) -> Ints:
        tracks = self._tracks.of(part)
        numbers = self._clock.at(part.starts, tracks, self._tracks.keys)
        numbers[part.starts == UNTIMED] = NO_STEP
        links = self._links.within(part.rows)
        here = slice(*np.searchsorted(links.rows, [part.rows.start, part.rows.stop]))
        numbers[links.rows[here] - part.first] = links.steps[here]
        return numbers

    def parts_with_linked(self, numbers: Collection[int]) -> set[int]:
        """Return the indexes of the parts that have GPU work of one of the steps."""
        rows = np.zeros(self._parts.rows, np.bool_)
        links = self._links.of_steps(numbers)
        rows[links.rows[np.isin(links.steps, list(numbers))]] = True
        return set(self._parts.holding(rows))

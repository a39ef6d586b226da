"""Steps of events: GPU work belongs to the step of its launch, all other events to the step in which they begin."""

from collections.abc import Collection
from functools import cached_property

import numpy as np

from service.attribution.file import LinkReader
from service.attribution.links import Links
from service.attribution.nesting import NONE
from service.attribution.steps import NO_STEP, StepClock
from service.store.parts import UNTIMED, Flags, Ints, Part, Parts, Tracks, WordValues
from service.store.steps import is_on_host
from service.trace.summary import Summary


class EventSteps:
    """Lookup of the step of each event of a trace.

    Args:
        parts: the trace's columns.
        tracks: the tracks of the columns.
        summary: the trace's summary, as in the catalog.
    """

    columns = ("ph", "ts_ns", *Tracks.columns)
    """Columns of a part that `of` and `deciding` read."""

    def __init__(self, parts: Parts, tracks: Tracks, summary: Summary) -> None:
        self._parts = parts
        self._tracks = tracks
        self._summary = summary
        self._named = WordValues(lambda name: NO_STEP if name is None else self._numbers.get(name, NO_STEP))
        self._on_host = WordValues(is_on_host)
        self._last: tuple[int, Ints] | None = None  # a cache: several selections read the same part in succession

    @cached_property
    def _clock(self) -> StepClock:
        return StepClock(self._summary)  # made at first use: a trace can have many steps

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The number of the step that each name of an annotation marks."""
        return {step["name"]: step["number"] for step in self._summary.steps}

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
        links = self._links_in(part)
        numbers[links.rows - part.first] = links.steps
        return numbers

    def _links_in(self, part: Part) -> Links:
        """Return the links of the events of a part."""
        links = self._links.within(part.rows)
        return links.taken(np.arange(*np.searchsorted(links.rows, [part.rows.start, part.rows.stop])))

    @property
    def count(self) -> int:
        """The number of the steps of all ranks; their indexes are below it."""
        return self._clock.count

    def deciding(self, part: Part, rows: Ints) -> Ints:
        """Return the index of the step that decides about the step of some events of a part, or -1.

        See `StepClock.deciding`. The launch of work decides about its step.

        Args:
            part: the part.
            rows: rows of the events, counted from the part's first.
        """
        tracks, keys, times = self._tracks.of(part), self._tracks.keys, part.starts
        steps = np.full(len(part), -1)
        timed = rows[times[rows] != UNTIMED]
        steps[timed] = self._clock.deciding(times[timed], tracks[timed], keys)
        links = self._links_in(part)
        links = links.taken((links.launches != NONE) | (links.steps != NO_STEP))
        own = links.rows - part.first
        steps[own] = self._clock.named(links.steps, times[own], tracks[own], keys)
        return steps[rows]

    def starts_of_annotations(self, chosen: Flags) -> Ints:
        """Return the starts of the annotations of some steps, which are flagged by index, in ascending order."""
        annotations = self._summary.steps
        numbers, starts = (np.array([step[key] for step in annotations], np.int64) for key in ("number", "start_ns"))
        tracks = [(step["pid"], step["tid"]) for step in annotations]
        steps = self._clock.named(numbers, starts, np.arange(len(tracks)), tracks)
        return np.unique(starts[chosen[steps]])

    def annotations(self, part: Part, starts: Ints) -> tuple[Ints, Ints]:
        """Return the rows of a part, counted from its first, that annotate steps, and the indexes of these steps.

        Args:
            part: the part, with the columns ``ph``, ``ts_ns``, ``cat`` and ``name``, and those of tracks.
            starts: starts of the annotations, in ascending order.
        """
        times = part.starts[: np.count_nonzero(part.has("ts_ns"))]  # untimed events are the last
        starts = starts[slice(*np.searchsorted(starts, [times[0], times[-1] + 1]))] if len(times) else starts[:0]
        spans = zip(*(np.searchsorted(times, starts, side).tolist() for side in ("left", "right")), strict=True)
        rows = np.array([row for span in spans for row in range(*span)], np.int64)
        rows = rows[part.slices[rows]]
        numbers = self._named.of(part, "name", rows)
        numbers[self._on_host.of(part, "cat", rows) == 0] = NO_STEP
        rows, numbers = rows[numbers != NO_STEP], numbers[numbers != NO_STEP]
        return rows, self._clock.named(numbers, part.starts[rows], self._tracks.of(part)[rows], self._tracks.keys)

    def parts_with_linked(self, numbers: Collection[int]) -> set[int]:
        """Return the indexes of the parts that have GPU work of one of the steps."""
        rows = np.zeros(self._parts.rows, np.bool_)
        links = self._links.of_steps(numbers)
        rows[links.rows[np.isin(links.steps, list(numbers))]] = True
        return set(self._parts.holding(rows))

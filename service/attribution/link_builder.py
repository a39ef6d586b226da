"""Builder of links between events; takes the events while they are written."""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from service.attribution.gathered import GatheredColumns
from service.attribution.links import is_operator
from service.attribution.matching import LaunchMatches, Matches, Read
from service.attribution.nesting import Ints, nesting_order
from service.attribution.steps import Track, normalized_track
from service.attribution.sweep import CLASS, CORRELATION, END, ID, NAME, ROW, START, WIDTH, OpenOperators, gather
from service.attribution.work import COLUMNS as WORK_COLUMNS
from service.attribution.work import GatheredWork
from service.store.event_classes import ClassValues, EventClass, EventClasses
from service.store.parts import TRACK, Part, WordValues
from service.streaming.buffers import fixed
from service.trace.summary import (
    ANNOTATION_CATEGORIES,
    GPU_CATEGORIES,
    OPERATOR_CATEGORIES,
    ExternalIdKind,
    is_launch,
)

_SYNCHRONIZATION = "cuda_sync"
_DEVICE_ANNOTATION = "gpu_user_annotation"
_OPERATOR, _CALL, _WORK, _WAIT, _REGION, _ANNOTATION = (1 << bit for bit in range(6))
"""Bits of the kinds of events: operators, launches, work, waits, and annotations on devices and on the host."""
_ON_DEVICE = _WORK | _WAIT
COLUMNS = ("ph", *TRACK, *WORK_COLUMNS)
"""Columns of the events that the builder takes."""


def _kinds_of(category: str | None) -> int:
    """Return the kinds of the events of a category, as bits."""
    return (
        (category in OPERATOR_CATEGORIES) * _OPERATOR
        | is_launch(category) * _CALL
        | (category in GPU_CATEGORIES) * _WORK
        | (category == _SYNCHRONIZATION) * _WAIT
        | (category == _DEVICE_ANNOTATION) * _REGION
        | (category in ANNOTATION_CATEGORIES) * _ANNOTATION
    )


class LinkBuilder:
    """Builder of links; takes events part by part, in order of time.

    Args:
        classes: the classes of the events.
        folder: folder for temporary files; see `GatheredColumns`.
    """

    def __init__(self, classes: EventClasses, folder: Path | None = None) -> None:
        self._classes = classes
        self._kinds = ClassValues(classes, lambda class_: _kinds_of(class_.cat) if class_.ph == "X" else 0)
        self._thread_numbers: dict[Track, int] = {}
        self._threads = ClassValues(classes, self._thread_of)
        self._are_operators = WordValues(is_operator)
        self._open = OpenOperators()
        self._pending = np.empty((0, WIDTH), np.int64)  # slices with the latest start; the next part may have more
        self._calls = GatheredColumns(
            "correlation", "row", "id", "start", "duration", "name", "track", "operator", "operator_id", folder=folder
        )  # fmt: skip
        self._slices = GatheredColumns("row", "correlation", "id", "start", "end", "track", "is_work", folder=folder)
        self._regions = GatheredColumns("row", "id", "name_hash", "start", "track", "is_device", folder=folder)
        self._work = GatheredWork(folder)
        self._launches: LaunchMatches | None = None
        # Hashes, because a table of all names would grow with the steps, each of which has a name of its own.
        self._name_hashes = WordValues(lambda name: hash(name) & sys.maxsize)

    def _thread_of(self, class_: EventClass) -> int:
        return self._thread_numbers.setdefault(normalized_track(*class_.track), len(self._thread_numbers))

    def add(self, part: Part) -> None:
        """Add the next events, with at least `COLUMNS`."""
        if not len(part):
            return
        kinds = self._kinds.of(self._classes.of(part)).astype(np.int8) * part.has("ts_ns")
        self._add_host(part, kinds)
        self._add_device(part, np.flatnonzero(kinds & _ON_DEVICE > 0), kinds)
        self._work.add(part, np.flatnonzero(kinds & _WORK > 0))
        self._add_regions(part, np.flatnonzero(kinds & _REGION > 0), is_device=1)
        self._add_regions(part, np.flatnonzero(kinds & _ANNOTATION > 0), is_device=0)

    def _add_host(self, part: Part, kinds: npt.NDArray[np.int8]) -> None:
        is_operator_, is_call = kinds & _OPERATOR > 0, (kinds & _CALL > 0) & (part.ints("correlation") > 0)
        rows = np.flatnonzero(is_operator_)
        is_operator_[rows] = self._are_operators.of(part, "name", rows)
        pending = len(self._pending)
        slices = np.empty((pending + np.count_nonzero(is_operator_ | is_call), WIDTH), np.int64)
        if not len(slices):
            return
        slices[:pending] = self._pending
        columns = (part.starts, part.ends, part.ints("external_id"), part.ints("correlation"))
        starts, ends, ids, correlations = map(fixed, columns)  # whether they have nulls or not
        classes = self._classes.of(part)
        gather(is_operator_, is_call, classes, starts, ends, ids, correlations, part.first, slices[pending:])
        calls = pending + np.flatnonzero(slices[pending:, CORRELATION])
        slices[calls, NAME] = self._work.names.of(part, "name", slices[calls, ROW] - part.first)
        ready = int(np.searchsorted(slices[:, START], slices[-1, START]))
        self._pending = slices[ready:]
        self._sweep(slices[:ready])

    def _sweep(self, slices: Ints) -> None:
        """Find the operators around calls. Slices that are swept later begin after all of these."""
        slices = slices[nesting_order(slices[:, START], slices[:, END])]
        calls = slices[slices[:, CORRELATION] > 0]
        around = self._open.around(slices, self._threads.values(), len(calls))
        self._calls.add(
            correlation=calls[:, CORRELATION],
            row=calls[:, ROW],
            id=calls[:, ID],
            start=calls[:, START],
            duration=calls[:, END] - calls[:, START],
            name=calls[:, NAME],
            track=self._classes.tracks.of(calls[:, CLASS]),
            operator=around[:, 0],
            operator_id=around[:, 1],
        )

    def _add_device(self, part: Part, rows: Ints, kinds: npt.NDArray[np.int8]) -> None:
        if len(rows):
            self._slices.add(
                row=part.first + rows,
                correlation=part.ints("correlation")[rows],
                id=part.ints("external_id")[rows],
                start=part.starts[rows],
                end=part.ends[rows],
                track=self._tracks_of(part, rows),
                is_work=(kinds[rows] & _WORK > 0).astype(np.int8),
            )

    def _add_regions(self, part: Part, rows: Ints, *, is_device: int) -> None:
        if len(rows):
            self._regions.add(
                row=part.first + rows,
                id=part.ints("external_id")[rows],
                name_hash=self._name_hashes.of(part, "name", rows),
                start=part.starts[rows],
                track=self._tracks_of(part, rows),
                is_device=np.full(len(rows), is_device, np.int8),
            )

    def _tracks_of(self, part: Part, rows: Ints) -> Ints:
        return self._classes.tracks.of(self._classes.of(part)[rows])

    def match_launches(self) -> LaunchMatches:
        """Match all added events with their launches. The builder takes no more events."""
        if self._launches is None:
            self._sweep(self._pending)
            self._launches = LaunchMatches(self._calls, self._slices)
        return self._launches

    def match(self, read: Read, external_ids: ExternalIdKind) -> Matches:
        """Match all added events. The builder takes no more events.

        Args:
            read: reads columns of the trace.
            external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.
        """
        launches = self.match_launches()
        return Matches(launches, self._regions, self._work, self._classes.track_keys, read, external_ids)

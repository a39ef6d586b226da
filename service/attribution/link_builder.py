"""Builder of links between events; takes the events while they are written."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from service.attribution.gathered import GatheredColumns
from service.attribution.links import is_operator
from service.attribution.matching import Matches, Read
from service.attribution.nesting import NONE, Flags, Ints, nesting_order
from service.attribution.steps import Track, normalized_track
from service.attribution.sweep import OpenOperators
from service.attribution.work import COLUMNS as WORK_COLUMNS
from service.attribution.work import GatheredWork
from service.store.event_classes import ClassValues, EventClass, EventClasses
from service.store.parts import TRACK, Part, Words
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
        self._open = OpenOperators()
        self._pending = [np.empty(0, np.int64)] * 9  # slices with the latest start; the next part may have more
        self._calls = GatheredColumns(
            "correlation", "row", "id", "is_graph", "start", "duration", "name", "track", "operator", "operator_id",
            folder=folder,
        )  # fmt: skip
        self._slices = GatheredColumns("row", "correlation", "id", "start", "end", "track", "is_work", folder=folder)
        self._regions = GatheredColumns("row", "id", "name", "start", "track", "is_device", folder=folder)
        self._work = GatheredWork(folder)
        self._names = Words()

    def _thread_of(self, class_: EventClass) -> int:
        return self._thread_numbers.setdefault(normalized_track(*class_.track), len(self._thread_numbers))

    def add(self, part: Part) -> None:
        """Add the next events, with at least `COLUMNS`."""
        if not len(part):
            return
        kinds = self._kinds.of(self._classes.of(part)).astype(np.int8) * part.has("ts_ns")
        operators = kinds & _OPERATOR > 0
        if operators.any():
            operators &= part.which("name", is_operator)
        is_call = kinds & _CALL > 0
        if is_call.any():
            is_call &= part.ints("correlation") > 0
        self._add_host(part, np.flatnonzero(operators | is_call), is_call)
        self._add_device(part, np.flatnonzero(kinds & _ON_DEVICE), kinds)
        self._work.add(part, np.flatnonzero(kinds & _WORK))
        self._add_regions(part, np.flatnonzero(kinds & _REGION), is_device=1)
        self._add_regions(part, np.flatnonzero(kinds & _ANNOTATION), is_device=0)

    def _add_host(self, part: Part, rows: Ints, is_call: Flags) -> None:
        if not len(rows):
            return
        is_graph = part.which("name", lambda name: "GraphLaunch" in (name or ""))
        calls, names = is_call[rows], np.full(len(rows), NONE)
        names[calls] = self._work.names.of(part, "name", rows[calls])
        new = (
            calls.astype(np.int64), self._classes.of(part)[rows], part.starts[rows], part.ends[rows],
            part.ints("external_id")[rows], part.first + rows, part.ints("correlation")[rows], is_graph[rows], names,
        )  # fmt: skip
        slices = [np.concatenate(columns) for columns in zip(self._pending, new, strict=True)]
        ready = int(np.searchsorted(slices[2], slices[2][-1]))
        self._pending = [values[ready:] for values in slices]
        self._sweep([values[:ready] for values in slices])

    def _sweep(self, slices: list[Ints]) -> None:
        """Find the operators around calls. Slices that are swept later begin after all of these."""
        order = nesting_order(slices[2], slices[3])
        calls, classes, starts, ends, ids, rows, correlations, graphs, names = (values[order] for values in slices)
        is_call = calls > 0
        if not len(rows):
            return
        around = self._open.around(is_call, self._threads.of(classes), starts, ends, ids, rows)
        self._calls.add(
            correlation=correlations[is_call],
            row=rows[is_call],
            id=ids[is_call],
            is_graph=graphs[is_call],
            start=starts[is_call],
            duration=(ends - starts)[is_call],
            name=names[is_call],
            track=self._classes.tracks.of(classes[is_call]),
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
                name=self._names.of(part, "name", rows),
                start=part.starts[rows],
                track=self._tracks_of(part, rows),
                is_device=np.full(len(rows), is_device, np.int8),
            )

    def _tracks_of(self, part: Part, rows: Ints) -> Ints:
        return self._classes.tracks.of(self._classes.of(part)[rows])

    def match(self, read: Read, external_ids: ExternalIdKind) -> Matches:
        """Match all added events. The builder takes no more events.

        Args:
            read: reads columns of the trace.
            external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.
        """
        self._sweep(self._pending)
        return Matches(
            self._calls, self._slices, self._regions, self._work, self._classes.track_keys, read, external_ids
        )

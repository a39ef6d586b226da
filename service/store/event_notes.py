"""Notes on a trace's events, made while they are written, for the metadata of `EVENTS`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.store import flow_ids, text_sizes, work_tracks
from service.store.columns import part_size
from service.store.event_classes import ClassValues, EventClass, EventClasses
from service.store.flow_ids import LAUNCH_FLOWS, FlowIds
from service.store.parts import Part
from service.store.text_sizes import TextSizes, text_sizes_of
from service.store.work_tracks import LISTED_MAX, WorkTrack
from service.streaming.scan.compiled import compiled
from service.trace.summary import FLOW_PHASES, GPU_CATEGORIES

_NO_FLOW, _LAUNCH, _OTHER = range(3)
"""Kinds of events: ends of arrows from launches, ends of other arrows, and events that are neither."""
_INT = np.iinfo(np.int64)


class EventNotes:
    """The notes.

    Attributes:
        classes: the classes of the events.
    """

    def __init__(self) -> None:
        self.classes = EventClasses()
        self._flows = ClassValues(self.classes, _flow_of)
        self._flow_ids: list[FlowIds] = []
        self._text_sizes = [TextSizes()]
        self._parts = self._rows = 0

    def add(self, events: pa.Table) -> Part:
        """Note the next events, which `EventsFile.write` takes at once, and return them as a part."""
        part = Part(self._parts, self._rows, events)
        self._parts, self._rows = self._parts + 1, self._rows + len(part)
        size = part_size(len(part))
        spans = np.full((max(-(-len(part) // size), 1), 3, 2), (_INT.max, _INT.min))
        _widen(self._flows.of(self.classes.of(part)), part.numbers("id"), part.has("id"), size, spans)
        self._flow_ids += (FlowIds(_span(of_part[_LAUNCH]), _span(of_part[_OTHER])) for of_part in spans)
        self._text_sizes.append(text_sizes_of(part.table))
        return part

    def texts(self) -> Mapping[str, bytes]:
        """Return the texts of the metadata, when all events are noted."""
        return {
            flow_ids.METADATA_KEY: flow_ids.encoded(self._flow_ids),
            work_tracks.METADATA_KEY: work_tracks.encoded(self._work_tracks()),
            text_sizes.METADATA_KEY: text_sizes.encoded(self._text_sizes),
        }

    def _work_tracks(self) -> set[WorkTrack]:
        tracks: set[WorkTrack] = set()
        for class_ in self.classes.listed():
            if class_.cat in GPU_CATEGORIES and class_.device is not None:
                tracks.add(WorkTrack(class_.device, class_.stream, *class_.track))
                if len(tracks) > LISTED_MAX:
                    break
        return tracks


def _flow_of(class_: EventClass) -> int:
    if class_.ph not in FLOW_PHASES:
        return _NO_FLOW
    return _LAUNCH if class_.cat in LAUNCH_FLOWS else _OTHER


@compiled
def _widen(flows: Any, ids: Any, has: Any, size: int, spans: Any) -> None:
    """Widen spans of ids by those of some events.

    Args:
        flows: the kind of each event.
        ids: the ids of the events.
        has: whether there is an id.
        size: number of events in each part of the file.
        spans: the smallest and the largest id, by part and kind.
    """
    for event in range(len(flows)):
        if flows[event] != _NO_FLOW and has[event]:
            span = spans[event // size, flows[event]]
            span[0], span[1] = min(span[0], ids[event]), max(span[1], ids[event])


def _span(span: npt.NDArray[np.int64]) -> tuple[int, int] | None:
    return (int(span[0]), int(span[1])) if span[0] <= span[1] else None

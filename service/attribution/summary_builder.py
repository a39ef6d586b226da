"""Builder of a trace's summary."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from service.attribution.file import match_events, write_links
from service.attribution.link_builder import LinkBuilder
from service.store.census import Census
from service.store.event_classes import EventClasses
from service.store.parts import Part
from service.streaming.scan.nesting import NONE, Nesting
from service.trace.health import Health
from service.trace.summary import ExternalIdKind, Summary


class SummaryBuilder:
    """Builder of the summary and the links of a trace; takes its events while they are written, in order of time.

    Args:
        columns: folder of the trace's columns.
        classes: the classes of the events.
    """

    def __init__(self, columns: Path, classes: EventClasses) -> None:
        self._columns, self._classes = columns, classes
        self._nesting = Nesting()
        self._links = LinkBuilder(classes, columns)
        self._census = Census(classes)

    def add(self, part: Part) -> None:
        """Add the next events; dictionary columns have one chunk."""
        if not len(part):
            return
        nests = part.slices & part.has("ts_ns") & part.has("dur_ns") & (part.ints("dur_ns") >= 0)
        tracks = self._classes.tracks.of(self._classes.of(part))
        self._nesting.add(np.where(nests, tracks, NONE), part.starts, part.ends)
        self._links.add(part)
        self._census.add(part)

    def match_launches(self) -> None:
        """Match the launches of work, when all events are added; unlike `summary`, while events are still written."""
        self._links.match_launches()

    def summary(
        self,
        envelope: Mapping[str, Any],
        health: Health,
        *,
        file_name: str,
        packed: str | None,
        external_ids: ExternalIdKind,
    ) -> Summary:
        """Write the file of links, and return the summary, without its counts of events and its health.

        All events are added, and written.

        Args:
            envelope: the document's members except for its events.
            health: the trace's health so far, to which anomalies of the events are added.
            file_name: name of the trace's file, which may contain the rank.
            packed: format of the trace's file, or None if there is no file.
            external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.

        Raises:
            DiskFull: the disk has no room.
            ExportFailed: the events cannot be read.
        """
        for code, count in (("overlaps", self._nesting.overlaps), ("ties", self._nesting.ties)):
            if count:
                health.add(code, count=count)
        matches = match_events(self._columns, self._links, external_ids)
        unlaunched = matches.unlaunched
        summary = self._census.summary(self._columns, envelope, health, unlaunched, file_name=file_name, packed=packed)
        summary.attribution = write_links(self._columns, summary, matches)
        return summary

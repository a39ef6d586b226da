"""Placement of a trace's events in a document, with ids, lanes and times in the engine's range."""

import numpy as np
import pyarrow as pa

from service.rendering.arrows import ArrowKeys, Keys, is_arrow_end
from service.rendering.flows import FlowMatcher
from service.rendering.lanes import FLOW, OTHER, SLICE
from service.rendering.phases import CODES, INSTANT, PHASES, shown_phases
from service.rendering.placed import ESSENTIAL_COLUMNS, PlacedEvents
from service.rendering.placement import LanePlacer
from service.rendering.render_report import RenderReport
from service.rendering.sanitizing import counter_args
from service.rendering.time_base import SPAN_MAX, engine_times
from service.rendering.tracks import TrackAssigner
from service.store.parts import METADATA, TRACK, Flags, Ints, Part
from service.trace.selection_fields import Args
from service.trace.summary import FLOW_PHASES

_COLUMNS = ("ph", "cat", "name", *TRACK, "ts_ns", "dur_ns", "id", "id_text", "args", "rest")
_KINDS = np.array([SLICE if phase == "X" else FLOW if phase in FLOW_PHASES else OTHER for phase in PHASES])
_ARE_PAIRED = np.array([phase in {"B", "E"} for phase in PHASES])


def columns_of(args: Args) -> tuple[str, ...]:
    """Return the columns that a document needs, with some arguments of events."""
    return (*_COLUMNS, *ESSENTIAL_COLUMNS) if args == "essential" else _COLUMNS


class EventPlacer:
    """Places the events of a trace in a document.

    Args:
        assigner: assigns processes and threads to tracks.
        report: output: counts of the events.
        args: which arguments to keep.
        keys: gives the numbers of arrows.
    """

    def __init__(self, assigner: TrackAssigner, report: RenderReport, args: Args, keys: ArrowKeys) -> None:
        self._report = report
        self._kept_args = args
        self._placer = LanePlacer(assigner)
        self._pids = np.zeros(0, np.int64)
        self._tids = np.zeros(0, np.int64)
        self._keys = keys
        self._flows = FlowMatcher()
        self._part_count = 0

    def place(self, table: pa.Table) -> PlacedEvents:
        """Place a table's events, except metadata and untimed events.

        Args:
            table: events with the columns of `columns_of`. Tables must be in order of time.
        """
        is_joined = all(column.num_chunks == 1 for column in table.columns)
        part = self._part(table if is_joined else table.unify_dictionaries().combine_chunks())
        metadata, timed = part.which("ph", METADATA), part.has("ts_ns")
        self._report.events += len(part)
        self._report.metadata += int(metadata.sum())
        self._report.untimed += int((~metadata & ~timed).sum())
        if not (kept := timed & ~metadata).all():
            part = self._part(part.table.filter(pa.array(kept)).combine_chunks())
        return self._placed(part)

    def _arrows(self, part: Part) -> tuple[Keys, Flags]:
        """Return the number of the arrow of each end, and flags of the ends that the engine would ignore.

        These are ends of arrows that no earlier event begins, and all ends without an id.
        """
        ends = np.flatnonzero(is_arrow_end(part))
        arrows, loose = np.zeros(len(part), np.uint64), np.zeros(len(part), np.bool_)
        if len(ends):
            arrows[ends] = self._keys.of(part, ends)
            _, has_id = self._keys.ids(part)
            loose[ends] = self._flows.loose(arrows[ends], part.which("ph", {"s"}.__contains__)[ends]) | ~has_id[ends]
            self._report.loose_ends += int(loose.sum())
        return arrows, loose

    def _part(self, table: pa.Table) -> Part:
        self._part_count += 1
        return Part(self._part_count, 0, table)

    def _placed(self, part: Part) -> PlacedEvents:
        ids, has_id = self._keys.ids(part)
        arrows, loose = self._arrows(part)
        phases = self._phases(part, loose)
        is_slice = phases == CODES["X"]
        starts, durations = self._times(part, is_slice)
        paired = _ARE_PAIRED.take(phases)
        lanes, joined, covered = self._placer.place(part, starts, starts + durations, _KINDS.take(phases), paired)
        self._number_new_lanes()
        return PlacedEvents(
            part=part,
            phases=phases,
            lanes=lanes,
            pids=self._pids,
            tids=self._tids,
            starts=starts,
            durations=durations,
            ids=ids,
            has_id=has_id,
            arrows=arrows,
            joined=joined & (phases == CODES["f"]),
            covered=covered,
            ends_with_parent=joined & is_slice,
            left_out=loose,
            kept_args=self._kept_args,
            counters=self._counters(part, np.flatnonzero(phases == CODES["C"])),
        )

    def _phases(self, part: Part, loose: Flags) -> Ints:
        """Return the code of the phase that the engine shows for each event. Count all events but loose ends."""
        phases = shown_phases(part)
        report = self._report
        all_counts = np.bincount(phases, minlength=len(PHASES))
        counts = all_counts - np.bincount(phases[loose], minlength=len(PHASES))
        for phase, count in zip(PHASES, counts.tolist(), strict=True):
            if count:
                report.phases[phase] += count
        if all_counts[INSTANT]:
            own, words = part.coded("ph")
            changed = (phases == INSTANT) & ~part.which("ph", {"i"}.__contains__)
            for code, count in zip(*np.unique(own[changed], return_counts=True), strict=True):
                report.as_instants[words[code] if code >= 0 else ""] += int(count)
        return phases

    def _times(self, part: Part, is_slice: Flags) -> tuple[Ints, Ints]:
        """Return the starts of events and the durations of slices in the engine, in ns. Count the changed ones."""
        report, durations = self._report, part.ints("dur_ns") * is_slice
        begins, shown = engine_times(part.starts, durations, report.base_ns)
        report.moved += int(((begins + report.base_ns != part.starts) | (durations > SPAN_MAX)).sum())
        report.negative += int((durations < 0).sum())
        return begins, shown

    def _number_new_lanes(self) -> None:
        """Add the processes and threads of new lanes."""
        tracks = self._placer.tracks[len(self._pids) :]
        if tracks:
            self._pids = np.concatenate([self._pids, [track.pid for track in tracks]])
            self._tids = np.concatenate([self._tids, [track.tid for track in tracks]])

    def _counters(self, part: Part, rows: Ints) -> dict[int, str]:
        """Return the arguments of counters, which keep only their numbers, by row. Count these."""
        counters = {}
        for row in rows.tolist():
            counters[row], numbers, others = counter_args(part.table["args"][row].as_py())
            self._report.numbers += numbers
            self._report.no_numbers += others
        return counters

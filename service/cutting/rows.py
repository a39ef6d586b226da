"""Evaluation of selections: the events that match each selection, and the events that its closure adds.

Each event has a bit set of the selections that keep it, so that all selections are evaluated in one pass. The columns
are read part by part, and only the parts that can matter. The bit sets and the links between GPU work, launches and
operators stay in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from service.attribution.nesting import NONE
from service.cutting.binding import bound_ends
from service.cutting.criteria import CompiledSelection, IntervalSet
from service.cutting.steps import EventSteps
from service.store.flow_ids import LAUNCH_FLOWS
from service.store.parts import METADATA, TRACK, Flags, Ints, Part, Parts, Tracks, Words, packed
from service.streaming.integers import distinct
from service.trace.errors import NothingSelected
from service.trace.selection import ALWAYS, Interval, Selection
from service.trace.summary import FLOW_PHASES, Key, Summary

AT_ONCE = 64
"""Maximum number of selections in one pass."""

Bits = npt.NDArray[Any]
"""Bit set, for each event or key, of the selections that keep it."""

_PROCESS_NAMING = frozenset({"process_name", "process_labels", "process_sort_index", "process_uptime_seconds"})
_FLOW_COLUMNS = ("ph", "cat", "ts_ns", "id", "id_text", "correlation")
_TEXT = ALWAYS[0]  # stands for all ids that are not integers
_NOWHERE = np.uint64((1 << 64) - 1)  # marks an event without a place


def kept_rows(parts: Parts, selections: Sequence[Selection], summary: Summary) -> Bits:
    """Return, for each row of a trace's columns, the selections that keep it; the first selection is the lowest bit.

    Args:
        parts: the columns.
        selections: at most `AT_ONCE`.
        summary: the trace's summary, as in the catalog.

    Raises:
        BadSelection: a selection leaves no time, or a pattern is invalid.
        UnknownChoice: a selection has a value that the trace does not have.
    """
    return RowSelector(parts, selections, summary).kept()


def rows_at(bits: Bits, place: int) -> Ints:
    """Return the rows that the selection at an index keeps."""
    return np.flatnonzero(kept_by(bits, place))


def kept_by(bits: Bits, place: int) -> Flags:
    """Flag the rows that the selection at an index keeps."""
    flags: Flags = (bits & bits.dtype.type(1 << place)) != 0
    return flags


def nothing_selected(summary: Summary) -> NothingSelected:
    """Return the error for a selection that keeps no event, with the facts of the trace."""
    bounds = summary.bounds
    span = f"from {bounds['start_ns']} to {bounds['end_ns']} ns" if bounds else "without times"
    detail = f"None of the trace's {summary.kept_events:,} events, {span}, matches the selection."
    return NothingSelected(detail, bounds=bounds, counts=summary.counts)


class RowSelector:
    """Evaluates selections; see `kept_rows` for its arguments and errors."""

    def __init__(self, parts: Parts, selections: Sequence[Selection], summary: Summary) -> None:
        self._parts = parts
        self._summary = summary
        self._tracks = Tracks()
        self._steps = EventSteps(parts, self._tracks, summary)
        self._selections = [
            CompiledSelection(parts, self._tracks, self._steps, selection, summary) for selection in selections
        ]
        width = next(size for size in (8, 16, 32, 64) if len(selections) <= size)
        self._type: Any = np.dtype(f"uint{width}").type
        self._bits: Bits = np.zeros(parts.rows, self._type)
        self._matching_flows = np.zeros(parts.rows, self._type)  # ends of flow arrows that match without the closure

    def time(self, place: int) -> IntervalSet:
        """Return the time of the selection at an index."""
        return self._selections[place].time

    def time_with_steps(self, place: int) -> IntervalSet | None:
        """Return `CompiledSelection.time_with_steps` of the selection at an index."""
        return self._selections[place].time_with_steps

    def keeps_any(self) -> bool:
        """Return whether any event is kept; does not evaluate the closure if an event matches."""
        return any(self._bits[rows].any() for rows in self._match()) or bool(self.kept().any())

    def kept(self) -> Bits:
        """Return the bits of all rows."""
        everything = self._where(lambda compiled: compiled.is_everything and compiled.selection.closure.metadata)
        if self._all & ~everything:
            for _ in self._match():
                pass
            self._add_partners()
            self._add_steps()
            if whole := self._with_closure("flows"):
                flows = _Flows(self._parts, self._tracks, self._bits, self._matching_flows)
                flows.exclude(self._excluded, self._exclusion_columns)
                for rows, bits in flows.whole():
                    self._bits[rows] |= bits & whole
            self._add_metadata()
        self._bits |= everything
        return self._bits

    @property
    def _all(self) -> Any:
        return self._where(lambda _: True)

    def _where(self, holds: Any) -> Any:
        """Return the bits of the selections that meet a condition."""
        bits = (self._type(1 << place) for place, compiled in enumerate(self._selections) if holds(compiled))
        return reduce(np.bitwise_or, bits, self._type(0))

    def _with_closure(self, field: str) -> Any:
        """Return the bits of the selections whose closure has a field set."""
        return self._where(lambda compiled: getattr(compiled.selection.closure, field))

    # -- criteria ------------------------------------------------------------------------------------------------------

    def _match(self) -> Iterator[slice]:
        """Keep the matching events and the annotations around the selected time; yield the rows of each part read."""
        columns = {"ph"}.union(*(compiled.columns | compiled.time_columns for compiled in self._selections))
        spans = [self._parts.time(index) for index in range(len(self._parts))]
        near = [
            index
            for index, span in enumerate(spans)
            if any(compiled.may_match(index, span) for compiled in self._selections)
        ]
        whole = self._with_closure("flows")
        for part in self._parts.read(sorted(columns), near):
            bits = self._bits[part.rows]
            for place, compiled in enumerate(self._selections):
                if compiled.may_match(part.index, spans[part.index]):
                    bits[_matching(part, compiled)] |= self._type(1 << place)
            if whole:
                flows = np.flatnonzero(part.which("ph", FLOW_PHASES.__contains__))
                self._matching_flows[part.first + flows] = bits[flows] & whole
                bits[flows] &= ~whole
            yield part.rows

    # -- launches and kernels ------------------------------------------------------------------------------------------

    def _add_partners(self) -> None:
        """Keep the GPU work of kept launches, then the launches and the operators of kept GPU work."""
        kernels, launches = self._with_closure("kernels"), self._with_closure("launches")
        if not kernels | launches:
            return
        links = self._steps.links_near(self._bits != 0).of_work()
        launched = links.launches != NONE
        self._add(links.rows[launched], self._bits[links.launches[launched]] & kernels)
        kept = self._bits[links.rows] & launches
        for causes in (links.launches, links.operators):
            known = (causes != NONE) & (kept != 0)
            table = _Table(causes[known], kept[known])
            self._add(table.ids, table.bits)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _add_steps(self) -> None:
        """Keep the annotations of the steps of kept events."""
        adding = self._with_closure("annotations")
        if not (adding and self._summary.steps):
            return
        bits_of_steps = np.zeros(self._steps.count + 1, self._type)  # the last one is that of events without a step
        near = self._parts.holding(self._bits & adding != 0)
        for part in self._parts.read(("ts_ns", *self._tracks.needed(near)), near):
            rows = np.flatnonzero(self._bits[part.rows] & adding)
            np.bitwise_or.at(bits_of_steps, self._steps.deciding(part, rows), self._bits[part.rows][rows] & adding)
        starts = self._steps.starts_of_annotations(bits_of_steps[:-1] != 0)
        annotations = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        near = self._parts.at(starts)
        for part in self._parts.read(("ph", "ts_ns", "cat", "name", *self._tracks.needed(near)), near):
            rows, steps = self._steps.annotations(part, starts)
            annotations.append((part.first + rows, steps))
        rows, steps = (np.concatenate(columns) for columns in zip(*annotations, strict=True))
        self._add(rows, bits_of_steps[steps])

    # -- adding --------------------------------------------------------------------------------------------------------

    def _add(self, rows: Ints, bits: Bits) -> None:
        """Keep more events, except those that a selection excludes."""
        new = bits & ~self._bits[rows] != 0
        rows, bits = rows[new], bits[new]
        if self._exclusion_columns:
            more = np.zeros(self._parts.rows, self._type)
            more[rows] = bits
            for part in self._parts.read(sorted(self._exclusion_columns), self._parts.holding(more != 0)):
                more[part.rows] &= ~self._excluded(part)
            bits = more[rows]
        self._bits[rows] |= bits

    def _excluded(self, part: Part) -> Bits:
        """Return, for each event of a part, the selections that exclude it."""
        bits = np.zeros(len(part), self._type)
        for place, compiled in enumerate(self._selections):
            if compiled.has_exclusions:
                bits[compiled.excluded(part)] |= self._type(1 << place)
        return bits

    @property
    def _exclusion_columns(self) -> set[str]:
        """The columns that the exclusions read."""
        return {name for compiled in self._selections if compiled.has_exclusions for name in compiled.columns}

    # -- metadata ------------------------------------------------------------------------------------------------------

    def _add_metadata(self) -> None:
        """Keep the metadata of processes and threads, except those that lose all their events."""
        kept = np.bitwise_or.reduce(self._bits, initial=self._type(0))
        without_steps = self._where(lambda compiled: compiled.selection.steps is None)
        # a selection of steps keeps no metadata if it keeps no event
        closing = self._with_closure("metadata") & (kept | without_steps)
        by_track = np.zeros(0, self._type)
        if closing:
            for span, tracks in self._tracks.numbers(self._parts, self._parts.holding(self._bits != 0)):
                held = np.flatnonzero(self._bits[span])
                by_track = np.concatenate([by_track, np.zeros(len(self._tracks.keys) - len(by_track), self._type)])
                np.bitwise_or.at(by_track, tracks[held], self._bits[span][held])
        of_tracks: dict[tuple[Key, Key], int] = dict(zip(self._tracks.keys, by_track.tolist(), strict=False))
        kept_pids: dict[Key, int] = {}
        for (pid, _), bits in of_tracks.items():
            kept_pids[pid] = kept_pids.get(pid, 0) | bits
        with_events = {(thread["pid"], thread["tid"]) for thread in self._summary.threads}
        pids_with_events = {pid for pid, _ in with_events}

        def keepers(name: str | None, pid: Key, tid: Key) -> int:
            bits = int(closing)
            if pid in pids_with_events:
                bits &= kept_pids.get(pid, 0)
            if name not in _PROCESS_NAMING and (pid, tid) in with_events:
                bits &= of_tracks.get((pid, tid), 0)
            return bits

        untimed = [index for index in range(len(self._parts)) if self._parts.has_untimed(index)]
        for part in self._parts.read(("ph", "name", *TRACK), untimed):
            rows = np.flatnonzero(part.which("ph", METADATA))
            tracks = self._tracks.of(part)[rows].tolist()
            names = part.table["name"].take(rows).to_pylist()
            bits_of_rows = [keepers(name, *self._tracks.keys[track]) for name, track in zip(names, tracks, strict=True)]
            self._bits[part.first + rows] = np.array(bits_of_rows, self._type)


def _matching(part: Part, compiled: CompiledSelection) -> Flags:
    """Flag the events of a part that meet a selection's criteria, and the annotations around its time."""
    flags = compiled.matches_ignoring_time(part) & ~part.which("ph", METADATA)
    if compiled.time.is_limited:
        by_start = compiled.selection.straddle == "start"
        flags &= compiled.time.contains(part.starts) if by_start else compiled.time.overlaps(part.starts, part.ends)
    if compiled.selection.closure.annotations:
        flags |= compiled.annotations(part)
    return flags


class _Table:
    """Map from ids to bits; the bits of equal ids are combined by OR."""

    def __init__(self, ids: npt.NDArray[Any], bits: Bits) -> None:
        order = np.argsort(ids, kind="stable")
        self.ids, firsts = _runs(ids[order])
        self.bits: Bits = np.bitwise_or.reduceat(bits[order], firsts) if len(firsts) else bits

    def of(self, ids: npt.NDArray[Any], valid: Flags | None = None) -> tuple[Bits, Flags]:
        """Return the bits of each id, and whether the table has the id. Ids that are not `valid` count as missing."""
        if not len(self.ids):
            return np.zeros(len(ids), self.bits.dtype), np.zeros(len(ids), np.bool_)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        known = self.ids[at] == ids
        if valid is not None:
            known &= valid
        return np.where(known, self.bits[at], self.bits.dtype.type(0)), known


def _runs(ordered: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Ints]:
    """Return the distinct values of a sorted array, and the first index of each."""
    firsts = (
        np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.zeros(0, np.int64)
    )
    return ordered[firsts], firsts


def _any_within(ids: Ints, span: Interval | None) -> bool:
    """Return whether any of some sorted ids lies in a span, ends included."""
    return span is not None and bool(np.searchsorted(ids, span[0]) < np.searchsorted(ids, span[1], "right"))


class _Flows:
    """Search for the flow arrows whose ends are all kept.

    An end binds to the slices on its track that begin at its time; Kineto writes ends this way. If there are none, an
    end that joins a launch to its GPU work binds to the slices on its track whose correlation is its id. A bound end is
    kept if one of its slices is kept. An unbound end is kept if it matches the selection itself. Excluded ends are
    never kept.
    """

    def __init__(self, parts: Parts, tracks: Tracks, bits: Bits, matching: Bits) -> None:
        self._parts = parts
        self._tracks = tracks
        self._kept = bits
        self._matching = matching
        self._words = Words()
        spans = (parts.span(index, "ts_ns") for index in range(len(parts)))
        self._zero = min((span[0] for span in spans if span), default=0)
        self._seen: set[int] = set()
        self._rows: list[npt.NDArray[Any]] = []
        self._flows: list[npt.NDArray[np.uint64]] = []
        self._ids: list[Ints] = []
        self._found: list[Bits] = []  # bits of the slices of its part to which each end binds
        self._bound: list[Flags] = []
        self._edges: list[tuple[Ints, npt.NDArray[np.uint64]]] = []  # ends that may bind to neighbouring parts' slices
        self._launches: list[npt.NDArray[np.uint64]] = []  # track and correlation; `_NOWHERE` for other arrows
        self._slices: list[tuple[npt.NDArray[np.uint64], Bits]] = []  # which ends of neighbouring parts may bind to
        self._correlations: list[Ints] = []  # of kept slices
        self._exclusions: list[Bits] = []
        self._excluded: Callable[[Part], Bits] | None = None
        self._columns = set(_FLOW_COLUMNS)
        self._count = 0  # of ends

    def exclude(self, excluded: Callable[[Part], Bits], columns: set[str]) -> None:
        """Exclude the ends for which `excluded` returns bits; `columns` are the columns that it reads of a part."""
        if columns:
            self._excluded = excluded
            self._columns |= columns

    def whole(self) -> Iterator[tuple[npt.NDArray[Any], Bits]]:
        """Yield rows of ends, with the bits of the selections that keep every end of their arrow."""
        near = self._parts.holding((self._kept | self._matching) != 0)
        if 2 * len(near) > len(self._parts):  # a second pass for the rest would cost more than reading it now
            near = list(range(len(self._parts)))
        while near:
            self._read(self._parts.with_neighbours(near))
            rows, flows, bits = self._ends()
            unseen = [index for index in range(len(self._parts)) if index not in self._seen]
            near = []
            if unseen:  # parts that may have the other ends
                _, known = _Table(flows[bits != 0], bits[bits != 0]).of(flows)
                ids, is_launch = np.concatenate(self._ids)[known], np.concatenate(self._launches)[known] != _NOWHERE
                launch_ids = distinct(np.concatenate([ids[is_launch], *self._correlations]))
                other_ids = distinct(ids[~is_launch])
                near = [index for index in unseen if self._may_have(index, launch_ids, other_ids)]
                near = self._having(near, distinct(np.concatenate([launch_ids, other_ids])))
        if self._rows:
            order = np.argsort(flows, kind="stable")
            _, firsts = _runs(flows[order])
            if len(firsts):
                joined = np.bitwise_and.reduceat(bits[order], firsts)
                sizes = np.diff(np.append(firsts, len(order)))
                yield rows[order], np.repeat(joined, sizes)

    def _may_have(self, index: int, launch_ids: Ints, other_ids: Ints) -> bool:
        """Return whether a part may have ends of arrows with the given ids."""
        if len(other_ids) and other_ids[0] == _TEXT and self._parts.span(index, "id_text") is not None:
            return True
        spans = self._parts.flow_ids(index)
        return _any_within(launch_ids, spans.launches) or _any_within(other_ids, spans.others)

    def _having(self, indexes: list[int], ids: Ints) -> list[int]:
        """Return the parts that have an end of an arrow with one of the ids. Reading only ids is ten times as fast."""
        if not indexes or ids[0] == _TEXT:
            return indexes
        wanted = _Table(ids, np.ones(len(ids), np.uint8))
        parts = self._parts.read(["id"], indexes)
        return [part.index for part in parts if wanted.of(part.ints("id"), part.has("id"))[1].any()]

    def _read(self, indexes: Iterable[int]) -> None:
        unseen = [index for index in indexes if index not in self._seen]
        for part in self._parts.read(sorted(self._columns.union(self._tracks.needed(unseen))), unseen):
            self._seen.add(part.index)
            tracks, slices = self._tracks.of(part), part.slices & part.has("ts_ns")
            ends = np.flatnonzero(part.which("ph", FLOW_PHASES.__contains__))
            is_id, ids = part.has("id")[ends], part.numbers("id")[ends]
            names, kinds = ids, 3 * (self._words.of(part, "cat", ends) + 1)
            if not is_id.all():
                text = self._words.of(part, "id_text", ends)
                names = np.where(is_id, ids, np.where(text >= 0, text, part.first + ends))
                kinds += np.where(is_id, 0, np.where(text >= 0, 1, 2))
            launch = part.which("cat", LAUNCH_FLOWS.__contains__)[ends] & is_id
            self._rows.append(part.first + ends)
            self._exclusions.append(self._excluded(part)[ends] if self._excluded else self._kept[:0])
            kept = self._kept[part.rows]
            linked = part.slices & part.has("correlation") & (kept != 0)
            self._correlations.append(distinct(part.numbers("correlation")[linked]))
            self._flows.append(packed(names, kinds))
            self._ids.append(np.where(is_id, ids, _TEXT))
            self._launches.append(np.where(launch, packed(ids, tracks[ends]), _NOWHERE))
            self._bind(part, ends, slices)

    def _bind(self, part: Part, ends: Ints, slices: Flags) -> None:
        """Bind ends to the slices of their part; a neighbouring part may have more at its first and last time."""
        times = part.ints("ts_ns")[: np.count_nonzero(part.has("ts_ns"))]  # untimed events are the last
        kept = self._kept[part.rows]
        found, bound = bound_ends(times, self._tracks.of(part), slices, kept, ends)
        self._found.append(found)
        self._bound.append(bound)
        at_edge = np.zeros(len(part), np.bool_)
        if len(times):
            at_edge[: np.searchsorted(times, times[0], "right")] = True
            at_edge[np.searchsorted(times, times[-1]) : len(times)] = True
        of_edge, rows = np.flatnonzero(at_edge[ends]), np.flatnonzero(at_edge & slices)
        self._edges.append((self._count + of_edge, self._places_of(part, ends[of_edge])))
        self._slices.append((self._places_of(part, rows), kept[rows]))
        self._count += len(ends)

    def _places_of(self, part: Part, rows: Ints) -> npt.NDArray[np.uint64]:
        """Return the track and the time of some events of a part, which have a time."""
        return packed(part.ints("ts_ns")[rows] - self._zero, self._tracks.of(part)[rows])

    def _ends(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint64], Bits]:
        """Return the rows of all ends read so far, their arrows, and the bits of the selections that keep them."""
        rows, launches = np.concatenate(self._rows), np.concatenate(self._launches)
        bits, bound = np.concatenate(self._found), np.concatenate(self._bound)
        edges, places = (np.concatenate(arrays) for arrays in zip(*self._edges, strict=True))
        more, known = _Table(*(np.concatenate(arrays) for arrays in zip(*self._slices, strict=True))).of(places)
        bits[edges] |= more
        bound[edges] |= known
        loose = np.flatnonzero(~bound)
        bits[loose] = self._matching[rows[loose]]
        ids = np.concatenate(self._ids)
        joining = loose[launches[loose] != _NOWHERE]
        joining = joining[(bits[joining] != 0) | np.isin(ids[joining], np.concatenate(self._correlations))]
        if len(joining):  # the ends dropped here have no kept slice of their correlation, and do not match
            correlated, bound = self._correlated(ids[joining]).of(launches[joining])
            bits[joining[bound]] = correlated[bound]
        if self._excluded:
            bits &= ~np.concatenate(self._exclusions)
        return rows, np.concatenate(self._flows), bits

    def _correlated(self, ids: Ints) -> "_Table":
        """Return the bits of slices with the given correlations, by track and correlation."""
        wanted = _Table(ids, np.ones(len(ids), np.uint8))
        near = [i for i in range(len(self._parts)) if _any_within(wanted.ids, self._parts.span(i, "correlation"))]
        keys, bits = [np.zeros(0, np.uint64)], [np.zeros(0, self._kept.dtype)]
        for part in self._parts.read(("ph", "correlation", *self._tracks.needed(near)), near):
            _, known = wanted.of(part.ints("correlation"), part.has("correlation"))
            rows = np.flatnonzero(known & part.slices)
            keys.append(packed(part.ints("correlation")[rows], self._tracks.of(part)[rows]))
            bits.append(self._kept[part.first + rows])
        return _Table(np.concatenate(keys), np.concatenate(bits))

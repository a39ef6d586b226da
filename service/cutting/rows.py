"""Which events each of some selections keeps: those that it asks for, and those that come along with them.

Every event has a set of selections that keep it, as the bits of a number, so that all selections are worked out at
once. The columns are read a part at a time, and only the parts that can matter; what stays in memory is those bits and
the links between work, launches and operators.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from service.attribution.nesting import NONE
from service.cutting.criteria import Asked, Time
from service.cutting.steps import EventSteps
from service.store.parts import METADATA, TRACK, Flags, Ints, Part, Parts, Tracks, Words, packed
from service.trace.errors import NothingSelected
from service.trace.selection import ALWAYS, Interval, Selection
from service.trace.summary import (
    ANNOTATION_CATEGORIES,
    FLOW_PHASES,
    Key,
)

AT_ONCE = 64
"""Selections at once."""

Bits = npt.NDArray[Any]
"""Of each event, or of each key, the selections that keep it."""

_LAUNCH_FLOWS = frozenset({"ac2g", "async"})
"""Categories of the arrows from a launch to its work: their id is the correlation of both."""

_PROCESS_NAMING = frozenset({"process_name", "process_labels", "process_sort_index", "process_uptime_seconds"})
_FLOW_COLUMNS = ("ph", "cat", "ts_ns", "id", "id_text", "correlation", *TRACK)
_TEXT = ALWAYS[0]  # stands for the ids that are no integers
_NOWHERE = np.uint64((1 << 64) - 1)


def kept_rows(parts: Parts, selections: Sequence[Selection], summary: Mapping[str, Any]) -> Bits:
    """For each row of a trace's columns, the selections that keep it, the first one as the lowest bit.

    Args:
        parts: the columns.
        selections: at most `AT_ONCE`.
        summary: of the trace, as the catalog has it.

    Raises:
        BadSelection: one leaves no time, or a pattern is none.
        UnknownChoice: one names what the trace does not have.
    """
    return Rows(parts, selections, summary).kept()


def rows_at(bits: Bits, place: int) -> Ints:
    """The rows that the selection at a place keeps."""
    return np.flatnonzero(bits & bits.dtype.type(1 << place))


def nothing_selected(summary: Mapping[str, Any]) -> NothingSelected:
    """The error for a selection that keeps no event, with what there is."""
    bounds = summary["bounds"]
    span = f"from {bounds['start_ns']} to {bounds['end_ns']} ns" if bounds else "without any time"
    detail = f"None of the trace's {summary['events'].get('kept', 0):,} events, {span}, matches the selection."
    return NothingSelected(detail, bounds=bounds, counts=summary["counts"])


class Rows:
    """Works out which rows are kept; for its arguments and what it raises, see `kept_rows`."""

    def __init__(self, parts: Parts, selections: Sequence[Selection], summary: Mapping[str, Any]) -> None:
        self._parts = parts
        self._summary = summary
        self._tracks = Tracks()
        self._steps = EventSteps(parts, self._tracks, summary)
        self._asked = [Asked(parts, self._tracks, self._steps, selection, summary) for selection in selections]
        width = next(size for size in (8, 16, 32, 64) if len(selections) <= size)
        self._type: Any = np.dtype(f"uint{width}").type
        self._bits: Bits = np.zeros(parts.rows, self._type)
        self._asked_flows = np.zeros(parts.rows, self._type)  # ends of arrows, by themselves

    def time(self, place: int) -> Time:
        """The time of one of the selections."""
        return self._asked[place].time

    def around(self, place: int) -> Time | None:
        """The time of the window and the steps of one of the selections; None if it has neither."""
        return self._asked[place].around

    def keeps_any(self) -> bool:
        """Whether anything is kept; an event that is asked for shows it without a look at what belongs to it."""
        return any(self._bits[rows].any() for rows in self._asked_rows()) or bool(self.kept().any())

    def kept(self) -> Bits:
        """The bits of all rows."""
        everything = self._where(lambda asked: asked.is_everything and asked.selection.closure.metadata)
        if self._all & ~everything:
            self._take_asked_for()
            self._take_partners()
            if whole := self._closing("flows"):
                flows = _Flows(self._parts, self._tracks, self._bits, self._asked_flows)
                flows.exclude(self._excluded, self._excluding)
                for rows, bits in flows.whole():
                    self._bits[rows] |= bits & whole
            self._take_metadata()
        self._bits |= everything
        return self._bits

    @property
    def _all(self) -> Any:
        return self._where(lambda _: True)

    def _where(self, holds: Any) -> Any:
        """The bits of the selections that meet a condition."""
        bits = (self._type(1 << place) for place, asked in enumerate(self._asked) if holds(asked))
        return reduce(np.bitwise_or, bits, self._type(0))

    def _closing(self, part: str) -> Any:
        """The bits of the selections that ask for a part of the closure."""
        return self._where(lambda asked: getattr(asked.selection.closure, part))

    # -- what is asked for --------------------------------------------------------------------------------------------

    def _take_asked_for(self) -> None:
        """Keep what is asked for, and the annotations around it."""
        for _ in self._asked_rows():
            pass

    def _asked_rows(self) -> Iterator[slice]:
        """Do so part by part, and yield the rows of each part that is done."""
        columns = {"ph", "cat", "ts_ns", "dur_ns"}
        columns.update(name for one in self._asked for name in one.columns)
        spans = [self._parts.time(index) for index in range(len(self._parts))]
        near = [index for index, span in enumerate(spans) if any(one.may_meet(index, span) for one in self._asked)]
        whole = self._closing("flows")
        for part in self._parts.read(sorted(columns), near):
            bits = self._bits[part.rows]
            for place, asked in enumerate(self._asked):
                if asked.may_meet(part.index, spans[part.index]):
                    bits[_asked_for(part, asked)] |= self._type(1 << place)
            if whole:
                flows = np.flatnonzero(part.which("ph", FLOW_PHASES.__contains__))
                self._asked_flows[part.first + flows] = bits[flows] & whole
                bits[flows] &= ~whole
            yield part.rows

    # -- what belongs to it -------------------------------------------------------------------------------------------

    def _take_partners(self) -> None:
        """Keep the work of kept launches, and then the launches and the operators of kept work."""
        kernels, launches = self._closing("kernels"), self._closing("launches")
        if not kernels | launches:
            return
        links = self._steps.links.of_work()
        launched = links.launches != NONE
        self._add(links.rows[launched], self._bits[links.launches[launched]] & kernels)
        kept = self._bits[links.rows] & launches
        for causes in (links.launches, links.operators):
            known = (causes != NONE) & (kept != 0)
            table = _Table(causes[known], kept[known])
            self._add(table.ids, table.bits)

    def _add(self, rows: Ints, bits: Bits) -> None:
        """Keep more events, but for what selections exclude."""
        new = bits & ~self._bits[rows] != 0
        rows, bits = rows[new], bits[new]
        if self._excluding:
            more = np.zeros(self._parts.rows, self._type)
            more[rows] = bits
            for part in self._parts.read(sorted(self._excluding), self._parts.holding(more != 0)):
                more[part.rows] &= ~self._excluded(part)
            bits = more[rows]
        self._bits[rows] |= bits

    def _excluded(self, part: Part) -> Bits:
        """For each event of a part, the selections that exclude it."""
        bits = np.zeros(len(part), self._type)
        for place, asked in enumerate(self._asked):
            if asked.excludes:
                bits[asked.excluded(part)] |= self._type(1 << place)
        return bits

    @property
    def _excluding(self) -> set[str]:
        """The columns that it takes to tell what is excluded."""
        return {name for one in self._asked if one.excludes for name in one.columns}

    # -- names --------------------------------------------------------------------------------------------------------

    def _take_metadata(self) -> None:
        """Keep what names processes and threads, but for those that had events and lose all of them."""
        kept = np.bitwise_or.reduce(self._bits, initial=self._type(0))
        without_steps = self._where(lambda asked: asked.selection.steps is None)
        closing = self._closing("metadata") & (kept | without_steps)  # names alone are nothing of a step
        here = np.zeros(0, self._type)
        if closing:
            for part in self._parts.read(TRACK, self._parts.holding(self._bits != 0)):
                tracks, rows = self._tracks.of(part), np.flatnonzero(self._bits[part.rows])
                here = np.concatenate([here, np.zeros(len(self._tracks.keys) - len(here), self._type)])
                np.bitwise_or.at(here, tracks[rows], self._bits[part.rows][rows])
        of_tracks: dict[tuple[Key, Key], int] = dict(zip(self._tracks.keys, here.tolist(), strict=False))
        kept_pids: dict[Key, int] = {}
        for (pid, _), bits in of_tracks.items():
            kept_pids[pid] = kept_pids.get(pid, 0) | bits
        had = {(one["pid"], one["tid"]) for one in self._summary["threads"]}
        had_pids = {pid for pid, _ in had}

        def stays(name: str | None, pid: Key, tid: Key) -> int:
            bits = int(closing)
            if pid in had_pids:
                bits &= kept_pids.get(pid, 0)
            if name not in _PROCESS_NAMING and (pid, tid) in had:
                bits &= of_tracks.get((pid, tid), 0)
            return bits

        untimed = [index for index in range(len(self._parts)) if self._parts.has_untimed(index)]
        for part in self._parts.read(("ph", "name", *TRACK), untimed):
            rows = np.flatnonzero(part.which("ph", METADATA))
            tracks = self._tracks.of(part)[rows].tolist()
            names = part.table["name"].take(rows).to_pylist()
            each = [stays(name, *self._tracks.keys[track]) for name, track in zip(names, tracks, strict=True)]
            self._bits[part.first + rows] = np.array(each, self._type)


def _asked_for(part: Part, asked: Asked) -> Flags:
    """Which events of a part a selection asks for: what it says of kind and time, and annotations around that time."""
    flags = asked.of_kind(part) & ~part.which("ph", METADATA)
    starts, ends = part.starts, part.ends
    if asked.time.is_limited:
        flags &= asked.time.begins(starts) if asked.selection.straddle == "start" else asked.time.meet(starts, ends)
    if asked.around and asked.selection.closure.annotations:
        around = part.which("cat", ANNOTATION_CATEGORIES.__contains__) & part.slices
        around &= part.has("ts_ns") & asked.around.enclosed(starts, ends) & ~asked.excluded(part)
        flags |= around
    return flags


class _Table:
    """From ids to bits, those of equal ids joined."""

    def __init__(self, ids: npt.NDArray[Any], bits: Bits) -> None:
        order = np.argsort(ids, kind="stable")
        self.ids, firsts = _runs(ids[order])
        self.bits: Bits = np.bitwise_or.reduceat(bits[order], firsts) if len(firsts) else bits

    def may_have(self, span: Interval | None) -> bool:
        """Whether an id lies in a span, both of whose ends may be one."""
        if span is None:
            return False
        return bool(np.searchsorted(self.ids, span[0]) < np.searchsorted(self.ids, span[1], "right"))

    def of(self, ids: npt.NDArray[Any], valid: Flags | None = None) -> tuple[Bits, Flags]:
        """The bits of ids, and which are known at all; where one is not valid, none."""
        bits, known = np.zeros(len(ids), self.bits.dtype), np.zeros(len(ids), np.bool_)
        rows = np.arange(len(ids)) if valid is None else np.flatnonzero(valid)
        if len(self.ids):
            at = np.minimum(np.searchsorted(self.ids, ids[rows]), len(self.ids) - 1)
            known[rows] = self.ids[at] == ids[rows]
            bits[rows] = np.where(known[rows], self.bits[at], 0)
        return bits, known


def _runs(ordered: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Ints]:
    """The different ones of ordered values, and where each begins."""
    firsts = (
        np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.zeros(0, np.int64)
    )
    return ordered[firsts], firsts


class _Flows:
    """The arrows of which each end is kept.

    An end stands on the slices that begin on its track at its time, as Kineto writes it. Where there are none, it
    stands, if it joins a launch and its work, on those on its track that have its id as correlation. It is kept where
    a slice that it stands on is; one that stands on nothing is kept where it is asked for itself. What is excluded is
    not kept.
    """

    def __init__(self, parts: Parts, tracks: Tracks, bits: Bits, asked: Bits) -> None:
        self._parts = parts
        self._tracks = tracks
        self._kept = bits
        self._asked = asked
        self._words = Words()
        spans = (parts.span(index, "ts_ns") for index in range(len(parts)))
        self._zero = min((span[0] for span in spans if span), default=0)
        self._seen: set[int] = set()
        self._rows: list[npt.NDArray[Any]] = []
        self._flows: list[npt.NDArray[np.uint64]] = []
        self._ids: list[Ints] = []
        self._places: list[npt.NDArray[np.uint64]] = []  # track and time
        self._launches: list[
            npt.NDArray[np.uint64]
        ] = []  # track and correlation; `_NOWHERE` for ends that join no launch
        self._standing: list[tuple[npt.NDArray[np.uint64], Bits]] = []
        self._correlations: list[Ints] = []  # of kept slices
        self._left_out: list[Bits] = []
        self._excluded: Callable[[Part], Bits] | None = None
        self._columns = set(_FLOW_COLUMNS)

    def exclude(self, excluded: Callable[[Part], Bits], columns: set[str]) -> None:
        """Leave out ends of some selections; to tell which takes those columns."""
        if columns:
            self._excluded = excluded
            self._columns |= columns

    def whole(self) -> Iterator[tuple[npt.NDArray[Any], Bits]]:
        """Yield rows of ends, with the bits of the selections that keep the whole arrow."""
        near = self._parts.holding((self._kept | self._asked) != 0)
        if 2 * len(near) > len(self._parts):  # to go back for a few costs more than to read them
            near = list(range(len(self._parts)))
        while near:
            self._read(self._parts.with_neighbours(near))
            rows, flows, bits = self._ends()
            unseen = [index for index in range(len(self._parts)) if index not in self._seen]
            near = []
            if unseen:  # where the other ends may be
                _, known = _Table(flows[bits != 0], bits[bits != 0]).of(flows)
                wanted = [np.concatenate(self._ids)[known], *self._correlations]
                ids, _ = _runs(np.sort(np.concatenate(wanted)))
                near = [index for index in unseen if self._may_have(index, ids)]
        if self._rows:
            order = np.argsort(flows, kind="stable")
            _, firsts = _runs(flows[order])
            if len(firsts):
                joined = np.bitwise_and.reduceat(bits[order], firsts)
                sizes = np.diff(np.append(firsts, len(order)))
                yield rows[order], np.repeat(joined, sizes)

    def _may_have(self, index: int, ids: Ints) -> bool:
        """Whether a part may hold ends of arrows with some ids; any may hold those with ids that are no integers."""
        span = self._parts.span(index, "id")
        if len(ids) and ids[0] == _TEXT and self._parts.span(index, "id_text") is not None:
            return True
        return span is not None and bool(np.searchsorted(ids, span[0]) < np.searchsorted(ids, span[1], "right"))

    def _read(self, indexes: Iterable[int]) -> None:
        for part in self._parts.read(sorted(self._columns), [index for index in indexes if index not in self._seen]):
            self._seen.add(part.index)
            times, tracks = part.ints("ts_ns"), self._tracks.of(part)
            timed, slices = part.has("ts_ns"), part.slices
            ends = np.flatnonzero(part.which("ph", FLOW_PHASES.__contains__))
            is_id, ids = part.has("id")[ends], part.ints("id")[ends]
            text = self._words.of(part, "id_text")[ends]
            names = np.where(is_id, ids, np.where(text >= 0, text, part.first + ends))
            kinds = 3 * (self._words.of(part, "cat")[ends] + 1) + np.where(is_id, 0, np.where(text >= 0, 1, 2))
            launch = part.which("cat", _LAUNCH_FLOWS.__contains__)[ends] & is_id
            self._rows.append(part.first + ends)
            self._left_out.append(self._excluded(part)[ends] if self._excluded else self._kept[:0])
            kept = slices & part.has("correlation") & (self._kept[part.rows] != 0)
            self._correlations.append(np.unique(part.ints("correlation")[kept]))
            self._flows.append(packed(names, kinds))
            self._ids.append(np.where(is_id, ids, _TEXT))
            places = np.where(timed, packed(times - self._zero, tracks), _NOWHERE)
            self._places.append(places[ends])
            self._launches.append(np.where(launch, packed(ids, tracks[ends]), _NOWHERE))
            # of the slices, only those at the time of an end, or where the parts beside it may have one
            moments = np.concatenate([[0], np.cumsum(times[1:] != times[:-1])])
            shared = np.zeros(len(part), np.bool_)
            shared[[*moments[ends], 0, moments[np.flatnonzero(timed)[-1]] if timed.any() else 0]] = True
            stand = np.flatnonzero(slices & timed & shared[moments])
            self._standing.append((places[stand], self._kept[part.first + stand]))

    def _ends(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint64], Bits]:
        """The rows of all ends that were read, their arrows, and the bits of the selections that keep them."""
        rows, places, launches = (np.concatenate(each) for each in (self._rows, self._places, self._launches))
        keys, kept = (np.concatenate(each) for each in zip(*self._standing, strict=True))
        bits, stands = _Table(keys, kept).of(places)
        loose = np.flatnonzero(~stands)
        bits[loose] = self._asked[rows[loose]]
        ids = np.concatenate(self._ids)
        joining = loose[launches[loose] != _NOWHERE]
        joining = joining[(bits[joining] != 0) | np.isin(ids[joining], np.concatenate(self._correlations))]
        if len(joining):  # of the others none is kept, wherever it stands
            found, stands = self._correlated(ids[joining]).of(launches[joining])
            bits[joining[stands]] = found[stands]
        if self._excluded:
            bits &= ~np.concatenate(self._left_out)
        return rows, np.concatenate(self._flows), bits

    def _correlated(self, ids: Ints) -> "_Table":
        """From track and correlation to the bits of slices, as far as some correlations are concerned."""
        wanted = _Table(ids, np.ones(len(ids), np.uint8))
        near = [i for i in range(len(self._parts)) if wanted.may_have(self._parts.span(i, "correlation"))]
        keys, bits = [np.zeros(0, np.uint64)], [np.zeros(0, self._kept.dtype)]
        for part in self._parts.read(("ph", "correlation", *TRACK), near):
            _, known = wanted.of(part.ints("correlation"), part.has("correlation"))
            rows = np.flatnonzero(known & part.slices)
            keys.append(packed(part.ints("correlation")[rows], self._tracks.of(part)[rows]))
            bits.append(self._kept[part.first + rows])
        return _Table(np.concatenate(keys), np.concatenate(bits))

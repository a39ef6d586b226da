"""Matches of the slices on devices with their launches and operators, by the rules of `service.attribution.links`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from service.attribution.gathered import GatheredColumns
from service.attribution.links import (
    EXTERNAL_ID,
    LAUNCH,
    LAUNCH_OUTSIDE,
    NO_LAUNCH,
    Links,
    is_operator,
)
from service.attribution.nesting import NONE, Flags, Ints, first_matches
from service.attribution.rank_steps import NO_PID, WorkTimes
from service.attribution.steps import StepClock, Track
from service.attribution.work import GatheredWork, with_nulls, words_of
from service.store.parts import Part, mixed
from service.trace.summary import OPERATOR_CATEGORIES, ExternalIdKind

MIN_AGREEMENT = 0.99
"""Minimum share of work whose External id agrees with its operator, for External ids to count as operator ids."""

SLICES_AT_ONCE = 1 << 17
_INT = np.iinfo(np.int64)
_NO_CALL = {
    "row": NONE, "id": 0, "start": 0, "duration": 0, "name": NONE, "track": 0, "operator": NONE, "operator_id": NONE,
}  # fmt: skip
"""Values of the launch of a slice that has none, by column of launches."""
_NO_IDS = {name: _NO_CALL[name] for name in ("id", "operator", "operator_id")}
"""Those of the columns that show what External ids mean."""

Read = Callable[[Sequence[str]], Iterator[Part]]
"""Reads the named columns of all events, part by part, in order of time."""


class Matched(NamedTuple):
    """Consecutive slices on devices, with their matches.

    Attributes:
        links: the links of the slices.
        times: the times of their work.
        fields: the fields of their work and of its launches, by name.
    """

    links: Links
    times: WorkTimes
    fields: Mapping[str, pa.Array]


class LaunchMatches:
    """Slices on devices, matched with their launches.

    Attributes:
        call_of_slice: a column ``call``: the index of the launch of each slice, or `NONE`.
        unlaunched: rows of the work that has no launch, in ascending order.
        ids: the External ids of the slices.

    Args:
        calls: launches, in order of time: their correlation, and the columns of `_NO_CALL`.
        slices: slices, in order of time: their row, correlation, id, start, end, track, and whether they are work.
    """

    def __init__(self, calls: GatheredColumns, slices: GatheredColumns) -> None:
        self.calls, self.slices = calls, slices
        self.call_of_slice = slices.beside("call")
        self.ids = _ExternalIds()
        self.unlaunched = self._match()

    def _match(self) -> Ints:
        """Find the launch of each slice, and return `unlaunched`."""
        unlaunched = [np.empty(0, np.int64)]
        for slices in self.slices.ranges(SLICES_AT_ONCE, "row", "correlation", "id", "start", "is_work"):
            wanted, is_work = slices["correlation"], slices["is_work"] > 0
            least, most = int(wanted.min(initial=_INT.max)), int(wanted.max(initial=0))
            correlations, calls = self.calls.between("correlation", max(least, 1), most)
            match = first_matches(correlations, wanted)
            call = np.append(calls, NONE)[match]
            self.call_of_slice.add(call=call)
            unlaunched.append(slices["row"][is_work & (call == NONE)])
            self.ids.add(slices, self.calls.at(call, _NO_IDS))
        return np.concatenate(unlaunched)


class Matches:
    """Slices on devices, matched with their launches and operators; only their steps are not known yet.

    What is known of each slice is computed anew for some slices at a time, which takes less memory than to keep it.

    Attributes:
        unlaunched: rows of the work that has no launch, in ascending order.
        external_ids: meaning of External ids in the trace.

    Args:
        launches: the launches of the slices.
        regions: annotations on devices and on the host, in order of time; see `_Regions`.
        work: fields of the slices that are work.
        keys: pid and tid of each track.
        read: reads columns of the trace.
        external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.
    """

    def __init__(
        self,
        launches: LaunchMatches,
        regions: GatheredColumns,
        work: GatheredWork,
        keys: Sequence[Track],
        read: Read,
        external_ids: ExternalIdKind,
    ) -> None:
        self._launches, self._work, self._keys = launches, work, keys
        self.unlaunched = launches.unlaunched
        self._regions = _Regions.matched(regions)
        self.external_ids, self._operators_by_id = launches.ids.matched(read, external_ids)

    def parts(self, clock: StepClock) -> Iterator[Matched]:
        """Yield all slices part by part, at least one part, with the steps by a clock."""
        pids = np.array([key[0] if isinstance(key[0], int) else NO_PID for key in self._keys] or [NO_PID], np.int64)
        slices = work = region = lacking = 0
        for some in self._launched():
            lacks = np.flatnonzero(_lack_operator(some.is_work, some.operators, some.ids))
            by_id = self._operators_by_id[lacking : lacking + len(lacks)]
            lacking += len(lacks)
            found = lacks[by_id != NONE]
            some.operators[found], some.rules[found] = by_id[by_id != NONE], EXTERNAL_ID
            steps = clock.at(some.times, some.tracks, self._keys)
            links = Links(some.rows, some.is_work, some.launches, some.operators, some.rules, steps, self.external_ids)
            slices, first = slices + len(some.rows), region
            is_last = slices == len(self._launches.slices)
            region = len(self._regions.rows) if is_last else int(np.searchsorted(self._regions.rows, some.rows[-1]))
            links = self._with_regions(links, clock, slice(first, region))
            times = WorkTimes(pids[some.own_tracks], some.times, some.starts, some.ends, steps).only(some.is_work)
            first, work = work, work + len(times.starts)
            yield Matched(links, times, {**self._work.fields(first, work), **self._fields_of_launches(some, times)})

    def _fields_of_launches(self, some: "_LaunchedSlices", times: WorkTimes) -> Mapping[str, pa.Array]:
        """Return the fields of the launches of the work among slices, by name."""
        unknown = some.launches[some.is_work] == NONE
        return {
            "launch_ts_ns": with_nulls(times.launches, unknown),
            "launch_dur_ns": with_nulls(some.durations[some.is_work], unknown),
            "launch_name": words_of(some.names[some.is_work], self._work.names.listed),
        }

    def _with_regions(self, links: Links, clock: StepClock, chosen: slice) -> Links:
        """Return links with those of some regions, which have steps alone, in order of rows."""
        regions = self._regions.part(chosen)
        if not len(regions.rows):
            return links
        none = np.full(len(regions.rows), NONE)
        is_work, rules = np.zeros(len(none), np.bool_), np.full(len(none), NO_LAUNCH)
        steps = clock.at(regions.times, regions.tracks, self._keys)
        joined = Links.joined([links, Links(regions.rows, is_work, none, none, rules, steps, self.external_ids)])
        return joined.taken(np.argsort(joined.rows, kind="stable"))

    def _launched(self) -> Iterator["_LaunchedSlices"]:
        """Yield the slices, some at a time, with what their launches say."""
        are_graphs = np.array([*("GraphLaunch" in name for name in self._work.names.listed), False])
        columns = (self._launches.slices, self._launches.call_of_slice)
        for slices, matched in zip(*(some.ranges(SLICES_AT_ONCE) for some in columns), strict=True):
            call = matched["call"]
            calls = self._launches.calls.at(call, _NO_CALL)
            yield _LaunchedSlices.of(slices, calls, call != NONE, are_graphs[calls["name"]])


@dataclass(frozen=True)
class _LaunchedSlices:
    """Slices on devices with what their launches say.

    Attributes:
        rows, is_work, launches, operators, rules: as in `Links`, before External ids are used.
        ids: External id of each slice or, if it has none, of its launch.
        times: start of the launch of each slice, or of the slice if it has none.
        tracks: number of the track of that start.
        durations, names: of the launch of each slice.
        starts, ends, own_tracks: of each slice.
    """

    rows: Ints
    is_work: Flags
    launches: Ints
    operators: Ints
    rules: Ints
    ids: Ints
    times: Ints
    tracks: Ints
    durations: Ints
    names: Ints
    starts: Ints
    ends: Ints
    own_tracks: Ints

    @classmethod
    def of(
        cls, slices: Mapping[str, Ints], calls: Mapping[str, Ints], is_launched: Flags, is_graph: Flags
    ) -> "_LaunchedSlices":
        """Return slices with the values of their launches, some of which launch a graph."""
        rules = np.where(calls["operator"] != NONE, LAUNCH, LAUNCH_OUTSIDE) + is_graph
        return cls(
            rows=slices["row"],
            is_work=slices["is_work"] > 0,
            launches=calls["row"],
            operators=calls["operator"],
            rules=np.where(is_launched, rules, NO_LAUNCH),
            ids=_ids_of(slices, calls),
            times=np.where(is_launched, calls["start"], slices["start"]),
            tracks=np.where(is_launched, calls["track"], slices["track"]),
            durations=calls["duration"],
            names=calls["name"],
            starts=slices["start"],
            ends=slices["end"],
            own_tracks=slices["track"],
        )


class _ExternalIds:
    """The External ids of the slices on devices, beside the operators that their launches give them."""

    def __init__(self) -> None:
        self._comparable = self._agreeing = 0
        self._lacking = GatheredColumns("id", "start", "correlation")

    def add(self, slices: Mapping[str, Ints], calls: Mapping[str, Ints]) -> None:
        """Add slices with their ids, starts and correlations, and the ids and operators of their launches."""
        is_work, ids, operators = slices["is_work"] > 0, _ids_of(slices, calls), calls["operator"]
        compared = is_work & (operators != NONE) & (ids > 0)
        self._comparable += int(np.count_nonzero(compared))
        self._agreeing += int(np.count_nonzero(compared & (ids == calls["operator_id"])))
        lack = _lack_operator(is_work, operators, ids)
        self._lacking.add(id=ids[lack], start=slices["start"][lack], correlation=slices["correlation"][lack])

    def matched(self, read: Read, external_ids: ExternalIdKind) -> tuple[ExternalIdKind, Ints]:
        """Return the meaning of External ids, and the operators that these give to the slices that lack one.

        Args:
            read: reads columns of the trace.
            external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.
        """
        if external_ids == "unknown" and self._comparable:
            external_ids = "operators" if self._agreeing / self._comparable >= MIN_AGREEMENT else "other"
        ids = self._lacking.values("id")
        if external_ids != "other" and len(ids):
            by_id = _OperatorsById(read, ids)
            if external_ids == "unknown":
                external_ids = by_id.kind(self._lacking.values("start"), self._lacking.values("correlation"))
            if external_ids == "operators":
                return external_ids, by_id.rows
        return external_ids, np.full(len(ids), NONE)


def _ids_of(slices: Mapping[str, Ints], calls: Mapping[str, Ints]) -> Ints:
    """Return the External id of each slice or, if it has none, of its launch."""
    return np.where(slices["id"] > 0, slices["id"], calls["id"])


def _lack_operator(is_work: Flags, operators: Ints, ids: Ints) -> Flags:
    """Flag the work that has an External id, but no operator by its launch."""
    flags: Flags = is_work & (operators == NONE) & (ids > 0)
    return flags


@dataclass(frozen=True)
class _Regions:
    """Annotations on devices.

    Attributes:
        rows: row of each annotation.
        times: start of the host annotation with the same name and External id or, without one, of itself.
        tracks: track of that annotation.
    """

    rows: Ints
    times: Ints
    tracks: Ints

    @classmethod
    def matched(cls, regions: GatheredColumns) -> "_Regions":
        """Match annotations on devices with those of the host.

        Args:
            regions: their row, id, hash of the name, start, track, and whether they are on a device.
        """
        ids, is_device = regions.values("id"), regions.values("is_device") > 0
        hashes = mixed(ids, regions.values("name_hash")) >> np.uint64(1)
        keys = np.where(ids > 0, hashes.view(np.int64), 0)
        device, host = np.flatnonzero(is_device), np.flatnonzero(~is_device)
        match = first_matches(keys[host], keys[device])
        origins = np.where(match != NONE, np.append(host, NONE)[match], device)
        return cls(regions.values("row")[device], regions.values("start")[origins], regions.values("track")[origins])

    def part(self, chosen: slice) -> "_Regions":
        """Return a range of the annotations."""
        return _Regions(self.rows[chosen], self.times[chosen], self.tracks[chosen])


class _OperatorsById:
    """Operators looked up by External id.

    Attributes:
        rows: row of the operator of each id; `NONE` if no operator or more than one has the id.
    """

    def __init__(self, read: Read, ids: Ints) -> None:
        found = GatheredColumns("id", "row", "start")
        for part in read(("ph", "cat", "name", "ts_ns", "dur_ns", "external_id")):
            operators = part.which("cat", OPERATOR_CATEGORIES.__contains__) & part.slices & part.has("ts_ns")
            operators &= part.which("name", is_operator)
            rows = np.flatnonzero(operators & np.isin(part.ints("external_id"), ids))
            found.add(id=part.ints("external_id")[rows], row=part.first + rows, start=part.starts[rows])
        operator_ids, rows, starts = (found.values(name) for name in ("id", "row", "start"))
        distinct, counts = np.unique(operator_ids, return_counts=True)
        unique = np.isin(operator_ids, distinct[counts == 1])
        match = first_matches(operator_ids[unique], ids)
        self.rows = np.append(rows[unique], NONE)[match]
        self._ids = ids
        self._starts = np.append(starts[unique], np.iinfo(np.int64).max)[match]

    def kind(self, starts: Ints, correlations: Ints) -> ExternalIdKind:
        """Return the meaning of External ids in a trace whose launches do not show it.

        External ids are operator ids if nearly all belong to an operator that began before the work.

        Args:
            starts: start of each piece of work.
            correlations: correlation id of each piece of work; an equal External id is a copy, not an operator id.
        """
        if not len(starts):
            return "unknown"
        plausible = (self.rows != NONE) & (self._starts <= starts) & (self._ids != correlations)
        return "operators" if plausible.mean() >= MIN_AGREEMENT else "other"

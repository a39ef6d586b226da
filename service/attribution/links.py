"""Links from the slices on devices to their launches, operators and steps.

"Work" means the slices of kernels, copies and memsets (`GPU_CATEGORIES`). The rules, in order:

1. Work belongs to its launch: the first runtime or driver call with its correlation id.
2. The launch belongs to the innermost operator that is open on its thread when the launch begins.
3. Work that gets no operator from its launch belongs to the operator with the same External id, if the External ids
   of the trace are known to be operator ids.
4. Work belongs to the step in which its launch began (`service.attribution.steps`). Work without a launch belongs to
   the step in which it began.

Kineto writes the correlation id as External id when it knows no operator, and it also numbers operators from 1.
An External id alone therefore proves nothing (https://github.com/pytorch/kineto, ``libkineto/src/output_json.cpp``).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from service.attribution.gathered import GatheredColumns
from service.attribution.nesting import NONE, Flags, Ints, first_matches, nesting_order
from service.attribution.steps import StepClock, Track, normalized_track
from service.attribution.sweep import OpenOperators
from service.store.parts import TRACK, Part, Tracks
from service.trace.summary import (
    ANNOTATION_CATEGORIES,
    GPU_CATEGORIES,
    LAUNCH_PATTERN,
    NOT_OPERATORS,
    OPERATOR_CATEGORIES,
    STEP_PREFIX,
    Attribution,
    ExternalIdKind,
    Summary,
)

RULES = ("launch", "graph", "external_id", "launch_outside_operators", "graph_outside_operators", "no_launch")
"""Rules that give work its operator; the last three are the reasons why work has none."""

LAUNCH, GRAPH, EXTERNAL_ID, LAUNCH_OUTSIDE, GRAPH_OUTSIDE, NO_LAUNCH = range(len(RULES))

MIN_AGREEMENT = 0.99
"""Minimum share of work whose External id agrees with its operator, for External ids to count as operator ids."""

_SYNCHRONIZATION = "cuda_sync"
_DEVICE_ANNOTATION = "gpu_user_annotation"
_OPERATOR, _CALL, _WORK, _WAIT, _REGION, _ANNOTATION = (1 << bit for bit in range(6))
"""Bits of the kinds of events: operators, launches, work, waits, and annotations on devices and on the host."""
_ON_DEVICE = _WORK | _WAIT
COLUMNS = ("ph", "cat", "name", "ts_ns", "dur_ns", "correlation", "external_id", *TRACK)

Read = Callable[[Sequence[str]], Iterator[Part]]
"""Reads the named columns of all events, part by part, in order of time."""


def _is_launch(category: str | None) -> bool:
    return category is not None and re.fullmatch(LAUNCH_PATTERN, category) is not None


def _kinds_of(category: str | None) -> int:
    """Return the kinds of the events of a category, as bits."""
    return (
        (category in OPERATOR_CATEGORIES) * _OPERATOR
        | _is_launch(category) * _CALL
        | (category in GPU_CATEGORIES) * _WORK
        | (category == _SYNCHRONIZATION) * _WAIT
        | (category == _DEVICE_ANNOTATION) * _REGION
        | (category in ANNOTATION_CATEGORIES) * _ANNOTATION
    )


def is_operator(name: str | None) -> bool:
    """Return whether the name of an event in an operator category is that of an operator.

    Traces from before 2022 have annotations in operator categories, too.
    """
    return name not in NOT_OPERATORS and not (name or "").startswith(STEP_PREFIX)


@dataclass(frozen=True)
class Links:
    """Links of the slices on devices, in order of time.

    Args:
        rows: row of each slice among the events in order of time.
        is_work: slices that are work; the others are waits and annotations shown on devices.
        launches: row of each slice's launch, or `NONE`.
        operators: row of each slice's operator, or `NONE`.
        rules: index into `RULES` of the rule that gives each slice its operator.
        steps: number of each slice's step, or `NO_STEP`.
        external_ids: meaning of External ids in this trace.
    """

    rows: Ints
    is_work: Flags
    launches: Ints
    operators: Ints
    rules: Ints
    steps: Ints
    external_ids: ExternalIdKind

    def of_work(self) -> "Links":
        """Return the links of work alone."""
        is_work = self.is_work
        if is_work.all():
            return self
        return Links(
            rows=self.rows[is_work],
            is_work=is_work[is_work],
            launches=self.launches[is_work],
            operators=self.operators[is_work],
            rules=self.rules[is_work],
            steps=self.steps[is_work],
            external_ids=self.external_ids,
        )

    def summary(self) -> Attribution:
        """Summarise the links: the meaning of External ids, and the count of work by rule."""
        counts = np.bincount(self.rules[self.is_work], minlength=len(RULES)).tolist()
        return {
            "external_ids": self.external_ids,
            "rules": {rule: count for rule, count in zip(RULES, counts, strict=True) if count},
        }


def external_ids_in_summary(summary: Summary) -> ExternalIdKind:
    """Return the meaning of External ids that a trace's summary records."""
    return _external_id_kind(summary.attribution.get("external_ids"))


def external_ids_in_envelope(envelope: Mapping[str, Any]) -> ExternalIdKind:
    """Return the meaning of External ids in the whole trace, as the envelope of a part of it records."""
    origin = envelope.get("tracedock")
    part = origin.get("part") if isinstance(origin, Mapping) else None
    return _external_id_kind(part.get("external_ids") if isinstance(part, Mapping) else None)


def _external_id_kind(value: object) -> ExternalIdKind:
    return next((kind for kind in get_args(ExternalIdKind) if kind == value), "unknown")


def link_device_events(read: Read, clock: StepClock, external_ids: ExternalIdKind = "unknown") -> Links:
    """Find the launch, the operator and the step of each slice on a device.

    Args:
        read: reads columns of the trace.
        clock: steps of the trace.
        external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.
    """
    builder = LinkBuilder()
    for part in read(COLUMNS):
        builder.add(part)
    return builder.match(read, external_ids).links(clock)


class LinkBuilder:
    """Builder of links; takes events part by part, in order of time."""

    def __init__(self) -> None:
        self._tracks = Tracks()
        self._open = OpenOperators()
        self._pending = [np.empty(0, np.int64)] * 8  # slices with the latest start; the next part may have more
        self._calls = GatheredColumns(
            "correlation", "row", "id", "is_graph", "start", "track", "operator", "operator_id"
        )
        self._slices = GatheredColumns("row", "correlation", "id", "start", "track", "is_work")
        self._regions = GatheredColumns("row", "id", "name", "start", "track", "is_device")
        self._names: dict[str, int] = {}
        self._threads: dict[Track, int] = {}

    def add(self, part: Part) -> None:
        """Add the next events, with at least `COLUMNS`."""
        if not len(part):
            return
        timed = part.slices & part.has("ts_ns")
        codes, words = part.coded("cat")
        kinds = np.where(timed, np.array([_kinds_of(word) for word in (*words, None)], np.int8)[codes], 0)
        operators = kinds & _OPERATOR > 0
        if operators.any():
            operators &= part.which("name", is_operator)
        is_call = kinds & _CALL > 0
        if is_call.any():
            is_call &= part.ints("correlation") > 0
        self._add_host(part, np.flatnonzero(operators | is_call), is_call)
        self._add_device(part, np.flatnonzero(kinds & _ON_DEVICE), kinds)
        self._add_regions(part, np.flatnonzero(kinds & _REGION), is_device=1)
        self._add_regions(part, np.flatnonzero(kinds & _ANNOTATION), is_device=0)

    def _add_host(self, part: Part, rows: Ints, is_call: Flags) -> None:
        if not len(rows):
            return
        is_graph = part.which("name", lambda name: "GraphLaunch" in (name or ""))
        new = (
            is_call[rows].astype(np.int64), self._tracks.of(part)[rows], part.starts[rows], part.ends[rows],
            part.ints("external_id")[rows], part.first + rows, part.ints("correlation")[rows], is_graph[rows],
        )  # fmt: skip
        slices = [np.concatenate(columns) for columns in zip(self._pending, new, strict=True)]
        ready = int(np.searchsorted(slices[2], slices[2][-1]))
        self._pending = [values[ready:] for values in slices]
        self._sweep([values[:ready] for values in slices])

    def _sweep(self, slices: list[Ints]) -> None:
        """Find the operators around calls. Slices that are swept later begin after all of these."""
        order = nesting_order(slices[2], slices[3])
        calls, tracks, starts, ends, ids, rows, correlations, graphs = (values[order] for values in slices)
        is_call = calls > 0
        if not len(rows):
            return
        threads = [self._threads.setdefault(normalized_track(*key), len(self._threads)) for key in self._tracks.keys]
        around = self._open.around(is_call, np.array(threads, np.int64)[tracks], starts, ends, ids, rows)
        self._calls.add(
            correlation=correlations[is_call],
            row=rows[is_call],
            id=ids[is_call],
            is_graph=graphs[is_call],
            start=starts[is_call],
            track=tracks[is_call],
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
                track=self._tracks.of(part)[rows],
                is_work=(kinds[rows] & _WORK > 0).astype(np.int8),
            )

    def _add_regions(self, part: Part, rows: Ints, *, is_device: int) -> None:
        if len(rows):
            codes, words = part.coded("name")
            names = np.array([*(self._names.setdefault(word, len(self._names)) for word in words), NONE], np.int64)
            self._regions.add(
                row=part.first + rows,
                id=part.ints("external_id")[rows],
                name=names[codes[rows]],
                start=part.starts[rows],
                track=self._tracks.of(part)[rows],
                is_device=np.full(len(rows), is_device, np.int8),
            )

    def match(self, read: Read, external_ids: ExternalIdKind) -> "Matches":
        """Match all added events; see `link_device_events`. The builder takes no more events."""
        self._sweep(self._pending)
        calls, slices = self._calls, self._slices
        correlations = slices.take("correlation")
        call = first_matches(calls.take("correlation"), correlations)
        is_launched, is_work = call != NONE, slices.take("is_work") > 0
        ids = slices.take("id")
        ids = np.where(ids > 0, ids, calls.take("id", 0)[call])
        operators, operator_ids = calls.take("operator", NONE)[call], calls.take("operator_id", NONE)[call]
        if external_ids == "unknown":
            external_ids = _kind_by_launches(ids, operator_ids, is_work & (operators != NONE))
        rules = np.where(operators != NONE, LAUNCH, LAUNCH_OUTSIDE) + calls.take("is_graph", 0)[call]
        rules = np.where(is_launched, rules, NO_LAUNCH)
        starts = slices.take("start")
        lacking = is_work & (operators == NONE) & (ids > 0)
        if external_ids != "other" and lacking.any():
            by_id = _OperatorsById(read, ids[lacking])
            if external_ids == "unknown":
                external_ids = by_id.kind(starts[lacking], correlations[lacking])
            if external_ids == "operators":
                matched = np.flatnonzero(lacking)[by_id.rows != NONE]
                operators[matched], rules[matched] = by_id.rows[by_id.rows != NONE], EXTERNAL_ID
        return Matches(
            rows=slices.take("row"),
            is_work=is_work,
            launches=calls.take("row", NONE)[call],
            operators=operators,
            rules=rules,
            times=np.where(is_launched, calls.take("start", 0)[call], starts),
            tracks=np.where(is_launched, calls.take("track", 0)[call], slices.take("track")),
            keys=self._tracks.keys,
            regions=self._match_regions(),
            external_ids=external_ids,
        )

    def _match_regions(self) -> "_Regions":
        """Match annotations on devices with those of the host that have the same name and External id."""
        regions = self._regions
        ids, is_device = regions.take("id"), regions.take("is_device") > 0
        keys = np.where(ids > 0, ids * (len(self._names) + 1) + regions.take("name") + 1, 0)
        device, host = np.flatnonzero(is_device), np.flatnonzero(~is_device)
        match = first_matches(keys[host], keys[device])
        origins = np.where(match != NONE, np.append(host, NONE)[match], device)
        return _Regions(regions.take("row")[device], regions.take("start")[origins], regions.take("track")[origins])


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


@dataclass(frozen=True)
class Matches:
    """Slices on devices, matched with their launches and operators; only their steps are not known yet.

    Attributes:
        rows, is_work, launches, operators, rules, external_ids: as in `Links`.
        times: start of the launch of each slice, or of the slice if it has none.
        tracks: number of the track of that start.
        keys: pid and tid of each track.
        regions: annotations on devices.
    """

    rows: Ints
    is_work: Flags
    launches: Ints
    operators: Ints
    rules: Ints
    times: Ints
    tracks: Ints
    keys: Sequence[Track]
    regions: _Regions
    external_ids: ExternalIdKind

    def links(self, clock: StepClock) -> Links:
        """Return the links, with the steps by a clock."""
        steps = clock.at(self.times, self.tracks, self.keys)
        slices = (self.rows, self.is_work, self.launches, self.operators, self.rules, steps)
        if not len(self.regions.rows):
            return Links(*slices, external_ids=self.external_ids)
        none = np.full(len(self.regions.rows), NONE)
        steps = clock.at(self.regions.times, self.regions.tracks, self.keys)
        regions = (self.regions.rows, np.zeros(len(none), np.bool_), none, none, np.full(len(none), NO_LAUNCH), steps)
        columns = [np.concatenate(both) for both in zip(slices, regions, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        rows, is_work, launches, operators, rules, steps = (values[order] for values in columns)
        return Links(rows, is_work, launches, operators, rules, steps, self.external_ids)


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
        operator_ids, rows, starts = (found.take(name) for name in ("id", "row", "start"))
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


def _kind_by_launches(ids: Ints, operator_ids: Ints, comparable: Flags) -> ExternalIdKind:
    """Infer the meaning of External ids by a comparison with the ids of the operators around launches."""
    comparable = comparable & (ids > 0)
    if not comparable.any():
        return "unknown"
    return "operators" if (ids == operator_ids)[comparable].mean() >= MIN_AGREEMENT else "other"

"""The launch, the operator and the step of all that devices do.

The rule, in its order:

1. Work belongs to its launch: the call of a runtime or driver that has its correlation, of several the first.
2. The launch belongs to the innermost operator on its thread that began before it and lasts as it begins.
3. Work that has no operator by its launch belongs to that of its External id, in traces where External ids are shown
   to be those of operators.
4. Work belongs to the step in which its launch began (`service.attribution.steps`), and work without a launch to the
   step in which it began itself.

Kineto writes the correlation as External id where it knows of no operator, and numbers operators from 1 as well: an
External id proves nothing by itself (https://github.com/pytorch/kineto, ``libkineto/src/output_json.cpp``).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from service.attribution.nesting import NONE, Flags, Ints, in_order, owners
from service.attribution.steps import NO_STEP, StepClock, Track, thread_of
from service.attribution.sweep import OpenOperators
from service.store.parts import TRACK, Part, Tracks
from service.trace.summary import (
    ANNOTATION_CATEGORIES,
    GPU_CATEGORIES,
    LAUNCH_PATTERN,
    NOT_OPERATORS,
    OPERATOR_CATEGORIES,
    STEP_PREFIX,
)

ExternalIds = Literal["operators", "other", "unknown"]
"""What the External ids of work are: those of operators, something else, or nothing tells."""

RULES = ("launch", "graph", "external_id", "launch_outside_operators", "graph_outside_operators", "no_launch")
"""By what work has its operator; by the last three it has none, for that reason."""

LAUNCH, GRAPH, EXTERNAL_ID, LAUNCH_OUTSIDE, GRAPH_OUTSIDE, NO_LAUNCH = range(len(RULES))

AGREEING = 0.99
"""The least share of work whose External id has to be that of the operator around its launch."""

_SYNCHRONIZATION = "cuda_sync"
_REGION = "gpu_user_annotation"
_LINKED = GPU_CATEGORIES | {_SYNCHRONIZATION}
COLUMNS = ("ph", "cat", "name", "ts_ns", "dur_ns", "correlation", "external_id", *TRACK)

Read = Callable[[Sequence[str]], Iterator[Part]]
"""Reads some columns of all events, in order of time."""


def _is_launch(category: str | None) -> bool:
    return category is not None and re.fullmatch(LAUNCH_PATTERN, category) is not None


def is_operator(name: str | None) -> bool:
    """Whether what is in a category of operators is one, by its name: until 2022 annotations were there as well."""
    return name not in NOT_OPERATORS and not (name or "").startswith(STEP_PREFIX)


@dataclass(frozen=True)
class Links:
    """The slices on devices that something launched, in order of time.

    Args:
        rows: of the slices, among the events in order of time.
        is_work: which are work; the others are waits and the regions that devices show.
        launches: the row of the launch of each, `NONE` for none.
        operators: the row of its operator, likewise.
        rules: the place in `RULES` of the rule by which it has its operator.
        steps: the number of its step, `NO_STEP` for none.
        external_ids: what its External ids are in this trace.
    """

    rows: Ints
    is_work: Flags
    launches: Ints
    operators: Ints
    rules: Ints
    steps: Ints
    external_ids: ExternalIds

    def of_work(self) -> "Links":
        """Those of work alone."""
        chosen = self.is_work
        if chosen.all():
            return self
        return Links(
            rows=self.rows[chosen],
            is_work=chosen[chosen],
            launches=self.launches[chosen],
            operators=self.operators[chosen],
            rules=self.rules[chosen],
            steps=self.steps[chosen],
            external_ids=self.external_ids,
        )

    def told(self) -> dict[str, object]:
        """Summarise the links: what External ids are, and how much work each rule attributes."""
        counts = np.bincount(self.rules[self.is_work], minlength=len(RULES)).tolist()
        return {
            "external_ids": self.external_ids,
            "rules": {rule: count for rule, count in zip(RULES, counts, strict=True) if count},
        }


def external_ids_shown(summary: Mapping[str, Any]) -> ExternalIds:
    """What the External ids of a trace are, as the catalog has it."""
    return _known(summary.get("attribution", {}).get("external_ids"))


def external_ids_told(envelope: Mapping[str, Any]) -> ExternalIds:
    """What the External ids of a part of a trace are, as the whole trace has shown and the part's document tells."""
    made_of = envelope.get("tracedock")
    part = made_of.get("part") if isinstance(made_of, Mapping) else None
    return _known(part.get("external_ids") if isinstance(part, Mapping) else None)


def _known(told: object) -> ExternalIds:
    return next((one for one in get_args(ExternalIds) if one == told), "unknown")


def linked(read: Read, clock: StepClock, external_ids: ExternalIds = "unknown") -> Links:
    """Find the launch, the operator and the step of all that devices do.

    Args:
        read: of the trace.
        clock: likewise.
        external_ids: what External ids are, where a trace of which this one is a part has shown it.
    """
    events = _Events(clock)
    for part in read(COLUMNS):
        events.add(part)
    return events.links(read, external_ids)


class _Events:
    """What is kept of the events, which come in order of time."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock
        self._tracks = Tracks()
        self._open = OpenOperators()
        self._held = [np.empty(0, np.int64)] * 8  # slices that begin as the last one that came
        self._calls: list[list[Ints]] = []
        self._linked: list[list[Ints]] = []
        self._regions: list[list[Ints]] = []
        self._names: dict[str, int] = {}
        self._threads: dict[Track, int] = {}

    def add(self, part: Part) -> None:
        """Take the events of the next part."""
        timed = part.slices & part.has("ts_ns")
        is_operator_ = part.which("cat", OPERATOR_CATEGORIES.__contains__)
        if is_operator_.any():
            is_operator_ &= part.which("name", is_operator)
        is_call = part.which("cat", _is_launch)
        is_call &= part.ints("correlation") > 0
        self._take_host(part, np.flatnonzero(timed & (is_operator_ | is_call)), is_call)
        self._take_linked(part, np.flatnonzero(timed & part.which("cat", _LINKED.__contains__)))
        self._take_regions(part, np.flatnonzero(timed & part.which("cat", {_REGION}.__contains__)), is_device=1)
        on_host = part.which("cat", ANNOTATION_CATEGORIES.__contains__)
        self._take_regions(part, np.flatnonzero(timed & on_host), is_device=0)

    def _take_host(self, part: Part, rows: Ints, is_call: Flags) -> None:
        if not len(rows):
            return
        is_graph = part.which("name", lambda name: "GraphLaunch" in (name or ""))
        new = (
            is_call[rows].astype(np.int64), self._tracks.of(part)[rows], part.starts[rows], part.ends[rows],
            part.ints("external_id")[rows], part.first + rows, part.ints("correlation")[rows], is_graph[rows],
        )  # fmt: skip
        slices = [np.concatenate(each) for each in zip(self._held, new, strict=True)]
        ready = int(np.searchsorted(slices[2], slices[2][-1]))
        self._held = [values[ready:] for values in slices]
        self._sweep([values[:ready] for values in slices])

    def _sweep(self, slices: list[Ints]) -> None:
        """Find the operators around calls; no later slice begins as soon as one of these."""
        order = in_order(slices[2], slices[3])
        calls, tracks, starts, ends, ids, rows, correlations, graphs = (values[order] for values in slices)
        is_call = calls > 0
        if not len(rows):
            return
        threads = [self._threads.setdefault(thread_of(*key), len(self._threads)) for key in self._tracks.keys]
        around = self._open.around(is_call, np.array(threads, np.int64)[tracks], starts, ends, ids, rows)
        steps = self._clock.at(starts[is_call], tracks[is_call], self._tracks.keys)
        told = (values[is_call] for values in (correlations, rows, ids, graphs))
        self._calls.append([*told, around[:, 0], around[:, 1], steps])

    def _take_linked(self, part: Part, rows: Ints) -> None:
        if len(rows):
            is_work = part.which("cat", GPU_CATEGORIES.__contains__)[rows]
            self._linked.append(
                [part.first + rows, part.ints("correlation")[rows], part.ints("external_id")[rows], part.starts[rows],
                 self._tracks.of(part)[rows], is_work.astype(np.int64)]
            )  # fmt: skip

    def _take_regions(self, part: Part, rows: Ints, *, is_device: int) -> None:
        if len(rows):
            codes, words = part.coded("name")
            names = np.array([*(self._names.setdefault(word, len(self._names)) for word in words), NONE], np.int64)
            self._regions.append(
                [part.first + rows, part.ints("external_id")[rows], names[codes[rows]], part.starts[rows],
                 self._tracks.of(part)[rows], np.full(len(rows), is_device)]
            )  # fmt: skip

    def links(self, read: Read, external_ids: ExternalIds) -> Links:
        """All that was found."""
        self._sweep(self._held)
        correlations, call_rows, call_ids, graphs, around, around_ids, call_steps = _joined(self._calls, 7)
        rows, wanted, ids, starts, tracks, is_work = _joined(self._linked, 6)
        call = owners(correlations, wanted)
        is_launched = call != NONE
        ids = np.where(ids > 0, ids, np.append(call_ids, 0)[call])
        operators, theirs = np.append(around, NONE)[call], np.append(around_ids, 0)[call]
        if external_ids == "unknown":
            external_ids = _shown(ids, theirs, (is_work > 0) & (operators != NONE))
        rules = np.where(operators != NONE, LAUNCH, LAUNCH_OUTSIDE) + np.append(graphs, 0)[call]
        rules = np.where(is_launched, rules, NO_LAUNCH)
        lacking = (is_work > 0) & (operators == NONE) & (ids > 0)
        if external_ids != "other" and lacking.any():
            found = _Named(read, ids[lacking])
            if external_ids == "unknown":
                external_ids = found.shown(starts[lacking], wanted[lacking])
            if external_ids == "operators":
                places = np.flatnonzero(lacking)[found.rows != NONE]
                operators[places], rules[places] = found.rows[found.rows != NONE], EXTERNAL_ID
        steps = np.append(call_steps, NO_STEP)[call]
        alone = np.flatnonzero(~is_launched)
        steps[alone] = self._clock.at(starts[alone], tracks[alone], self._tracks.keys)
        launches = np.append(call_rows, NONE)[call]
        regions = self._regions_linked()
        columns = [rows, is_work, launches, operators, rules, steps]
        columns = [np.concatenate(both) for both in zip(columns, regions, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        rows, is_work, launches, operators, rules, steps = (values[order] for values in columns)
        return Links(rows, is_work > 0, launches, operators, rules, steps, external_ids)

    def _regions_linked(self) -> list[Ints]:
        """The regions that devices show: they are in the steps of the host's annotations of their names and ids."""
        rows, ids, names, starts, tracks, is_device = _joined(self._regions, 6)
        keys = np.where(ids > 0, ids * (len(self._names) + 1) + names + 1, 0)
        steps = self._clock.at(starts, tracks, self._tracks.keys)
        shown, host = np.flatnonzero(is_device > 0), np.flatnonzero(is_device == 0)
        of = owners(keys[host], keys[shown])
        steps = np.where(of != NONE, np.append(steps[host], NO_STEP)[of], steps[shown])
        none = np.full(len(shown), NONE)
        return [rows[shown], np.zeros(len(shown), np.int64), none, none, np.full(len(shown), NO_LAUNCH), steps]


class _Named:
    """The operators that External ids name.

    Attributes:
        rows: the row of the operator of each id, `NONE` where there is none or more than one.
    """

    def __init__(self, read: Read, ids: Ints) -> None:
        found: list[list[Ints]] = []
        for part in read(("ph", "cat", "name", "ts_ns", "dur_ns", "external_id")):
            chosen = part.which("cat", OPERATOR_CATEGORIES.__contains__) & part.slices & part.has("ts_ns")
            chosen &= part.which("name", is_operator)
            rows = np.flatnonzero(chosen & np.isin(part.ints("external_id"), ids))
            found.append([part.ints("external_id")[rows], part.first + rows, part.starts[rows]])
        named, rows, starts = _joined(found, 3)
        different, counts = np.unique(named, return_counts=True)
        unique = np.isin(named, different[counts == 1])
        place = owners(named[unique], ids)
        self.rows = np.append(rows[unique], NONE)[place]
        self._ids = ids
        self._starts = np.append(starts[unique], np.iinfo(np.int64).max)[place]

    def shown(self, starts: Ints, correlations: Ints) -> ExternalIds:
        """What External ids are where no launch tells: operators', if nearly all name one that began before the work.

        Args:
            starts: of the work.
            correlations: likewise; an External id that is the correlation was made of it.
        """
        if not len(starts):
            return "unknown"
        fitting = (self.rows != NONE) & (self._starts <= starts) & (self._ids != correlations)
        return "operators" if fitting.mean() >= AGREEING else "other"


def _shown(ids: Ints, theirs: Ints, comparable: Flags) -> ExternalIds:
    """What External ids are, by work that has one and an operator around its launch."""
    comparable = comparable & (ids > 0)
    if not comparable.any():
        return "unknown"
    return "operators" if (ids == theirs)[comparable].mean() >= AGREEING else "other"


def _joined(parts: list[list[Ints]], width: int) -> list[Ints]:
    """The columns of some parts as one."""
    empty = [np.empty(0, np.int64)] * width
    return [np.concatenate(each).astype(np.int64) for each in zip(empty, *parts, strict=True)]

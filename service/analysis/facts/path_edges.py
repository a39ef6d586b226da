"""The edges of the critical path, and what they add up to."""

import re
from typing import Any

import numpy as np

from service.analysis.facts.autograd_threads import callers_of, threads_of
from service.analysis.facts.host import ANNOTATION, CALLS, host_of, read_arrays
from service.analysis.facts.intervals import Ints, percentage
from service.analysis.facts.longest_path import (
    ALL,
    AT,
    BEFORE,
    END,
    KIND,
    KINDS,
    LAUNCH,
    LENGTH,
    NAME,
    OWN,
    SLICE,
    SOURCE,
    START,
    STREAM,
    TARGET,
    UNTIL,
    WORK_START,
    LongestPath,
    tell_edges,
)
from service.analysis.facts.scope import Scope
from service.attribution.nesting import (
    DROPPED,
    NONE,
    Flags,
    count_by_key,
    factorize,
    first_indices,
    first_matches,
    parents_of,
    require_countable,
    sum_by_key,
)
from service.trace.errors import NotApplicable
from service.trace.summary import STEP_PREFIX

_BLOCKING = re.compile(r"(Device|Ctx|Context|Stream|Event)Synchronize")
_RECORDS = re.compile(r"EventRecord(WithFlags)?(_\w+)?$")
_STREAM_WAITS = re.compile(r"StreamWaitEvent(_\w+)?$")
_WORK = """
SELECT start_ns AS starts, end_ns AS ends, position AS positions, name AS names, enum_code(type)::INTEGER AS types,
    coalesce(device, -1) AS devices, coalesce(stream, -1) AS streams, coalesce(correlation, 0) AS correlations
FROM work
"""
_TOLD = """
SELECT name, coalesce(device, pid, -1) AS device, coalesce(stream, -1) AS stream, coalesce(correlation, 0) AS call,
    coalesce(try_cast(told[1] AS BIGINT), -1) AS other, coalesce(try_cast(told[2] AS BIGINT), 0) AS record
FROM (
    SELECT *, try(json_extract_string(
        args, ['$."wait_on_stream"', '$."wait_on_cuda_event_record_corr_id"'])) AS told
    FROM events WHERE ph = 'X' AND cat = 'cuda_sync' AND name IN ('Stream Sync', 'Event Sync', 'Stream Wait Event')
)
"""
"""What CUPTI tells of waits, where a program let it: HTA's own words for these are of use to us as well."""

Table = dict[str, Any]


class PathEdges:
    """The edges of the longest path of a rank, of which the view `work` is made.

    Args:
        scope: what is asked.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.found, words = read_arrays(scope, _WORK, {"names"})
        if (np.diff(self.found["starts"]) < 0).any():
            order = np.argsort(self.found["starts"], kind="stable")
            self.found = {name: column[order] for name, column in self.found.items()}
        found = self.found
        require_countable(found["ends"] - found["starts"], "The time of what devices do")
        self.words = words["names"]
        self.host = host = host_of(scope)
        is_step = np.array([word.startswith(STEP_PREFIX) for word in host.words], bool)
        left_out = (host.kinds == ANNOTATION) | is_step[host.names]  # a copy of the others would take half a GB
        taking_part = ~left_out
        self.start, self.end = _bounds(
            (host.starts, taking_part), (host.ends, taking_part), (found["starts"], True), (found["ends"], True)
        )
        if self.end - self.start >= 1 << 62:
            raise NotApplicable("The trace spans more than 64 bits of nanoseconds can tell.")
        self.parents = parents_of(host.threads, host.starts, host.ends, drop=True, left_out=left_out)
        del left_out, taking_part
        (devices, _), (streams, many) = factorize(found["devices"]), factorize(found["streams"])
        lanes, self.streams = factorize(devices.astype(np.int64) * many + streams)
        firsts = first_indices(lanes, self.streams)
        told = zip(found["devices"][firsts].tolist(), found["streams"][firsts].tolist(), strict=True)
        self.lane_of = {lane: number for number, lane in enumerate(told)}
        correlations = np.where(self.parents == DROPPED, 0, host.correlations)
        call = first_matches(correlations, found["correlations"])
        begun = _at(host.starts, call, 0)
        launch = np.where((call >= 0) & (begun <= found["starts"]), call, NONE)
        self.launched_at = np.where(launch >= 0, begun, found["starts"])
        self.work = np.zeros((len(launch), 10), np.int64)
        for column, values in enumerate([found["starts"], found["ends"], lanes, launch, NONE, self.launched_at]):
            self.work[:, column] = values
        is_told = scope.has_categories(["cuda_sync"])
        waits = self._waits(scope.table(_TOLD).to_pylist() if is_told else [], correlations)
        if not is_told:
            self._infer_events()
        del correlations
        callers = callers_of(scope, host)
        path = LongestPath(host.starts, host.ends, host.threads, self.parents, self.work, waits, callers)
        edges = np.zeros((2 * len(path.points), 7), np.int64, order="F")  # of which each column is used by itself
        self.wait_of = np.full(len(host), NONE, np.int32)
        self.wait_of[waits[:, SLICE]] = np.arange(len(waits))
        self.all_words = [*host.words, *self.words, None]
        count = tell_edges(
            path.points, host.starts, host.ends, host.threads, self.parents, host.names, self.wait_of, path.waits,
            self.work, found["types"], found["names"], len(host.words), len(self.all_words) - 1, edges,
        )  # fmt: skip
        columns = (edges[:count, one] for one in (AT, UNTIL, LENGTH, KIND, NAME, SOURCE, TARGET))
        self.at, self.until, self.length, kind, self.names, self.sources, self.targets = columns
        self.kind = kind.astype(np.int32)
        self.on_work = (self.targets & 3 >= WORK_START) & (self.kind != KINDS.index("launch"))

    def _waits(self, told: list[dict[str, Any]], correlations: Ints) -> Ints:
        """The calls that wait, and for what; and for what work was told to wait."""
        host, work = self.host, self.work
        blocking = np.array([_BLOCKING.search(word) is not None for word in host.words], bool)
        blocks = np.flatnonzero(blocking[host.names]) if blocking.any() else np.empty(0, np.int64)
        blocks = blocks[(host.kinds[blocks] == CALLS) & (self.parents[blocks] != DROPPED)]
        waits = dict.fromkeys(blocks.tolist(), (ALL, NONE))
        launched = np.flatnonzero(work[:, LAUNCH] >= 0)
        over = host.ends[work[launched, LAUNCH]]
        for one in launched[(work[launched, END] <= over) & (work[launched, START] < over)].tolist():
            call = int(work[one, LAUNCH])
            if waits.get(call, (OWN, NONE))[0] == OWN:
                waits[call] = (OWN, one)
        order = np.lexsort((self.launched_at, work[:, 2])) if told else np.empty(0, np.int64)
        bounds = np.searchsorted(work[order, 2], np.arange(self.streams + 1)) if told else order
        calls = first_matches(correlations, np.array([one["call"] for one in told], np.int64)).tolist()
        records = first_matches(correlations, np.array([one["record"] for one in told], np.int64)).tolist()
        for one, call, record in zip(told, calls, records, strict=True):
            lane = self.lane_of.get((one["device"], one["stream"]))
            other = self.lane_of.get((one["device"], one["other"]))
            if call < 0:
                continue
            if one["name"] == "Stream Sync":
                if call in waits and lane is not None:
                    waits[call] = (lane, NONE)
                continue
            if other is None or record < 0:
                continue
            rows = order[bounds[other] : bounds[other + 1]]
            place = int(np.searchsorted(self.launched_at[rows], host.starts[record], "left")) - 1
            awaited = int(rows[place]) if place >= 0 else NONE
            if one["name"] == "Event Sync":
                if call in waits and awaited >= 0:
                    waits[call] = (OWN, awaited if work[awaited, START] < host.ends[call] else NONE)
            elif lane is not None and awaited >= 0:
                rows = order[bounds[lane] : bounds[lane + 1]]
                place = int(np.searchsorted(self.launched_at[rows], host.starts[call], "left"))
                if place < len(rows):
                    self._tell_to_wait(int(rows[place]), awaited)
        found = np.zeros((len(waits), 6), np.int64)
        if waits:
            found[:, 0] = list(waits)
            found[:, 1:3] = list(waits.values())
        in_order: Ints = found[np.argsort(host.ends[found[:, 0]], kind="stable")]
        return in_order

    def _infer_events(self) -> None:
        """Where nothing tells which event a stream waits for, take that which the thread has recorded last before.

        Then the work that the thread launches next waits for what it launched last before it recorded the event.
        """
        launched = np.flatnonzero(self.work[:, LAUNCH] >= 0)
        calls = self._in_turn(self.work[launched, LAUNCH])
        order = np.argsort(calls, kind="stable")
        calls, launched = calls[order], launched[order]
        records, waits = (np.sort(self._in_turn(self._calls_named(pattern))) for pattern in (_RECORDS, _STREAM_WAITS))
        before = np.searchsorted(records, waits) - 1
        waits, records = waits[before >= 0], records[before[before >= 0]]
        source, target = np.searchsorted(calls, records) - 1, np.searchsorted(calls, waits)
        whole = (source >= 0) & (target < len(calls))
        waits, source, target = waits[whole], source[whole], target[whole]
        same = (waits // self._radix == calls[source] // self._radix) & (
            waits // self._radix == calls[target] // self._radix
        )
        for one, for_ in zip(launched[target[same]].tolist(), launched[source[same]].tolist(), strict=True):
            if self.work[one, STREAM] != self.work[for_, STREAM]:
                self._tell_to_wait(one, for_)

    def _calls_named(self, pattern: re.Pattern[str]) -> Ints:
        """The calls of which the name has a pattern."""
        named = np.array([pattern.search(word) is not None for word in self.host.words], bool)
        found = np.flatnonzero(named[self.host.names]) if named.any() else np.empty(0, np.int64)
        calls: Ints = found[self.host.kinds[found] == CALLS]
        return calls

    def _in_turn(self, slices: Ints) -> Ints:
        """A number for each of some slices, in order of their threads and, on these, of time; in the order given."""
        return self.host.threads[slices].astype(np.int64) * self._radix + slices

    @property
    def _radix(self) -> int:
        return len(self.host) + 1

    def _tell_to_wait(self, one: int, for_: int) -> None:
        """Work has to wait for other work, of all that it is told the last to end."""
        before = int(self.work[one, BEFORE])
        is_over = self.work[for_, END] <= self.work[one, START] and for_ < one
        if is_over and (before < 0 or self.work[for_, END] > self.work[before, END]):
            self.work[one, BEFORE] = for_

    def total(self) -> Table:
        """The path as a whole."""
        span, length = self.end - self.start, int(self.length.sum())
        return {
            "span_ns": [span],
            "length_ns": [length],
            "length_pct": [percentage(length, span)],
            "start_ns": [int(self.at[0])] if len(self.at) else [None],
            "end_ns": [int(self.until[-1])] if len(self.at) else [None],
            "edges": [len(self.at)],
        }

    def by_kind(self) -> Table:
        """What the edges of each kind add to the path, that which adds most first."""
        edges, length = (
            count_by_key(self.kind, len(KINDS)),
            sum_by_key(self.kind, self.length, len(KINDS)),
        )
        order = [one for one in np.argsort(-length, kind="stable").tolist() if edges[one]]
        return {"kind": [KINDS[one] for one in order], **self._sums(edges[order], length[order])}

    def by_name(self) -> Table:
        """The same for each kind and name."""
        numbers, many = factorize(self.names * len(KINDS) + self.kind)
        firsts, edges, length = (
            first_indices(numbers, many),
            count_by_key(numbers, many),
            sum_by_key(numbers, self.length, many),
        )
        order = np.lexsort((firsts, -length))
        return {
            "kind": [KINDS[one] for one in self.kind[firsts[order]]],
            "name": [self.all_words[one] for one in self.names[firsts[order]]],
            **self._sums(edges[order], length[order]),
        }

    def longest(self, many: int) -> Table:
        """The longest edges, in order of time."""
        chosen = _largest(self.length, many)
        on_work = self.on_work[chosen]
        index = np.where(on_work, self.targets[chosen] >> 2, NONE)
        devices, streams = (_at(self.found[name], index, NONE) for name in ("devices", "streams"))
        threads = [tid if isinstance(tid, int) else None for _, tid in threads_of(self._scope, self.host)]
        return {
            "number": chosen,
            "kind": [KINDS[one] for one in self.kind[chosen]],
            "name": [self.all_words[one] for one in self.names[chosen]],
            "start_ns": self.at[chosen],
            "end_ns": self.until[chosen],
            "length_ns": self.length[chosen],
            "thread": [None if one < 0 else threads[one] for one in self.threads(chosen).tolist()],
            "device": _told(devices, on_work),
            "stream": _told(streams, on_work),
        }

    def threads(self, chosen: Ints) -> Ints:
        """The number of the host's thread on which each of some edges is, or that which it leads to; of work `NONE`."""
        targets = self.targets[chosen]
        launched = np.where(self.kind[chosen] == KINDS.index("launch"), targets >> 2, NONE)
        slices = np.where(targets & 3 < WORK_START, targets >> 2, _at(self.work[:, LAUNCH], launched, NONE))
        threads: Ints = np.where(slices >= 0, _at(self.host.threads, slices, NONE), NONE)
        return threads

    def _sums(self, edges: Ints, length: Ints) -> Table:
        whole = int(self.length.sum())
        shares = [percentage(one, whole) for one in length.tolist()]
        return {"edges": edges, "length_ns": length, "length_pct": shares}


def _bounds(*times: tuple[Ints, Any]) -> tuple[int, int]:
    """The first and the last of some times, each told with which of them count; of none, nothing."""
    known = np.iinfo(np.int64)
    first = min(int(one.min(initial=known.max, where=counts)) for one, counts in times)
    last = max(int(one.max(initial=known.min, where=counts)) for one, counts in times)
    return (first, last) if first <= last else (0, 0)


def _largest(values: Ints, many: int) -> Ints:
    """The places of the largest values, in order; of equal ones the first."""
    if many >= len(values):
        return np.arange(len(values))
    if not many:
        return np.empty(0, np.int64)
    least = np.partition(values, -many)[-many]
    larger, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
    return np.sort(np.concatenate([larger, equal[: many - len(larger)]]))


def _at(values: Any, index: Any, other: int) -> Any:
    """The values at some places, and another where the place is negative."""
    return np.where(index >= 0, values[np.maximum(index, 0)], other) if len(values) else np.full(len(index), other)


def _told(values: Ints, known: Flags) -> list[int | None]:
    return [one if there and one >= 0 else None for one, there in zip(values.tolist(), known.tolist(), strict=True)]

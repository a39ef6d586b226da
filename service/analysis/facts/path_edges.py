"""The edges of the critical path, and their sums."""

import re
from functools import cached_property
from typing import Any

import numpy as np

from service.analysis.facts.autograd_threads import callers_of, links_of_threads, threads_of
from service.analysis.facts.device_events import TIMES, TYPED, device_events
from service.analysis.facts.host import ANNOTATION, CALLS, host_of
from service.analysis.facts.intervals import Ints, percentage
from service.analysis.facts.longest_path import (
    ALL,
    KINDS,
    OWN,
    SLICE,
    WORK_START,
    LongestPath,
    Work,
    write_edges,
)
from service.analysis.facts.scope import Scope
from service.attribution.nesting import (
    DROPPED,
    NONE,
    Flags,
    Indices,
    count_by_key,
    factorize,
    first_indices,
    first_matches,
    parents_of,
    require_countable,
    sum_by_key,
    total_duration,
)
from service.trace.errors import NotApplicable
from service.trace.summary import STEP_PREFIX

_PATTERNS = _BLOCKING, _RECORDS, _STREAM_WAITS = (
    re.compile(r"(Device|Ctx|Context|Stream|Event)Synchronize"),
    re.compile(r"EventRecord(WithFlags)?(_\w+)?$"),
    re.compile(r"StreamWaitEvent(_\w+)?$"),
)
_SYNCHRONIZATIONS = """
SELECT name, coalesce(device, pid, -1) AS device, coalesce(stream, -1) AS stream, coalesce(correlation, 0) AS call,
    coalesce(try_cast(fields[1] AS BIGINT), -1) AS other, coalesce(try_cast(fields[2] AS BIGINT), 0) AS record
FROM (
    SELECT *, try(json_extract_string(
        args, ['$."wait_on_stream"', '$."wait_on_cuda_event_record_corr_id"'])) AS fields
    FROM events WHERE ph = 'X' AND cat = 'cuda_sync' AND name IN ('Stream Sync', 'Event Sync', 'Stream Wait Event')
)
"""
"""SQL for the waits that CUPTI records if synchronization events are enabled, by the names that HTA reads."""

Table = dict[str, Any]


class PathEdges:
    """The edges of the longest path of a rank.

    Args:
        scope: scope of the rank.

    Attributes:
        host: slices of the host.
        work: the work, as `LongestPath` takes it.
        work_columns: columns of the same work.
        at: start of each edge, in order of time.
        until: end of each edge.
        length: length that each edge adds to the path.
        kind: kind of each edge, an index into `KINDS`.
        names: name of each edge, an index into `all_words`.

    Raises:
        NotApplicable: the times do not fit in 64 bits.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        with scope.beside(Scope.slices):
            self.work_columns, self.words = _work_columns(scope)
            links_of_threads(scope)
        columns = self.work_columns
        require_countable(total_duration(columns["starts"], columns["ends"]), "The time of work on devices")
        self.host = host = host_of(scope)
        self.correlated = scope.slices().correlated
        with scope.beside(lambda _: first_matches(self.correlated.ids, columns["correlations"])) as matches:
            self._nest()
        (devices, _), (streams, stream_count) = factorize(columns["devices"]), factorize(columns["streams"])
        stream_codes, self.streams = factorize(devices.astype(np.int64) * stream_count + streams)
        firsts = first_indices(stream_codes, self.streams)
        pairs = zip(columns["devices"][firsts].tolist(), columns["streams"][firsts].tolist(), strict=True)
        self.stream_code = {pair: code for code, pair in enumerate(pairs)}
        places, dropped = matches.result(), self.parents[self.correlated.indices] == DROPPED
        if dropped.any():  # mostly not, and a copy takes memory
            self.correlated = self.correlated._replace(ids=np.where(dropped, 0, self.correlated.ids))
            places = first_matches(self.correlated.ids, columns["correlations"])
        call = _take_or(self.correlated.indices, places, NONE)
        call_starts = _take_or(host.starts, call, 0)
        launches = np.where((call >= 0) & (call_starts <= columns["starts"]), call, NONE).astype(np.int32)
        launched_at = np.where(launches >= 0, call_starts, columns["starts"])
        self.work = Work.of(columns["starts"], columns["ends"], stream_codes, launches, places, launched_at)
        del dropped, places, call, call_starts, launches, launched_at
        has_synchronizations = scope.has_categories(["cuda_sync"])
        waits = self._waits(scope.table(_SYNCHRONIZATIONS).to_pylist() if has_synchronizations else [])
        if not has_synchronizations:
            self._infer_events()
        callers = callers_of(scope, host)
        path = LongestPath(
            host.starts, host.ends, host.threads, self.parents, self.correlated.indices, self.work, waits, callers,
            host.threads_by_key,
        )  # fmt: skip
        times = np.empty((3, 2 * len(path.points)), np.int64)
        codes = np.empty((3, 2 * len(path.points)), np.int32)
        self.all_words = [*host.words, *self.words, None]
        by_slice = np.argsort(waits[:, SLICE])
        count = write_edges(
            path.points, host.starts, host.ends, host.threads, self.parents, host.names, by_slice, path.waits,
            self.work, columns["types"], columns["names"], len(host.words), len(self.all_words) - 1, times, codes,
        )  # fmt: skip
        self.at, self.until, self.length = times[:, :count]
        self.kind, self.names, self._steps = codes[:, :count]
        self._points = path.points

    def _nest(self) -> None:
        """Find the parents of slices, and the bounds of all that can be on a path."""
        host, columns = self.host, self.work_columns
        is_step = np.array([word.startswith(STEP_PREFIX) for word in host.words], bool)
        # flags, since a copy of the other slices could take half a GB
        left_out = (host.kinds == ANNOTATION) | is_step[host.names]
        self.start, self.end = _bounds(
            (host.starts, host.ends, ~left_out), (columns["starts"], columns["ends"], np.True_)
        )
        if self.end - self.start >= 1 << 62:
            raise NotApplicable("The trace spans more nanoseconds than 64 bits can hold.")
        self.parents = parents_of(host.threads, host.starts, host.ends, drop=True, left_out=left_out)

    def sources(self, chosen: Ints) -> Ints:
        """Return the point from which each chosen edge leads."""
        points: Ints = self._points[self._steps[chosen]]
        return points

    def targets(self, chosen: Ints) -> Ints:
        """Return the point to which each chosen edge leads."""
        points: Ints = self._points[self._steps[chosen] + 1]
        return points

    def _waits(self, synchronizations: list[dict[str, Any]]) -> Ints:
        """Return the calls that wait, with their targets; record in `work` which work waits for other work."""
        host, work = self.host, self.work
        blocks = self._named_calls[_BLOCKING]
        blocks = blocks[self.parents[blocks] != DROPPED]
        waits = dict.fromkeys(blocks.tolist(), (ALL, NONE))
        launched = np.flatnonzero(work.launches >= 0)
        call_ends = host.ends[work.launches[launched]]
        for row in launched[(work.ends[launched] <= call_ends) & (work.starts[launched] < call_ends)].tolist():
            call = int(work.launches[row])
            if waits.get(call, (OWN, NONE))[0] == OWN:
                waits[call] = (OWN, row)
        by_launch = np.lexsort((self.work.launched_at, work.streams)) if synchronizations else np.empty(0, np.int64)
        bounds = (
            np.searchsorted(work.streams[by_launch], np.arange(self.streams + 1)) if synchronizations else by_launch
        )
        calls, records = (
            _take_or(self.correlated.indices, first_matches(self.correlated.ids, ids), NONE).tolist()
            for ids in (np.array([sync[name] for sync in synchronizations], np.int64) for name in ("call", "record"))
        )
        for sync, call, record in zip(synchronizations, calls, records, strict=True):
            stream = self.stream_code.get((sync["device"], sync["stream"]))
            other = self.stream_code.get((sync["device"], sync["other"]))
            if call < 0:
                continue
            if sync["name"] == "Stream Sync":
                if call in waits and stream is not None:
                    waits[call] = (stream, NONE)
                continue
            if other is None or record < 0:
                continue
            rows = by_launch[bounds[other] : bounds[other + 1]]
            position = int(np.searchsorted(self.work.launched_at[rows], host.starts[record], "left")) - 1
            awaited = int(rows[position]) if position >= 0 else NONE
            if sync["name"] == "Event Sync":
                if call in waits and awaited >= 0:
                    waits[call] = (OWN, awaited if work.starts[awaited] < host.ends[call] else NONE)
            elif stream is not None and awaited >= 0:
                rows = by_launch[bounds[stream] : bounds[stream + 1]]
                position = int(np.searchsorted(self.work.launched_at[rows], host.starts[call], "left"))
                if position < len(rows):
                    self._add_dependency(int(rows[position]), awaited)
        wait_rows = np.zeros((len(waits), 6), np.int64)
        if waits:
            wait_rows[:, 0] = list(waits)
            wait_rows[:, 1:3] = list(waits.values())
        by_end: Ints = wait_rows[np.argsort(host.ends[wait_rows[:, 0]], kind="stable")]
        return by_end

    def _infer_events(self) -> None:
        """Infer the events for which streams wait, in a trace that does not record them.

        A stream is taken to wait for the last event that the same thread recorded. The work that the thread launches
        next waits for the last work that the thread launched before it recorded the event.
        """
        launched = np.flatnonzero(self.work.launches >= 0)
        calls = self._thread_order(self.work.launches[launched])
        order = np.argsort(calls, kind="stable")
        calls, launched = calls[order], launched[order]
        records, waits = (
            np.sort(self._thread_order(self._named_calls[pattern])) for pattern in (_RECORDS, _STREAM_WAITS)
        )
        before = np.searchsorted(records, waits) - 1
        waits, records = waits[before >= 0], records[before[before >= 0]]
        source, target = np.searchsorted(calls, records) - 1, np.searchsorted(calls, waits)
        complete = (source >= 0) & (target < len(calls))
        waits, source, target = waits[complete], source[complete], target[complete]
        same_thread = (waits // self._radix == calls[source] // self._radix) & (
            waits // self._radix == calls[target] // self._radix
        )
        waiting, awaited = launched[target[same_thread]], launched[source[same_thread]]
        crossing = self.work.streams[waiting] != self.work.streams[awaited]
        for pair in zip(waiting[crossing].tolist(), awaited[crossing].tolist(), strict=True):
            self._add_dependency(*pair)

    @cached_property
    def _named_calls(self) -> dict[re.Pattern[str], Ints]:
        """Return the calls whose name matches each pattern."""
        host = self.host
        bits = np.array(
            [sum(1 << bit for bit, pattern in enumerate(_PATTERNS) if pattern.search(word)) for word in host.words],
            np.uint8,
        )
        if not bits.any():
            return {pattern: np.empty(0, np.int64) for pattern in _PATTERNS}
        named = np.flatnonzero(bits[host.names])
        calls = named[host.kinds[named] == CALLS]
        matching = bits[host.names[calls]]
        return {pattern: calls[matching & 1 << bit > 0] for bit, pattern in enumerate(_PATTERNS)}

    def _thread_order(self, slices: Ints | Indices) -> Ints:
        """Return a sort key for each slice: by thread, then by time."""
        return self.host.threads[slices].astype(np.int64) * self._radix + slices

    @property
    def _radix(self) -> int:
        return len(self.host) + 1

    def _add_dependency(self, waiting: int, awaited: int) -> None:
        """Make work wait for other work; of several dependencies, keep the one that ends last."""
        before = int(self.work.before[waiting])
        is_over = self.work.ends[awaited] <= self.work.starts[waiting] and awaited < waiting
        if is_over and (before < 0 or self.work.ends[awaited] > self.work.ends[before]):
            self.work.before[waiting] = awaited

    def total(self) -> Table:
        """Return the span and length of the whole path."""
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
        """Return the count and length of edges by kind, the longest first."""
        edges, length = (
            count_by_key(self.kind, len(KINDS)),
            sum_by_key(self.kind, self.length, len(KINDS)),
        )
        order = [kind for kind in np.argsort(-length, kind="stable").tolist() if edges[kind]]
        return {"kind": [KINDS[kind] for kind in order], **self._sums(edges[order], length[order])}

    def by_name(self) -> Table:
        """Return the count and length of edges by kind and name, the longest first."""
        keys, count = factorize(self.names.astype(np.int64) * len(KINDS) + self.kind)
        firsts, edges, length = (
            first_indices(keys, count),
            count_by_key(keys, count),
            sum_by_key(keys, self.length, count),
        )
        order = np.lexsort((firsts, -length))
        return {
            "kind": [KINDS[kind] for kind in self.kind[firsts[order]]],
            "name": [self.all_words[name] for name in self.names[firsts[order]]],
            **self._sums(edges[order], length[order]),
        }

    def longest(self, count: int) -> Table:
        """Return the longest edges, in order of time."""
        chosen = _largest(self.length, count)
        targets = self.targets(chosen)
        on_work = (targets & 3 >= WORK_START) & (self.kind[chosen] != KINDS.index("launch"))
        index = np.where(on_work, targets >> 2, NONE)
        devices, streams = (_take_or(self.work_columns[name], index, NONE) for name in ("devices", "streams"))
        tids = [tid if isinstance(tid, int) else None for _, tid in threads_of(self._scope, self.host)]
        return {
            "number": chosen,
            "kind": [KINDS[kind] for kind in self.kind[chosen]],
            "name": [self.all_words[name] for name in self.names[chosen]],
            "start_ns": self.at[chosen],
            "end_ns": self.until[chosen],
            "length_ns": self.length[chosen],
            "thread": [None if thread < 0 else tids[thread] for thread in self.threads(chosen).tolist()],
            "device": _or_none(devices, on_work),
            "stream": _or_none(streams, on_work),
        }

    def threads(self, chosen: Ints) -> Ints:
        """Return the number of the host thread of each chosen edge, or of its target; `NONE` for work."""
        targets = self.targets(chosen)
        launched = np.where(self.kind[chosen] == KINDS.index("launch"), targets >> 2, NONE)
        slices = np.where(targets & 3 < WORK_START, targets >> 2, _take_or(self.work.launches, launched, NONE))
        threads: Ints = np.where(slices >= 0, _take_or(self.host.threads, slices, NONE), NONE)
        return threads

    def _sums(self, edges: Ints, length: Ints) -> Table:
        total = int(self.length.sum())
        shares = [percentage(part, total) for part in length.tolist()]
        return {"edges": edges, "length_ns": length, "length_pct": shares}


def _work_columns(scope: Scope) -> tuple[dict[str, Any], list[str]]:
    """Return the columns of work in order of start and, of equal starts, of end; and the names by code."""
    work = device_events(scope, ("position", "device", "stream", "correlation", *TIMES, *TYPED))
    names, words = work.names()
    columns: dict[str, Any] = {
        "starts": work.starts,
        "ends": work.ends,
        "positions": work.ints("position"),
        "names": names,
        "types": work.types(),
        "devices": work.ints("device", NONE),
        "streams": work.ints("stream", NONE),
        "correlations": work.ints("correlation"),
    }
    between_starts, between_ends = (np.diff(columns[name]) for name in ("starts", "ends"))
    if ((between_starts < 0) | ((between_starts == 0) & (between_ends < 0))).any():
        order = np.lexsort((columns["ends"], columns["starts"]))
        columns = {name: column[order] for name, column in columns.items()}
    return columns, words


def _bounds(*times: tuple[Ints, Ints, Any]) -> tuple[int, int]:
    """Return the first start and the last end of the flagged of several starts and ends; zeros if none is flagged."""
    limits = np.iinfo(np.int64)
    first = min(int(starts.min(initial=limits.max, where=counts)) for starts, _, counts in times)
    last = max(int(ends.max(initial=limits.min, where=counts)) for _, ends, counts in times)
    return (first, last) if first <= last else (0, 0)


def _largest(values: Ints, count: int) -> Ints:
    """Return the indices of the largest values, in ascending order; of equal values the first."""
    if count >= len(values):
        return np.arange(len(values))
    if not count:
        return np.empty(0, np.int64)
    threshold = np.partition(values, -count)[-count]
    larger, equal = np.flatnonzero(values > threshold), np.flatnonzero(values == threshold)
    return np.sort(np.concatenate([larger, equal[: count - len(larger)]]))


def _take_or(values: Any, index: Any, default: int) -> Any:
    """Return the values at indices, and a default for negative indices."""
    return np.where(index >= 0, values[np.maximum(index, 0)], default) if len(values) else np.full(len(index), default)


def _or_none(values: Ints, valid: Flags) -> list[int | None]:
    """Return the values, with None in place of invalid and negative ones."""
    return [
        value if is_valid and value >= 0 else None
        for value, is_valid in zip(values.tolist(), valid.tolist(), strict=True)
    ]

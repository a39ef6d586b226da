"""Compiled search for the longest path through the events of host and devices, in one sweep through time."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.analysis.facts.intervals import Ints
from service.attribution.nesting import DROPPED, NONE, Indices
from service.streaming.scan.compiled import compiled, inlined

ALL, OWN = -1, -2
"""Targets of a waiting call other than a stream: all streams, or the work that the call launched."""

NOTHING, BY_LAUNCH, BY_STREAM, BY_EVENT, BY_RUNNING = range(5)
"""Prerequisites by which a path reaches the start of work."""

SLICE, WAITS_FOR, OWN_WORK, WAITED_UNTIL, WAIT_VALUE, WAITED_FOR = range(6)
"""Columns of waits.

Inputs: the call; the stream that it waits for, or `ALL` or `OWN`; the work that it launched. Results: the end of the
last work that it waited for; the length of the longest path through that work; and that work, or -1.
"""

HOST_START, HOST_END, WORK_START, WORK_END = range(4)
"""Kinds of points of a path."""

KINDS = (
    *("host", "gap", "wait", "handover", "launch", "delay", "queue", "event"),
    *("compute", "communication", "memory", "return"),
)
"""Kinds of edges of a path."""
_HOST, _GAP, _WAIT, _HANDOVER, _LAUNCH, _DELAY, _QUEUE, _EVENT, _COMPUTE, _COMMUNICATION, _MEMORY, _RETURN = range(
    len(KINDS)
)
_OF_TYPES = (_COMPUTE, _COMMUNICATION, _MEMORY)  # by the code of the work's type in `device_events.TYPES`

_AT, _UNTIL, _ADDED = range(3)
_KIND, _NAME, _STEP = range(3)
"""Rows of edges: start, end, and length that the edge adds to the path; codes of kind and name, and place of the source
point in the path.

A launch and the delay after it have the same points.
"""

_TOP, _TIME, _LENGTH, _POINT, _CALLED_FROM = range(5)
"""Columns of thread states: the innermost open slice, or -1; the thread's last point: its time, the length of the
longest path to it, and the point itself; and, for an engine thread, the caller's point that last called it."""
_NEXT_OVER, _STREAM_END, _LAST_OVER = range(3)
"""Columns of streams, whose work is listed by end: the place of the next work to be over, the place after the last
work, and the last work that is over, or -1."""
_NEVER = np.iinfo(np.int64).min

Rows = npt.NDArray[np.int64]


class Work(NamedTuple):
    """Work on devices in order of start and, of equal starts, of end.

    Inputs: start; end; stream; the slice that launched it, or -1; the place of that slice among those with a
    correlation id; the time of the launch; other work for which it has to wait, or -1. Results: the previous work on
    its stream, which may still run; the last work on its stream that is over; the end of the last of its prerequisites;
    the length of the longest path to its end; and the prerequisite by which that path reaches its start.
    """

    starts: Ints
    ends: Ints
    streams: Indices
    launches: Indices
    places: Indices
    launched_at: Ints
    before: Indices
    previous: Indices
    over: Indices
    latest: Ints
    values: Ints
    sources: npt.NDArray[np.int8]

    @classmethod
    def of(
        cls, starts: Ints, ends: Ints, streams: Indices, launches: Indices, places: Indices, launched_at: Ints
    ) -> "Work":
        """Return work that waits for no other work, with room for the results."""
        count = len(starts)
        before = np.full(count, NONE, np.int32)
        previous, over = (np.empty(count, np.int32) for _ in range(2))
        latest, values = (np.empty(count, np.int64) for _ in range(2))
        results = (previous, over, latest, values, np.empty(count, np.int8))
        return cls(starts, ends, streams, launches, places, launched_at, before, *results)


class LongestPath:
    """The longest path through the slices of the host and the work on devices.

    Args:
        starts: start of each slice of the host, in `nesting_order`.
        ends: end of each slice.
        threads: thread of each slice.
        parents: parent of each slice; slices that overlap are dropped.
        correlated: slices that may launch work, in ascending order.
        work: the work.
        waits: rows of waiting calls in order of their ends, with the input columns filled.
        callers: for each autograd engine thread the thread that calls it and waits for it; `NONE` for other threads.
        order: numbers of all threads; of paths of equal length, that of an earlier thread counts.

    Attributes:
        points: points of the path in order of time, each as four times the index of a slice or of work, plus its kind.
        length: length of the path in ns.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - columns of slices, which other objects hold
        self, starts: Ints, ends: Ints, threads: Indices, parents: Indices, correlated: Indices, work: Work,
        waits: Rows, callers: Indices, order: Indices,
    ) -> None:  # fmt: skip
        self.work, self.waits = work, waits
        before_start = np.empty(len(starts), np.int32)  # preceding point: 2 * slice, plus 1 for its end
        before_end = np.full(len(starts), NONE, np.int32)  # likewise; below NONE: NONE - 1 - row of a wait
        before_end[waits[:, SLICE]] = NONE - 1 - np.arange(len(waits))
        values = np.empty(len(correlated), np.int64)  # length of the longest path to the start of each of these slices
        states = np.full((len(callers), 5), NONE, np.int64)
        streams = np.full(int(work.streams.max(initial=-1)) + 1, NONE, np.int64)
        by_end = np.lexsort((work.ends, work.streams))
        places = np.searchsorted(work.streams[by_end], np.arange(len(streams) + 1))
        over = np.stack([places[:-1], places[1:], np.full(len(streams), NONE)], axis=1)
        best = np.array([-1, NONE], np.int64)  # length of the longest path, and its last point
        preceding = (before_start, before_end)
        engines = order[callers[order] >= 0]
        _sweep(
            starts, ends, threads, parents, correlated, work, waits, states, streams, by_end, over, values, *preceding,
            best, callers, engines, order,
        )  # fmt: skip
        self.length = max(int(best[0]), 0)
        points = np.empty(_walk_back(best[1], work, waits, *preceding, np.empty(0, np.int64)), np.int64)
        _walk_back(best[1], work, waits, *preceding, points)
        self.points = points[::-1]


@compiled
def _sweep(  # noqa: PLR0913, PLR0917 - compiled code takes arrays one by one: objects would cost more
    starts: Ints, ends: Ints, threads: Indices, parents: Indices, correlated: Indices, work: Work, waits: Rows,
    states: Rows, streams: Ints, by_end: Ints, over: Rows, values: Ints, before_start: Indices, before_end: Indices,
    best: Ints, callers: Indices, engines: Indices, order: Indices,
) -> None:  # fmt: skip
    """Sweep through time. At equal times, waits end first, then slices begin, then work starts."""
    slice_, wait, place = 0, 0, 0
    for index in range(len(work.starts) + 1):
        until = work.starts[index] if index < len(work.starts) else np.iinfo(np.int64).max
        while True:
            begins = starts[slice_] if slice_ < len(starts) else np.iinfo(np.int64).max
            ends_at = ends[waits[wait, SLICE]] if wait < len(waits) else np.iinfo(np.int64).max
            if wait < len(waits) and ends_at <= begins and ends_at <= until:
                _end_wait(starts, ends, work, waits, wait, streams)
                wait += 1
            elif slice_ < len(starts) and begins <= until:
                if parents[slice_] != DROPPED:
                    _end_until(
                        threads[slice_], starts[slice_], starts, ends, threads, parents, waits, states, before_end,
                        best, callers, engines,
                    )  # fmt: skip
                    _begin(slice_, starts, threads, states, before_start, callers, engines)
                    while place < len(correlated) and correlated[place] < slice_:
                        place += 1
                    if place < len(correlated) and correlated[place] == slice_:
                        values[place] = states[threads[slice_], _LENGTH]
                slice_ += 1
            else:
                break
        if index < len(work.starts):
            _run_work(index, starts, ends, work, streams, by_end, over, values, best)
    for thread in order:
        _end_until(
            thread, np.iinfo(np.int64).max, starts, ends, threads, parents, waits, states, before_end, best, callers,
            engines,
        )  # fmt: skip


@inlined
def _end_until(  # noqa: PLR0913, PLR0917 - likewise
    thread: int, time: int, starts: Ints, ends: Ints, threads: Indices, parents: Indices, waits: Rows,
    states: Rows, before_end: Indices, best: Ints, callers: Indices, engines: Indices,
) -> None:  # fmt: skip
    """End the slices that are over by a time, on a thread, on its caller, and on all engine threads of that caller.

    A thread without a caller counts as the caller. Its engine threads go first, because the path to the end of a
    caller's slice may lead through the end of an engine's slice.
    """
    caller = callers[thread] if callers[thread] >= 0 else thread
    for engine in engines:
        if callers[engine] == caller:
            _end_of_thread(
                engine, time, starts, ends, threads, parents, waits, states, before_end, best, callers, engines
            )
    _end_of_thread(caller, time, starts, ends, threads, parents, waits, states, before_end, best, callers, engines)


@inlined
def _end_of_thread(  # noqa: PLR0913, PLR0917 - likewise
    thread: int, time: int, starts: Ints, ends: Ints, threads: Indices, parents: Indices, waits: Rows,
    states: Rows, before_end: Indices, best: Ints, callers: Indices, engines: Indices,
) -> None:  # fmt: skip
    """End the slices of a thread that are over by a time."""
    while states[thread, _TOP] >= 0 and ends[states[thread, _TOP]] <= time:
        _end(states[thread, _TOP], starts, ends, threads, parents, waits, states, before_end, best, callers, engines)


@inlined
def _begin(
    index: int, starts: Ints, threads: Indices, states: Rows, before_start: Indices, callers: Indices, engines: Indices
) -> None:
    """Begin a slice, after the slices that are over have ended."""
    thread, start = threads[index], starts[index]
    caller, length, point = callers[thread], 0, states[thread, _POINT]
    engine = _returning_engine(thread, start, states, callers, engines)
    if point >= 0:
        length = states[thread, _LENGTH]
        if states[thread, _TOP] >= 0:
            length += start - states[thread, _TIME]
    if engine >= 0:
        returned = states[engine, _LENGTH] + (start - states[engine, _TIME]) * (states[thread, _TOP] >= 0)
        if point < 0 or states[thread, _TOP] >= 0 or returned > length:
            length, point = returned, states[engine, _POINT]
    elif _is_called(thread, states, caller):
        states[thread, _CALLED_FROM] = states[caller, _POINT]
        called = states[caller, _LENGTH] + (start - states[caller, _TIME]) * (states[caller, _TOP] >= 0)
        if point < 0 or called > length:
            length, point = called, states[caller, _POINT]
    before_start[index] = point
    states[thread, _TOP], states[thread, _TIME] = index, start
    states[thread, _LENGTH], states[thread, _POINT] = length, 2 * index


@compiled
def _is_called(thread: int, states: Rows, caller: int) -> bool:
    """Return whether an idle engine thread begins because its caller has acted since the engine thread went idle."""
    if caller < 0 or states[thread, _TOP] >= 0 or states[caller, _POINT] < 0:
        return False
    later: bool = states[thread, _POINT] < 0 or states[caller, _TIME] > states[thread, _TIME]
    return later


@inlined
def _returning_engine(thread: int, time: int, states: Rows, callers: Indices, engines: Indices) -> int:
    """Return, of a caller's engine threads that went idle after its last point, the one with the longest path; or -1.

    Inside a slice of the caller, that slice must have called the engine: only then did the caller wait for it.
    """
    longest = NONE
    for engine in engines:
        if callers[engine] != thread or states[engine, _TOP] >= 0 or states[engine, _POINT] < 0:
            continue
        acted = states[thread, _POINT] < 0 or states[engine, _TIME] > states[thread, _TIME]
        called = states[thread, _TOP] < 0 or states[engine, _CALLED_FROM] == states[thread, _POINT]
        longer = longest < 0 or states[engine, _LENGTH] > states[longest, _LENGTH]
        if acted and called and longer and states[engine, _TIME] <= time:
            longest = engine
    return longest


@inlined
def _end(  # noqa: PLR0913, PLR0917 - likewise
    index: int, starts: Ints, ends: Ints, threads: Indices, parents: Indices, waits: Rows,
    states: Rows, before_end: Indices, best: Ints, callers: Indices, engines: Indices,
) -> None:  # fmt: skip
    """End the innermost open slice of a thread."""
    thread, wait = threads[index], NONE - 1 - before_end[index]
    length, point = states[thread, _LENGTH], states[thread, _POINT]
    engine = _returning_engine(thread, ends[index], states, callers, engines) if wait < 0 else NONE
    if engine >= 0:
        length, point = states[engine, _LENGTH] + ends[index] - states[engine, _TIME], states[engine, _POINT]
    elif wait < 0 or waits[wait, WAITED_UNTIL] <= starts[index]:
        length += ends[index] - states[thread, _TIME]
    if wait >= 0 and waits[wait, WAITED_FOR] >= 0 and waits[wait, WAIT_VALUE] > length:
        length = waits[wait, WAIT_VALUE]
    else:
        before_end[index] = point
    states[thread, _TOP], states[thread, _TIME] = parents[index], ends[index]
    states[thread, _LENGTH], states[thread, _POINT] = length, 2 * index + 1
    if length > best[0]:
        best[0], best[1] = length, 4 * index + HOST_END


@inlined
def _run_work(  # noqa: PLR0913, PLR0917 - likewise
    index: int, starts: Ints, ends: Ints, work: Work, streams: Ints, by_end: Ints, over: Rows, values: Ints,
    best: Ints,
) -> None:  # fmt: skip
    """Run work, which starts after its launch, the work before it on its stream, and work for which it has to wait.

    Of the work before it on its stream, the last to start may still run, as in programmatic dependent launches: then it
    starts after the start of that work.
    """
    start, launch, before, stream = work.starts[index], work.launches[index], work.before[index], work.streams[index]
    previous = streams[stream]
    _end_work(index, work, by_end, over)
    ended = over[stream, _LAST_OVER]
    work.previous[index], work.over[index], streams[stream] = previous, ended, index
    is_running = previous >= 0 and work.ends[previous] > start
    by_event = 0 <= before < index and work.ends[before] <= start
    latest, counts = _NEVER, launch >= 0  # else it may have waited for a launch that is not in the trace
    if launch >= 0:
        latest = starts[launch]
    if ended >= 0:
        latest = max(latest, work.ends[ended])
    if by_event:
        latest = max(latest, work.ends[before])
    if is_running:
        latest = start
    value, source = 0, NOTHING
    if launch >= 0:
        own = min(ends[launch], start) - starts[launch]  # the time of the call always counts
        value, source = values[work.places[index]] + (start - latest if starts[launch] == latest else own), BY_LAUNCH
    if ended >= 0:
        other = work.values[ended] + (start - latest) * (counts and work.ends[ended] == latest)
        if source == NOTHING or other > value:
            value, source = other, BY_STREAM
    if by_event:
        other = work.values[before] + (start - latest) * (counts and work.ends[before] == latest)
        if source == NOTHING or other > value:
            value, source = other, BY_EVENT
    if is_running:
        other = work.values[previous] - (work.ends[previous] - start)
        if source == NOTHING or other > value:
            value, source = other, BY_RUNNING
    work.latest[index], work.sources[index] = latest, source
    work.values[index] = value + work.ends[index] - start
    if work.values[index] > best[0]:
        best[0], best[1] = work.values[index], 4 * index + WORK_END


@compiled
def _end_work(index: int, work: Work, by_end: Ints, over: Rows) -> None:
    """Find the last work that is over on the stream of work which starts: of equal ends, that with the longest path."""
    stream, start = work.streams[index], work.starts[index]
    while over[stream, _NEXT_OVER] < over[stream, _STREAM_END]:
        row = by_end[over[stream, _NEXT_OVER]]
        if work.ends[row] > start or row >= index:
            break
        last = over[stream, _LAST_OVER]
        if last < 0 or work.ends[row] > work.ends[last] or work.values[row] > work.values[last]:
            over[stream, _LAST_OVER] = row
        over[stream, _NEXT_OVER] += 1


@compiled
def _end_wait(starts: Ints, ends: Ints, work: Work, waits: Rows, wait: int, streams: Ints) -> None:
    """End a wait on devices: the first pass finds the last end of awaited work, the second the longest path."""
    call = waits[wait, SLICE]
    latest, best, awaited = _NEVER, -1, NONE
    for pass_ in range(2):
        for stream in range(len(streams)):
            target = waits[wait, WAITS_FOR]
            if target == OWN and stream > 0:
                break
            if target >= 0 and target != stream:
                continue
            event = waits[wait, OWN_WORK] if target == OWN else streams[stream]
            while event >= 0 and target != OWN and work.launched_at[event] >= starts[call]:
                event = work.previous[event]
            if event < 0 or work.ends[event] > ends[call]:
                continue
            if pass_ == 0:
                latest = max(latest, work.ends[event])
            else:
                counts = work.ends[event] == latest and latest > starts[call]
                value = work.values[event] + (ends[call] - latest) * counts
                if value > best:
                    best, awaited = value, event
    waits[wait, WAITED_UNTIL], waits[wait, WAIT_VALUE], waits[wait, WAITED_FOR] = latest, best, awaited


@compiled
def _walk_back(point: int, work: Work, waits: Rows, before_start: Indices, before_end: Indices, points: Ints) -> int:
    """Write the points of the path from its end, as far as there is room, and return their count."""
    count = 0
    while point >= 0:
        if count < len(points):
            points[count] = point
        count += 1
        index, kind = point >> 2, point & 3
        if kind == WORK_END:
            point = 4 * index + WORK_START
        elif kind == WORK_START:
            source = work.sources[index]
            if source == BY_LAUNCH:
                point = 4 * work.launches[index] + HOST_START
            elif source == NOTHING:
                point = NONE
            elif source == BY_RUNNING:
                point = 4 * work.previous[index] + WORK_START
            else:
                point = 4 * (work.over[index] if source == BY_STREAM else work.before[index]) + WORK_END
        else:
            before = before_start[index] if kind == HOST_START else before_end[index]
            if before < NONE:
                point = 4 * waits[NONE - 1 - before, WAITED_FOR] + WORK_END
            elif before >= 0:
                point = 4 * (before >> 1) + (HOST_END if before & 1 else HOST_START)
            else:
                point = NONE
    return count


@compiled
def write_edges(  # noqa: PLR0913, PLR0917 - likewise
    points: Ints, starts: Ints, ends: Ints, threads: Indices, parents: Indices, host_names: Indices, by_slice: Ints,
    waits: Rows, work: Work, types: Indices, work_names: Indices, first_work_name: int, no_name: int, times: Rows,
    codes: Any,
) -> int:  # fmt: skip
    """Write the edges of a path and return their count: at most two for each point except the first."""
    count = 0
    for step in range(len(points) - 1):
        source, target = points[step], points[step + 1]
        index = target >> 2
        at, until = _time_of(source, starts, ends, work), _time_of(target, starts, ends, work)
        codes[_STEP, count] = step
        if target & 3 == WORK_START and work.sources[index] == BY_LAUNCH:
            launch = work.launches[index]
            over = min(ends[launch], until)
            counts = work.latest[index] == starts[launch]
            _write_edge(times, codes, count, _LAUNCH, host_names[launch], at, over, True)
            if until > over:
                count += 1
                codes[_STEP, count] = step
                _write_edge(
                    times, codes, count, _DELAY, first_work_name + work_names[index], over, until, counts
                )  # fmt: skip
            count += 1
            continue
        kind, name, counts = _HOST, no_name, True
        if target & 3 == WORK_END or (target & 3 == WORK_START and work.sources[index] == BY_RUNNING):
            index = source >> 2  # the work that runs
            kind = _OF_TYPES[types[index]]
        elif target & 3 == WORK_START:
            kind = _QUEUE if work.sources[index] == BY_STREAM else _EVENT
            counts = at == work.latest[index] and work.launches[index] >= 0
        else:
            kind, name, counts = _host_edge(
                source, target, at, starts, threads, parents, host_names, by_slice, waits, no_name
            )
        if target & 3 >= WORK_START:
            name = first_work_name + work_names[index]
        _write_edge(times, codes, count, kind, name, at, until, counts)
        count += 1
    return count


@compiled
def _write_edge(  # noqa: PLR0913, PLR0917 - likewise
    times: Rows, codes: Any, index: int, kind: int, name: int, at: int, until: int, counts: bool
) -> None:
    """Write the fields of an edge except the place of its source point."""
    codes[_KIND, index], codes[_NAME, index] = kind, name
    times[_AT, index], times[_UNTIL, index] = at, until
    times[_ADDED, index] = until - at if counts else 0


@compiled
def _host_edge(  # noqa: PLR0913, PLR0917 - likewise
    source: int, target: int, at: int, starts: Ints, threads: Indices, parents: Indices, names: Indices,
    by_slice: Ints, waits: Rows, no_name: int,
) -> tuple[int, int, bool]:  # fmt: skip
    """Return the kind and name of an edge to a point on the host, and whether its time counts."""
    index, ends_here = target >> 2, target & 3 == HOST_END
    name = names[index] if ends_here else names[parents[index]] if parents[index] >= 0 else no_name
    wait = _wait_of(index, by_slice, waits) if ends_here else NONE
    if source & 3 >= WORK_START:
        return _RETURN, name, at == waits[wait, WAITED_UNTIL] and at > starts[index]
    if threads[source >> 2] != threads[index]:
        open_slice = source >> 2 if source & 3 == HOST_START else parents[source >> 2]  # on the other thread
        counts = open_slice >= 0 or ends_here or parents[index] >= 0
        return _HANDOVER, name if open_slice < 0 else names[open_slice], counts
    if wait >= 0 and waits[wait, WAITED_UNTIL] > starts[index]:
        return _WAIT, name, False
    if not ends_here and parents[index] < 0:
        return _GAP, no_name, False
    return _HOST, name, True


@compiled
def _wait_of(index: int, by_slice: Ints, waits: Rows) -> int:
    """Return the row of the wait of a slice, or `NONE`; `by_slice` has the rows in order of their slices."""
    low, high = 0, len(by_slice)
    while low < high:
        middle = (low + high) // 2
        if waits[by_slice[middle], SLICE] < index:
            low = middle + 1
        else:
            high = middle
    return by_slice[low] if low < len(by_slice) and waits[by_slice[low], SLICE] == index else NONE


@compiled
def _time_of(point: int, starts: Ints, ends: Ints, work: Work) -> int:
    """Return the time of a point."""
    index, kind = point >> 2, point & 3
    if kind >= WORK_START:
        time: int = work.starts[index] if kind == WORK_START else work.ends[index]
    else:
        time = starts[index] if kind == HOST_START else ends[index]
    return time

"""The longest path through what host and devices do. Compiled: it is found in one sweep through time."""

import numpy as np
import numpy.typing as npt

from service.analysis.facts.intervals import Ints
from service.attribution.nesting import DROPPED, NONE, Indices
from service.streaming.scan.compiled import compiled

ALL, OWN = -1, -2
"""What a call may wait for, beside a stream: all streams, or what it launched."""

START, END, STREAM, LAUNCH, BEFORE, LAUNCHED_AT, PREVIOUS, LATEST, VALUE, FROM = range(10)
"""Columns of work: when it starts and ends; its stream; the slice that launched it, or -1; other work for which it was
told to wait, or -1; when it was launched. Found are the work before it on its stream, when the last of what it had to
wait for was over, the length of the longest path to its end, and whence that comes to its start."""

NOTHING, BY_LAUNCH, BY_STREAM, BY_EVENT = range(4)
"""Whence a path comes to the start of work."""

SLICE, WAITS_FOR, OWN_WORK, WAITED_UNTIL, WAIT_VALUE, WAITED_FOR = range(6)
"""Columns of waits: the call; the stream that it waits for, or `ALL` or `OWN`; what it launched. Found are when the
last of what it waited for was over, the length of the longest path through that, and what that was, or -1."""

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
_OF_TYPES = (_COMMUNICATION, _COMPUTE, _MEMORY)  # by their numbers in `TYPE`

AT, UNTIL, LENGTH, KIND, NAME, SOURCE, TARGET = range(7)
"""Columns of edges: from when to when each is, and what it adds; numbers of its kind and its name; and the points from
which and to which it leads. A launch and the delay after it lead from and to the same points."""

_TOP, _TIME, _LENGTH, _POINT, _BY = range(5)
"""Columns of threads: the innermost slice that lasts, or -1; the time of the thread's last point, the length of the
longest path to it, and which it is; and, of an engine's thread, the caller's point from which it was last begun."""
_NEVER = np.iinfo(np.int64).min

Rows = npt.NDArray[np.int64]


class LongestPath:
    """The longest path.

    Args:
        starts: of the host's slices, in order of time and the longest first.
        ends: likewise.
        threads: likewise.
        parents: of the slices; those that overlap are dropped.
        work: rows of work in order of its start, of which the first columns are told.
        waits: rows of calls that wait, in order of their ends, of which the first columns are told.
        callers: of the threads: the one that begins what a thread of the autograd engine does and waits for it; `NONE`
            of all others.

    Attributes:
        points: of the path in order of time: four times a slice or work, and the kind.
        length: of the path.
    """

    def __init__(
        self, starts: Ints, ends: Ints, threads: Indices, parents: Indices, work: Rows, waits: Rows, callers: Indices
    ) -> None:
        self.work, self.waits = work, waits
        before_start = np.full(len(starts), NONE, np.int32)  # the point before, twice a slice and 1 for its end
        before_end = np.full(len(starts), NONE, np.int32)  # likewise; below NONE, a wait
        before_end[waits[:, SLICE]] = NONE - 1 - np.arange(len(waits))
        values = np.zeros(len(starts), np.int64)
        lanes = np.full((len(callers), 5), NONE, np.int64)
        streams = np.full(int(work[:, STREAM].max(initial=-1)) + 1, NONE, np.int64)
        best = np.array([-1, NONE], np.int64)  # length, point
        befores = (before_start, before_end)
        engines = np.flatnonzero(callers >= 0).astype(np.int32)
        _sweep(starts, ends, threads, parents, work, waits, lanes, streams, values, *befores, best, callers, engines)
        self.length = max(int(best[0]), 0)
        points = np.empty(_walk(best[1], work, waits, *befores, np.empty(0, np.int64)), np.int64)
        _walk(best[1], work, waits, *befores, points)
        self.points = points[::-1]


@compiled
def _sweep(  # noqa: PLR0913, PLR0917 - compiled code passes all it needs: objects would cost more
    starts: Ints, ends: Ints, threads: Indices, parents: Indices, work: Rows, waits: Rows,
    lanes: Rows, streams: Ints, values: Ints, before_start: Indices, before_end: Indices, best: Ints,
    callers: Indices, engines: Indices,
) -> None:  # fmt: skip
    """Go through time: at the same one, waits end before slices begin, and these before work does."""
    slice_, wait = 0, 0
    for index in range(len(work) + 1):
        until = work[index, START] if index < len(work) else np.iinfo(np.int64).max
        while True:
            begins = starts[slice_] if slice_ < len(starts) else np.iinfo(np.int64).max
            ends_at = ends[waits[wait, SLICE]] if wait < len(waits) else np.iinfo(np.int64).max
            if wait < len(waits) and ends_at <= begins and ends_at <= until:
                _wait(starts, ends, work, waits, wait, streams)
                wait += 1
            elif slice_ < len(starts) and begins <= until:
                if parents[slice_] != DROPPED:
                    _meet(
                        threads[slice_], starts[slice_], starts, ends, threads, parents, waits, lanes, before_end, best,
                        callers, engines,
                    )  # fmt: skip
                    _begin(slice_, starts, threads, lanes, values, before_start, callers, engines)
                slice_ += 1
            else:
                break
        if index < len(work):
            _work(index, starts, ends, work, streams, values, best)
    for thread in range(len(lanes)):
        _meet(
            thread, np.iinfo(np.int64).max, starts, ends, threads, parents, waits, lanes, before_end, best, callers,
            engines,
        )  # fmt: skip


@compiled
def _meet(  # noqa: PLR0913, PLR0917 - likewise
    thread: int, time: int, starts: Ints, ends: Ints, threads: Indices, parents: Indices, waits: Rows,
    lanes: Rows, before_end: Indices, best: Ints, callers: Indices, engines: Indices,
) -> None:  # fmt: skip
    """End the slices that are over by a time on a thread, and on those with which it takes turns.

    Engines' threads go first: the end of a slice of their caller may follow the end of one of theirs.
    """
    caller = callers[thread] if callers[thread] >= 0 else thread
    for engine in engines:
        if callers[engine] == caller:
            _end_all(engine, time, starts, ends, threads, parents, waits, lanes, before_end, best, callers, engines)
    _end_all(caller, time, starts, ends, threads, parents, waits, lanes, before_end, best, callers, engines)


@compiled
def _end_all(  # noqa: PLR0913, PLR0917 - likewise
    thread: int, time: int, starts: Ints, ends: Ints, threads: Indices, parents: Indices, waits: Rows,
    lanes: Rows, before_end: Indices, best: Ints, callers: Indices, engines: Indices,
) -> None:  # fmt: skip
    """End the slices of a thread that are over by a time."""
    while lanes[thread, _TOP] >= 0 and ends[lanes[thread, _TOP]] <= time:
        _end(lanes[thread, _TOP], starts, ends, threads, parents, waits, lanes, before_end, best, callers, engines)


@compiled
def _begin(  # noqa: PLR0913, PLR0917 - likewise
    index: int, starts: Ints, threads: Indices, lanes: Rows, values: Ints, before_start: Indices, callers: Indices,
    engines: Indices,
) -> None:  # fmt: skip
    """Begin a slice, after those that are over."""
    thread, start = threads[index], starts[index]
    caller, length, point = callers[thread], 0, lanes[thread, _POINT]
    engine = _returning(thread, start, lanes, callers, engines)
    if point >= 0:
        length = lanes[thread, _LENGTH]
        if lanes[thread, _TOP] >= 0:
            length += start - lanes[thread, _TIME]
    if engine >= 0:
        returned = lanes[engine, _LENGTH] + (start - lanes[engine, _TIME]) * (lanes[thread, _TOP] >= 0)
        if point < 0 or lanes[thread, _TOP] >= 0 or returned > length:
            length, point = returned, lanes[engine, _POINT]
    elif _is_called(thread, lanes, caller):
        lanes[thread, _BY] = lanes[caller, _POINT]
        handed = lanes[caller, _LENGTH] + (start - lanes[caller, _TIME]) * (lanes[caller, _TOP] >= 0)
        if point < 0 or handed > length:
            length, point = handed, lanes[caller, _POINT]
    values[index], before_start[index] = length, point
    lanes[thread, _TOP], lanes[thread, _TIME] = index, start
    lanes[thread, _LENGTH], lanes[thread, _POINT] = length, 2 * index


@compiled
def _is_called(thread: int, lanes: Rows, caller: int) -> bool:
    """Whether an engine's thread begins to work since its caller has done something while it was at rest."""
    if caller < 0 or lanes[thread, _TOP] >= 0 or lanes[caller, _POINT] < 0:
        return False
    later: bool = lanes[thread, _POINT] < 0 or lanes[caller, _TIME] > lanes[thread, _TIME]
    return later


@compiled
def _returning(thread: int, time: int, lanes: Rows, callers: Indices, engines: Indices) -> int:
    """The engine's thread that has come to rest since a caller's last point, with the longest path; or -1.

    In a slice of the caller it must have been begun there: only then did the caller wait for it.
    """
    found = NONE
    for engine in engines:
        if callers[engine] != thread or lanes[engine, _TOP] >= 0 or lanes[engine, _POINT] < 0:
            continue
        acted = lanes[thread, _POINT] < 0 or lanes[engine, _TIME] > lanes[thread, _TIME]
        begun = lanes[thread, _TOP] < 0 or lanes[engine, _BY] == lanes[thread, _POINT]
        longer = found < 0 or lanes[engine, _LENGTH] > lanes[found, _LENGTH]
        if acted and begun and longer and lanes[engine, _TIME] <= time:
            found = engine
    return found


@compiled
def _end(  # noqa: PLR0913, PLR0917 - likewise
    index: int, starts: Ints, ends: Ints, threads: Indices, parents: Indices, waits: Rows,
    lanes: Rows, before_end: Indices, best: Ints, callers: Indices, engines: Indices,
) -> None:  # fmt: skip
    """End the topmost slice of a thread."""
    thread, wait = threads[index], NONE - 1 - before_end[index]
    length, point = lanes[thread, _LENGTH], lanes[thread, _POINT]
    engine = _returning(thread, ends[index], lanes, callers, engines) if wait < 0 else NONE
    if engine >= 0:
        length, point = lanes[engine, _LENGTH] + ends[index] - lanes[engine, _TIME], lanes[engine, _POINT]
    elif wait < 0 or waits[wait, WAITED_UNTIL] <= starts[index]:
        length += ends[index] - lanes[thread, _TIME]
    if wait >= 0 and waits[wait, WAITED_FOR] >= 0 and waits[wait, WAIT_VALUE] > length:
        length = waits[wait, WAIT_VALUE]
    else:
        before_end[index] = point
    lanes[thread, _TOP], lanes[thread, _TIME] = parents[index], ends[index]
    lanes[thread, _LENGTH], lanes[thread, _POINT] = length, 2 * index + 1
    if length > best[0]:
        best[0], best[1] = length, 4 * index + HOST_END


@compiled
def _work(index: int, starts: Ints, ends: Ints, work: Rows, streams: Ints, values: Ints, best: Ints) -> None:
    """Do work: it starts after its launch, the work before on its stream, and what it was told to wait for."""
    start, launch, before = work[index, START], work[index, LAUNCH], work[index, BEFORE]
    previous = streams[work[index, STREAM]]
    work[index, PREVIOUS], streams[work[index, STREAM]] = previous, index
    by_stream = previous >= 0 and work[previous, END] <= start
    by_event = 0 <= before < index and work[before, END] <= start
    latest, counts = _NEVER, launch >= 0  # a launch that is not in the trace may have been what it waited for
    if launch >= 0:
        latest = starts[launch]
    if by_stream:
        latest = max(latest, work[previous, END])
    if by_event:
        latest = max(latest, work[before, END])
    value, source = 0, NOTHING
    if launch >= 0:
        own = min(ends[launch], start) - starts[launch]  # the time of the call counts, whatever comes after it
        value, source = values[launch] + (start - latest if starts[launch] == latest else own), BY_LAUNCH
    if by_stream:
        other = work[previous, VALUE] + (start - latest) * (counts and work[previous, END] == latest)
        if source == NOTHING or other > value:
            value, source = other, BY_STREAM
    if by_event:
        other = work[before, VALUE] + (start - latest) * (counts and work[before, END] == latest)
        if source == NOTHING or other > value:
            value, source = other, BY_EVENT
    work[index, LATEST], work[index, FROM] = latest, source
    work[index, VALUE] = value + work[index, END] - start
    if work[index, VALUE] > best[0]:
        best[0], best[1] = work[index, VALUE], 4 * index + WORK_END


@compiled
def _wait(starts: Ints, ends: Ints, work: Rows, waits: Rows, wait: int, streams: Ints) -> None:
    """End a wait, as far as devices go: first look how long it took, then which path there is the longest."""
    call = waits[wait, SLICE]
    latest, best, found = _NEVER, -1, NONE
    for turn in range(2):
        for stream in range(len(streams)):
            which = waits[wait, WAITS_FOR]
            if which == OWN and stream > 0:
                break
            if which >= 0 and which != stream:
                continue
            event = waits[wait, OWN_WORK] if which == OWN else streams[stream]
            while event >= 0 and which != OWN and work[event, LAUNCHED_AT] >= starts[call]:
                event = work[event, PREVIOUS]
            if event < 0 or work[event, END] > ends[call]:
                continue
            if turn == 0:
                latest = max(latest, work[event, END])
            else:
                counts = work[event, END] == latest and latest > starts[call]
                value = work[event, VALUE] + (ends[call] - latest) * counts
                if value > best:
                    best, found = value, event
    waits[wait, WAITED_UNTIL], waits[wait, WAIT_VALUE], waits[wait, WAITED_FOR] = latest, best, found


@compiled
def _walk(point: int, work: Rows, waits: Rows, before_start: Indices, before_end: Indices, points: Ints) -> int:
    """Write the points of the path from its end, if there is room, and count them."""
    count = 0
    while point >= 0:
        if count < len(points):
            points[count] = point
        count += 1
        index, kind = point >> 2, point & 3
        if kind == WORK_END:
            point = 4 * index + WORK_START
        elif kind == WORK_START:
            source = work[index, FROM]
            if source == BY_LAUNCH:
                point = 4 * work[index, LAUNCH] + HOST_START
            elif source == NOTHING:
                point = NONE
            else:
                point = 4 * work[index, PREVIOUS if source == BY_STREAM else BEFORE] + WORK_END
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
def tell_edges(  # noqa: PLR0913, PLR0917 - likewise
    points: Ints, starts: Ints, ends: Ints, threads: Indices, parents: Indices, host_names: Indices, wait_of: Indices,
    waits: Rows, work: Rows, types: Indices, work_names: Indices, first_work_name: int, no_name: int, edges: Rows,
) -> int:  # fmt: skip
    """Write the edges of a path, and count them; there are at most two for each point but the first."""
    count = 0
    for place in range(len(points) - 1):
        source, target = points[place], points[place + 1]
        index = target >> 2
        at, until = _time_of(source, starts, ends, work), _time_of(target, starts, ends, work)
        edges[count, SOURCE], edges[count, TARGET] = source, target
        if target & 3 == WORK_START and work[index, FROM] == BY_LAUNCH:
            launch = work[index, LAUNCH]
            over = min(ends[launch], until)
            counts = work[index, LATEST] == starts[launch]
            _write(edges, count, _LAUNCH, host_names[launch], at, over, True)
            if until > over:
                count += 1
                edges[count, SOURCE], edges[count, TARGET] = source, target
                _write(edges, count, _DELAY, first_work_name + work_names[index], over, until, counts)
            count += 1
            continue
        kind, name, counts = _HOST, no_name, True
        if target & 3 == WORK_END:
            kind = _OF_TYPES[types[index]] if types[index] >= 0 else _HOST
        elif target & 3 == WORK_START:
            kind = _QUEUE if work[index, FROM] == BY_STREAM else _EVENT
            counts = at == work[index, LATEST] and work[index, LAUNCH] >= 0
        else:
            kind, name, counts = _host_edge(
                source, target, at, starts, threads, parents, host_names, wait_of, waits, no_name
            )
        if target & 3 >= WORK_START:
            name = first_work_name + work_names[index]
        _write(edges, count, kind, name, at, until, counts)
        count += 1
    return count


@compiled
def _write(edges: Rows, place: int, kind: int, name: int, at: int, until: int, counts: bool) -> None:
    """Write an edge of which the points are known."""
    edges[place, KIND], edges[place, NAME], edges[place, AT], edges[place, UNTIL] = kind, name, at, until
    edges[place, LENGTH] = until - at if counts else 0


@compiled
def _host_edge(  # noqa: PLR0913, PLR0917 - likewise
    source: int, target: int, at: int, starts: Ints, threads: Indices, parents: Indices, names: Indices,
    wait_of: Indices, waits: Rows, no_name: int,
) -> tuple[int, int, bool]:  # fmt: skip
    """The kind and the name of an edge to a point of the host, and whether its time counts."""
    index, ends_here = target >> 2, target & 3 == HOST_END
    name = names[index] if ends_here else names[parents[index]] if parents[index] >= 0 else no_name
    if source & 3 >= WORK_START:
        return _RETURN, name, at == waits[wait_of[index], WAITED_UNTIL] and at > starts[index]
    if threads[source >> 2] != threads[index]:
        begun = source >> 2 if source & 3 == HOST_START else parents[source >> 2]  # in which the other thread is
        return _HANDOVER, name if begun < 0 else names[begun], begun >= 0 or ends_here or parents[index] >= 0
    if ends_here and wait_of[index] >= 0 and waits[wait_of[index], WAITED_UNTIL] > starts[index]:
        return _WAIT, name, False
    if not ends_here and parents[index] < 0:
        return _GAP, no_name, False
    return _HOST, name, True


@compiled
def _time_of(point: int, starts: Ints, ends: Ints, work: Rows) -> int:
    """When a point of a path is."""
    index, kind = point >> 2, point & 3
    if kind >= WORK_START:
        time: int = work[index, START] if kind == WORK_START else work[index, END]
    else:
        time = starts[index] if kind == HOST_START else ends[index]
    return time

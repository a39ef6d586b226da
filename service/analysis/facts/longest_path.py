"""The longest path through what host and devices do. Compiled: it is found in one sweep through time."""

import numpy as np
import numpy.typing as npt

from service.analysis.facts.intervals import Ints
from service.attribution.nesting import DROPPED, NONE, Flags, Places
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

KINDS = (*("host", "gap", "wait", "launch", "queue", "event", "compute", "communication", "memory", "return"),)
"""Kinds of edges of a path."""
_HOST, _GAP, _WAIT, _LAUNCH, _QUEUE, _EVENT, _COMPUTE, _COMMUNICATION, _MEMORY, _RETURN = range(len(KINDS))
_OF_TYPES = (_COMMUNICATION, _COMPUTE, _MEMORY)  # by their numbers in `TYPE`

_TOP, _TIME, _LENGTH, _POINT = range(4)
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

    Attributes:
        points: of the path in order of time: four times a slice or work, and the kind.
        length: of the path.
    """

    def __init__(self, starts: Ints, ends: Ints, threads: Places, parents: Places, work: Rows, waits: Rows) -> None:
        self.work, self.waits = work, waits
        before_start = np.full(len(starts), NONE, np.int32)  # the point before, twice a slice and 1 for its end
        before_end = np.full(len(starts), NONE, np.int32)  # likewise; below NONE, a wait
        before_end[waits[:, SLICE]] = NONE - 1 - np.arange(len(waits))
        values = np.zeros(len(starts), np.int64)
        lanes = np.full((int(threads.max(initial=-1)) + 1, 4), NONE, np.int64)
        streams = np.full(int(work[:, STREAM].max(initial=-1)) + 1, NONE, np.int64)
        best = np.array([-1, NONE], np.int64)  # length, point
        befores = (before_start, before_end)
        _sweep(starts, ends, threads, parents, work, waits, lanes, streams, values, *befores, best)
        self.length = max(int(best[0]), 0)
        points = np.empty(_walk(best[1], work, waits, *befores, np.empty(0, np.int64)), np.int64)
        _walk(best[1], work, waits, *befores, points)
        self.points = points[::-1]


@compiled
def _sweep(  # noqa: PLR0913, PLR0917 - compiled code passes all it needs: objects would cost more
    starts: Ints, ends: Ints, threads: Places, parents: Places, work: Rows, waits: Rows,
    lanes: Rows, streams: Ints, values: Ints, before_start: Places, before_end: Places, best: Ints,
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
                _begin(slice_, starts, ends, threads, parents, waits, lanes, values, before_start, before_end, best)
                slice_ += 1
            else:
                break
        if index < len(work):
            _work(index, starts, work, streams, values, best)
    for thread in range(len(lanes)):
        while lanes[thread, _TOP] >= 0:
            _end(lanes[thread, _TOP], starts, ends, threads, parents, waits, lanes, before_end, best)


@compiled
def _begin(  # noqa: PLR0913, PLR0917 - likewise
    index: int, starts: Ints, ends: Ints, threads: Places, parents: Places, waits: Rows,
    lanes: Rows, values: Ints, before_start: Places, before_end: Places, best: Ints,
) -> None:  # fmt: skip
    """Begin a slice, after those on its thread that are over."""
    if parents[index] == DROPPED:
        return
    thread, start = threads[index], starts[index]
    while lanes[thread, _TOP] >= 0 and ends[lanes[thread, _TOP]] <= start:
        _end(lanes[thread, _TOP], starts, ends, threads, parents, waits, lanes, before_end, best)
    if lanes[thread, _POINT] >= 0:
        values[index] = lanes[thread, _LENGTH]
        if lanes[thread, _TOP] >= 0:
            values[index] += start - lanes[thread, _TIME]
        before_start[index] = lanes[thread, _POINT]
    lanes[thread, _TOP], lanes[thread, _TIME] = index, start
    lanes[thread, _LENGTH], lanes[thread, _POINT] = values[index], 2 * index


@compiled
def _end(  # noqa: PLR0913, PLR0917 - likewise
    index: int, starts: Ints, ends: Ints, threads: Places, parents: Places, waits: Rows,
    lanes: Rows, before_end: Places, best: Ints,
) -> None:  # fmt: skip
    """End the topmost slice of a thread."""
    thread, wait = threads[index], NONE - 1 - before_end[index]
    length = lanes[thread, _LENGTH]
    if wait < 0 or waits[wait, WAITED_UNTIL] <= starts[index]:
        length += ends[index] - lanes[thread, _TIME]
    if wait >= 0 and waits[wait, WAITED_FOR] >= 0 and waits[wait, WAIT_VALUE] > length:
        length = waits[wait, WAIT_VALUE]
    else:
        before_end[index] = lanes[thread, _POINT]
    lanes[thread, _TOP], lanes[thread, _TIME] = parents[index], ends[index]
    lanes[thread, _LENGTH], lanes[thread, _POINT] = length, 2 * index + 1
    if length > best[0]:
        best[0], best[1] = length, 4 * index + HOST_END


@compiled
def _work(index: int, starts: Ints, work: Rows, streams: Ints, values: Ints, best: Ints) -> None:
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
        value, source = values[launch] + (start - latest) * (starts[launch] == latest), BY_LAUNCH
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
def _walk(point: int, work: Rows, waits: Rows, before_start: Places, before_end: Places, points: Ints) -> int:
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
    points: Ints, starts: Ints, ends: Ints, parents: Places, host_names: Places, wait_of: Places, waits: Rows,
    work: Rows, types: Places, work_names: Places, first_work_name: int, no_name: int,
    at: Ints, until: Ints, lengths: Ints, kinds: Places, names: Ints, on_work: Flags,
) -> None:  # fmt: skip
    """Write of each edge of a path from when to when it is, what it adds, its kind, its name, and if it is of work."""
    for edge in range(len(points) - 1):
        source, target, index = points[edge] & 3, points[edge + 1] & 3, points[edge + 1] >> 2
        at[edge] = _time_of(points[edge], starts, ends, work)
        until[edge] = _time_of(points[edge + 1], starts, ends, work)
        kind, name, counts = _HOST, no_name, True
        if target == WORK_END:
            kind = _OF_TYPES[types[index]] if types[index] >= 0 else _HOST
        elif target == WORK_START:
            by = work[index, FROM]
            kind = _LAUNCH if by == BY_LAUNCH else (_QUEUE if by == BY_STREAM else _EVENT)
            counts = at[edge] == work[index, LATEST] and work[index, LAUNCH] >= 0
        elif target == HOST_END:
            name, wait = host_names[index], wait_of[index]
            waited = wait >= 0 and waits[wait, WAITED_UNTIL] > starts[index]
            if source >= WORK_START:
                kind, counts = _RETURN, waited and at[edge] == waits[wait, WAITED_UNTIL]
            elif waited:
                kind, counts = _WAIT, False
        elif parents[index] >= 0:
            name = host_names[parents[index]]  # the slice in which it is
        else:
            kind, counts = _GAP, False
        if target >= WORK_START:
            name = first_work_name + work_names[index]
        kinds[edge], names[edge], on_work[edge] = kind, name, target >= WORK_START
        lengths[edge] = until[edge] - at[edge] if counts else 0


@compiled
def _time_of(point: int, starts: Ints, ends: Ints, work: Rows) -> int:
    """When a point of a path is."""
    index, kind = point >> 2, point & 3
    if kind >= WORK_START:
        time: int = work[index, START] if kind == WORK_START else work[index, END]
    else:
        time = starts[index] if kind == HOST_START else ends[index]
    return time

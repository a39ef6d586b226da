"""Order of the events of one time: slices without duration come before the ends of arrows that belong to them.

An engine takes an arrow's end as belonging to the slice that has begun last on its track. Kineto writes a slice before
its ends. Other programs write it after them, and then the end would belong to an earlier slice, or to none.
"""

import numpy as np
import pyarrow as pa

from service.rendering.arrows import is_arrow_end
from service.store.parts import Flags, Ints, Part, Tracks
from service.streaming.buffers import fixed
from service.streaming.scan.compiled import compiled

COLUMNS = ("ph", "ts_ns", "dur_ns", *Tracks.columns)


def with_slices_before_ends(table: pa.Table) -> pa.Table:
    """Return events in order of time, with slices without duration before the ends of arrows that belong to them.

    On a track, the first event of a time tells the order of the file. If it is an end, each slice without duration
    comes before the ends in front of it. All other events keep their order.

    Args:
        table: events in order of time, with all events of a time.
    """
    part = Part(0, 0, table.select(COLUMNS))
    is_empty = part.slices & part.has("ts_ns") & (part.ints("dur_ns") <= 0)
    if not is_empty.any():
        return table
    places = np.empty(len(part), np.int64)
    rows = places[: _meeting(fixed(part.starts), is_arrow_end(part), is_empty, places)]
    if not len(rows):
        return table
    meeting = Part(0, 0, part.table.take(pa.array(rows)))
    moved, targets = _moves(meeting.starts, Tracks().of(meeting), is_empty[rows])
    if not len(moved):
        return table
    keys = 2 * np.arange(len(table))
    keys[rows[moved]] = 2 * rows[targets] - 1
    return table.take(pa.array(np.argsort(keys, kind="stable")))


@compiled
def _meeting(starts: Ints, is_end: Flags, is_empty: Flags, rows: Ints) -> int:
    """Find the ends of arrows, and the slices without duration, of the times that have both; return their count.

    Args:
        starts: the time of each event, in order.
        is_end: flags of the ends of arrows.
        is_empty: flags of the slices without duration.
        rows: output: the rows.
    """
    count = first = 0
    while first < len(starts):
        found, ends = count, 0
        row = first
        while row < len(starts) and starts[row] == starts[first]:
            if is_end[row] or is_empty[row]:
                rows[found] = row
                found += 1
                ends += is_end[row]
            row += 1
        if 0 < ends < found - count:
            count = found
        first = row
    return count


def _moves(starts: Ints, tracks: Ints, is_slice: Flags) -> tuple[Ints, Ints]:
    """Return the indexes of the slices to move, and of the end in front of which each comes.

    Args:
        starts: the time of each end and each slice without duration, in order.
        tracks: the track of each.
        is_slice: flags of the slices.
    """
    order = np.lexsort((tracks, starts))
    starts, tracks, is_slice = starts[order], tracks[order], is_slice[order]
    places = np.arange(len(order))
    is_first = np.append(True, (starts[1:] != starts[:-1]) | (tracks[1:] != tracks[:-1]))
    firsts = np.maximum.accumulate(np.where(is_first, places, 0))  # the first place of the same time and track
    behind_slice = np.append(0, np.maximum.accumulate(np.where(is_slice, places + 1, 0))[:-1])
    runs = np.maximum(firsts, behind_slice)  # the first of the ends right in front of each place
    moved = np.flatnonzero(is_slice & ~is_slice[firsts] & (runs < places))
    return order[moved], order[runs[moved]]

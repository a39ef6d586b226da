"""The pieces of a split: each has a selection and a suffix for its name."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from service.cutting.criteria import CompiledSelection, IntervalSet
from service.cutting.cut import part_envelope
from service.cutting.part_steps import PartSteps
from service.cutting.rows import AT_ONCE, RowSelector, rows_at
from service.cutting.steps import EventSteps
from service.store.export import envelope, text_sizes
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.parts import Parts, Tracks
from service.trace.errors import BadSelection, UnknownChoice
from service.trace.piece import By
from service.trace.rank import ranks_by_pid
from service.trace.selection import ALWAYS, Closure, Interval, Selection, Window
from service.trace.summary import MergedRank, Summary

PIECES_MAX = 1000
"""Maximum number of pieces of a split."""

_BY_TIME = ("duration", "parts", "size")
_NAMES_ONLY = Closure(flows=False, launches=False, kernels=False, annotations=False)

CUT_MARK_MAX_BYTES = 150
"""Maximum size in bytes of the argument that marks a clipped slice."""


_LINE_BREAKS_MAX_BYTES = 8
"""Maximum number of bytes that a document's line breaks add to its envelope and the texts of its events."""


@dataclass(frozen=True)
class Piece:
    """Part of a trace: the selection that it keeps, and the suffix of its name."""

    suffix: str
    selection: Selection


def split_into_pieces(
    columns: Path, summary: Summary, base: Selection, by: By | None, value: int | None
) -> list[Piece]:
    """Return the pieces of a trace; some may have no event.

    Pieces of a split by time with ``straddle: start`` and no explicit closure contain each event exactly once.

    Args:
        columns: folder of the trace's columns.
        summary: the summary of the trace.
        base: selection to split; a split by time divides its window.
        by: criterion of the split; None for a single piece.
        value: length of a piece in ns (``duration``), number of pieces (``parts``), or maximum size in bytes of the
            JSON document of a piece (``size``).

    Raises:
        BadSelection: `value` does not fit `by`, no piece fits into a `size`, the window or the trace has no time, or
            the split has too many pieces.
        UnknownChoice: the trace has nothing to split by.
    """
    if by in _BY_TIME and (value is None or value < 1):
        raise BadSelection(f"A split by {by} takes a `value` of at least 1.")
    if by not in _BY_TIME and value is not None:
        raise BadSelection(f"A split by {by} takes no `value`." if by else "A single piece takes no `value`.")
    if by in _BY_TIME and base.straddle == "start" and base.closure == Closure():
        base = base.model_copy(update={"closure": _NAMES_ONLY})
    split = _Splitter(columns, whole_summary(summary, columns), base, value or 0).pieces(by)
    if len(split) > PIECES_MAX:
        raise _too_many(len(split))
    return split


def _too_many(count: int) -> BadSelection:
    return BadSelection(f"The split has {count} pieces; at most {PIECES_MAX} are allowed.", limit=PIECES_MAX)


class _Windows(NamedTuple):
    """The window to split, and its intersection with the trace's bounds."""

    window: Interval
    within_trace: Interval


class _Splitter:
    def __init__(self, columns: Path, summary: Summary, base: Selection, value: int) -> None:
        self._columns = columns
        self._summary = summary
        self._base = base
        self._value = value

    def pieces(self, by: By | None) -> list[Piece]:
        """Return the pieces."""
        if by is None:
            return [Piece("cut", self._base)]
        if by in _BY_TIME:
            spans = {"duration": self._by_duration, "parts": self._by_count, "size": self._by_size}[by]()
            width = len(str(len(spans)))
            return [
                Piece(f"part{at:0{width}}of{len(spans)}", self._within(start, end))
                for at, (start, end) in enumerate(spans, 1)
            ]
        if by == "device" and self._summary.ranks:
            return self._by_gpu(self._summary.ranks)
        lists: dict[str, tuple[str, Callable[[], Sequence[Any]]]] = {
            "step": ("steps", lambda: sorted({step["number"] for step in self._summary.steps})),
            "stream": ("streams", lambda: self._summary.streams),
            "device": ("devices", lambda: [device["id"] for device in self._summary.devices if device["events"]]),
            "rank": ("ranks", lambda: [rank["rank"] for rank in self._summary.ranks]),
        }
        field, known_values = lists[by]
        values = list(dict.fromkeys(getattr(self._base, field) or known_values()))
        if not values:
            raise UnknownChoice(f"The trace has no {field} to split by.", **{f"known_{field}": []})
        return [
            Piece(f"{by}{str(value).replace('/', '-')}", self._base.model_copy(update={field: [value]}))
            for value in values
        ]

    def _by_gpu(self, ranks: Iterable[MergedRank]) -> list[Piece]:
        """Return a piece for each device of each rank: the devices of different ranks may have the same number."""
        with closing(Parts(self._columns / EVENTS)) as parts:
            places = {(track.pid, track.device) for track in parts.work_tracks or ()}
        places |= {
            (thread["pid"], thread["device"]) for thread in self._summary.threads if thread["device"] is not None
        }
        rank_of_pid = ranks_by_pid(ranks)
        gpus = sorted(
            {(rank_of_pid[pid], device) for pid, device in places if isinstance(pid, int) and pid in rank_of_pid}
        )
        chosen = [
            (rank, device)
            for rank, device in gpus
            if (self._base.ranks is None or rank in self._base.ranks)
            and (self._base.devices is None or device in self._base.devices)
        ]
        if not chosen:
            known = sorted({device for _, device in gpus})
            raise UnknownChoice("The selection has no devices to split by.", known_devices=known)
        return [
            Piece(f"rank{rank}-device{device}", self._base.model_copy(update={"ranks": [rank], "devices": [device]}))
            for rank, device in chosen
        ]

    def _within(self, start: int | None, end: int | None) -> Selection:
        return self._base.model_copy(update={"window": Window(start_ns=start, end_ns=end)})

    def _windows(self) -> _Windows:
        bounds = self._summary.bounds
        if bounds is None:
            raise BadSelection("A trace without timed events can't be split by time.")
        window = ALWAYS
        if self._base.window:
            with closing(Parts(self._columns / EVENTS)) as parts:
                steps = EventSteps(parts, Tracks(), self._summary)
                selection = Selection(window=self._base.window)
                (window,) = CompiledSelection(parts, Tracks(), steps, selection, self._summary).time.intervals
        first, last = max(window[0], bounds["start_ns"]), min(window[1], bounds["end_ns"] + 1)
        if first >= last:
            raise BadSelection("The window lies outside of the trace's time.", bounds=bounds)
        return _Windows(window, (first, last))

    def _by_duration(self) -> list[tuple[int | None, int | None]]:
        first, last = self._windows().within_trace
        if (count := math.ceil((last - first) / self._value)) > PIECES_MAX:
            raise _too_many(count)
        return self._split_at([first + at * self._value for at in range(1, count)])

    def _by_count(self) -> list[tuple[int | None, int | None]]:
        first, last = self._windows().within_trace
        if self._value > min(PIECES_MAX, last - first):
            raise BadSelection(f"At most {min(PIECES_MAX, last - first)} parts are possible.", limit=PIECES_MAX)
        return self._split_at([first + (last - first) * at // self._value for at in range(1, self._value)])

    def _split_at(self, moments: Sequence[int]) -> list[tuple[int | None, int | None]]:
        """Split the window at the given times, in ns.

        An unbounded window stays unbounded at its ends, so that the pieces lose no event.
        """
        window = self._windows().window
        edges = [window[0] if window[0] != ALWAYS[0] else None, *moments, window[1] if window[1] != ALWAYS[1] else None]
        return list(pairwise(edges))

    # -- by size ------------------------------------------------------------------------------------------------------

    def _by_size(self) -> list[tuple[int | None, int | None]]:
        """Return spans whose JSON documents have at most `value` bytes.

        A span that is too large is split where half of its bytes begin.
        """
        self._windows()  # raises an error if the window has no time
        with closing(Parts(self._columns / EVENTS)) as parts:
            sizes = np.concatenate([np.zeros(0, np.int64), *text_sizes(self._columns)])
            times, ends = self._times(parts)
            done: list[tuple[int | None, int | None]] = []
            waiting = self._split_at([])
            while waiting and len(done) + len(waiting) <= PIECES_MAX:
                batch, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
                selector = RowSelector(parts, [self._within(*span) for span in batch], self._summary)
                bits = selector.kept()
                for index, span in enumerate(batch):
                    rows = rows_at(bits, index)
                    if self._size(rows, sizes, (times, ends), span, selector.time(index)) <= self._value:
                        done.append(span)
                    else:
                        waiting += self._halves(rows, sizes, times, span)
        return sorted(done + waiting, key=lambda span: ALWAYS[0] if span[0] is None else span[0])

    @cached_property
    def _steps(self) -> PartSteps:
        return PartSteps.of_trace(self._columns, self._summary)

    def _times(self, parts: Parts) -> tuple[Any, Any]:
        """Return the starts and the ends of all events."""
        begins, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for part in parts.read(("ph", "ts_ns", "dur_ns")):
            begins.append(part.starts)
            ends.append(part.ends)
        return np.concatenate(begins), np.concatenate(ends)

    def _size(
        self, rows: Any, sizes: Any, times: tuple[Any, Any], span: tuple[int | None, int | None], time: IntervalSet
    ) -> int:
        """Return an upper bound of the size in bytes of the JSON document with these rows."""
        selection, whole = self._within(*span), envelope(self._columns, redact=False)
        steps = self._steps.of_selection(selection, time)
        text = part_envelope(whole, selection, "0" * 64, self._summary, steps)
        mark_bytes = 0
        if self._base.straddle == "clip":
            start, end = (edge if edge is not None else limit for edge, limit in zip(span, ALWAYS, strict=True))
            begins, ends = (column[rows] for column in times)
            is_clipped = (
                (begins < start) | (ends > end) | bool(self._base.exclude)
            )  # an excluded window may clip any slice
            mark_bytes = int((is_clipped & (ends > begins)).sum()) * CUT_MARK_MAX_BYTES
        return len(text) + int(sizes[rows].sum()) + _LINE_BREAKS_MAX_BYTES + mark_bytes

    def _halves(self, rows: Any, sizes: Any, times: Any, span: tuple[int | None, int | None]) -> list[Any]:
        """Divide a span into two, each with about half of the bytes of the events that begin in it."""
        start, end = (edge if edge is not None else limit for edge, limit in zip(span, ALWAYS, strict=True))
        begins = times[rows]
        begun_inside = rows[(begins >= start) & (begins < end) & (begins != ALWAYS[0])]
        moments, first_rows = np.unique(times[begun_inside], return_index=True)
        if len(moments) < 2:
            raise BadSelection(
                f"No piece at {start} ns, with its closure, fits into {self._value} bytes.",
                limit=self._value,
            )
        bytes_before = np.concatenate([[0], np.cumsum(sizes[begun_inside])])[first_rows]
        middle = int(moments[max(1, min(int(np.searchsorted(bytes_before, bytes_before[-1] / 2)), len(moments) - 1))])
        return [(span[0], middle), (middle, span[1])]

"""Into which pieces a trace is split: each is a selection, and what tells its name from the others'."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from service.cutting.criteria import Asked
from service.cutting.cut import part_envelope
from service.cutting.rows import AT_ONCE, kept_rows, rows_at
from service.cutting.steps import EventSteps
from service.store.export import envelope, text_sizes
from service.store.folder import EVENTS
from service.store.lists import whole_summary
from service.store.parts import Parts, Tracks
from service.trace.errors import BadSelection, UnknownChoice
from service.trace.piece import By
from service.trace.selection import ALWAYS, Closure, Interval, Selection, Window

PIECES_MAX = 1000
"""Pieces of one split."""

_BY_TIME = ("duration", "parts", "size")
_NAMES_ONLY = Closure(flows=False, launches=False, kernels=False, annotations=False)

MARK_MAX = 150
"""Bytes by which a slice grows, at most, that is cut at an edge."""


@dataclass(frozen=True)
class Piece:
    """A part of a trace: what it keeps, and what its name has more than the trace's."""

    suffix: str
    selection: Selection


def pieces(columns: Path, summary: Mapping[str, Any], base: Selection, by: By | None, value: int | None) -> list[Piece]:
    """The pieces of a trace; some may turn out to be empty.

    Pieces of time that hold what starts in them, and say nothing of what comes along, hold each event exactly once.

    Args:
        columns: the folder that ingest made of the trace.
        summary: of the trace, as the catalog has it.
        base: what to split; its own time is the one that is divided.
        by: what makes a piece; None for a single one.
        value: the ns of a ``duration``, the number of ``parts``, the bytes of the JSON document for ``size``.

    Raises:
        SelectionError: the trace has nothing to split by, or too much of it.
    """
    if by in _BY_TIME and (value is None or value < 1):
        raise BadSelection(f"To split by {by} takes a `value` of at least 1.")
    if by not in _BY_TIME and value is not None:
        raise BadSelection(f"To split by {by} takes no `value`." if by else "One piece takes no `value`.")
    if by in _BY_TIME and base.straddle == "start" and "closure" not in base.model_fields_set:
        base = base.model_copy(update={"closure": _NAMES_ONLY})
    found = _Splitter(columns, whole_summary(summary, columns), base, value or 0).pieces(by)
    if len(found) > PIECES_MAX:
        raise BadSelection(f"That makes {len(found)} pieces; at most {PIECES_MAX} are made.", limit=PIECES_MAX)
    return found


class _Splitter:
    def __init__(self, columns: Path, summary: Mapping[str, Any], base: Selection, value: int) -> None:
        self._columns = columns
        self._summary = summary
        self._base = base
        self._value = value

    def pieces(self, by: By | None) -> list[Piece]:
        """The pieces."""
        if by is None:
            return [Piece("cut", self._base)]
        if by in _BY_TIME:
            spans = {"duration": self._lasting, "parts": self._equal, "size": self._sized}[by]()
            width = len(str(len(spans)))
            return [
                Piece(f"part{at:0{width}}of{len(spans)}", self._within(start, end))
                for at, (start, end) in enumerate(spans, 1)
            ]
        lists: dict[str, tuple[str, Callable[[], Sequence[Any]]]] = {
            "step": ("steps", lambda: sorted({step["number"] for step in self._summary["steps"]})),
            "stream": ("streams", lambda: self._summary["streams"]),
            "device": ("devices", lambda: [one["id"] for one in self._summary["devices"] if one["events"]]),
            "rank": ("ranks", lambda: [one["rank"] for one in self._summary.get("ranks", [])]),
        }
        field, list_all = lists[by]
        chosen = list(dict.fromkeys(getattr(self._base, field) or list_all()))
        if not chosen:
            raise UnknownChoice(f"The trace has no {field} to split by.", **{f"known_{field}": []})
        return [
            Piece(f"{by}{str(one).replace('/', '-')}", self._base.model_copy(update={field: [one]})) for one in chosen
        ]

    def _within(self, start: int | None, end: int | None) -> Selection:
        return self._base.model_copy(update={"window": Window(start_ns=start, end_ns=end)})

    def _span(self) -> tuple[Interval, Interval]:
        """The time that is divided, and the same with its open ends where the trace's events are."""
        bounds = self._summary["bounds"]
        if bounds is None:
            raise BadSelection("A trace in which nothing has a time can't be split by time.")
        whole = ALWAYS
        if self._base.window:
            with closing(Parts(self._columns / EVENTS)) as parts:
                steps = EventSteps(parts, Tracks(), self._summary)
                window = Selection(window=self._base.window)
                (whole,) = Asked(parts, Tracks(), steps, window, self._summary).time.intervals
        first, last = max(whole[0], bounds["start_ns"]), min(whole[1], bounds["end_ns"] + 1)
        if first >= last:
            raise BadSelection("The window has none of the trace's time.", bounds=bounds)
        return whole, (first, last)

    def _lasting(self) -> list[tuple[int | None, int | None]]:
        _, (first, last) = self._span()
        if (count := math.ceil((last - first) / self._value)) > PIECES_MAX:
            raise BadSelection(f"That makes {count} pieces; at most {PIECES_MAX} are made.", limit=PIECES_MAX)
        return self._divided([first + at * self._value for at in range(1, count)])

    def _equal(self) -> list[tuple[int | None, int | None]]:
        _, (first, last) = self._span()
        if self._value > min(PIECES_MAX, last - first):
            raise BadSelection(f"At most {min(PIECES_MAX, last - first)} parts can be made.", limit=PIECES_MAX)
        return self._divided([first + (last - first) * at // self._value for at in range(1, self._value)])

    def _divided(self, cuts: Sequence[int]) -> list[tuple[int | None, int | None]]:
        """The time, cut at some moments: its own ends stay open, so that nothing is lost there."""
        whole, _ = self._span()
        edges = [whole[0] if whole[0] != ALWAYS[0] else None, *cuts, whole[1] if whole[1] != ALWAYS[1] else None]
        return list(pairwise(edges))

    # -- by size ------------------------------------------------------------------------------------------------------

    def _sized(self) -> list[tuple[int | None, int | None]]:
        """Spans of time whose documents have at most so many bytes, each halved, by bytes, until it is small enough."""
        self._span()
        with closing(Parts(self._columns / EVENTS)) as parts:
            sizes = np.concatenate([np.zeros(0, np.int64), *text_sizes(self._columns)])
            times, ends = self._times(parts)
            done: list[tuple[int | None, int | None]] = []
            waiting = self._divided([])
            while waiting and len(done) + len(waiting) <= PIECES_MAX:
                now, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
                bits = kept_rows(parts, [self._within(*span) for span in now], self._summary)
                for place, span in enumerate(now):
                    rows = rows_at(bits, place)
                    if self._size(rows, sizes, (times, ends), span) <= self._value:
                        done.append(span)
                    else:
                        waiting += self._halves(rows, sizes, times, span)
        return sorted(done + waiting, key=lambda span: ALWAYS[0] if span[0] is None else span[0])

    def _times(self, parts: Parts) -> tuple[Any, Any]:
        """When each event begins; and when it ends, if it may be cut, else the same."""
        begins, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for part in parts.read(("ph", "ts_ns", "dur_ns")):
            begins.append(part.starts)
            ends.append(part.ends)
        return np.concatenate(begins), np.concatenate(ends)

    def _size(self, rows: Any, sizes: Any, times: tuple[Any, Any], span: tuple[int | None, int | None]) -> int:
        """Bytes of the document of some rows."""
        text = part_envelope(envelope(self._columns, redact=False), self._within(*span), "0" * 64, self._summary)
        cut = 0
        if self._base.straddle == "clip":
            start, end = (edge if edge is not None else limit for edge, limit in zip(span, ALWAYS, strict=True))
            begins, ends = (one[rows] for one in times)
            over = (begins < start) | (ends > end) | bool(self._base.exclude)  # or at other edges
            cut = int((over & (ends > begins)).sum()) * MARK_MAX
        return len(text) + int(sizes[rows].sum()) + 8 + cut

    def _halves(self, rows: Any, sizes: Any, times: Any, span: tuple[int | None, int | None]) -> list[Any]:
        """The span in two, each with about half of the bytes that begin in it."""
        start, end = (edge if edge is not None else limit for edge, limit in zip(span, ALWAYS, strict=True))
        begins = times[rows]
        mine = rows[(begins >= start) & (begins < end) & (begins != ALWAYS[0])]
        moments, firsts = np.unique(times[mine], return_index=True)
        if len(moments) < 2:
            raise BadSelection(
                f"No part of the trace at {start} ns, with all that belongs to it, fits into {self._value} bytes.",
                limit=self._value,
            )
        before = np.concatenate([[0], np.cumsum(sizes[mine])])[firsts]
        middle = int(moments[max(1, min(int(np.searchsorted(before, before[-1] / 2)), len(moments) - 1))])
        return [(span[0], middle), (middle, span[1])]

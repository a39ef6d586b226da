"""The initial view of the UI on a trace: a span of the engine's time, and the slice to select."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from service.rendering.shown_slices import ShownSlices
from service.rendering.time_base import engine_times, time_base
from service.rendering.view import InitialView, check_engine_id
from service.store.folder import EVENTS
from service.store.parts import Parts
from service.trace.selection import Selection
from service.trace.slices import SliceReference
from service.trace.summary import Summary

MARGIN = 0.03
"""Margin on each side of a selection's time, as a fraction of that time."""

SLICE_MARGIN = 1.5
"""Margin on each side of a slice, as a multiple of its duration."""

SLICE_MARGIN_MIN_NS = 1000


def initial_view(
    columns: Path,
    summary: Summary,
    selection: Selection | None,
    reference: SliceReference | None,
    *,
    counts_events: bool = False,
) -> InitialView:
    """Find the initial view on a trace, or on a selection of it.

    Args:
        columns: the folder of the trace's columns.
        summary: the trace's summary from the catalog.
        selection: the part that the UI shows; None for the whole trace.
        reference: the slice to select; None to select no slice.
        counts_events: whether to count the events that the UI shows.

    Raises:
        SelectionError: the selection is empty.
        UnknownSlice: the slice is not in the trace, or not in the selection.
        AmbiguousSlice: the reference matches several slices.
        ExportFailed: the columns can't be read.
    """
    with closing(Parts(columns / EVENTS)) as parts:
        slices = ShownSlices(parts, summary, selection)
        view = _of_slice(parts, summary, slices, reference) if reference else _of_selection(parts, summary, slices)
        return replace(view, events=slices.events) if counts_events else view


def _of_slice(parts: Parts, summary: Summary, slices: ShownSlices, reference: SliceReference) -> InitialView:
    """Return the view on a slice."""
    if reference.kind == "id":
        check_engine_id(reference.number, parts.rows)
        return InitialView()
    chosen, start, end = slices.engine_slice(slices.row_of(reference))
    margin = max(round(SLICE_MARGIN * (end - start)), SLICE_MARGIN_MIN_NS)
    span = _of_span(parts, summary, start, end, margin)
    return InitialView(span.start, span.end, chosen)


def _of_selection(parts: Parts, summary: Summary, slices: ShownSlices) -> InitialView:
    """Return the view on the selection's window and steps, or on the whole timeline if it has neither."""
    bounds, around = summary.bounds, slices.selector.time_with_steps(0) if slices.selector else None
    if around is None or not bounds:
        return InitialView()
    intervals = around.intervals
    start, end = max(intervals[0][0], bounds["start_ns"]), min(intervals[-1][1], bounds["end_ns"])
    return _of_span(parts, summary, start, end, round(MARGIN * (end - start))) if start < end else InitialView()


def _of_span(parts: Parts, summary: Summary, start: int, end: int, margin: int) -> InitialView:
    """Return the view on a span with a margin, within the engine's range."""
    base, bounds = time_base(parts), summary.bounds
    if bounds is None:
        return InitialView()
    first, last = max(start - margin, bounds["start_ns"]), min(end + margin, bounds["end_ns"])
    (begin,), (duration,) = engine_times(np.array([first]), np.array([last - first]), base)
    return InitialView(int(begin), int(begin + duration))

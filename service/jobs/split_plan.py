"""Plans of splits: the pieces that a split would write, without writing them."""

from collections import Counter
from contextlib import closing

from service.cutting.cut import Cuts
from service.cutting.pieces import split_into_pieces
from service.cutting.rows import AT_ONCE, nothing_selected
from service.cutting.source import Source
from service.formats.names import child_name
from service.jobs.children.tasks.derive import PlannedPiece
from service.store.folder import EVENTS, size_of
from service.store.parts import Parts
from service.trace.piece import By
from service.trace.selection import Selection


def plan_split(source: Source, selection: Selection, by: By | None, value: int | None) -> list[PlannedPiece]:
    """Count the events of each piece that a split would write; empty pieces are left out.

    Args:
        source: the trace.
        selection: the part of the trace to split.
        by: the criterion of the split; None for a single piece.
        value: size or number of the pieces, if `by` needs it.

    Raises:
        SelectionError: no piece has any event, or a selection is invalid.
    """
    all_pieces = split_into_pieces(source.columns, source.summary, selection, by, value)
    planned: list[PlannedPiece] = []
    size, kept = size_of(source.columns), max(source.summary.kept_events, 1)
    with closing(Parts(source.columns / EVENTS)) as parts:
        for first in range(0, len(all_pieces), AT_ONCE):
            batch = all_pieces[first : first + AT_ONCE]
            cuts = Cuts(parts, [piece.selection for piece in batch], source.summary)
            counts: list[Counter[str]] = [Counter() for _ in batch]
            for place, table in cuts.uncut(("ph", "cat")):
                for group in table.group_by(["ph", "cat"]).aggregate([([], "count_all")]).to_pylist():
                    counts[place][f"{group['ph'] or ''}|{group['cat'] or ''}"] += group["count_all"]
            planned += [
                PlannedPiece(
                    name=child_name(source.name, piece.suffix),
                    selection=piece.selection,
                    events=events,
                    counts=dict(sorted(counts[place].items())),
                    size=round(size * events / kept),
                )
                for place, (piece, events) in enumerate(zip(batch, cuts.counts, strict=True))
                if events
            ]
    if not planned:
        raise nothing_selected(source.summary)
    return planned

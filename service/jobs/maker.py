"""A process that makes traces of traces: splits one, or merges some, or tells what a split would make.

The first line of its input is what to do; the input then stays open as long as anyone wants it done. It answers like
`service.jobs.worker`, with ``error`` for what lies in the request.
"""

import os
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from service.cutting.children import write_children
from service.cutting.cut import Cuts
from service.cutting.merge import merge
from service.cutting.pieces import Piece, pieces
from service.cutting.rows import AT_ONCE, nothing_selected
from service.cutting.source import Source
from service.jobs.input import end_with_input
from service.jobs.worker import Reporter
from service.store.catalog import new_trace_id
from service.store.folder import EVENTS, size_of
from service.store.parts import Parts
from service.streaming.source import Progress
from service.trace.errors import SelectionError
from service.trace.piece import child_name
from service.trace.selection import Selection

OnWritten = Callable[[int, int], object]


def split(request: dict[str, Any], on_written: OnWritten) -> list[dict[str, Any]]:
    """Make the pieces of a trace; see `write_children`."""
    made = write_children(
        Source(Path(request["columns"]), request["name"], request["summary"], request["source"]),
        Path(request["folder"]),
        _pieces(request),
        new_id=new_trace_id,
        on_written=on_written,
    )
    return [asdict(child) for child in made]


def plan(request: dict[str, Any], _: OnWritten) -> list[dict[str, Any]]:
    """What `split` would make: of each piece its name, its selection, and its events."""
    found = _pieces(request)
    summary, told, columns = request["summary"], [], Path(request["columns"])
    size = size_of(columns)
    with closing(Parts(columns / EVENTS)) as parts:
        for first in range(0, len(found), AT_ONCE):
            some = found[first : first + AT_ONCE]
            cuts = Cuts(parts, [piece.selection for piece in some], summary)
            counts: list[dict[str, int]] = [{} for _ in some]
            for place, table in cuts.uncut(("ph", "cat")):
                for pair in table.group_by(["ph", "cat"]).aggregate([([], "count_all")]).to_pylist():
                    key = f"{pair['ph'] or ''}|{pair['cat'] or ''}"
                    counts[place][key] = counts[place].get(key, 0) + pair["count_all"]
            told += [
                {
                    "name": child_name(request["name"], piece.suffix),
                    "selection": piece.selection.as_dict(),
                    "events": count,
                    "counts": dict(sorted(counts[place].items())),
                    "size": round(size * count / max(summary["events"].get("kept", 0), 1)),
                }
                for place, (piece, count) in enumerate(zip(some, cuts.counts, strict=True))
                if count
            ]
    if not told:
        raise nothing_selected(summary)
    return told


def merged(request: dict[str, Any], on_written: OnWritten) -> list[dict[str, Any]]:
    """Make one trace of several; see `merge`."""
    sources = [
        Source(Path(one["columns"]), one["name"], one["summary"], one["source"], one["rank"])
        for one in request["ranks"]
    ]
    folder = Path(request["folder"]) / new_trace_id()
    return [asdict(merge(sources, folder, name=request["name"], align=request["align"], on_written=on_written))]


def overlay(request: dict[str, Any], on_written: OnWritten) -> list[dict[str, Any]]:
    """Make a trace with its critical path; see `write_critical_path`."""
    from service.jobs.overlay import write_critical_path  # noqa: PLC0415 - loads numba and DuckDB, for this alone

    source = Source(Path(request["columns"]), request["name"], request["summary"], request["source"])
    folder, selection = Path(request["folder"]), Selection.parsed(request["selection"])
    spill = folder / "spill"
    made = write_critical_path(source, folder / new_trace_id(), selection, spill=spill, on_written=on_written)
    return [asdict(made)]


KINDS: dict[str, Callable[[dict[str, Any], OnWritten], list[dict[str, Any]]]] = {
    "split": split,
    "plan": plan,
    "merge": merged,
    "overlay": overlay,
}


def _pieces(request: dict[str, Any]) -> list[Piece]:
    selection = Selection.parsed(request["selection"])
    return pieces(Path(request["columns"]), request["summary"], selection, request["by"], request["value"])


def main() -> int:
    """Do what the first line of the input says."""
    request = orjson.loads(sys.stdin.buffer.readline())
    end_with_input()
    reporter = Reporter()
    with reporter.failing(SelectionError):
        made = KINDS[request["kind"]](
            request, lambda done, total: reporter.progress(Progress(events=done, events_total=total))
        )
        reporter.tell("result", made)
    return 0


if __name__ == "__main__":
    os._exit(main())

"""A selection in the address of a request: each criterion as a parameter, or all of it as JSON."""

from typing import Annotated, Any

from fastapi import Depends, Query

from service.trace.errors import BadSelection
from service.trace.selection import Selection
from service.trace.summary import Key


def chosen_selection(  # noqa: PLR0913, PLR0917 - FastAPI takes the parameters of a request so
    selection: Annotated[
        str | None, Query(description='a selection as JSON, like `{"steps": [7]}`; or its parts as parameters:')
    ] = None,
    start_ns: Annotated[int | None, Query(description="of the window of time")] = None,
    end_ns: Annotated[int | None, Query(description="likewise")] = None,
    relative: Annotated[bool, Query(description="count both from the trace's start")] = False,
    steps: Annotated[list[int] | None, Query()] = None,
    streams: Annotated[list[str] | None, Query(description="`device/stream`")] = None,
    devices: Annotated[list[int] | None, Query()] = None,
    ranks: Annotated[list[int] | None, Query(description="of a merged trace")] = None,
    threads: Annotated[list[str] | None, Query(description="a tid, `pid/tid`, or a name")] = None,
    processes: Annotated[list[str] | None, Query(description="a pid or a name")] = None,
    categories: Annotated[list[str] | None, Query()] = None,
    names: Annotated[list[str] | None, Query(description="patterns with `*` and `?`, or `re:` and a regex")] = None,
    phases: Annotated[list[str] | None, Query()] = None,
    min_dur_ns: Annotated[int | None, Query()] = None,
    straddle: Annotated[str | None, Query(description="`keep`, `start` or `clip`")] = None,
) -> Selection | None:
    """The selection that the parameters mean; None without any. Raises `BadSelection`."""
    edges = {"start_ns": start_ns, "end_ns": end_ns, "relative": relative or None}
    window = {name: value for name, value in edges.items() if value is not None}
    told: dict[str, Any] = {
        "window": window or None, "steps": steps, "streams": streams, "devices": devices, "ranks": ranks,
        "threads": threads and [*map(_key, threads)], "processes": processes and [*map(_key, processes)],
        "categories": categories, "names": names, "phases": phases, "min_dur_ns": min_dur_ns, "straddle": straddle,
    }  # fmt: skip
    parts = {name: value for name, value in told.items() if value is not None}
    if selection is None:
        return Selection.parsed(parts) if parts else None
    if parts:
        raise BadSelection(f"The selection is given as JSON, and {', '.join(parts)} beside it.")
    return Selection.parsed(selection)


def _key(text: str) -> Key:
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 19 else text


Chosen = Annotated[Selection | None, Depends(chosen_selection)]
"""What of the trace the request is about; None for all of it."""

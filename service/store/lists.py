"""The lists of a summary, bounded: the catalog has the first entries of each, and a file beside the columns has all."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from service.store.folder import LISTS, unreadable, write_whole
from service.trace.summary import Summary

LISTED_MAX = 4096
"""Entries of a list in the catalog."""
ENTRY_MAX = 4096
"""Bytes of one of them as JSON; longer ones are in the file alone."""
TEXT_MAX = 1024
"""Characters of a text of the summary."""
_LIST_MAX = {"devices": 128 << 10, "streams": 128 << 10}
_OTHER_LIST_MAX = 1 << 20
"""Bytes of a list in the catalog; those of devices and streams stand in lists of traces, too."""
_BOUNDED = ("counts", "processes", "threads", "devices", "streams", "steps", "ranks")


def bounded(summary: Summary, columns: Path) -> Summary:
    """The summary with lists that are bounded, whose lengths are in `totals`; all of these are written to the file.

    Args:
        summary: of a trace.
        columns: the folder of its columns.

    Raises:
        DiskFull: there was no room.
    """
    whole = {name: getattr(summary, name) for name in _BOUNDED}
    parts = {name: _first(values, _LIST_MAX.get(name, _OTHER_LIST_MAX)) for name, values in whole.items()}
    cut = [name for name in _BOUNDED if len(parts[name]) < len(whole[name])]
    if cut:
        write_whole(columns / LISTS, orjson.dumps({name: whole[name] for name in cut}))
    host, backend = (text and text[:TEXT_MAX] for text in (summary.host, summary.backend))
    return replace(summary, **parts, host=host, backend=backend, totals={name: len(whole[name]) for name in cut})


def whole_summary(summary: Mapping[str, Any], columns: Path) -> Mapping[str, Any]:
    """A summary with all entries of its lists; it may be large.

    Args:
        summary: of a trace, as the catalog has it.
        columns: the folder of its columns.

    Raises:
        ExportFailed: the file can't be read.
    """
    if not summary.get("totals"):
        return summary
    try:
        lists = orjson.loads((columns / LISTS).read_bytes())
    except (OSError, ValueError) as error:
        raise unreadable(columns / LISTS, error) from error
    return {**summary, **lists, "totals": {}}


def _first(values: Any, size_max: int) -> Any:
    """The first entries of a list or an object, without those that are too long."""
    entries = values.items() if isinstance(values, dict) else values
    kept, size = [], 0
    for entry in entries:
        length = len(orjson.dumps(entry))
        if length <= ENTRY_MAX:
            kept.append(entry)
            size += length
        if len(kept) == LISTED_MAX or size > size_max:
            break
    return type(values)(kept)

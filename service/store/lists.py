"""Limits on the lists of a summary: the catalog has their first entries; a file next to the columns has all entries."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from service.store.column_files import ColumnFile, ColumnFolder
from service.store.folder import LISTS, PLAIN_LISTS, unreadable, write_whole
from service.streaming.zstandard import zstd
from service.trace.summary import Summary

LISTED_MAX = 4096
"""Largest number of entries of a list in the catalog."""
ENTRY_MAX = 4096
"""Largest size in bytes of an entry as JSON; longer entries are only in the file."""
TEXT_MAX = 1024
"""Largest number of characters of the `host` and `backend` of a summary."""
_LIST_MAX = {"devices": 128 << 10, "streams": 128 << 10}
_OTHER_LIST_MAX = 1 << 20
"""Size in bytes beyond which a list in the catalog takes no further entry.

Devices and streams have a lower limit, because responses that list traces contain them.
"""
CACHED_MAX = 2
"""Largest number of files of lists whose content a process keeps."""
_LIMITED = ("counts", "processes", "threads", "devices", "streams", "steps", "ranks")


def with_limited_lists(summary: Summary, columns: Path) -> Summary:
    """Return the summary with limited lists; each list that was cut is written to a file in full.

    `totals` then has the complete lengths of the lists that were cut. Host and backend are cut, too.

    Args:
        summary: the summary of a trace.
        columns: folder of its columns.

    Raises:
        DiskFull: the disk had no room.
    """
    whole = {name: getattr(summary, name) for name in _LIMITED}
    parts = {name: _first(values, _LIST_MAX.get(name, _OTHER_LIST_MAX)) for name, values in whole.items()}
    cut = [name for name in _LIMITED if len(parts[name]) < len(whole[name])]
    if cut:
        write_whole(columns / LISTS, zstd.compress(orjson.dumps({name: whole[name] for name in cut})))
    host, backend = (text and text[:TEXT_MAX] for text in (summary.host, summary.backend))
    return replace(summary, **parts, host=host, backend=backend, totals={name: len(whole[name]) for name in cut})


def whole_summary(summary: Summary, columns: ColumnFolder) -> Summary:
    """Return the summary with complete lists, which may be large.

    Args:
        summary: the summary of a trace, as the catalog has it.
        columns: folder of its columns.

    Raises:
        ExportFailed: the file of lists can't be read.
    """
    if not summary.totals:
        return summary
    path = columns / LISTS
    if not path.exists() and (columns / PLAIN_LISTS).exists():
        path = columns / PLAIN_LISTS
    try:
        lists = _lists(path, path.stat().st_mtime_ns) if isinstance(path, Path) else _read_lists(path)
    except (OSError, ValueError, zstd.ZstdError) as error:
        raise unreadable(path, error) from error
    return replace(summary, **lists, totals={})


@lru_cache(CACHED_MAX)
def _lists(path: Path, _modified_ns: int) -> dict[str, Any]:
    """Read a file of lists. Cached, since a page asks many questions about one trace.

    A file with a new modification time is read again.
    """
    return _read_lists(path)


def _read_lists(path: ColumnFile) -> dict[str, Any]:
    content = path.read_bytes()
    lists: dict[str, Any] = orjson.loads(content if path.name == PLAIN_LISTS else zstd.decompress(content))
    return lists


def _first(values: Any, size_max: int) -> Any:
    """Return the first entries of a list or an object, without those that are too long."""
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

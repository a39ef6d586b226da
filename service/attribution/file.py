"""The file of a trace's links: written once, read by every cut and analysis of the trace."""

import os
from contextlib import closing
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.attribution.links import RULES, Links, link_device_events
from service.attribution.nesting import NONE, Flags
from service.attribution.steps import NO_STEP, StepClock
from service.store.folder import ATTRIBUTION, EVENTS, disk_errors, unreadable
from service.store.parts import Parts
from service.trace.summary import ExternalIdKind, Summary

_EXTERNAL_IDS = b"tracedock.external_ids"
_INTS = {"row": "rows", "launch": "launches", "operator": "operators", "step": "steps"}
_MISSING = {"launch": NONE, "operator": NONE, "step": NO_STEP}
_ROW_GROUP = 1 << 17
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in _INTS),
        pa.field("rule", pa.dictionary(pa.int8(), pa.string())),
        pa.field("is_work", pa.bool_()),
    ]
)
"""Columns of the file. Row numbers count events from 0; null means no launch, operator or step."""


def make_links(columns: Path, summary: Summary, external_ids: ExternalIdKind = "unknown") -> Links:
    """Find the links of a trace from its events, and write them next to the events.

    Args:
        columns: folder of the trace's columns.
        summary: summary of the trace, as in the catalog.
        external_ids: meaning of External ids in the whole trace, if this trace is a part and the meaning is known.

    Raises:
        ExportFailed: the events cannot be read.
        DiskFull: the disk has no room for the file.
    """
    links = _find_links(columns, summary, external_ids)
    with disk_errors(), (columns / ATTRIBUTION).open("wb") as file:
        pq.write_table(_table(links), file, row_group_size=_ROW_GROUP, compression="zstd", use_dictionary=["rule"])
        file.flush()
        os.fsync(file.fileno())
    return links


def links_of(columns: Path, summary: Summary, rows: Flags | None = None) -> Links:
    """Read the links of a trace from its file; compute them if the trace was ingested before such files existed.

    Args:
        columns: folder of the trace's columns.
        summary: summary of the trace, as in the catalog.
        rows: flags of the trace's events; at least the links from and to the flagged events are returned. None for all.

    Raises:
        ExportFailed: the columns cannot be read.
    """
    path = columns / ATTRIBUTION
    if not path.exists():
        return _find_links(columns, summary, "unknown")
    try:
        with pq.ParquetFile(path) as file:
            groups = [
                group
                for group in range(file.num_row_groups)
                if rows is None or _touches(file.metadata.row_group(group), rows)
            ]
            table = file.read_row_groups(groups).cast(SCHEMA)
            external_ids = file.metadata.metadata[_EXTERNAL_IDS].decode()
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    ints = {
        field: table[name].fill_null(_MISSING[name]).to_numpy() if name in _MISSING else table[name].to_numpy()
        for name, field in _INTS.items()
    }
    rules = table["rule"].unify_dictionaries().combine_chunks()
    rule_indices = np.array([RULES.index(rule) for rule in rules.dictionary.to_pylist()] or [0], np.int64)
    return Links(
        **ints,
        is_work=table["is_work"].to_numpy(),
        rules=rule_indices[rules.indices.to_numpy()],
        external_ids=cast("ExternalIdKind", external_ids),
    )


def _touches(group: pq.RowGroupMetaData, rows: Flags) -> bool:
    """Return whether a row group may have a link from or to one of the flagged events, by its statistics."""
    places = map(SCHEMA.names.index, ("row", "launch", "operator"))
    spans = (group.column(place).statistics for place in places)
    return any(not span or (span.has_min_max and rows[span.min : span.max + 1].any()) for span in spans)


def _find_links(columns: Path, summary: Summary, external_ids: ExternalIdKind) -> Links:
    with closing(Parts(columns / EVENTS)) as parts:
        return link_device_events(parts.read, StepClock(summary), external_ids)


def _table(links: Links) -> pa.Table:
    columns = {
        name: pa.array(values, mask=values == _MISSING[name] if name in _MISSING else None)
        for name, values in ((name, getattr(links, field)) for name, field in _INTS.items())
    }
    columns["rule"] = pa.DictionaryArray.from_arrays(pa.array(links.rules.astype(np.int8)), pa.array(RULES))
    columns["is_work"] = pa.array(links.is_work)
    return pa.table(columns, SCHEMA.with_metadata({_EXTERNAL_IDS: links.external_ids.encode()}))

"""The file of a trace's links, which is made once and read by all that cut and analyse the trace."""

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.attribution.links import RULES, ExternalIds, Links, linked
from service.attribution.nesting import NONE
from service.attribution.steps import NO_STEP, StepClock
from service.store.folder import ATTRIBUTION, EVENTS, disk_errors, unreadable
from service.store.parts import Parts

_EXTERNAL_IDS = b"tracedock.external_ids"
_INTS = {"row": "rows", "launch": "launches", "operator": "operators", "step": "steps"}
_MISSING = {"launch": NONE, "operator": NONE, "step": NO_STEP}
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in _INTS),
        pa.field("rule", pa.dictionary(pa.int8(), pa.string())),
        pa.field("is_work", pa.bool_()),
    ]
)
"""Columns of the file: rows are those of the events, from 0; null where there is no launch, operator or step."""


def make_links(columns: Path, summary: Mapping[str, Any], external_ids: ExternalIds = "unknown") -> Links:
    """Find the links of a trace whose events are written, and write them beside the events.

    Args:
        columns: the folder of the trace's columns.
        summary: of the trace, as the catalog has it.
        external_ids: what External ids are, where a trace of which this one is a part has shown it.

    Raises:
        ExportFailed: the events can't be read.
        DiskFull: there was no room.
    """
    links = _found(columns, summary, external_ids)
    with disk_errors(), (columns / ATTRIBUTION).open("wb") as file:
        pq.write_table(_table(links), file, compression="zstd", use_dictionary=["rule"])
        file.flush()
        os.fsync(file.fileno())
    return links


def links_of(columns: Path, summary: Mapping[str, Any]) -> Links:
    """The links of a trace; those of a trace that an earlier version has read are found anew.

    Args:
        columns: the folder of the trace's columns.
        summary: of the trace, as the catalog has it.

    Raises:
        ExportFailed: the columns can't be read.
    """
    path = columns / ATTRIBUTION
    if not path.exists():
        return _found(columns, summary, "unknown")
    try:
        table = pq.read_table(path, schema=SCHEMA)
        told = pq.read_metadata(path).metadata[_EXTERNAL_IDS].decode()
    except (OSError, KeyError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    ints = {
        field: table[name].fill_null(_MISSING[name]).to_numpy() if name in _MISSING else table[name].to_numpy()
        for name, field in _INTS.items()
    }
    rules = table["rule"].unify_dictionaries().combine_chunks()
    places = np.array([RULES.index(rule) for rule in rules.dictionary.to_pylist()] or [0], np.int64)
    return Links(
        **ints,
        is_work=table["is_work"].to_numpy(),
        rules=places[rules.indices.to_numpy()],
        external_ids=cast("ExternalIds", told),
    )


def _found(columns: Path, summary: Mapping[str, Any], external_ids: ExternalIds) -> Links:
    with closing(Parts(columns / EVENTS)) as parts:
        return linked(parts.read, StepClock(summary), external_ids)


def _table(links: Links) -> pa.Table:
    columns = {
        name: pa.array(values, mask=values == _MISSING[name] if name in _MISSING else None)
        for name, values in ((name, getattr(links, field)) for name, field in _INTS.items())
    }
    columns["rule"] = pa.DictionaryArray.from_arrays(pa.array(links.rules.astype(np.int8)), pa.array(RULES))
    columns["is_work"] = pa.array(links.is_work)
    return pa.table(columns, SCHEMA.with_metadata({_EXTERNAL_IDS: links.external_ids.encode()}))

"""Generated rows of the columns by which events are classified."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from service.store.event_classes import KEYS
from service.streaming.schema import SCHEMA
from service.trace.summary import RECORD_WINDOW_END

Row = dict[str, Any]

NUMBERS = st.none() | st.sampled_from([0, 1, -1, 7, 2**63 - 1, -(2**63)])
_TEXTS = st.none() | st.sampled_from(["", "X", '"a"', "kernel"])
_NAMES = st.none() | st.sampled_from(["", RECORD_WINDOW_END])


def rows_of(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    """Generate rows of `KEYS`, of ``name``, and of further columns."""
    keys = {name: _TEXTS if name in {"ph", "cat", "pid_text", "tid_text"} else NUMBERS for name in KEYS}
    return st.lists(st.fixed_dictionaries({**keys, "name": _NAMES, **columns}), max_size=30)


def table_of(rows: list[Row], columns: Iterable[str]) -> pa.Table:
    """Return columns of rows."""
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    return pa.table([pa.array([row[field.name] for row in rows], field.type) for field in schema], schema)


def is_mark(row: Row) -> bool:
    """Return whether a row is a mark of the profiler."""
    return bool(row["name"] == RECORD_WINDOW_END and row["ph"] != "X")

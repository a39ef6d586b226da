"""Columns as the format describes them, computed from a document in plain Python: the oracle of ingest and export.

This module shares no code with the service. Objects are pairs and numbers are their text, so that duplicate keys and
`1.50` stay as they are written.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args")
SCHEMA = pa.schema(
    [("position", pa.int64())]
    + [(name, pa.string()) for name in ("ph", "cat", "name")]
    + [pair for name in ("pid", "tid", "id") for pair in ((name, pa.int64()), (f"{name}_text", pa.string()))]
    + [("ts_ns", pa.int64()), ("dur_ns", pa.int64()), ("ts_digits", pa.int8()), ("dur_digits", pa.int8())]
    + [(name, pa.int64()) for name in ("device", "stream", "correlation", "external_id", "bytes")]
    + [("args", pa.string()), ("rest", pa.string()), ("verbatim", pa.bool_())],
    metadata={"tracedock.columns": "1"},
)
_CANONICAL = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_TIME = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.(\d{1,3}))?")
_MINUS_ZERO = re.compile(r"-0(?:\.0*)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    text: str


class Object(tuple[tuple[str, Any], ...]):
    """An object's members in their order, with duplicate keys."""

    __slots__ = ()


def parsed(text: str | bytes) -> Any:
    """Parse JSON: objects become `Object`, and numbers become `Number`."""
    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=Object)


def written(value: Any) -> str:
    """Return the JSON text of a value from `parsed`."""
    match value:
        case Object():
            return "{" + ", ".join(f"{json.dumps(key)}: {written(item)}" for key, item in value) + "}"
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case Number():
            return value.text
        case _:
            return json.dumps(value)


def unordered(event: Object) -> list[tuple[str, Any]]:
    """Return the members sorted by key, because export keeps no order of keys; equal keys stay in order."""
    return sorted(event, key=lambda member: member[0])


def events_of(document: Any) -> list[Any]:
    """The events of a document."""
    events: list[Any] = dict(document)["traceEvents"] if isinstance(document, Object) else document
    return events


def envelope_of(document: Any) -> str:
    """Return the document's text without its events."""
    if isinstance(document, list):
        return "[]"
    return written(Object((key, [] if key == "traceEvents" else value) for key, value in document))


def row(position: int, event: Object) -> dict[str, Any]:
    """Return the row of an event."""
    cells: dict[str, Any] = dict.fromkeys(SCHEMA.names) | {"position": position, "verbatim": False}
    keys = {key for key, _ in event}
    rest_members = [(key, value) for key, value in event if key not in KEYS or not _fill(cells, key, value)]
    if cells["ph"] == "M":
        cells |= {"ts_ns": None, "ts_digits": None}
        rest_members += [member for member in event if member[0] == "ts" and member not in rest_members]
    if cells["verbatim"] or len(keys) < len(event):
        cells |= {"verbatim": True, "rest": written(event)}
    elif rest_members:
        cells["rest"] = written(Object(rest_members))
    return cells


def _fill(cells: dict[str, Any], key: str, value: Any) -> bool:
    """Fill the columns of a key; return False if they cannot hold the value, which then goes to `rest`."""
    if key == "args":
        cells[key] = written(value)
    elif key in ("ts", "dur"):
        return isinstance(value, Number) and _fill_time(cells, key, value)
    elif key in ("ph", "cat", "name"):
        if not isinstance(value, str):
            return False
        cells[key] = _SURROGATE.sub("\ufffd", value)
        cells["verbatim"] |= cells[key] != value
    elif isinstance(value, Number) and _CANONICAL.fullmatch(value.text) and value.text != "-0":
        cells[key] = int(value.text)
    elif isinstance(value, Number | str):
        cells[f"{key}_text"] = written(value)
    else:
        return False
    return True


def _fill_time(cells: dict[str, Any], key: str, value: Number) -> bool:
    match = _TIME.fullmatch(value.text)
    if match and not _MINUS_ZERO.fullmatch(value.text):
        cells[f"{key}_digits"] = len(match[1] or "")
    elif abs(Decimal(value.text)) > 10**15:
        return False
    cells[f"{key}_ns"] = int((Decimal(value.text) * 1000).to_integral_value(ROUND_FLOOR))
    cells["verbatim"] |= cells[f"{key}_digits"] is None
    return True


def rows(events: Iterable[Object]) -> Iterator[dict[str, Any]]:
    """The rows of events, sorted as columns are."""
    table = [row(position, event) for position, event in enumerate(events)]
    yield from sorted(table, key=lambda cells: (cells["ts_ns"] is None, cells["ts_ns"] or 0))


def write_columns(folder: Path, text: str | bytes, *, row_group: int = 1000) -> Path:
    """Write the columns of a document into a new folder."""
    document = parsed(text)
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(list(rows(events_of(document))), SCHEMA)
    pq.write_table(table, folder / "events.parquet", compression="zstd", row_group_size=row_group)
    (folder / "envelope.json").write_text(envelope_of(document), "utf-8")
    return folder

"""Comparison of a trace with what is read back from its Perfetto trace."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from service.cutting.source import Source
from service.rendering.pftrace.document import pftrace
from tests.formats.pftrace.reading import Reading, read

COMPARED = ("ph", "cat", "name", "pid", "pid_text", "tid", "tid_text", "ts_ns", "dur_ns", "id", "id_text")
TYPED = ("device", "stream", "correlation", "external_id", "bytes")


def written(trace: Source, **options: Any) -> bytes:
    """Return a trace as Perfetto's protobuf."""
    return b"".join(pftrace(trace.columns, trace.summary, **options))


def read_back(trace: Source, **options: Any) -> Reading:
    """Return what is read from the Perfetto trace of a trace."""
    return read(written(trace, **options))


def rows_of(columns: Path) -> list[dict[str, Any]]:
    """Return the events of columns without null members."""
    rows = pq.read_table(columns / "events.parquet").to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def comparable(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return events as texts that do not depend on the spelling of numbers and of characters."""
    return Counter(map(_comparable, rows))


def _comparable(row: Mapping[str, Any]) -> str:
    cells = [(key, row.get(key)) for key in (*COMPARED, *TYPED)]
    values = [_value(row.get("args") or "{}"), _value(row.get("rest") or "{}"), row.get("verbatim")]
    return repr((cells, values))


def _value(text: str) -> str:
    value = json.loads(text, parse_float=_double, parse_int=_integer, strict=False)
    return json.dumps(value, sort_keys=True)


def _double(text: str) -> float | str:
    return float(text) if Decimal(text).is_finite() else text


def _integer(text: str) -> int | str:
    return int(text) if len(text) < 20 else text

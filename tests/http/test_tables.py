"""The encoding of a table in each format."""

import asyncio
import base64
import csv
import io
import json
import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from service.engine.result import Cell, Result
from service.http.tables import ARROW, CSV, ENCODERS, JSON, NDJSON, accepted, distinct
from tests.engine.conftest import TABLES, Row, answer


def encoded(form: str, rows: list[Row], names: tuple[str, ...] | None = None, limit: int | None = None) -> bytes:
    """Encode rows in a format."""
    names = names or tuple(f"c{index}" for index in range(len(rows[0]) if rows else 1))
    result = Result(limit=limit, max_bytes=1 << 30, on_enough=lambda: None)
    for at in range(0, max(1, len(rows)), 3):
        result.add(answer(*rows[at : at + 3], names=names if at == 0 else ()))
    result.finish()

    async def pieces() -> bytes:
        return b"".join([piece async for piece in ENCODERS[form](result)])

    try:
        return asyncio.run(pieces())
    finally:
        result.close()


def in_text(cell: Cell) -> Any:
    if isinstance(cell, bytes):
        return base64.b64encode(cell).decode()
    if isinstance(cell, float) and math.isinf(cell):
        return "Infinity" if cell > 0 else "-Infinity"
    return cell


def typed(rows: list[Any]) -> list[list[tuple[type, Any]]]:
    return [[(type(cell), cell) for cell in row] for row in rows]


def single_typed(rows: list[Row]) -> list[list[Any]]:
    """Return the cells as JSON and Arrow encode them: one type in each column, blobs in mixed columns as base64."""
    return [list(row) for row in zip(*(unmixed(list(column)) for column in zip(*rows, strict=True)), strict=True)]


def unmixed(column: list[Cell]) -> list[Any]:
    types = {type(cell) for cell in column} - {type(None)}
    if len(types) <= 1:
        return column
    if types == {int, float} and all(int(float(cell)) == cell for cell in column if type(cell) is int):
        return [None if cell is None else float(cell) for cell in column]
    return [None if cell is None else str(in_text(cell)) for cell in column]


@given(TABLES)
def test_json_holds_each_value(rows: list[Row]) -> None:
    table = json.loads(encoded(JSON, rows))
    assert typed(table["rows"]) == typed([[in_text(cell) for cell in row] for row in single_typed(rows)])
    assert table["truncated"] is False
    assert table["elapsed_ms"] >= 0
    assert all(column.keys() == {"name", "type", "unit", "description"} for column in table["columns"])


@given(TABLES)
def test_ndjson_holds_each_value(rows: list[Row]) -> None:
    lines = [json.loads(line) for line in encoded(NDJSON, rows).splitlines() if line]
    assert typed([line.values() for line in lines]) == typed([[in_text(cell) for cell in row] for row in rows])


@given(TABLES)
def test_csv_holds_each_value(rows: list[Row]) -> None:
    text = encoded(CSV, rows).decode()
    table = list(csv.reader(io.StringIO(text, newline="")))[1:]
    shown = [["" if cell is None else str(in_text(cell)) for cell in row] for row in rows]
    assert [row or [""] for row in table] == shown


def test_csv_quotes_what_must_be_quoted_and_nothing_else() -> None:
    rows: list[Row] = [(None, "", 'a"b', "c,d", "e\nf", "g", 1, 0.5), (None, b"", "\r", " ", "-", "'", -1, math.inf)]
    assert encoded(CSV, rows, ("n", "x,y", "q", "c", "l", "t", "i", "d")).decode() == (
        'n,"x,y",q,c,l,t,i,d\r\n,"","a""b","c,d","e\nf",g,1,0.5\r\n,"","\r", ,-,\',-1,Infinity\r\n'
    )


@given(TABLES)
def test_arrow_holds_each_value_in_a_plain_type(rows: list[Row]) -> None:
    table = pa.ipc.open_stream(encoded(ARROW, rows)).read_all()
    assert {field.type for field in table.schema} <= {pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.null()}
    columns = [column.to_pylist() for column in table.columns]
    assert typed([list(row) for row in zip(*columns, strict=True)]) == typed(single_typed(rows))


@pytest.mark.parametrize(
    ("cells", "kind", "values", "description"),
    [
        ([0, 0.5, None, 7], "double", [0.0, 0.5, None, 7.0], "floating-point numbers: all are doubles"),
        ([2**53, 0.5], "double", [2.0**53, 0.5], "each exact"),
        ([2**53 + 1, 0.5], "string", ["9007199254740993", "0.5"], "floating-point numbers: all are text"),
        ([1, "a", 1e300], "string", ["1", "a", "1e+300"], "Mixes integers, floating-point numbers and text"),
        ([1, b"\0\xff"], "string", ["1", "AP8="], "Mixes integers and blobs: all are text, blobs in base64"),
        ([math.inf, "x", -math.inf], "string", ["Infinity", "x", "-Infinity"], "all are text"),
    ],
)  # fmt: skip
def test_mixed_columns_become_one_type_with_a_description_in_json_and_arrow(
    cells: list[Cell], kind: str, values: list[Any], description: str
) -> None:
    rows: list[Row] = [(cell, "other") for cell in cells]

    document = json.loads(encoded(JSON, rows))
    table = pa.ipc.open_stream(encoded(ARROW, rows)).read_all()

    assert typed([[row[0]] for row in document["rows"]]) == typed([[value] for value in values])
    assert (document["columns"][0]["type"], document["columns"][1]["description"]) == (kind, None)
    assert description in document["columns"][0]["description"]
    assert str(table.schema.field(0).type) == kind
    assert table.column(0).to_pylist() == values
    assert table.schema.field(0).metadata[b"description"].decode() == document["columns"][0]["description"]
    assert table.schema.field(1).metadata is None
    assert pl.DataFrame(pl.from_arrow(table)).to_series(0).to_list() == values
    assert [None if pd.isna(value) else value for value in table.to_pandas().iloc[:, 0]] == values


def test_arrow_types_follow_the_cells() -> None:
    data = encoded(ARROW, [(1, 0.5, "a", b"b", None, 1), (None, 1.5, "", b"", None, "x")], tuple("abcdef"))
    schema = pa.ipc.open_stream(data).schema
    kinds = [pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.null()]
    assert [field.type for field in schema][:5] == kinds
    assert schema.field("f").type == pa.string()
    assert schema.metadata[b"truncated"] == b"false"


@pytest.mark.parametrize("form", [JSON, NDJSON, CSV, ARROW])
def test_table_without_rows_is_valid_in_every_format(form: str) -> None:
    data = encoded(form, [])
    shown: dict[str, Callable[[], Any]] = {
        JSON: lambda: json.loads(data)["rows"],
        NDJSON: data.splitlines,
        CSV: lambda: data.splitlines()[1:],
        ARROW: lambda: pa.ipc.open_stream(data).read_all().to_pylist(),
    }
    assert shown[form]() == []


def test_truncated_table_is_marked() -> None:
    assert json.loads(encoded(JSON, [(1,), (2,)], limit=1))["truncated"] is True
    assert pa.ipc.open_stream(encoded(ARROW, [(1,), (2,)], limit=1)).schema.metadata[b"truncated"] == b"true"


def test_repeated_column_names_get_a_number() -> None:
    assert distinct(["a", "b", "a", "a_2", "a"]) == ["a", "b", "a_2", "a_2_2", "a_3"]
    row = json.loads(encoded(NDJSON, [(1, 2)], ("x", "x")))
    assert row == {"x": 1, "x_2": 2}
    assert [column["name"] for column in json.loads(encoded(JSON, [(1, 2)], ("x", "x")))["columns"]] == ["x", "x"]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("text/html", JSON),
        ("text/csv", CSV),
        ("TEXT/CSV; charset=utf-8", CSV),
        ("text/csv;q=0.5, application/json", JSON),
        ("application/json;q=0.1, text/csv;q=0.2", CSV),
        ("text/csv;q=0, application/x-ndjson;q=0.1", NDJSON),
        ("application/vnd.apache.arrow.stream", ARROW),
        ("text/csv;q=wrong", JSON),
    ],
)
def test_format_is_the_one_that_the_client_prefers(accept: str, form: str) -> None:
    assert accepted(accept) == form

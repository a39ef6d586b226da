from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import pytest
from tracedock.errors import MissingPackageError
from tracedock.tables import Analysis, Column, Table

from tests.client.conftest import Driven
from tests.conftest import DATA

BIG = 2**63 - 1
COLUMNS = [
    {"name": "n", "type": "int", "unit": "ns", "description": "a time"},
    {"name": "x", "type": "double", "unit": None, "description": None},
    {"name": "s", "type": "string", "unit": None, "description": None},
    {"name": "nothing", "type": "null", "unit": None, "description": None},
]
ROWS = [[BIG, 1.5, "a\t<b>", None], [None, None, None, None], [-(2**63), "Infinity", "", None]]
TABLE = Table.of_json({"columns": COLUMNS, "rows": ROWS, "truncated": True, "elapsed_ms": 2.5})

EVERY_TYPE = """
SELECT 9223372036854775807 AS big, -9223372036854775807 AS small, 1.5 AS x, 'a' AS s, NULL AS absent,
       x'00ff' AS b, 9e999 AS infinite, 7 AS mixed, 'ä' AS big
UNION ALL SELECT NULL, 2, NULL, NULL, NULL, NULL, 1.0, 'text', 'b'
"""


@pytest.fixture
def trace(dock: Driven) -> Any:
    return dock.wait(dock.upload(DATA / "cpu_train_steps.pt.trace.json.gz"))


def test_table_iterates_as_dictionaries() -> None:
    assert next(iter(TABLE)) == {"n": BIG, "x": 1.5, "s": "a\t<b>", "nothing": None}
    assert len(TABLE) == 3
    assert TABLE.columns[0] == Column("n", "int", "ns", "a time")
    assert TABLE.column("x") == [1.5, None, float("inf")]
    assert (TABLE.truncated, TABLE.elapsed_ms) == (True, 2.5)


def test_unknown_column_is_refused_with_those_that_exist() -> None:
    with pytest.raises(KeyError, match="n, x, s, nothing"):
        TABLE.column("m")


def test_arrow_has_exact_integers_and_nulls() -> None:
    arrow = TABLE.to_arrow()
    assert arrow.schema.types == [pa.int64(), pa.float64(), pa.string(), pa.null()]
    assert arrow.column("n").to_pylist() == [BIG, None, -(2**63)]
    assert arrow.schema.field("n").metadata == {b"unit": b"ns", b"description": b"a time"}


def test_pandas_has_exact_integers_and_nulls() -> None:
    frame = TABLE.to_pandas()
    assert [str(kind) for kind in frame.dtypes[:3]] == ["Int64", "Float64", "string"]
    assert [int(frame["n"][0]), int(frame["n"][2])] == [BIG, -(2**63)]
    assert frame["n"].isna().tolist() == [False, True, False]
    assert frame["s"].isna().tolist() == [False, True, False]


def test_polars_has_exact_integers_and_nulls() -> None:
    frame = TABLE.to_polars()
    assert frame["n"].to_list() == [BIG, None, -(2**63)]
    assert frame["s"].to_list() == ["a\t<b>", None, ""]


def test_table_without_rows_keeps_its_types() -> None:
    empty = Table.of_json({"columns": COLUMNS, "rows": [], "truncated": False})
    assert empty.to_arrow().schema.types == TABLE.to_arrow().schema.types
    assert (list(empty), empty.column("n"), len(empty.to_pandas())) == ([], [], 0)


@pytest.mark.parametrize(
    ("method", "package", "extra"),
    [("to_arrow", "pyarrow", "arrow"), ("to_pandas", "pandas", "pandas"), ("to_polars", "polars", "polars")],
)
def test_conversion_without_its_package_names_the_extra(
    method: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    table = Table.of_json({"columns": COLUMNS, "rows": ROWS, "truncated": False})
    with pytest.raises(MissingPackageError, match=rf"pip install 'tracedock\[{extra}\]'"):
        getattr(table, method)()


def test_notebook_shows_escaped_names_and_the_number_of_rows() -> None:
    shown = TABLE._repr_html_()
    assert "a\t&lt;b&gt;" in shown
    assert "3 of 3 rows, truncated" in shown
    assert repr(TABLE) == "<Table of 3 rows, truncated: n, x, s, nothing>"


def test_json_and_arrow_of_a_query_give_the_same_table(dock: Driven, trace: Any) -> None:
    as_json = dock.sql(trace, EVERY_TYPE, arrow=False)
    as_arrow = dock.sql(trace, EVERY_TYPE, arrow=True)
    assert as_json.rows == as_arrow.rows
    assert as_json.columns == as_arrow.columns
    assert [column.name for column in as_json.columns][-1] == "big_2"
    assert as_json.to_arrow().equals(as_arrow.to_arrow())
    assert as_json.rows[0] == (BIG, -BIG, 1.5, "a", None, b"\x00\xff", float("inf"), "7", "ä")
    assert (as_json.truncated, as_arrow.truncated) == (False, False)
    assert as_arrow.elapsed_ms >= 0


@pytest.mark.parametrize("arrow", [False, True])
def test_truncation_is_reported(dock: Driven, trace: Any, arrow: bool) -> None:
    table = dock.sql(trace, "SELECT id FROM slice", limit=3, arrow=arrow)
    assert (len(table), table.truncated) == (3, True)
    assert not dock.sql(trace, "SELECT id FROM slice", arrow=arrow).truncated


def test_server_sends_arrow_if_pyarrow_is_installed(dock: Driven, trace: Any) -> None:
    assert dock.sql(trace, "SELECT 1")._arrow is not None


def test_analysis_has_tables_with_units_and_notes(dock: Driven, trace: Any) -> None:
    analysis = dock.analyze(trace, "steps")
    document = json.loads(dock.analysis(trace, "steps"))
    assert isinstance(analysis, Analysis)
    assert list(analysis.tables) == list(document["tables"])
    assert analysis.table is analysis[next(iter(analysis.tables))]
    assert [list(row) for row in analysis.table.rows] == document["tables"]["steps"]["rows"]
    assert list(analysis.notes) == document["notes"]
    assert any(column.unit == "ns" for column in analysis.table.columns)


def test_arrow_of_an_analysis_is_that_of_the_server(dock: Driven, trace: Any) -> None:
    ours = dock.analyze(trace, "steps").table.to_arrow()
    theirs = pa.ipc.open_stream(dock.analysis(trace, "steps", form="arrow")).read_all()
    assert ours.equals(theirs)


def test_analysis_can_be_limited_to_tables(dock: Driven, trace: Any) -> None:
    name = list(dock.analyze(trace, "operators").tables)[-1]
    assert list(dock.analyze(trace, "operators", tables=[name]).tables) == [name]
    with pytest.raises(KeyError, match=name):
        dock.analyze(trace, "operators", tables=[name])["nothing"]

"""Replies stay within their budgets, and say what they leave out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.agents.reply import BYTES_MAX, BYTES_MIN, Budgets, Reply, Table, titled

CELLS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=50)


def reply(*parts: str | Table, **budgets: int) -> str:
    written = Reply(Budgets(**budgets))
    for part in parts:
        if isinstance(part, Table):
            written.table(part)
        else:
            written.line(part)
    return written.text()


def numbers(count: int, **more: Any) -> Table:
    return Table("numbers", ["n"], [[n] for n in range(count)], **{"total": count, **more})


def test_complete_table_has_its_number_of_rows() -> None:
    assert reply(numbers(2)) == "# numbers: rows 1-2 of 2\nn\n0\n1\n"


def test_empty_table_says_so() -> None:
    assert reply(numbers(0)) == "# numbers: 0 of 0 rows\nn\n"


def test_rows_beyond_max_rows_are_left_out_with_the_offset_of_the_rest() -> None:
    text = reply(numbers(50, total=512), max_rows=3)
    assert text == "# numbers: rows 1-3 of 512; cut by max_rows: offset=3 continues\nn\n0\n1\n2\n"
    assert reply(numbers(2, total=512, offset=510)).startswith("# numbers: rows 511-512 of 512\n")


def test_rows_beyond_max_bytes_are_left_out_with_the_offset_of_the_rest() -> None:
    wide = Table("wide", ["text"], [["x" * 100]] * 20, total=20)
    first = reply(wide, max_bytes=1000).splitlines()[0]
    shown = len(reply(wide, max_bytes=1000).splitlines()) - 2
    assert 0 < shown < 20
    assert first == f"# wide: rows 1-{shown} of 20; cut by max_bytes: offset={shown} continues"


def test_unknown_number_of_further_rows_is_not_stated() -> None:
    table = Table("result", ["n"], [[1]], total=None, rest="aggregate")
    assert reply(table).startswith("# result: rows 1-1; cut by max_rows: aggregate\n")


def test_lines_come_before_tables_in_the_budget() -> None:
    text = reply(Table("wide", ["text"], [["x" * 100]] * 20, total=20), "the last line", max_bytes=1000)
    assert text.endswith("\nthe last line\n")


def test_cells_are_exact_and_stay_on_their_line() -> None:
    values = [9007199254740993, 0.1, True, "a\tb\nc\\", "null", "€"]
    cells = reply(Table("cells", list("abcdef"), [values], total=1)).splitlines()[2].split("\t")
    assert cells == ["9007199254740993", "0.1", "true", "a\\tb\\nc\\\\", '"null"', "€"]


def test_columns_without_values_are_only_named() -> None:
    table = Table("t", ["a", "b", "c"], [[1, None, None], [2, None, 3]], total=2)
    assert reply(table) == "# t: rows 1-2 of 2; null in all rows: b\na\tc\n1\tnull\n2\t3\n"


def test_long_texts_are_cut_with_the_number_of_characters_left_out() -> None:
    text = reply(Table("t", ["a"], [["x" * 15]], total=1), max_chars=10)
    assert text.splitlines()[2] == "x" * 10 + "…[5 more]"


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=30), st.text(max_size=3000), st.integers(0, 40),
       st.integers(BYTES_MIN, 3000))  # fmt: skip
def test_no_reply_is_larger_than_its_budget(rows: list[list[Any]], line: str, max_rows: int, max_bytes: int) -> None:
    table = Table("t", ["a", "b" * 200], rows, total=len(rows))
    text = reply(line, table, table, max_rows=max_rows, max_bytes=max_bytes)
    assert len(text.encode()) <= max_bytes


def test_budgets_have_maxima() -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        Budgets(max_bytes=BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("name", "unit", "title"),
    [("wait_ns", "ns", "wait_ns"), ("value", "ns", "value[ns]"), ("busy_pct", "%", "busy_pct"), ("n", None, "n"),
     ("rate", "GB/s", "rate[GB/s]")],
)  # fmt: skip
def test_title_of_a_column_has_its_unit(name: str, unit: str | None, title: str) -> None:
    assert titled(json.loads(json.dumps({"name": name, "unit": unit}))) == title

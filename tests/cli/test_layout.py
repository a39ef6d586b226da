"""Tables on terminals of different widths."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.layout import GAP, cell_width, cut_middle, fitted, parts_of
from tests.cli.conftest import OnTerminal
from tests.cli.double import Server, json_answer, trace

RANK0 = "9f2c41d07a3b"
KERNEL = "void at::native::" + "elementwise_kernel<" * 8 + "float>(int)"


@given(st.text(max_size=200), st.integers(1, 100))
def test_cut_text_fits_and_keeps_its_ends(text: str, width: int) -> None:
    cut = cut_middle(text, width)
    assert cell_width(cut) <= width or cut == text
    if cut != text:
        head, _, tail = cut.partition("…") if "…" not in text else (cut[:0], "", cut[:0])
        assert text.startswith(head)
        assert text.endswith(tail)


def test_text_of_wide_characters_is_cut_by_columns() -> None:
    assert cell_width(cut_middle("核" * 20, 11)) <= 11


@given(st.lists(st.tuples(st.integers(1, 200), st.booleans()), min_size=1, max_size=12), st.integers(20, 200))
def test_columns_that_cannot_be_cut_keep_their_width(columns: list[tuple[int, bool]], available: int) -> None:
    widths, cuttable = [width for width, _ in columns], [cut for _, cut in columns]
    fitting = fitted(widths, cuttable, available)
    assert all(new == old for new, old, cut in zip(fitting, widths, cuttable, strict=True) if not cut)
    assert all(min(24, old) <= new <= old for new, old in zip(fitting, widths, strict=True))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(40, 120))
def test_parts_of_a_table_have_each_column_and_fit(widths: list[int], available: int) -> None:
    parts = parts_of(widths, [0], available)
    assert {column for part in parts for column in part} == set(range(len(widths)))
    for part in parts:
        total = sum(widths[column] for column in part) + GAP * (len(part) - 1)
        assert total <= available or len(part) <= 2


@pytest.fixture
def kernels(server: Server) -> Server:
    """Serve the result of a query: long names, and numbers for more than one terminal's width."""
    columns: list[dict[str, Any]] = [{"name": "name", "type": "string", "unit": None, "description": None}]
    columns += [{"name": f"wait_{n}_ns", "type": "int", "unit": None, "description": None} for n in range(12)]
    rows = [[KERNEL, *range(1_000_000, 1_000_012)], [None, *[None] * 12]]
    server.traces = [trace(RANK0, "rank0.json")]
    server.script("POST", f"/traces/{RANK0}/query", *[json_answer({"columns": columns, "rows": rows,
                                                                  "truncated": False})] * 2)  # fmt: skip
    return server


@pytest.mark.parametrize("width", [60, 80, 120])
def test_drawn_table_fits_the_terminal_and_cuts_only_names(
    on_terminal: OnTerminal, kernels: Server, environment: dict[str, str], width: int
) -> None:
    environment["COLUMNS"] = str(width)
    _, drawn, _ = on_terminal("query", RANK0, "x")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", drawn).splitlines()
    assert max(map(len, lines)) <= width
    assert "void at::" in drawn
    assert "…" in drawn
    assert drawn.count("1.00 ms") == 12
    assert all(f"wait_{n}" in drawn for n in range(12))


def test_wide_table_has_whole_names_and_one_line_for_a_row(on_terminal: OnTerminal, kernels: Server) -> None:
    _, drawn, _ = on_terminal("query", RANK0, "x", "--wide")
    lines = drawn.splitlines()
    assert len(lines) == 3
    assert KERNEL in lines[1]
    assert lines[1].count("1.00 ms") == 12


def test_colours_need_a_terminal_without_no_color(
    on_terminal: OnTerminal, kernels: Server, environment: dict[str, str]
) -> None:
    _, drawn, _ = on_terminal("query", RANK0, "x")
    assert "\x1b[1m" in drawn
    environment["NO_COLOR"] = "1"
    _, drawn, _ = on_terminal("query", RANK0, "x")
    assert "\x1b[" not in drawn

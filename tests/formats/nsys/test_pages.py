"""Columns that are decoded from the pages of a database equal those that SQLite reads, whatever the pages hold."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.formats.nsys import pages
from service.formats.nsys.batches import LeftOut
from service.formats.nsys.connection import connect
from service.formats.nsys.database import Database
from service.formats.nsys.queries import BATCH_ROWS

TABLE, COLUMNS = "CUPTI_ACTIVITY_KIND_KERNEL", ("start", "end", "deviceId", "streamId", "correlationId", "gridX")
WORDS = st.one_of(st.text(max_size=5), st.just("x" * 700), st.just("x" * 5000))
INTEGERS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([sign << bits for bits in (0, 7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 62) for sign in (1, -1)]),
)
VALUES = st.one_of(st.none(), INTEGERS, INTEGERS, INTEGERS, st.floats(allow_nan=False), WORDS, st.binary(max_size=3))
ROWS = st.lists(st.tuples(*([VALUES] * len(COLUMNS)), WORDS), min_size=1, max_size=40)
ORDERS = st.permutations([*COLUMNS, "note"])
PAGE_SIZES = st.sampled_from([512, 1024, 4096, 65536])


def written(
    path: Path,
    rows: Sequence[Sequence[Any]],
    names: Sequence[str] = COLUMNS,
    page_size: int = 4096,
    kind: str = "INTEGER",
) -> Path:
    """Write a database with a table of these rows."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {page_size}")
        db.execute("BEGIN")
        db.execute(f"CREATE TABLE {TABLE} ({', '.join(f'{name} {kind}' for name in names)})")
        db.executemany(f"INSERT INTO {TABLE} VALUES ({', '.join('?' * len(names))})", rows)
        db.execute("COMMIT")
    return path


@contextmanager
def opened(path: Path, left_out: list[LeftOut]) -> Iterator[Database]:
    """Open a database."""
    with closing(Database(path, left_out.append)) as database:
        yield database


def read(path: Path, *, by_sql: bool = False) -> tuple[list[tuple[Any, ...]], list[LeftOut]]:
    """Return the rows that the service reads, and what it leaves out."""
    left_out: list[LeftOut] = []
    with opened(path, left_out) as database:
        if by_sql:
            database._stored.clear()
        tables = [*database.integers(TABLE, COLUMNS)]
    return [row for table in tables for row in zip(*table.to_pydict().values(), strict=True)], left_out


def expected(path: Path) -> tuple[list[tuple[Any, ...]], int]:
    """Return the rows of integers and nulls by SQL, and the number of the others."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(f"SELECT {', '.join(COLUMNS)} FROM {TABLE} ORDER BY rowid").fetchall()
    sound = [row for row in rows if all(value is None or isinstance(value, int) for value in row)]
    return sound, len(rows) - len(sound)


@settings(deadline=None)
@given(rows=ROWS, names=ORDERS, page_size=PAGE_SIZES, removed=st.sets(st.integers(1, 40), max_size=5))
def test_rows_of_any_values_equal_those_of_sqlite(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[Any, ...]],
    names: list[str],
    page_size: int,
    removed: set[int],
) -> None:
    places = [[*COLUMNS, "note"].index(name) for name in names]
    path = tmp_path_factory.mktemp("pages") / "made.sqlite"
    written(path, [[row[place] for place in places] for row in rows], names, page_size)
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(f"DELETE FROM {TABLE} WHERE rowid = ?", [(number,) for number in removed])

    sound, wrong = expected(path)
    found, left_out = read(path)

    assert found == sound
    assert sum(rows or 0 for _, rows, _ in left_out) == wrong
    assert all(rows is not None for _, rows, _ in left_out)


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_tree_of_several_levels_is_read_in_full_batches_without_sql(
    tmp_path: Path, page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * BATCH_ROWS + 100
    rows = [(number, number << 40, 0, 1, -number, None) for number in range(count)]
    path = written(tmp_path / "made.sqlite", rows, page_size=page_size)

    statements: list[str] = []

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr("service.formats.nsys.batches.connect", traced)
    left_out: list[LeftOut] = []
    with opened(path, left_out) as database:
        tables = [*database.integers(TABLE, COLUMNS)]

    assert [len(table) for table in tables] == [BATCH_ROWS, BATCH_ROWS, 100]
    assert [row for table in tables for row in zip(*table.to_pydict().values(), strict=True)] == rows
    assert not statements
    assert not left_out


@pytest.mark.parametrize(
    ("kind", "statements"),
    [
        ("REAL", ()),
        ("INTEGER", (f"ALTER TABLE {TABLE} ADD COLUMN localMemoryTotal INTEGER DEFAULT 7",)),
        ("INTEGER", (f"ALTER TABLE {TABLE} DROP COLUMN gridX", f"ALTER TABLE {TABLE} ADD COLUMN gridX INTEGER")),
        ("", ()),
    ],
    ids=["columns of reals", "column with a default", "column that old rows lack", "columns without a type"],
)
def test_table_with_other_rules_equals_that_of_sqlite(tmp_path: Path, kind: str, statements: Sequence[str]) -> None:
    path = written(tmp_path / "made.sqlite", [(number, 5, 0, 1, 2, 3) for number in range(20)], kind=kind)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)

    sound, wrong = expected(path)
    found, left_out = read(path)

    assert found == sound
    assert sum(rows or 0 for _, rows, _ in left_out) == wrong


def test_row_number_as_a_column_is_read(tmp_path: Path) -> None:
    path = tmp_path / "made.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE {TABLE} (start INTEGER PRIMARY KEY, end, deviceId, streamId, correlationId, gridX)")
        db.executemany(f"INSERT INTO {TABLE} VALUES (?, 1, 2, 3, 4, 5)", [(100,), (200,)])

    assert read(path) == ([(100, 1, 2, 3, 4, 5), (200, 1, 2, 3, 4, 5)], [])


def test_column_whose_name_is_no_utf8_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "made.sqlite"
    written(path, [(1, 2, 3, 4, 5, 6, 7)], [*COLUMNS, "strange"])
    path.write_bytes(path.read_bytes().replace(b"strange", b"\xff" * 7))

    assert read(path) == ([(1, 2, 3, 4, 5, 6)], [])


def test_pages_that_point_to_each_other_end(tmp_path: Path) -> None:
    path = written(tmp_path / "made.sqlite", [(number, 5, 0, 1, 2, 3) for number in range(5000)])
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master").fetchall()
    page = memoryview(content)[(root - 1) * 4096 : root * 4096]
    assert page[0] == 5  # an inner page
    page[8:12] = root.to_bytes(4, "big")  # its last child is itself
    page.release()
    path.write_bytes(content)

    found, left_out = read(path)

    assert 0 < len(found) < 5000
    assert [rows for _, rows, _ in left_out] == [None]


MADE = [(number, number + 5, 0, 1, 2, 3) for number in range(400)]


def damaged(path: Path, data: st.DataObject, page_size: int) -> Path:
    """Write a database whose table has damaged pages."""
    content = bytearray(written(path, MADE, page_size=page_size).read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(page_size, len(content) - 1))
        damage = data.draw(st.binary(min_size=1, max_size=9))
        content[at : at + len(damage)] = damage
    path.write_bytes(content[: page_size * (len(content) // page_size)])
    return path


@settings(deadline=None)
@given(data=st.data(), page_size=PAGE_SIZES)
def test_damaged_pages_give_at_least_the_rows_that_sqlite_reads(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, page_size: int
) -> None:
    path = damaged(tmp_path_factory.mktemp("pages") / "made.sqlite", data, page_size)

    (found, left_out), (by_sql, left_out_by_sql) = read(path), read(path, by_sql=True)

    assert found[: len(by_sql)] == by_sql
    assert left_out or not left_out_by_sql or len(found) == len(MADE)  # wrong numbers of inner pages cost no row


def test_wrong_numbers_of_inner_pages_cost_no_row(tmp_path: Path) -> None:
    path = written(tmp_path / "made.sqlite", MADE, page_size=1024)
    content = bytearray(path.read_bytes())
    assert content[1024] == 5  # the second page is an inner page, with the number of the last row of each child
    content[2023] = 0xAA
    path.write_bytes(content)

    assert read(path) == (MADE, [])


@settings(deadline=None)
@given(data=st.data(), page_size=PAGE_SIZES)
def test_damaged_pages_never_lead_outside_of_the_pages(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, page_size: int
) -> None:
    path = damaged(tmp_path_factory.mktemp("pages") / "made.sqlite", data, page_size)
    by_machine_code = read(path)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_varint", "_local_size", "_width", "_integer", "_row", "_decode"):
            patch.setattr(pages, name, getattr(pages, name).py_func)  # Python checks the bounds of arrays
        by_python = read(path)

    assert by_python == by_machine_code

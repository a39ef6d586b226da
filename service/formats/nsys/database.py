"""Safe reading of an untrusted SQLite database: read-only, by an allow-list of tables and columns, in bounded memory.

The file may be hostile. Nothing but reads of ordinary tables is authorised, so that views, triggers, virtual tables and
generated columns run no code.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.formats.nsys import queries
from service.formats.nsys.allowed import ALLOWED, REQUIRED
from service.formats.nsys.batches import FIRST_ROW, BatchReader, LeftOut
from service.formats.nsys.connection import connect
from service.formats.nsys.pages import Pages, Stored
from service.streaming.ahead import read_ahead
from service.trace.errors import NotATrace

_ROW_SIZE_MIN = 4  # bytes that each row takes in a file, at least
_LOOKUP_MAX = 10_000  # parameters of a statement
_TIME_MAX = 1 << 62  # so that differences of times fit in 64 bits
_ROW_NUMBERS = {b"rowid", b"_rowid_", b"oid"}

Row = tuple[Any, ...]


class Database:
    """A database, opened for reading.

    Args:
        path: path of the file.
        on_left_out: called whenever rows are left out.

    Attributes:
        columns: the allowed columns that each table has, by table; a table that lacks required columns is not there.
        unusable: the reasons why other allowed tables can't be read.

    Raises:
        NotATrace: SQLite can't read the file.
    """

    def __init__(self, path: Path, on_left_out: Callable[[LeftOut], object]) -> None:
        self._path = path
        self._on_left_out = on_left_out
        self._rows_max = path.stat().st_size // _ROW_SIZE_MIN
        self._damaged: set[str] = set()
        self.columns: dict[str, list[str]] = {}
        self.unusable: list[str] = []
        self._stored: dict[str, Stored] = {}
        self._pages = Pages(path)
        with ExitStack() as opened:
            try:
                self._connection = opened.enter_context(closing(connect(path)))
                self._read_schema()
            except sqlite3.Error as error:
                raise NotATrace(f"The SQLite file can't be read: {error}.") from error
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def _read_schema(self) -> None:
        for name, kind, root_page in self._connection.execute(queries.SCHEMA).fetchall():
            table = name.decode()
            if kind != b"table" or not isinstance(root_page, int) or root_page <= 0:
                self.unusable.append(f"{table} is no ordinary table")
                continue
            # cid, name, type, notnull, default, pk, hidden; generated columns are hidden
            described = self._connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
            ordinary = {row[1] for row in described if not row[6]}
            columns = [column for column in ALLOWED[table] if column.encode() in ordinary]
            if missing := [column for column in REQUIRED[table] if column not in columns]:
                self.unusable.append(f"{table} has no column {', '.join(missing)}")
            elif not self._has_row_numbers(table) or any(row[1].lower() in _ROW_NUMBERS for row in described):
                self.unusable.append(f"{table} has no row numbers")
            else:
                self.columns[table] = columns
                if all(_is_common(kind, default, key, hidden) for _, _, kind, _, default, key, hidden in described):
                    self._stored[table] = Stored(root_page, [row[1].decode(errors="replace") for row in described])

    def _has_row_numbers(self, table: str) -> bool:
        try:
            self._connection.execute(queries.row_numbers(table)).close()
        except sqlite3.OperationalError:
            return False
        return True

    def integers(
        self, table: str, columns: Sequence[str], required: Sequence[str] = (), *, reports: bool = True
    ) -> Iterator[pa.Table]:
        """Yield integer columns of a table in batches.

        Rows that have other values than integers and null, or null in a required column, are left out. So is the rest
        of the table if it is damaged.

        Args:
            table: a table that the database has.
            columns: some of its columns.
            required: columns in which null is not allowed.
            reports: whether to report what is left out.
        """
        count = 0
        reader = BatchReader(self._path, table, columns)
        for batch in read_ahead(reader.batches(self._pages, self._stored.get(table)), "rows"):
            for left_out in batch.left_out if reports else ():
                self._report(left_out)
            yield self._without_null(table, batch.rows, required)
            count += len(batch.rows)
            if count > self._rows_max:
                self._report(LeftOut(table, None, "it has more rows than fit in the file"))
                return

    def event_rows(self, table: str) -> Iterator[pa.Table]:
        """Yield the integer columns of a table of events, without rows that have absurd times.

        See `integers` for what else is left out.
        """
        columns = self.columns[table]
        if "demangledName" in columns:
            columns = [column for column in columns if column != "shortName"]
        times = [column for column in ("start", "end") if column in columns]
        for batch in self.integers(table, columns, REQUIRED[table]):
            is_sound = reduce(pc.and_, (_is_time(batch[column]) for column in times))
            sound = batch if pc.all(is_sound).as_py() else batch.filter(is_sound)
            if len(sound) < len(batch):
                self._on_left_out(LeftOut(table, len(batch) - len(sound), "times beyond 146 years"))
            yield sound

    def _without_null(self, table: str, batch: pa.Table, required: Sequence[str]) -> pa.Table:
        if not any(batch[column].null_count for column in required):
            return batch
        valid = batch.filter(reduce(pc.and_, (batch[column].is_valid() for column in required)))
        self._on_left_out(LeftOut(table, len(batch) - len(valid), f"no {' or no '.join(required)}"))
        return valid

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        texts: Sequence[str] = (),
        *,
        kinds: Sequence[int] = (),
        after: int = FIRST_ROW,
        limit: int = -1,
    ) -> Iterator[Row]:
        """Yield rows as their number and values.

        Args:
            table: a table that the database has.
            columns: some of its columns. Values that are not integers or null are the name of their type, in bytes.
            texts: those columns whose values are texts, in bytes, or null.
            kinds: values of ``eventType``, whose rows are read; all rows if empty.
            after: number of the row after which to begin.
            limit: largest number of rows; -1 for all.
        """
        try:
            yield from self._connection.execute(queries.separate(table, columns, texts, kinds), (after, limit))
        except sqlite3.Error as error:
            self._report(LeftOut(table, None, str(error)))

    def texts(self, table: str, key: str, text: str, keys: Sequence[Any]) -> dict[Any, str]:
        """Return the texts of some keys, by key, without those that the table lacks."""
        texts: dict[Any, str] = {}
        try:
            for start in range(0, len(keys), _LOOKUP_MAX):
                some = keys[start : start + _LOOKUP_MAX]
                for number, value in self._connection.execute(queries.lookup(table, key, text, len(some)), some):
                    if value is not None:
                        texts[number] = value.decode(errors="replace")
        except sqlite3.Error as error:
            self._report(LeftOut(table, None, str(error)))
        return texts

    def leave_out(self, left_out: LeftOut) -> None:
        """Report rows that a caller has left out."""
        self._report(left_out)

    def _report(self, left_out: LeftOut) -> None:
        """Report what was left out; that a table is damaged, only once."""
        if left_out.rows is None:
            if left_out.table in self._damaged:
                return
            self._damaged.add(left_out.table)
        self._on_left_out(left_out)


def _is_time(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.greater(values, -_TIME_MAX), pc.less(values, _TIME_MAX)).fill_null(fill_value=True)


def _is_common(kind: bytes, default: bytes | None, key: int, hidden: int) -> bool:
    """Return whether rows hold the values of a column as they are: SQLite gives others a value or type of its own."""
    takes_reals = any(name in kind.upper() for name in (b"REAL", b"FLOA", b"DOUB")) and b"INT" not in kind.upper()
    return default is None and not key and not hidden and not takes_reals

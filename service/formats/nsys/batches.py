"""Reading of integer columns in batches.

SQLite joins the rows of a batch to one text, which pyarrow parses: that takes a third of the time of Python objects.
A thread reads texts ahead, without Python's lock.
"""

import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import csv

from service.formats.nsys import queries

FIRST_ROW = -(1 << 63)
"""Number before that of each row."""

_AHEAD = 2  # batches


class LeftOut(NamedTuple):
    """Rows of a table that were left out; their number is None if the table is damaged, and its rest unknown."""

    table: str
    rows: int | None
    reason: str


class Batch(NamedTuple):
    """Rows of a table, and what was left out among them."""

    rows: pa.Table
    left_out: Sequence[LeftOut] = ()


class _Joined(NamedTuple):
    """Rows as a text, with the number of the row before them; the text is None if SQLite could not join them."""

    before: int
    rows: int = 0
    text: bytes | None = None


class BatchReader:
    """A reader of integer columns of a table.

    Args:
        connection: the connection that the calling thread uses.
        ahead: a connection that no other thread uses meanwhile.
        table: the table.
        columns: its columns.
    """

    def __init__(
        self, connection: sqlite3.Connection, ahead: sqlite3.Connection, table: str, columns: Sequence[str]
    ) -> None:
        self._connection = connection
        self._ahead = ahead
        self._table = table
        self._columns = columns

    def batches(self) -> Iterator[Batch]:
        """Yield the rows in batches, without rows that have other values than integers and null."""
        joined, waiting = self._joined(), deque[Future[_Joined | None]]()
        with ThreadPoolExecutor(1, "nsys") as thread:
            for _ in range(_AHEAD):
                waiting.append(thread.submit(next, joined, None))
            while (text := waiting.popleft().result()) is not None:
                waiting.append(thread.submit(next, joined, None))
                rows = self._parsed(text)
                if rows is not None:
                    yield Batch(rows)
                else:
                    yield from self._by_row(text.before, None if text.text is None else text.rows)

    def _joined(self) -> Iterator[_Joined]:
        """Yield the rows as texts; the last one lacks its text if SQLite can't go on. Runs in a thread."""
        sql, last = queries.joined(self._table, self._columns), FIRST_ROW
        while True:
            try:
                number, count, text = self._ahead.execute(sql, (last,)).fetchone()
            except sqlite3.Error:
                yield _Joined(last)
                return
            if not count:
                return
            if number <= last:
                yield _Joined(last)
                return
            yield _Joined(last, count, text)
            last = number

    def _parsed(self, joined: _Joined) -> pa.Table | None:
        """Return the rows of a text; None if some values are no integers."""
        if joined.text is None:
            return None
        try:
            rows = csv.read_csv(
                pa.BufferReader(joined.text),
                csv.ReadOptions(use_threads=False, block_size=max(len(joined.text), 1), column_names=[*self._columns]),
                csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
                csv.ConvertOptions(column_types=dict.fromkeys(self._columns, pa.int64()), null_values=[""]),
            )
        except pa.ArrowInvalid:
            return None
        return rows if len(rows) == joined.rows else None

    def _by_row(self, last: int, count: int | None) -> Iterator[Batch]:
        """Yield the next rows after a row number, read one by one, up to the end or the damage of the table.

        Args:
            last: the row number.
            count: number of rows; None for all.
        """
        sql, damage = queries.separate(self._table, self._columns), None
        limit = queries.BATCH_ROWS if count is None else count
        while damage is None and count != 0:
            good: list[tuple[Any, ...]] = []
            before, wrong = last, 0
            try:
                for number, *values in self._connection.execute(sql, (last, limit)):
                    if number <= last:
                        damage = "its rows are not in order"
                        break
                    last = number
                    if any(isinstance(value, bytes) for value in values):
                        wrong += 1
                    else:
                        good.append(tuple(values))
            except sqlite3.Error as error:
                damage = str(error)
            if last == before and not damage:
                return
            left_out = [LeftOut(self._table, wrong, "values that are no integers")] if wrong else []
            left_out += [LeftOut(self._table, None, damage)] if damage else []
            yield Batch(self._table_of(good), left_out)
            if count is not None:
                return

    def _table_of(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        return pa.table([pa.array(values, pa.int64()) for values in columns], [*self._columns])

"""Reading of integer columns in batches: from the pages of the file or, where these are not as usual, by SQL."""

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from service.formats.nsys import queries
from service.formats.nsys.connection import connect
from service.formats.nsys.pages import MORE, UNCOMMON, DamagedPages, Pages, RowDecoder, Stored

FIRST_ROW = -(1 << 63)
"""Number before that of each row."""


class LeftOut(NamedTuple):
    """Rows of a table that were left out; their number is None if the table is damaged, and its rest unknown."""

    table: str
    rows: int | None
    reason: str


class Batch(NamedTuple):
    """Rows of a table, and what was left out among them."""

    rows: pa.Table
    left_out: Sequence[LeftOut] = ()


class BatchReader:
    """A reader of integer columns of a table.

    Args:
        path: path of the database.
        table: the table.
        columns: its columns.
    """

    def __init__(self, path: Path, table: str, columns: Sequence[str]) -> None:
        self._path = path
        self._table = table
        self._columns = columns

    def batches(self, pages: Pages, stored: Stored | None) -> Iterator[Batch]:
        """Yield the rows in batches, without rows that have other values than integers and null.

        Args:
            pages: the pages of the database.
            stored: place and form of the table; None if they are not the common ones.
        """
        with closing(connect(self._path)) as connection:  # a thread may read ahead, and others use other connections
            if stored:
                yield from self._by_page(connection, pages, stored)
            else:
                yield from self._by_row(connection, FIRST_ROW)

    def _by_page(self, connection: sqlite3.Connection, pages: Pages, stored: Stored) -> Iterator[Batch]:
        decoder = RowDecoder(stored.columns, self._columns, pages.usable, queries.BATCH_ROWS, FIRST_ROW)
        try:
            for leaves in pages.leaves(stored.root_page):
                while (verdict := decoder.decode(leaves)) != MORE:
                    yield from self._decoded(decoder)
                    if verdict == UNCOMMON:
                        decoder.skip_page((yield from self._by_row(connection, decoder.last, decoder.left)))
        except DamagedPages:
            yield from self._decoded(decoder)
            yield from self._by_row(connection, decoder.last)
            yield Batch(self._table_of([]), [LeftOut(self._table, None, "its pages are damaged")])
        else:
            yield from self._decoded(decoder)

    def _decoded(self, decoder: RowDecoder) -> Iterator[Batch]:
        """Yield the rows that were decoded, if there are any."""
        values, valid, wrong = decoder.take()
        if wrong or values.shape[1]:
            arrays = [pa.array(numbers, mask=None if flags.all() else ~flags)
                      for numbers, flags in zip(values, valid, strict=True)]  # fmt: skip
            yield Batch(pa.table(arrays, [*self._columns]), self._wrong(wrong))

    def _wrong(self, rows: int) -> list[LeftOut]:
        return [LeftOut(self._table, rows, "values that are no integers")] if rows else []

    def _by_row(
        self, connection: sqlite3.Connection, last: int, count: int | None = None
    ) -> Generator[Batch, None, int]:
        """Yield the next rows after a row number, read one by one, up to the end or the damage of the table.

        Returns the number of the last row.

        Args:
            connection: a connection to the database.
            last: the row number.
            count: number of rows; None for all.
        """
        sql, damage = queries.separate(self._table, self._columns), None
        limit = queries.BATCH_ROWS if count is None else count
        while damage is None and count != 0:
            good: list[tuple[Any, ...]] = []
            before, wrong = last, 0
            try:
                for number, *values in connection.execute(sql, (last, limit)):
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
            if not damage and count is not None and len(good) + wrong < count:
                damage = "rows are missing"
            if last == before and not damage:
                break
            left_out = self._wrong(wrong)
            left_out += [LeftOut(self._table, None, damage)] if damage else []
            yield Batch(self._table_of(good), left_out)
            if count is not None:
                break
        return last

    def _table_of(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        return pa.table([pa.array(values, pa.int64()) for values in columns], [*self._columns])

"""A query's result: taken off the engine at the engine's own speed, kept in bounded memory, read at the client's.

The engine serves all clients of a trace, so a slow reader must not hold it: batches go to a buffer that moves to
a temporary file when it grows, and readers follow behind.
"""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine import wire
from service.engine.spool import Spool, SpoolBudget
from service.trace.errors import DiskFull, EngineFailed, ResultTooLarge, TracedockError

_SELECTS_NOTHING = "SELECT 0 WHERE 0"  # what the engine runs in place of its own statements, as INCLUDE
_HEADER = struct.Struct("<QQ")

NULL, INTEGER, DOUBLE, STRING, BLOB = 1, 2, 3, 4, 5
"""`QueryResult.CellsBatch.CellType`."""

_INT64_END = 2.0**63
TYPE_NAMES = {INTEGER: "int", DOUBLE: "double", STRING: "string", BLOB: "blob", NULL: "null"}
Cell = None | int | float | str | bytes
Places = npt.NDArray[np.int32]


class Batch:
    """Some rows of a result, as the engine packs them: cells in row order, their values by type.

    Args:
        batch: a ``CellsBatch``.
        width: the number of columns.
        rows: the number of rows to take of it; all by default.
    """

    def __init__(self, batch: Any, width: int, rows: int | None = None) -> None:
        cells = np.asarray(batch.cells, np.uint8)
        if width and len(cells) % width:
            raise EngineFailed(f"The engine sent {len(cells)} cells for rows of {width}.")
        self._batch = batch
        self._cells = cells.reshape(-1, width) if width else cells.reshape(0, 0)
        self.rows = len(self._cells) if rows is None else min(rows, len(self._cells))

    def kinds(self) -> list[set[int]]:
        """The cell types that occur in each column."""
        return [set(np.flatnonzero(np.bincount(column)).tolist()) for column in self._cells[: self.rows].T]

    def numbers(self, kind: int) -> Any:
        """The values of `INTEGER` or `DOUBLE` cells, as an array."""
        batch = self._batch
        return np.asarray(batch.varint_cells, np.int64) if kind == INTEGER else np.asarray(batch.float64_cells, float)

    def text(self) -> bytes:
        """The values of `STRING` cells as UTF-8, each with a NUL behind it."""
        joined = self._batch.string_cells  # protobuf hands over bytes where they are not UTF-8
        return (joined if isinstance(joined, str) else joined.decode("utf-8", "replace")).encode()

    def integers_fit_doubles(self, column: int) -> bool:
        """Tell whether each integer in a column is the same number as a double."""
        places = self.places(INTEGER, len(self.numbers(INTEGER)))[:, column]
        integers = self.numbers(INTEGER)[places[places >= 0]]
        doubles = integers.astype(float)
        in_range = doubles < _INT64_END
        return bool(in_range.all() and (doubles.astype(np.int64) == integers).all())

    def blobs(self) -> list[bytes]:
        """The values of `BLOB` cells."""
        return list(self._batch.blob_cells)

    def places(self, kind: int, values: int) -> Places:
        """Of each cell, row by row, which of the values of a type is its; -1 where it is of another type.

        Raises:
            EngineFailed: there are more such cells than values.
        """
        mine = self._cells == kind
        order = np.cumsum(mine, dtype=np.int32).reshape(mine.shape)
        if order.size and order[-1, -1] > values:
            raise EngineFailed(f"The engine sent {values} values for {order[-1, -1]} cells.")
        return np.where(mine, order - 1, -1)[: self.rows]

    def columns(self) -> list[list[Cell]]:
        """The values of each column."""
        kept = np.full((self.rows, self._cells.shape[1]), None, dtype=object)
        for kind in set().union(*self.kinds()) - {NULL}:
            of_kind: Any = (
                self.numbers(kind).tolist() if kind in {INTEGER, DOUBLE}
                else self.text().decode().split("\0")[:-1] if kind == STRING
                else self.blobs()
            )  # fmt: skip
            values = np.empty(len(of_kind), dtype=object)
            values[:] = of_kind
            places = self.places(kind, len(values))
            kept[places >= 0] = values[places[places >= 0]]
        return [column.tolist() for column in kept.T]


class Result:
    """One query's rows, from the engine's first batch to its last.

    The producer calls `take` for each response and `finish` once; readers `await first()`, then `follow` or, where
    they need all column types first, `await complete()` and then `follow`. `close` it when done.

    Args:
        limit: rows to keep; None keeps all.
        max_bytes: the largest result, as the engine packs it.
        on_enough: is called once when nothing more is wanted.
        budget: of all results on disk; none by default.
    """

    def __init__(
        self,
        *,
        limit: int | None,
        max_bytes: int,
        on_enough: Callable[[], None],
        budget: SpoolBudget | None = None,
    ) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._on_enough = on_enough
        self._spool = Spool(budget or SpoolBudget())
        self._news = asyncio.Event()
        self._started = time.perf_counter()
        self._enough = False
        self._kinds: list[set[int]] = []
        self.names: list[str] = []
        self.rows = 0
        self.truncated = False
        self.done = False
        self.error: TracedockError | None = None
        self.elapsed_ms = 0.0

    def take(self, query_result: Any) -> None:
        """Keep the rows of one response, as far as they are wanted."""
        if query_result.column_names and query_result.last_statement_sql != _SELECTS_NOTHING:
            self.names = list(query_result.column_names)
            self._kinds = [set() for _ in self.names]
        for packed in query_result.batch if not self._enough else ():
            room = None if self._limit is None else self._limit - self.rows
            batch = Batch(packed, len(self.names), room)
            if room is not None and len(packed.cells) > room * len(self.names):
                self.truncated = True
            self._keep(packed, batch)
            if self.truncated:
                self._stop()
        self._announce()

    def _keep(self, packed: Any, batch: Batch) -> None:
        if not batch.rows:
            return
        self._kinds = [seen | new for seen, new in zip(self._kinds, batch.kinds(), strict=True)]
        data = packed.SerializeToString()
        if self._spool.size + len(data) > self._max_bytes:
            self.error = ResultTooLarge(
                f"The result is larger than the limit of {self._max_bytes} bytes.", limit=self._max_bytes
            )
            self._stop()
            return
        try:
            self._spool.append(_HEADER.pack(len(data), batch.rows) + data)
        except DiskFull as error:
            self.error = error
            self._stop()
            return
        self.rows += batch.rows

    def _stop(self) -> None:
        self._enough = True
        self._on_enough()

    def finish(self, error: TracedockError | None = None) -> None:
        """No more comes; an error counts only where the result had not all that was wanted."""
        if error and not self._enough:
            self.error = error
        self.done = True
        self.elapsed_ms = round((time.perf_counter() - self._started) * 1000, 3)
        self._announce()

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def first(self) -> None:
        """Wait until there are rows, or none will come; raises the query's error if it has one by then."""
        while not (self.done or self.rows):
            await self._news.wait()
        if self.error:
            raise self.error

    async def complete(self) -> None:
        """Wait until the last row is there; raises the query's error."""
        while not self.done:
            await self._news.wait()
        if self.error:
            raise self.error

    def mixtures(self) -> list[frozenset[int]]:
        """The cell types other than NULL of each column; final when done."""
        return [frozenset(kinds - {NULL}) for kinds in self._kinds]

    async def follow(self) -> AsyncIterator[Batch]:
        """Yield the rows in order, also while more arrive; raises the query's error where it happened."""
        position = 0
        while True:
            if position < self._spool.size:
                length, rows = _HEADER.unpack(self._spool.read(position, _HEADER.size))
                packed = wire.CellsBatch.FromString(self._spool.read(position + _HEADER.size, length))
                position += _HEADER.size + length
                yield Batch(packed, len(self.names), rows)
            elif self.done:
                if self.error:
                    raise self.error
                return
            else:
                await self._news.wait()

    def abandon(self) -> None:
        """Nobody waits for it any more: a query that still runs is stopped."""
        if not self.done:
            self._stop()

    def close(self) -> None:
        """Give up what the result holds."""
        self.abandon()
        self._spool.close()

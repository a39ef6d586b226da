"""The result of a query: stored at the engine's speed in bounded memory, read at the client's speed.

All clients of a trace share one engine, so a slow reader must not block it. Rows are appended to a spool, which moves
to a temporary file when it grows. Readers read from the spool.
"""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine.engine import PackedCells, QueryResponse
from service.engine.spool import Spool, SpoolBudget
from service.trace.errors import DiskFull, EngineFailed, ResultTooLarge, TracedockError

_HEADER = struct.Struct("<QQ")

NULL, INTEGER, DOUBLE, STRING, BLOB = 1, 2, 3, 4, 5
"""Types of cells, numbered as in Perfetto's `QueryResult.CellsBatch.CellType`."""

_INT64_END = 2.0**63
TYPE_NAMES = {INTEGER: "int", DOUBLE: "double", STRING: "string", BLOB: "blob", NULL: "null"}
Cell = None | int | float | str | bytes
Places = npt.NDArray[np.int32]


class Batch:
    """A batch of rows of a result.

    Args:
        cells: the rows' cells, as the engine packs them.
        width: the number of columns.
        rows: the number of rows to keep; all by default.

    Raises:
        EngineFailed: the cells do not fill rows of that width.
    """

    def __init__(self, cells: PackedCells, width: int, rows: int | None = None) -> None:
        types = cells.types()
        if width and len(types) % width:
            raise EngineFailed(f"The engine sent {len(types)} cells for rows of {width}.")
        self._cells = cells
        self._types = types.reshape(-1, width) if width else types.reshape(0, 0)
        self.packed_rows = len(self._types)
        self.rows = self.packed_rows if rows is None else min(rows, self.packed_rows)

    def kinds(self) -> list[set[int]]:
        """Return the cell types that occur in each column."""
        return [set(np.flatnonzero(np.bincount(column)).tolist()) for column in self._types[: self.rows].T]

    def numbers(self, kind: int) -> Any:
        """Return the values of `INTEGER` or `DOUBLE` cells, as an array."""
        return self._cells.integers() if kind == INTEGER else self._cells.doubles()

    def text(self) -> bytes:
        """Return the values of `STRING` cells as UTF-8, each followed by a NUL."""
        return self._cells.text()

    def integers_fit_doubles(self, column: int) -> bool:
        """Return whether each integer in a column has an exact double."""
        places = self.places(INTEGER, len(self.numbers(INTEGER)))[:, column]
        integers = self.numbers(INTEGER)[places[places >= 0]]
        doubles = integers.astype(float)
        in_range = doubles < _INT64_END
        return bool(in_range.all() and (doubles.astype(np.int64) == integers).all())

    def blobs(self) -> list[bytes]:
        """Return the values of `BLOB` cells."""
        return self._cells.blobs()

    def places(self, kind: int, values: int) -> Places:
        """Return an array of rows by columns: each cell's index among the values of one type, or -1 for other types.

        Args:
            kind: the type.
            values: the number of values of that type.

        Raises:
            EngineFailed: there are more cells of that type than values.
        """
        is_kind = self._types == kind
        order = np.cumsum(is_kind, dtype=np.int32).reshape(is_kind.shape)
        if order.size and order[-1, -1] > values:
            raise EngineFailed(f"The engine sent {values} values for {order[-1, -1]} cells.")
        return np.where(is_kind, order - 1, -1)[: self.rows]

    def columns(self) -> list[list[Cell]]:
        """Return the values of each column."""
        table = np.full((self.rows, self._types.shape[1]), None, dtype=object)
        for kind in set().union(*self.kinds()) - {NULL}:
            of_kind: Any = (
                self.numbers(kind).tolist() if kind in {INTEGER, DOUBLE}
                else self.text().decode().split("\0")[:-1] if kind == STRING
                else self.blobs()
            )  # fmt: skip
            values = np.empty(len(of_kind), dtype=object)
            values[:] = of_kind
            places = self.places(kind, len(values))
            table[places >= 0] = values[places[places >= 0]]
        return [column.tolist() for column in table.T]


class Result:
    """One query's rows, from the engine's first batch to its last.

    The producer calls `add` for each response and `finish` once. Readers await `first`, then iterate over `follow`.
    Readers that need all column types before the rows await `complete` instead of `first`. The owner calls `close` at
    the end.

    Args:
        limit: rows to keep; None keeps all.
        max_bytes: largest size of the result in bytes, as the engine packs it.
        on_enough: called once when the result needs no more rows.
        budget: the budget for all results on disk; unlimited by default.
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
        self._changed = asyncio.Event()
        self._started = time.perf_counter()
        self._enough = False
        self._kinds: list[set[int]] = []
        self._packing: type[PackedCells] | None = None
        self.names: list[str] = []
        self.rows = 0
        self.truncated = False
        self.done = False
        self.error: TracedockError | None = None
        self.elapsed_ms = 0.0

    def add(self, response: QueryResponse) -> None:
        """Store the rows of one response, as far as the result needs them."""
        if response.columns:
            self.names = list(response.columns)
            self._kinds = [set() for _ in self.names]
        for cells in response.batches if not self._enough else ():
            rows_left = None if self._limit is None else self._limit - self.rows
            batch = Batch(cells, len(self.names), rows_left)
            if rows_left is not None and batch.packed_rows > rows_left:
                self.truncated = True
            self._store(cells, batch)
            if self.truncated:
                self._stop()
        self._announce()

    def _store(self, cells: PackedCells, batch: Batch) -> None:
        if not batch.rows:
            return
        self._packing = type(cells)
        self._kinds = [seen | new for seen, new in zip(self._kinds, batch.kinds(), strict=True)]
        data = cells.pack()
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
        """Mark the result as complete; an error counts only if the result still needed rows."""
        if error and not self._enough:
            self.error = error
        self.done = True
        self.elapsed_ms = round((time.perf_counter() - self._started) * 1000, 3)
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def first(self) -> None:
        """Wait for the first rows or the end; raises the query's error if it has failed by then."""
        while not (self.done or self.rows):
            await self._changed.wait()
        if self.error:
            raise self.error

    async def complete(self) -> None:
        """Wait for the end; raises the query's error."""
        while not self.done:
            await self._changed.wait()
        if self.error:
            raise self.error

    def column_types(self) -> list[frozenset[int]]:
        """Return the cell types other than NULL of each column; more may follow until the result is done."""
        return [frozenset(kinds - {NULL}) for kinds in self._kinds]

    async def follow(self) -> AsyncIterator[Batch]:
        """Yield all rows in order, waiting for those that have not arrived; raises the query's error after the last."""
        position = 0
        while True:
            if self._packing and position < self._spool.size:
                length, rows = _HEADER.unpack(self._spool.read(position, _HEADER.size))
                cells = self._packing.unpack(self._spool.read(position + _HEADER.size, length))
                position += _HEADER.size + length
                yield Batch(cells, len(self.names), rows)
            elif self.done:
                if self.error:
                    raise self.error
                return
            else:
                await self._changed.wait()

    def abandon(self) -> None:
        """Stop the query if it still runs, since its rows are no longer needed."""
        if not self.done:
            self._stop()

    def close(self) -> None:
        """Stop the query and release the stored rows."""
        self.abandon()
        self._spool.close()

"""Cells of a result as trace_processor packs them: `QueryResult.CellsBatch`."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from service.engine.trace_processor import wire


class ProtoCells:
    """The cells of a ``CellsBatch``; see `PackedCells`.

    Args:
        batch: the message.
    """

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def types(self) -> npt.NDArray[np.uint8]:
        """Return the type of each cell."""
        return np.asarray(self._batch.cells, np.uint8)

    def integers(self) -> npt.NDArray[np.int64]:
        """Return the values of integer cells."""
        return np.asarray(self._batch.varint_cells, np.int64)

    def doubles(self) -> npt.NDArray[np.float64]:
        """Return the values of double cells."""
        return np.asarray(self._batch.float64_cells, np.float64)

    def text(self) -> bytes:
        """Return the values of string cells as UTF-8, each followed by a NUL."""
        joined = self._batch.string_cells  # protobuf returns bytes if they are not UTF-8
        return (joined if isinstance(joined, str) else joined.decode("utf-8", "replace")).encode()

    def blobs(self) -> list[bytes]:
        """Return the values of blob cells."""
        return list(self._batch.blob_cells)

    def pack(self) -> bytes:
        """Return the message as bytes."""
        packed: bytes = self._batch.SerializeToString()
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Return the cells of a serialized message."""
        return cls(wire.CellsBatch.FromString(packed))

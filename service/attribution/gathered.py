"""Columns of integers that are gathered piece by piece, and then read some at a time."""

import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile

import numpy as np
import numpy.typing as npt

from service.attribution.nesting import Indices, Ints

_MEMORY_MAX = 1 << 20
_PIECE_MIN = 1 << 15
"""Number of values that are worth a piece: each piece is read on its own."""


class GatheredColumns:
    """Columns of integers, which are kept in few bytes.

    Args:
        names: names of the columns.
        folder: folder for a temporary file, which has no name, of what takes more than `_MEMORY_MAX` bytes. Without a
            folder, all is kept in memory.

    Raises:
        OSError: the file can't be written or read; the methods raise this, too.
    """

    def __init__(self, *names: str, folder: Path | None = None) -> None:
        self._pieces: dict[str, list[_Piece]] = {name: [] for name in names}
        self._ends = [0]
        self._added: list[dict[str, npt.NDArray[np.integer]]] = []  # since the last piece
        self._count = 0
        self._folder = folder
        size, place = (_MEMORY_MAX, str(folder)) if folder else (0, None)  # 0 is no limit
        self._file = SpooledTemporaryFile(size, dir=place)  # noqa: SIM115 - closed with these columns
        weakref.finalize(self, self._file.close)
        self._size = 0

    def __len__(self) -> int:
        """Return the number of values of each column."""
        return self._ends[-1] + self._count

    def beside(self, *names: str) -> "GatheredColumns":
        """Return other columns, without values, that are kept like these."""
        return GatheredColumns(*names, folder=self._folder)

    def add(self, **columns: npt.NDArray[np.integer]) -> None:
        """Add the next values of all columns, which are equally many; they are not copied at once."""
        count = len(next(iter(columns.values())))
        if count:
            self._added.append(columns)
            self._count += count
        if self._count >= _PIECE_MIN:
            self._end_piece()

    def _end_piece(self) -> None:
        """Write what was added since the last piece, if anything was."""
        if not self._count:
            return
        written: list[memoryview] = []
        self._file.seek(self._size)
        for name, pieces in self._pieces.items():
            values = np.concatenate([columns[name] for columns in self._added])
            least, most = int(values.min()), int(values.max())
            type_ = np.min_scalar_type(most - least)
            pieces.append(_Piece(least, most, type_, self._size))
            if least < most:
                bits = values.astype(np.int64, copy=False).view(np.uint64)
                written.append((bits - _bits(least)).astype(type_).data)
                self._size += written[-1].nbytes
        self._file.write(b"".join(written))
        self._ends.append(len(self))
        self._added, self._count = [], 0

    def values(self, name: str, first: int = 0, last: int | None = None) -> Ints:
        """Return the values of a column from index `first` to before `last`."""
        self._end_piece()
        last = len(self) if last is None else min(last, len(self))
        values = np.empty(max(last - first, 0), np.int64)
        for piece in range(bisect_right(self._ends, first) - 1, len(self._ends) - 1):
            start, end = max(self._ends[piece], first), min(self._ends[piece + 1], last)
            if start >= last:
                break
            self._read(name, piece, start - self._ends[piece], values[start - first : end - first])
        return values

    def ranges(self, size: int, *names: str) -> Iterator[dict[str, Ints]]:
        """Yield some columns, or all if none is named, `size` values at a time; there is one range at least."""
        for first in range(0, max(len(self), 1), size):
            yield {name: self.values(name, first, first + size) for name in names or self._pieces}

    def at(self, indices: Indices, missing: Mapping[str, int]) -> dict[str, Ints]:
        """Return the values of some columns at indices.

        Args:
            indices: the indices, or `NONE`.
            missing: for each of the columns, the value where the index is `NONE`.
        """
        self._end_piece()
        ends = np.array(self._ends)
        pieces = np.searchsorted(ends, indices, "right") - 1  # -1 for `NONE`
        chosen = np.flatnonzero(np.bincount(pieces + 1)[1:])
        lengths = np.diff(ends)[chosen]
        shifts = np.zeros(len(ends), np.int64)
        shifts[chosen] = np.cumsum(lengths) - lengths - ends[chosen]
        places = indices + shifts[pieces]
        return {name: self._joined(name, chosen.tolist(), value)[places] for name, value in missing.items()}

    def between(self, name: str, least: int, most: int) -> tuple[Ints, Ints]:
        """Return the values of a column in the pieces that may have some from `least` to `most`, and their indices."""
        self._end_piece()
        pieces = enumerate(self._pieces[name])
        chosen = [index for index, piece in pieces if piece.least <= most and piece.most >= least]
        indices = [np.arange(self._ends[index], self._ends[index + 1]) for index in chosen]
        return self._joined(name, chosen), np.concatenate([np.empty(0, np.int64), *indices])

    def _joined(self, name: str, pieces: Iterable[int], *further: int) -> Ints:
        """Return the values of some pieces of a column, one after the other, and further values."""
        lengths = {piece: self._ends[piece + 1] - self._ends[piece] for piece in pieces}
        values, first = np.empty(sum(lengths.values()) + len(further), np.int64), 0
        for piece, length in lengths.items():
            self._read(name, piece, 0, values[first : first + length])
            first += length
        values[first:] = further
        return values

    def _read(self, name: str, index: int, first: int, values: Ints) -> None:
        """Read the values of a piece from index `first` on into an array."""
        piece = self._pieces[name][index]
        if piece.least == piece.most:
            values[:] = piece.least
            return
        self._file.seek(piece.offset + first * piece.type.itemsize)
        distances = np.frombuffer(self._file.read(len(values) * piece.type.itemsize), piece.type)
        np.add(distances, _bits(piece.least), out=values.view(np.uint64))


@dataclass(frozen=True)
class _Piece:
    """Values that are written at an offset as distances from the least one, in the narrowest type.

    The distances of 64-bit integers need 64 bits without a sign. Equal values are not written.
    """

    least: int
    most: int
    type: np.dtype[np.unsignedinteger]
    offset: int


def _bits(value: int) -> np.uint64:
    """Return the bits of a 64-bit integer."""
    return np.uint64(value % (1 << 64))

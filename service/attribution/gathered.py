"""Columns of integers that are gathered piece by piece, and then taken one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.attribution.nesting import Ints


class GatheredColumns:
    """Columns of integers, which are kept in few bytes until they are taken.

    Touching new memory takes longer than converting: a piece takes a quarter of the memory or less, and a column that
    is dropped before the next one is taken leaves its memory to that one.

    Args:
        names: names of the columns.
    """

    def __init__(self, *names: str) -> None:
        self._pieces: dict[str, list[_Piece]] = {name: [] for name in names}

    def add(self, **columns: npt.NDArray[np.integer]) -> None:
        """Add the next values of all columns, which are equally many."""
        for name, values in columns.items():
            if len(values):
                self._pieces[name].append(_Piece.of(values))

    def take(self, name: str) -> Ints:
        """Remove a column, and return its values."""
        values = self.values(name)
        del self._pieces[name]
        return values

    def take_narrow(self, name: str, further: int) -> npt.NDArray[np.integer]:
        """Remove a column, and return its values and a further one behind them, in the narrowest type."""
        pieces = [*self._pieces.pop(name), _Piece.of(np.array([further]))]
        least, most = min(piece.least for piece in pieces), max(piece.most for piece in pieces)
        type_ = np.min_scalar_type(most if least >= 0 else min(least, -most - 1))
        column, end = np.empty(sum(len(piece.distances) for piece in pieces), type_), 0
        for piece in pieces:
            start, end = end, end + len(piece.distances)
            column[start:end] = piece.values()
        return column

    def values(self, name: str, first: int = 0, last: int | None = None) -> Ints:
        """Return the values of a column from index `first` to before `last`."""
        found, start = [np.empty(0, np.int64)], 0
        for piece in self._pieces[name]:
            end = start + len(piece.distances)
            if end > first and (last is None or start < last):
                found.append(piece.values(slice(max(first - start, 0), None if last is None else last - start)))
            start = end
        return np.concatenate(found)

    def ranges(self, size: int) -> Iterator[dict[str, Ints]]:
        """Yield all columns, `size` values at a time."""
        lengths = [len(piece.distances) for piece in next(iter(self._pieces.values()))]
        for first in range(0, sum(lengths), size):
            yield {name: self.values(name, first, first + size) for name in self._pieces}


@dataclass(frozen=True)
class _Piece:
    """Values as distances from the least one, in the narrowest type, or as a view of one zero if all are equal.

    The distances of 64-bit integers need 64 bits without a sign.
    """

    least: int
    most: int
    distances: npt.NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, values: npt.NDArray[np.integer]) -> "_Piece":
        """Return a piece of values, at least one."""
        least, most = int(values.min()), int(values.max())
        type_ = np.min_scalar_type(most - least)
        if least == most:
            return cls(least, most, np.broadcast_to(np.zeros(1, type_), len(values)))
        return cls(least, most, (values.astype(np.int64).view(np.uint64) - _bits(least)).astype(type_))

    def values(self, chosen: slice = slice(None)) -> Ints:
        """Return the values, or some of them."""
        return (self.distances[chosen] + _bits(self.least)).view(np.int64)


def _bits(value: int) -> np.uint64:
    """Return the bits of a 64-bit integer."""
    return np.uint64(value % (1 << 64))

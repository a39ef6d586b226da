"""Columns of integers that are gathered piece by piece, and then taken one after the other."""

import numpy as np
import numpy.typing as npt

from service.attribution.nesting import Ints


class GatheredColumns:
    """Columns of integers, which are kept in the narrowest types until they are taken.

    Touching new memory takes longer than converting: a narrow piece takes a quarter of the memory, and a column that is
    dropped before the next one is taken leaves its memory to that one.

    Args:
        names: names of the columns.
    """

    def __init__(self, *names: str) -> None:
        self._pieces: dict[str, list[npt.NDArray[np.integer]]] = {name: [] for name in names}

    def add(self, **columns: npt.NDArray[np.integer]) -> None:
        """Add the next values of all columns, which are equally many."""
        for name, values in columns.items():
            self._pieces[name].append(_narrow(values))

    def take(self, name: str, *further: int) -> Ints:
        """Remove a column, and return its values and further ones behind them."""
        pieces = [*self._pieces.pop(name), np.array(further, np.int64)]
        values = np.empty(sum(map(len, pieces)), np.int64)
        np.concatenate(pieces, out=values)
        return values


def _narrow(values: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """Return the values in the narrowest type that holds all of them, or as a view of one value if all are equal."""
    if not len(values):
        return values
    least, most = values.min(), values.max()
    type_ = np.promote_types(np.min_scalar_type(least), np.min_scalar_type(most))
    if least == most:
        return np.broadcast_to(least.astype(type_), values.shape)
    return values.astype(type_) if type_.kind in "iu" else values

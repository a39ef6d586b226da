"""The arguments of events as JSON texts, like those that Kineto writes."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.formats.nsys.combinations import combinations
from service.formats.nsys.identifiers import Flags, Ints, has
from service.streaming.integers import ints

_TEXTS_MAX = 50_000


class Argument(NamedTuple):
    """An argument of events.

    Attributes:
        key: its key.
        columns: the columns of the table that it is made of. Events in which one is null do not have it.
        text: returns the JSON text of its value.
    """

    key: str
    columns: tuple[str, ...]
    text: Callable[..., str] = str


def array_text(*values: int) -> str:
    """Return the JSON text of an array of integers."""
    return f"[{', '.join(map(str, values))}]"


class Correlations(NamedTuple):
    """The correlations of events: unique ones, those of the export, and flags of the events that have one."""

    unique: Ints
    original: Ints
    present: Flags


class ArgumentWriter:
    """A writer of the arguments of the events of a table.

    Most events differ from others in their correlation alone. So the text of all other arguments is made once for each
    combination of their values, and kept for later batches.

    Args:
        members: the arguments before the correlation.
    """

    def __init__(self, members: Sequence[Argument]) -> None:
        self._members = members
        self._texts: dict[tuple[int | None, ...], str] = {}

    def write(self, table: Mapping[str, pa.ChunkedArray], correlations: Correlations) -> pa.Array:
        """Return the text of the arguments of each event.

        Args:
            table: the columns of the events, by name; a missing column counts as null.
            correlations: the correlations of the events, which are their last argument.
        """
        count = len(correlations.unique)
        names = [*dict.fromkeys(column for member in self._members for column in member.columns)]
        columns = [_values(table.get(name), count) for name in names]
        firsts, places = combinations(
            [part for values, valid in columns for part in (values, valid.view(np.int8).astype(np.int64))], count
        )
        texts = [self._text(names, key) for key in _keys(columns, firsts)]
        if correlations.present.all() and np.array_equal(correlations.unique, correlations.original):
            texts = [f'{{{text}{", " if text else ""}"correlation": ' for text in texts]
            return pc.binary_join_element_wise(_taken(texts, places), _decimals(correlations.unique), "}", "")
        started = _taken([f"{{{text}" for text in texts], places)
        return pc.binary_join_element_wise(started, *_correlation(correlations, started), "}", "")

    def _text(self, names: Sequence[str], values: tuple[int | None, ...]) -> str:
        text = self._texts.get(values)
        if text is None:
            by_name = dict(zip(names, values, strict=True))
            text = ", ".join(
                f'"{member.key}": {member.text(*(by_name[column] for column in member.columns))}'
                for member in self._members
                if all(by_name[column] is not None for column in member.columns)
            )
            if len(self._texts) >= _TEXTS_MAX:
                self._texts.clear()
            self._texts[values] = text
        return text


def _taken(texts: list[str], places: Ints) -> pa.Array:
    """Return the text at each place."""
    return pa.array(texts, pa.string()).take(pa.array(places))


def _decimals(numbers: Ints, valid: Flags | None = None) -> pa.Array:
    """Return numbers as texts, with null where they are not valid."""
    return pc.cast(pa.array(numbers, mask=None if valid is None else ~valid), pa.string())


def _values(column: pa.ChunkedArray | None, count: int) -> tuple[Ints, Flags]:
    if column is None:
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)
    return ints(column), has(column)


def _keys(columns: Sequence[tuple[Ints, Flags]], rows: Ints) -> list[tuple[int | None, ...]]:
    """Return the values in some rows as tuples, with None for null."""
    lists = []
    for values, valid in columns:
        numbers: list[int | None] = values[rows].tolist()
        if not valid[rows].all():
            numbers = [number if flag else None for number, flag in zip(numbers, valid[rows].tolist(), strict=True)]
        lists.append(numbers)
    return [*zip(*lists, strict=True)]


def _correlation(correlations: Correlations, started: pa.Array) -> list[pa.Array]:
    """Return the text of the correlation of each event and, if any differs, of that in the export."""
    separator = pc.if_else(pc.equal(started, "{"), "", ", ")
    pieces = [_numbered(separator, '"correlation": ', correlations.unique, correlations.present)]
    differs = correlations.present & (correlations.unique != correlations.original)
    if differs.any():
        pieces.append(_numbered(", ", '"nsys correlation": ', correlations.original, differs))
    return pieces


def _numbered(separator: pa.Array | str, key: str, numbers: Ints, valid: Flags) -> pa.Array:
    """Return a separator, a key and a number for each event in which the number is valid; else an empty text."""
    texts = pc.binary_join_element_wise(separator, key, _decimals(numbers, valid), "")
    return texts if valid.all() else texts.fill_null("")

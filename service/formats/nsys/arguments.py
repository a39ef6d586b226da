"""The arguments of events as JSON texts, like those that Kineto writes."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.formats.nsys.combinations import combinations
from service.formats.nsys.identifiers import Flags, Ints, has, ints


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


def arguments(table: Mapping[str, pa.ChunkedArray], members: Sequence[Argument], correlations: Correlations) -> pa.Array:
    """Return the text of the arguments of each event.

    Events of a batch mostly differ in their correlation alone, so the text of all other arguments is made once for each
    combination of values.

    Args:
        table: the columns of the events, by name.
        members: the arguments; those whose columns the table lacks are left out.
        correlations: the correlations of the events, which are their last argument.
    """
    members = [member for member in members if all(column in table for column in member.columns)]
    names = [*dict.fromkeys(column for member in members for column in member.columns)]
    values = [ints(table[name]) for name in names]
    valid = [has(table[name]) for name in names]
    firsts, places = combinations([*values, *(flags.astype(np.int64) for flags in valid)], len(correlations.unique))
    rows = [
        {name: int(column[row]) if flags[row] else None for name, column, flags in zip(names, values, valid, strict=True)}
        for row in firsts.tolist()
    ]
    texts = [_members(row, members) for row in rows]
    started = pa.array([f"{{{text}" for text in texts], pa.string()).take(pa.array(places))
    separator = ", " if members and all(texts) else ""
    return pc.binary_join_element_wise(started, *_correlation(correlations, separator), "}", "")


def _members(row: Mapping[str, int | None], members: Sequence[Argument]) -> str:
    texts = []
    for member in members:
        values = [row[column] for column in member.columns]
        if None not in values:
            texts.append(f'"{member.key}": {member.text(*values)}')
    return ", ".join(texts)


def _correlation(correlations: Correlations, separator: str) -> list[pa.Array]:
    """Return the text of the correlation of each event and, if any differs, of that in the export."""
    pieces = [_numbered(f'{separator}"correlation": ', correlations.unique, correlations.present)]
    differs = correlations.present & (correlations.unique != correlations.original)
    if differs.any():
        pieces.append(_numbered(', "nsys correlation": ', correlations.original, differs))
    return pieces


def _numbered(prefix: str, numbers: Ints, valid: Flags) -> pa.Array:
    texts = pc.binary_join_element_wise(prefix, pc.cast(pa.array(numbers, mask=~valid), pa.string()), "")
    return texts if valid.all() else texts.fill_null("")

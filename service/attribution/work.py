"""The fields of work, which the file of links has beside the links: questions about devices need no other events."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from service.attribution.gathered import GatheredColumns
from service.attribution.nesting import Flags, Ints, factorize
from service.store.parts import Part, Words
from service.streaming.scan.compiled import compiled
from service.streaming.scan.search import hashes
from service.streaming.words import word_column

COLLECTIVE = b'"Collective name"'
"""The argument of a kernel with which Kineto begins to describe a collective, as JSON has it."""
_CONFIGURATION = b'"registers per thread"'
"""The argument with which Kineto begins to describe how a kernel was launched: registers, grid, block and the like."""

_INTS = ("position", "ts_ns", "dur_ns", "device", "stream", "correlation", "external_id", "bytes")
_WORD = pa.dictionary(pa.int32(), pa.string())
FIELDS = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in _INTS),
        pa.field("name", _WORD),
        pa.field("cat", _WORD),
        pa.field("names_collective", pa.bool_()),
        pa.field("configuration", pa.int64()),
    ]
)
"""Fields of work: columns of the events, whether the arguments name a collective, and ``configuration``.

Kernels have the same ``configuration`` if their arguments are the same from `_CONFIGURATION` to the end, or to the
description of a collective. It is null for arguments without that.
"""
COLUMNS = (*_INTS, "name", "cat", "args")
"""Columns of events from which the fields are read."""
LAUNCH = pa.schema(
    [
        pa.field("launch_ts_ns", pa.int64()),
        pa.field("launch_dur_ns", pa.int64()),
        pa.field("launch_name", _WORD),
    ]
)
"""Fields of the launch of work; null if it is not known. The duration is at least 0."""


class GatheredWork:
    """The fields of a trace's work, gathered while its events are written.

    Args:
        folder: folder for a temporary file; see `GatheredColumns`.

    Attributes:
        names: the names of work and of launches.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.names = Words()
        self._columns = GatheredColumns(*FIELDS.names, "nulls", folder=folder)
        self._categories = Words()
        self._configurations: dict[int, int] = {}

    def add(self, part: Part, rows: Ints) -> None:
        """Add the fields of events, whose part has at least `COLUMNS`."""
        if not len(rows):
            return
        args = _args(part)
        configurations, has_configuration, names_collective = hashes(args, _CONFIGURATION, COLLECTIVE, rows)
        ints, nulls = {name: np.empty(len(rows), np.int64) for name in _INTS}, np.zeros(len(rows), np.int64)
        for bit, (name, values) in enumerate(ints.items()):
            _take(part.numbers(name), part.has(name), rows, bit, values, nulls)
        self._columns.add(
            **ints,
            name=self.names.of(part, "name", rows),
            cat=self._categories.of(part, "cat", rows),
            names_collective=names_collective.astype(np.int8),
            configuration=self._numbered(configurations, has_configuration),
            nulls=nulls,
        )

    def fields(self, first: int, last: int) -> Mapping[str, pa.Array]:
        """Return the `FIELDS` of the work from index `first` to before `last`, in the order in which it was added."""
        values = {name: self._columns.values(name, first, last) for name in (*FIELDS.names, "nulls")}
        return {
            **{name: with_nulls(values[name], values["nulls"] >> bit & 1 == 1) for bit, name in enumerate(_INTS)},
            "name": words_of(values["name"], self.names.listed),
            "cat": words_of(values["cat"], self._categories.listed),
            "names_collective": pa.array(values["names_collective"] > 0),
            "configuration": with_nulls(values["configuration"], values["configuration"] < 0),
        }

    def _numbered(self, configurations: Ints, has: Flags) -> Ints:
        """Return the numbers of configurations by their hashes; -1 for events without one."""
        found = configurations[has]
        codes, count = factorize(found)
        distinct = np.empty(count, np.int64)
        distinct[codes] = found
        known = self._configurations
        for value in np.sort(distinct).tolist():
            known.setdefault(value, len(known))
        numbers = np.full(len(has), -1)
        numbers[has] = np.array([known[value] for value in distinct.tolist()], np.int64)[codes]
        return numbers


@compiled
def _take(numbers: Any, has: Flags, rows: Ints, bit: int, values: Ints, nulls: Ints) -> None:
    """Write the numbers at some rows, with 0 for null, and set a bit of `nulls` for each null."""
    for index in range(len(rows)):
        row = rows[index]
        values[index] = numbers[row] if has[row] else 0
        nulls[index] |= (not has[row]) << bit


def _args(part: Part) -> pa.StringArray:
    args = part.table["args"]
    return args.chunk(0) if args.num_chunks == 1 else args.combine_chunks()


def with_nulls(values: Ints, are_null: Flags) -> pa.Array:
    """Return integers, some of which are null; they are copied only if any is."""
    return pa.array(values, mask=are_null if are_null.any() else None)


def words_of(codes: Ints, words: Sequence[str]) -> pa.DictionaryArray:
    """Return the word of each code; null for negative codes."""
    return word_column(codes, codes >= 0, words)

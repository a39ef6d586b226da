"""Lookup of the texts in an export's table of strings."""

import numpy as np
import pyarrow as pa

from service.formats.events import words
from service.formats.nsys.allowed import STRINGS
from service.formats.nsys.database import Database
from service.formats.nsys.identifiers import Flags, Ints
from service.trace.health import Health

UNKNOWN = "unknown"
"""Name of an event whose name the export lacks."""


class Strings:
    """Looks up texts by number when they are asked for, and keeps them.

    Args:
        database: the export.
        health: gets a note on numbers without a text.
    """

    def __init__(self, database: Database, health: Health) -> None:
        self._database = database
        self._health = health
        self._texts: dict[int, str | None] = {}

    def words(self, numbers: Ints, valid: Flags) -> pa.Array:
        """Return the text of each number as a column of names; `UNKNOWN` for a missing one."""
        distinct, places = np.unique(numbers, return_inverse=True)
        texts = self.texts(distinct[np.isin(distinct, numbers[valid])].tolist())
        missing = valid & np.isin(numbers, [number for number, text in texts.items() if text is None])
        if lost := int(missing.sum()) + int((~valid).sum()):
            self._health.add(
                "unknown_names", count=lost, text=f"string {numbers[missing][0]}" if missing.any() else None
            )
        names = [texts.get(number) or UNKNOWN for number in distinct.tolist()]
        return words(np.where(valid, places, len(names)), [*names, UNKNOWN])

    def texts(self, numbers: list[int]) -> dict[int, str | None]:
        """Return the texts of distinct numbers, with None for those that the export lacks."""
        new = [number for number in numbers if number not in self._texts]
        if new and STRINGS in self._database.columns:
            found = self._database.texts(STRINGS, "id", "value", new)
            self._texts |= {number: found.get(number) for number in new}
        return {number: self._texts.get(number) for number in numbers}

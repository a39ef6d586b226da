"""Answers of analyses, as the sections of a report read them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
"""A row of an answer: its values by the names of the columns."""


@dataclass(frozen=True)
class Answer:
    """The answer of an analysis; `document` is its JSON (`shapes.Answer`)."""

    document: dict[str, Any]

    @classmethod
    def parsed(cls, text: bytes) -> "Answer":
        """Parse the JSON of an answer."""
        return cls(json.loads(text))  # orjson rounds integers beyond 64 bits

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table."""
        content = self.document["tables"][table]
        names = [column["name"] for column in content["columns"]]
        return [dict(zip(names, row, strict=True)) for row in content["rows"]]

    def units(self, table: str) -> dict[str, str | None]:
        """Return the units of the columns of a table, by name."""
        return {column["name"]: column.get("unit") for column in self.document["tables"][table]["columns"]}

    @property
    def remarks(self) -> Sequence[str]:
        """The notes on the answer, and the reasons for which it lacks ranks."""
        skipped = [f"{trace['name']}: {trace['reason']}" for trace in self.document["skipped"]]
        return [*self.document["notes"], *skipped]


@dataclass(frozen=True)
class NotKnown:
    """The reason why an analysis has no answer."""

    reason: str

"""Reading of a trace in tests: its events as rows, and what its reader reports."""

import tempfile
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from service.formats.registry import open_trace


class Reading(NamedTuple):
    """A trace that was read: its format, its events without null columns, its document, and its notes."""

    format: str
    rows: list[dict[str, Any]]
    members: dict[str, Any]
    refused: int
    notes: dict[str, int]
    examples: dict[str, list[dict[str, Any]]]

    def slices(self) -> list[dict[str, Any]]:
        """Return the slices."""
        return [row for row in self.rows if row["ph"] == "X"]


def read(content: bytes) -> Reading:
    """Read a trace."""
    with tempfile.TemporaryDirectory() as scratch:
        reader, name = open_trace(BufferedReader(BytesIO(content)), Path(scratch))
        batches = list(reader.batches())
        _, members = reader.envelope()
        assert [*Path(scratch).iterdir()] == []
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len(rows) == reader.kept
    notes: Any = reader.health.as_dict(refused=reader.refused)["notes"]
    return Reading(
        name,
        [{key: value for key, value in row.items() if value is not None} for row in rows],
        members,
        reader.refused,
        {note["code"]: note["count"] for note in notes},
        {note["code"]: note["examples"] for note in notes},
    )

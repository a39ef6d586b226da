"""Support for tests of exports of Nsight Systems: an export is read into events and a summary."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pytest

from service.jobs.ingest import ingest
from service.trace.summary import Summary
from tests.nsys import Export, write_export


@dataclass
class Ingested:
    """A trace that was read: its summary, and its columns."""

    summary: Summary
    folder: Path

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on ``events``."""
        with duckdb.connect() as db:
            db.execute(f"CREATE VIEW events AS SELECT * FROM '{self.folder / 'events.parquet'}'")
            return db.execute(sql).fetchall()

    def dicts(self, where: str) -> list[dict[str, Any]]:
        """Return the events that meet a condition, without the columns that are null."""
        with duckdb.connect() as db:
            query = f"SELECT * FROM '{self.folder / 'events.parquet'}' WHERE {where} ORDER BY ts_ns, position"
            rows = db.sql(query).to_arrow_table().to_pylist()
        return [{key: value for key, value in row.items() if value is not None} for row in rows]

    @property
    def notes(self) -> dict[str, int]:
        """The counts of the notes in its health, by code."""
        return {note["code"]: note["count"] for note in self.summary.health["notes"]}


@pytest.fixture
def read(tmp_path: Path) -> Callable[[Path | bytes], Ingested]:
    """Reads the bytes of a file, or a file."""

    def reading(content: Path | bytes) -> Ingested:
        data = content if isinstance(content, bytes) else content.read_bytes()
        columns = tmp_path / "columns"
        return Ingested(ingest(BufferedReader(BytesIO(data)), columns, "trace.sqlite", lambda _: None), columns)

    return reading


@pytest.fixture
def made(tmp_path: Path, read: Callable[[Path], Ingested]) -> Callable[[Export], Ingested]:
    """Makes an export, and reads it."""
    return lambda export: read(write_export(tmp_path / "made.sqlite", export))

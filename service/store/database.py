"""DuckDB, as everything here uses it: in bounded memory, and with no code from anywhere but its package."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from service.trace.errors import DiskFull

MEMORY_MAX = 512 << 20
_spill_bound: dict[str, str] = {}
"""DuckDB's setting for the bytes on disk of a connection, if this process has a bound."""


def bound_spill(size: int | None) -> None:
    """Bound the bytes that each connection opened from now on may spill; None for DuckDB's own bound."""
    _spill_bound.clear()
    if size is not None:
        _spill_bound["max_temp_directory_size"] = f"{size}B"


def connected(spill: Path, *, threads: int, **options: Any) -> duckdb.DuckDBPyConnection:
    """A connection to a database that is empty and in memory.

    Args:
        spill: the folder for what does not fit into `MEMORY_MAX` bytes.
        threads: how many may work.
        options: more of DuckDB's settings.
    """
    return duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": f"{MEMORY_MAX >> 20}MiB",
            "temp_directory": str(spill),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            **_spill_bound,
            **options,
        }
    )


@contextmanager
def spill_errors() -> Iterator[None]:
    """Tell "no room to spill" apart from other errors of DuckDB: raises `DiskFull` for it.

    Amid the rows of a result, Arrow passes DuckDB's errors on as `OSError`.
    """
    try:
        yield
    except (duckdb.Error, OSError) as error:
        if "Out of Memory Error" in str(error) or "No space left" in str(error):
            why = str(error).split("\n", 1)[0]
            raise DiskFull(f"The disk has no room for what does not fit into memory: {why}") from error
        raise

"""DuckDB, as everything here uses it: in bounded memory, and with no code from anywhere but its package."""

from pathlib import Path
from typing import Any

import duckdb

MEMORY_MAX = 512 << 20


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
            **options,
        }
    )

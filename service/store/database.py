"""DuckDB connections with bounded memory and without extensions from the network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.trace.errors import DiskFull, ExportFailed

if TYPE_CHECKING:
    import duckdb

MEMORY_MAX = 512 << 20
END = "coalesce(try(ts_ns + greatest(dur_ns, 0)), ts_ns)"  # greatest() ignores nulls; try() is null on overflow
"""SQL expression of an event's end in ns."""
_spill_limit: dict[str, str] = {}
"""DuckDB's setting that limits the spilled bytes of a connection; empty if this process has no limit."""


def limit_spill(size: int | None) -> None:
    """Limit the bytes that each connection opened from now on may spill; None for DuckDB's own limit."""
    _spill_limit.clear()
    if size is not None:
        _spill_limit["max_temp_directory_size"] = f"{size}B"


def open_database(spill: Path, *, threads: int, **options: Any) -> "duckdb.DuckDBPyConnection":
    """Open a connection to an empty database in memory.

    Args:
        spill: folder for data that does not fit into `MEMORY_MAX` bytes.
        threads: number of threads that the connection may use.
        options: further settings of DuckDB.
    """
    import duckdb  # noqa: PLC0415 - takes memory, which the server does without

    return duckdb.connect(
        config={
            "threads": threads,
            "memory_limit": f"{MEMORY_MAX >> 20}MiB",
            "temp_directory": str(spill),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            **_spill_limit,
            **options,
        }
    )


@contextmanager
def database_errors(failure: Callable[[Exception], ExportFailed]) -> Iterator[None]:
    """Turn DuckDB's errors for a full spill disk into `DiskFull`, and its other errors into a failure.

    DuckDB reports an exceeded spill limit as out of memory. While the rows of a result are read, Arrow raises
    DuckDB's errors as `OSError`.
    """
    import duckdb  # noqa: PLC0415 - takes memory, which the server does without

    try:
        yield
    except (duckdb.Error, OSError) as error:
        if "Out of Memory Error" in str(error) or "No space left" in str(error):
            reason = str(error).split("\n", 1)[0]
            raise DiskFull(f"The disk has no room for data that does not fit into memory: {reason}") from error
        if isinstance(error, duckdb.Error):
            raise failure(error) from error
        raise

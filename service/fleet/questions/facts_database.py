"""The facts of a dataset as tables of a DuckDB database."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from service.fleet.dataset import READS, Dataset
from service.fleet.facts import TABLES
from service.fleet.record import Record, as_table, current_traces
from service.trace.cycles import cycles_of
from service.trace.errors import BadDataset

if TYPE_CHECKING:
    import duckdb

TRACES = "traces"
"""Name of the table of traces; those of facts are the keys of `TABLES`, and have its column ``trace``."""


class FactsDatabase:
    """The facts of a dataset.

    The table ``traces`` has a row for each trace of a run, with the columns of `service.fleet.record.SCHEMA` and
    ``cycle``. The other tables are those of `service.fleet.facts.TABLES`.

    Attributes:
        runs: names of the runs, in the order in which they started.
    """

    def __init__(self, connection: "duckdb.DuckDBPyConnection", url: str, runs: Sequence[str]) -> None:
        self._connection = connection
        self._url = url
        self.runs = runs

    @classmethod
    @contextmanager
    def of(cls, dataset: Dataset, scratch_in: Path | None = None) -> Iterator["FactsDatabase"]:
        """Open the facts of a dataset; those of a bucket are copied.

        Args:
            dataset: the dataset.
            scratch_in: folder for copies, and for what does not fit into memory; by default that of the system.

        Raises:
            LocationError: the dataset's location can't be used.
            BadDataset: a file of the dataset is damaged.
        """
        import duckdb  # noqa: PLC0415 - takes memory, which the server does without

        parts = dataset.parts()
        merged = {record.key: record for part in parts for record in part.records}
        unmerged = dataset.unmerged(merged)
        records = current_traces([*merged.values(), *unmerged.values()])
        present = {trace for part in parts for trace in part.traces}
        left = sorted({record.trace for record in records} - present)
        with (
            tempfile.TemporaryDirectory(prefix="tracedock-", dir=scratch_in) as scratch,
            duckdb.connect(config={"temp_directory": scratch}) as connection,
        ):
            connection.register("all_traces", _with_cycles(records))
            connection.execute(f"CREATE TABLE {TRACES} AS SELECT * FROM all_traces")
            owners = pa.table(
                {
                    "trace": [trace for part in parts for trace in part.traces],
                    "part": [part.name for part in parts for _ in part.traces],
                }
            )
            connection.register("owners", owners)
            with ThreadPoolExecutor(READS, "facts") as threads:
                unmerged_facts = [*threads.map(dataset.facts, left)]
            names = [part.name for part in parts]
            for table, schema in TABLES.items():
                rows = [facts[table] for facts in unmerged_facts if facts]
                connection.register(f"unmerged_{table}", pa.concat_tables([schema.empty_table(), *rows]))
                files = _files(dataset, table, names, Path(scratch))
                with _damage_named(dataset.location.url):
                    connection.execute(_view(table, files, are_whole=all(part.is_whole for part in parts)))
            yield cls(connection, dataset.location.url, _in_order(records))

    def table(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Return the result of a query.

        Args:
            sql: the query, with parameters like ``$run``.
            parameters: their values.

        Raises:
            BadDataset: a file of the dataset is damaged.
        """
        with _damage_named(self._url):
            return self._connection.sql(sql, params=dict(parameters or {})).to_arrow_table()

    def define(self, sql: str, parameters: Mapping[str, Any]) -> None:
        """Run a statement that defines a table; takes and raises what `table` does."""
        with _damage_named(self._url):
            self._connection.execute(sql, dict(parameters))


@contextmanager
def _damage_named(url: str) -> Iterator[None]:
    """Raise `BadDataset` if a Parquet file can't be read; DuckDB names the file."""
    import duckdb  # noqa: PLC0415 - takes memory, which the server does without

    try:
        yield
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise BadDataset(
            f"The facts in {url}/facts are damaged: {error} Remove that file and the file of its name in {url}/parts,"
            " and ingest its sources again."
        ) from error


def _with_cycles(records: Sequence[Record]) -> pa.Table:
    """Return the table of traces, with the cycle of each in its run."""
    cycles: list[int] = []
    for run in dict.fromkeys(record.run for record in records):
        cycles += cycles_of([record.as_summary() for record in records if record.run == run]).numbers
    return as_table(records).append_column(pa.field("cycle", pa.int64()), pa.array(cycles, pa.int64()))


def _in_order(records: Sequence[Record]) -> list[str]:
    starts: dict[str, int] = {}
    for record in records:
        start = (record.base_ns or 0) + (record.start_ns or 0)
        starts[record.run] = min(start, starts.get(record.run, start))
    return sorted(starts, key=lambda run: (starts[run], run))


def _files(dataset: Dataset, table: str, parts: Sequence[str], scratch: Path) -> list[str]:
    """Return local paths of the files of a table."""
    into = scratch / table
    into.mkdir()
    folder = dataset.location.fetch(f"facts/{table}", into, [f"{part}.parquet" for part in parts])
    return [str(folder / f"{part}.parquet") for part in parts]


def _view(table: str, files: Sequence[str], *, are_whole: bool) -> str:
    """Return the statement that defines the view of a table of facts."""
    unmerged = f"SELECT * FROM unmerged_{table}"
    if not files:
        return f"CREATE VIEW {table} AS {unmerged}"
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    merged = f"SELECT * FROM read_parquet([{listed}])"
    if not are_whole:
        merged = f"""
            SELECT * EXCLUDE file FROM read_parquet([{listed}], filename = 'file') AS facts
            SEMI JOIN owners ON owners.trace = facts.trace AND owners.part = parse_filename(file, true)
        """
    return f"CREATE VIEW {table} AS {merged} UNION ALL {unmerged}"

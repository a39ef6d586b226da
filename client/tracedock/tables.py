"""Tables of SQL and of analyses: rows of Python values, or Arrow, pandas and Polars.

Integers are exact, and null is None. Text and numbers have the types that the server declares for their column.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Optional

from tracedock.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_ROWS_OF_A_NOTEBOOK = 30


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its name; a number is appended to a name that an earlier column has.
        type: `int`, `double`, `string`, `blob`, or `null` if there are only nulls.
        unit: the unit of its values, like `ns` or `bytes`, if it has one.
        description: what the values are, or how they were converted, if that is known.
    """

    name: str
    type: str
    unit: Optional[str] = None
    description: Optional[str] = None


class Table:
    """A table, which iterates as dictionaries.

    Attributes:
        columns: its columns, in order.
        truncated: whether a limit cut rows off.
        elapsed_ms: the time of the query on the server; None for a table of an analysis.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Optional[list[tuple[Any, ...]]] = None,
        *,
        arrow: Any = None,
        truncated: bool = False,
        elapsed_ms: Optional[float] = None,
    ) -> None:
        """Create a table of rows or of an Arrow table; each is computed from the other when it is needed."""
        self.columns = tuple(columns)
        self.truncated = truncated
        self.elapsed_ms = elapsed_ms
        self._rows = rows
        self._arrow = arrow

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Table:
        """Create a table from its JSON in the API: `{"columns", "rows", "truncated"}`."""
        names = _distinct([column["name"] for column in document["columns"]])
        columns = [
            Column(name, column["type"], column.get("unit"), column.get("description"))
            for name, column in zip(names, document["columns"])
        ]
        rows: list[tuple[Any, ...]] = list(map(tuple, document["rows"]))
        parsers = [_PARSERS.get(column.type) for column in columns]
        if any(parsers):  # rows of integers and text need none
            rows = [tuple(_parsed(parse, value) for parse, value in zip(parsers, row)) for row in rows]
        return cls(columns, rows, truncated=document["truncated"], elapsed_ms=document.get("elapsed_ms"))

    @classmethod
    def of_arrow(cls, stream: bytes) -> Table:
        """Create a table from an Arrow IPC stream of the API; needs pyarrow."""
        pa = _imported("pyarrow", "arrow")
        sent = pa.ipc.open_stream(stream).read_all()
        named = [each.with_name(name) for each, name in zip(sent.schema, _distinct(sent.column_names))]
        arrow = pa.Table.from_arrays(sent.columns, schema=pa.schema(named))
        columns = []
        for each in arrow.schema:
            metadata = {key.decode(): value.decode() for key, value in (each.metadata or {}).items()}
            unit, description = metadata.get("unit"), metadata.get("description")
            columns.append(Column(each.name, _TYPES[str(each.type)], unit or None, description or None))
        facts = {key.decode(): json.loads(value) for key, value in (sent.schema.metadata or {}).items()}
        return cls(columns, arrow=arrow, truncated=facts.get("truncated", False), elapsed_ms=facts.get("elapsed_ms"))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as tuples, in the order of the columns."""
        if self._rows is None:
            self._rows = list(zip(*(column.to_pylist() for column in self._arrow.columns)))
        return self._rows

    def column(self, name: str) -> list[Any]:
        """Return the values of a column.

        Raises:
            KeyError: there is no column of that name.
        """
        names = [column.name for column in self.columns]
        if name not in names:
            raise KeyError(f"there is no column {name!r}, but {', '.join(names)}")
        place = names.index(name)
        return [row[place] for row in self.rows]

    def __len__(self) -> int:
        return self._arrow.num_rows if self._rows is None else len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = [column.name for column in self.columns]
        return (dict(zip(names, row)) for row in self.rows)

    def to_arrow(self) -> pyarrow.Table:
        """Return a `pyarrow.Table` of int64, float64, string and binary columns.

        Raises:
            MissingPackageError: pyarrow is not installed.
        """
        if self._arrow is None:
            pa = _imported("pyarrow", "arrow")
            schema = pa.schema([_field(pa, column) for column in self.columns])
            values = list(zip(*self.rows)) or [()] * len(self.columns)
            arrays = [pa.array(column, each.type) for column, each in zip(values, schema)]
            self._arrow = pa.Table.from_arrays(arrays, schema=schema)
        return self._arrow

    def to_pandas(self) -> pandas.DataFrame:
        """Return a `pandas.DataFrame` whose types hold nulls: `Int64`, `Float64` and `string`.

        Raises:
            MissingPackageError: pandas or pyarrow is not installed.
        """
        pd, pa = _imported("pandas", "pandas"), _imported("pyarrow", "pandas")
        kinds = {pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype(), pa.string(): pd.StringDtype()}
        frame: pandas.DataFrame = self.to_arrow().to_pandas(types_mapper=kinds.get)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return a `polars.DataFrame`.

        Raises:
            MissingPackageError: polars or pyarrow is not installed.
        """
        pl, _ = _imported("polars", "polars"), _imported("pyarrow", "polars")
        frame: polars.DataFrame = pl.from_arrow(self.to_arrow())
        return frame

    def __repr__(self) -> str:
        names = ", ".join(column.name for column in self.columns)
        return f"<Table of {len(self)} rows{', truncated' if self.truncated else ''}: {names}>"

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, which notebooks show; names in a trace are escaped."""
        from html import escape  # noqa: PLC0415 - its table of entities loads slowly

        head = "".join(f"<th>{escape(column.name)}</th>" for column in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{'' if value is None else escape(str(value))}</td>" for value in row) + "</tr>"
            for row in self.rows[:_ROWS_OF_A_NOTEBOOK]
        )
        shown = min(len(self), _ROWS_OF_A_NOTEBOOK)
        note = f"<p>{shown} of {len(self)} rows{', truncated by a limit' if self.truncated else ''}</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


@dataclass(frozen=True)
class Analysis:
    """The result of an analysis.

    Attributes:
        name: name of the analysis.
        tables: its tables, by name; the first is the main one.
        notes: remarks on the whole result.
        skipped: the ranks without a result, each as `{"rank", "name", "reason"}`.
        parameters: all its parameters, with defaults.
        definition: what it computes.
        cycles: number of cycles of the profiler's schedule; if several, each table has a column `cycle`.
        elapsed_ms: the time of the analysis on the server.
    """

    name: str
    tables: dict[str, Table]
    notes: tuple[str, ...] = ()
    skipped: tuple[dict[str, Any], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    definition: str = ""
    cycles: int = 1
    elapsed_ms: Optional[float] = None

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Analysis:
        """Create the result from its JSON in the API."""
        return cls(
            document["analysis"],
            {name: Table.of_json(table) for name, table in document["tables"].items()},
            tuple(document["notes"]),
            tuple(document["skipped"]),
            document["parameters"],
            document["definition"],
            document["cycles"],
            document["elapsed_ms"],
        )

    @property
    def table(self) -> Table:
        """The main table."""
        return next(iter(self.tables.values()))

    def __getitem__(self, name: str) -> Table:
        """Return a table by its name; raises `KeyError` with the names that exist."""
        if name not in self.tables:
            raise KeyError(f"there is no table {name!r}, but {', '.join(self.tables)}")
        return self.tables[name]


_TYPES = {"int64": "int", "double": "double", "string": "string", "binary": "blob", "null": "null"}
"""The types of columns in the API, by the names of Arrow's types."""


_PARSERS: dict[str, Any] = {"double": float, "blob": b64decode}
"""Parsers of JSON values, by type of column; JSON has infinite numbers as text."""


def _field(pa: Any, column: Column) -> Any:
    """Return the Arrow field of a column."""
    kinds = {name: kind for kind, name in _TYPES.items()}
    metadata = {"unit": column.unit, "description": column.description}
    known = {key: value for key, value in metadata.items() if value}
    return pa.field(column.name, pa.type_for_alias(kinds[column.type]), metadata=known or None)


def _parsed(parse: Any, value: Any) -> Any:
    return value if parse is None or value is None else parse(value)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names with a number appended to each repeated one, as the server's NDJSON has them."""
    distinct: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in distinct:
            number += 1
            candidate = f"{name}_{number}"
        distinct.append(candidate)
    return distinct


def _imported(package: str, extra: str) -> Any:
    """Import a package that `extra` installs; raises `MissingPackageError`."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingPackageError(package, extra) from error

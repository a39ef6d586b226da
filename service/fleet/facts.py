"""Facts: small tables about each trace, from which the questions over thousands of ranks are answered.

A trace's facts are one file in its folder. The facts of many traces are merged into Parquet files, one for each table;
see `service.fleet.dataset`.
"""

import io
from collections.abc import Mapping

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from service.analysis.answers import ranks_of
from service.analysis.catalogue import question_of
from service.analysis.facts.communications import SCHEMA as COMMUNICATIONS
from service.analysis.facts.intervals import clamp_int64
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.kept_answers import kept_answer
from service.analysis.kernel_totals import NAMES
from service.analysis.question import Tables
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.trace.errors import AnalysisError

VERSION = 1
"""Version of the facts' tables."""

_INT, _TEXT = pa.int64(), pa.string()
_OF_TRACE = {"trace": _TEXT, "rank": _INT}

TABLES: dict[str, pa.Schema] = {
    "steps": pa.schema(
        {
            **_OF_TRACE,
            "step": _INT,
            **dict.fromkeys(
                ("start_ns", "end_ns", "total_ns", "kernel_ns", "memcpy_ns", "memset_ns", "communication_ns"), _INT
            ),
            **dict.fromkeys(("runtime_ns", "dataloader_ns", "cpu_exec_ns", "other_ns"), _INT),
        }
    ),
    "devices": pa.schema(
        {
            **_OF_TRACE,
            "device": _INT,
            **dict.fromkeys(("span_ns", "busy_ns", "idle_ns", "compute_ns", "comm_ns", "mem_ns", "overlap_ns"), _INT),
            **dict.fromkeys(("exposed_comm_ns", "exposed_mem_ns"), _INT),
        }
    ),
    "kernels": pa.schema(
        {
            **_OF_TRACE,
            "type": _TEXT,
            "name": _TEXT,
            **dict.fromkeys(("count", "sum_ns", "min_ns", "max_ns"), _INT),
        }
    ),
    "collectives": pa.schema([*pa.schema(_OF_TRACE), *COMMUNICATIONS]),
}
"""The tables, with a row for each step, device, name of work, and communication of a rank.

Their values are those of the analyses `steps`, `temporal_breakdown`, `kernel_breakdown` and `collectives`. Times of a
step and of a communication are in ns of the trace's own clock; `base_ns` of the trace is its zero.
"""

_ANSWERS = {
    "steps": ("steps", "steps"),
    "devices": ("temporal_breakdown", "breakdown"),
    "kernels": ("kernel_breakdown", NAMES),
    "collectives": ("collectives", "communications"),
}
"""The analysis and the table of its answer that each table is made of."""


def facts_of(trace: AnalysisInput, identity: str, readings: ReadingCache) -> Tables:
    """Compute the facts of a trace, and keep the answers that they are made of next to its columns.

    Args:
        trace: the whole trace, of one rank or merged from several.
        identity: name of the trace in its dataset.
        readings: cache of readings.
    """
    rows: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for rank in ranks_of(trace):
        with readings.of(rank) as reading, scope_of(reading) as scope:
            for name in TABLES:
                if (table := _answered(scope, *_ANSWERS[name])) is not None:
                    rows[name].append(_fact(name, table, identity, scope.rank))
    return {name: pa.concat_tables([schema.empty_table(), *rows[name]]) for name, schema in TABLES.items()}


def _answered(scope: Scope, analysis: str, table: str) -> pa.Table | None:
    """Return a table of the answer of a rank; None if the analysis does not apply to it."""
    question = question_of(analysis)
    try:
        answer = kept_answer(scope, question, question.parameters())
    except AnalysisError:
        return None
    return None if isinstance(answer, str) else answer[table]


def _fact(name: str, table: pa.Table, identity: str, rank: int | None) -> pa.Table:
    """Return an analysis's table of a rank with the columns of a table of facts."""
    if name == "kernels":
        sums = pa.array([clamp_int64(int(total)) for total in table["total"].to_pylist()], _INT)
        table = table.rename_columns({"shortest": "min_ns", "longest": "max_ns"}).append_column("sum_ns", sums)
    columns = {"trace": pa.repeat(identity, len(table)), "rank": pa.repeat(pa.scalar(rank, _INT), len(table))}
    schema = TABLES[name]
    arrays = [columns[field.name] if field.name in columns else _plain(table[field.name]) for field in schema]
    return pa.table(arrays, names=schema.names).cast(schema)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(column, _TEXT) if pa.types.is_dictionary(column.type) else column


def encoded(facts: Mapping[str, pa.Table]) -> bytes:
    """Encode the tables of a trace as one file."""
    body = io.BytesIO()
    body.write(orjson.dumps({"version": VERSION, "tables": [*facts]}) + b"\n")
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for table in facts.values():
        with pa.ipc.new_stream(body, table.schema, options=options) as stream:
            stream.write_table(table)
    return body.getvalue()


def decoded(content: bytes) -> Tables:
    """Decode the tables of a trace; empty if another version wrote them."""
    header_text, _, body = content.partition(b"\n")
    header = orjson.loads(header_text)
    if header["version"] != VERSION:
        return {}
    stream = pa.BufferReader(body)
    return {name: pa.ipc.open_stream(stream).read_all() for name in header["tables"]}

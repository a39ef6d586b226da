"""Export of columns as a document: the envelope's original text, with each event on its own line.

DuckDB writes the text of many rows at a time, and Arrow passes its memory on, so that no event becomes a Python object.
Numbers keep their text: times are printed from nanoseconds with their original number of decimals, and all other
numbers are stored as integers or as text.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from service.store.column_files import ColumnFile, ColumnFolder
from service.store.database import database_errors, open_database
from service.store.folder import COLUMNS_VERSION, ENVELOPE, EVENTS, disk_errors, unreadable
from service.store.locations.ranged import RangedFolder
from service.trace.errors import ExportFailed, ResultTooLarge
from service.trace.secrets import SUSPECT, redacted_json

if TYPE_CHECKING:
    import duckdb

Order = Literal["time", "original"]

ENVELOPE_MAX = 8 << 20
"""Largest size in bytes of an envelope that is shown."""

THREADS_MAX = 4
BATCH = 1 << 13  # rows in a block, about 2 MB
BUFFERED = 16 << 20  # bytes of results that DuckDB may prepare ahead
COMPRESSION = 2  # isal's level: 1.8 GB/s; level 3 makes the file 2 % smaller at a third of the speed

_SEPARATOR = "\x1e"  # occurs in no JSON text
_START = f",{_SEPARATOR}".encode()
"""The text before each event."""
_ON_LINES = bytes.maketrans(f"{_SEPARATOR}\r\n".encode(), b"\n  ")  # line breaks inside an event become spaces
EVENT_SEPARATOR = b",\n"
"""The bytes between two events of `event_texts`, which no event has."""
HEAVY = 64 << 20
"""Size in bytes of a row group (up to 49,152 events) above which its events are read in small batches."""
_REPEATED = 16 << 20
"""Size in bytes of a dictionary-encoded column of a row group above which its events are read in small batches."""
_TEXTS = ("cat", "name", "pid_text", "tid_text", "args", "rest")
_HEAVY_BATCH = 64  # rows that are read at a time
_HEAVY_ROWS = 2  # rows that become text at a time
_PIECE_BYTES = 16 << 20
_LONG = 8 << 20  # bytes of a column of words above which DuckDB's `to_json` may take too much memory
_TOKEN = re.compile(rb'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<empty>\[\s*\])|[\[\]{}]', re.DOTALL)
_NINES = 10**18 - 1


def document(columns: Path, *, order: Order = "time", redact: bool = False) -> Iterator[bytes]:
    """Yield the document of a trace, in pieces of a few MB.

    Args:
        columns: folder of the trace's columns.
        order: ``time``, the order in which the events are stored; or ``original``, that of the file, by a sort.
        redact: whether to hide secrets in the envelope and the events.

    Raises:
        ExportFailed: the columns can't be read.
        DiskFull: the disk had no room to sort.
    """
    text = envelope(columns, redact=redact)
    rows = "read_parquet($file)" if order == "time" else "(SELECT * FROM read_parquet($file) ORDER BY position)"
    file = columns / EVENTS
    _place_of_events(text)
    sizes = _Sizes.of(file)
    with _connected(columns, sizes) as db:
        _check_version(db, file)
        if sizes.heavy:
            blocks = _heavy_blocks(db, file, sizes, redact=redact)
            yield from _document(text, blocks if order == "time" else _by_position(blocks, file))
        else:
            yield from _document(text, _blocks(db, rows, {"file": str(file)}, sizes, redact=redact))


def document_from(tables: Iterator[pa.Table], text: bytes, columns: ColumnFolder, *, redact: bool) -> Iterator[bytes]:
    """Yield the document of some tables, in pieces of a few MB; see `document`.

    Args:
        tables: the events of the document, in the schema of the columns.
        text: the envelope of the document, which is used unchanged.
        columns: folder of the columns that the events come from.
        redact: whether to hide secrets in the events.
    """
    first = next(tables, None)
    if first is None:
        yield from _document(text, iter(()))
        return
    batches = (batch for table in chain([first], tables) for batch in table.to_batches(max_chunksize=BATCH))
    sizes = _Sizes.of(columns / EVENTS)
    with _connected(columns, sizes) as db:
        db.register("cut", _reader(first.schema, batches))
        yield from _document(text, _blocks(db, "cut", {}, sizes, redact=redact))


@contextmanager
def event_texts(columns: ColumnFolder, *, redact: bool) -> Iterator[Callable[[pa.Table], Iterator[bytes]]]:
    """Yield a function that returns the events of a table as JSON, many at a time, with `EVENT_SEPARATOR` between them.

    Args:
        columns: folder of the columns that the events come from.
        redact: whether to hide secrets.

    Raises:
        ExportFailed: the columns can't be read.
        DiskFull: the disk had no room.
    """
    sizes = _Sizes.of(columns / EVENTS)
    with _connected(columns, sizes) as db:

        def texts(table: pa.Table) -> Iterator[bytes]:
            db.register("copied", _reader(table.schema, table.to_batches(max_chunksize=BATCH)))
            for block in _blocks(db, "copied", {}, sizes, redact=redact):
                yield block.translate(_ON_LINES)[len(_START) :]

        yield texts


class _Sizes(NamedTuple):
    """Flags of texts that are too large for DuckDB, which works on thousands of events at a time.

    Attributes:
        heavy: whether the events of a row group are large; they are then read in small batches.
        long: whether a column of categories or names is large; `_quoted` then replaces DuckDB's `to_json`.
    """

    heavy: bool
    long: bool

    @classmethod
    def of(cls, events: ColumnFile) -> "_Sizes":
        """Read the sizes from a file of columns; raises `ExportFailed`."""
        try:
            metadata = pq.read_metadata(events if isinstance(events, Path) else events.open("rb"))
        except (OSError, pa.ArrowException) as error:
            raise unreadable(events, error) from error
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        words = [metadata.schema.names.index(name) for name in ("cat", "name")]
        texts = [metadata.schema.names.index(name) for name in _TEXTS]
        return cls(
            any(group.total_byte_size > HEAVY for group in groups)
            or any(_repeats(group.column(text)) for group in groups for text in texts),
            any(group.column(word).total_uncompressed_size > _LONG for group in groups for word in words),
        )

    @property
    def rows_at_once(self) -> int:
        """The number of rows that become text at a time."""
        return _HEAVY_ROWS if self.heavy else BATCH


def _repeats(chunk: Any) -> bool:
    """Return whether a column chunk may be much larger in memory, because its dictionary repeats large texts."""
    return "RLE_DICTIONARY" in chunk.encodings and chunk.total_uncompressed_size > _REPEATED


def _heavy_blocks(db: "duckdb.DuckDBPyConnection", events: Path, sizes: _Sizes, *, redact: bool) -> Iterator[bytes]:
    """Yield the text of all rows in order of time, like `_blocks`, but read only `_HEAVY_BATCH` rows at a time."""
    with pq.ParquetFile(events, buffer_size=_PIECE_BYTES) as file:
        db.register("few", _reader(file.schema_arrow, file.iter_batches(_HEAVY_BATCH)))
        yield from _blocks(db, "few", {}, sizes, redact=redact)


def _reader(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return a reader of batches, cut into pieces that fit into DuckDB's memory."""
    return pa.RecordBatchReader.from_batches(schema, (piece for batch in batches for piece in _pieces(batch)))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in halves, until each piece is small enough or a single row."""
    if len(batch) <= 1 or batch.nbytes <= _PIECE_BYTES:
        yield batch
        return
    half = len(batch) // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _by_position(blocks: Iterator[bytes], events: Path) -> Iterator[bytes]:
    """Yield the events of blocks in their original order, through a temporary file."""
    folder = spill_of(events.parent, os.getpid())
    positions = pq.read_table(events, columns=["position"])["position"].to_numpy()
    sizes: list[int] = []
    with disk_errors():
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            for block in blocks:
                texts = [_START + text for text in block.split(_START)[1:]]
                sizes += map(len, texts)
                file.write(b"".join(texts))
            ends = np.cumsum(sizes)
            for row in np.argsort(positions, kind="stable").tolist():
                yield os.pread(file.fileno(), sizes[row], int(ends[row]) - sizes[row])


def _document(envelope: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    _, start, end = _place_of_events(envelope)
    first = next(blocks, b"")[1:]  # no comma before the first event; the first block is read before any output
    yield envelope[: start + 1] + first.translate(_ON_LINES)
    for block in blocks:
        yield block.translate(_ON_LINES)
    yield (b"\n" if first else b"") + envelope[end - 1 :]


def text_sizes(columns: Path) -> Iterator[npt.NDArray[np.int64]]:
    """Yield arrays of the sizes in bytes of a document's events, in order of time; raises `ExportFailed`."""
    file = columns / EVENTS
    sizes = _Sizes.of(file)
    with _connected(columns, sizes) as db:
        query = f"SELECT strlen({_row_text(sizes)}) AS size FROM read_parquet($file)"  # noqa: S608 - made of names in this file
        for batch in db.sql(query, params={"file": str(file)}).to_arrow_reader(BATCH):
            yield batch.column(0).to_numpy(zero_copy_only=False).astype(np.int64)


def packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress pieces with gzip."""
    packer = isal_zlib.compressobj(COMPRESSION, isal_zlib.DEFLATED, 16 + isal_zlib.MAX_WBITS)
    for piece in pieces:
        if compressed := packer.compress(piece):
            yield compressed
    yield packer.flush()


def envelope_members(columns: Path) -> bytes:
    """Return a trace's envelope as JSON text, without the member of its events and with secrets hidden.

    Raises:
        ExportFailed: the envelope can't be read.
        ResultTooLarge: the envelope has more than `ENVELOPE_MAX` bytes.
    """
    with suppress(OSError):  # which `envelope` reports
        if (size := (columns / ENVELOPE).stat().st_size) > ENVELOPE_MAX:
            raise ResultTooLarge(
                f"The envelope has {size} bytes; at most {ENVELOPE_MAX} are shown.", limit=ENVELOPE_MAX
            )
    text = envelope(columns, redact=False)
    member, _, end = _place_of_events(text)
    if member is None:
        return b"{}"
    before, after = text[:member].rstrip(), text[end:].lstrip()
    if before.endswith(b","):
        before = before[:-1]
    else:
        after = after.removeprefix(b",")
    return _without_secrets(before + after)


def envelope(columns: ColumnFolder, *, redact: bool) -> bytes:
    """Return the envelope: the text of the document without events, and without secrets if `redact` is true.

    Args:
        columns: folder of the trace's columns.
        redact: whether to hide secrets.

    Raises:
        ExportFailed: the envelope can't be read.
    """
    try:
        text = (columns / ENVELOPE).read_bytes()
    except OSError as error:
        raise ExportFailed(f"The trace's envelope can't be read: {error.strerror}.") from error
    return _without_secrets(text) if redact else text


def parsed_envelope(columns: Path) -> Mapping[str, Any]:
    """Return the members of the envelope, with numbers as doubles; empty if the envelope is not a JSON object.

    Raises:
        ExportFailed: the envelope can't be read.
    """
    try:
        text = envelope(columns, redact=False).decode("utf-8", "replace")
        members = json.loads(text, strict=False, parse_int=lambda digits: float(digits[:400]))
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, Mapping) else {}


def _without_secrets(text: bytes) -> bytes:
    return redacted_json(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def spill_of(columns: ColumnFolder, pid: int) -> Path:
    """Return the folder into which the process `pid` spills. Code that ends that process must remove the folder."""
    if isinstance(columns, RangedFolder):
        return columns.scratch / f"spill-{pid}"
    return columns.with_name(f"{columns.name}.spill-{pid}")


def _place_of_events(envelope: bytes) -> tuple[int | None, int, int]:
    """Find the empty array of events in an envelope.

    Returns:
        The offset of the array's member, None if the document is the array itself; the array's start; and its end.

    Raises:
        ExportFailed: the envelope neither has nor is an empty array ``traceEvents``.
    """
    depth, key, place = 0, None, None
    for token in _TOKEN.finditer(envelope):
        if token["string"]:
            key = token if depth == 1 else key
        elif token["empty"]:
            named = key and json.loads(key[0]) == "traceEvents"
            if depth == 0 or (depth == 1 and named):  # the last match wins: readers use the last of equal keys
                place = key and key.start(), token.start(), token.end()
        else:
            depth += 1 if token[0] in b"[{" else -1
    if place is None:
        raise ExportFailed("The trace's envelope has no place for its events.")
    return place


@contextmanager
def _connected(columns: ColumnFolder, sizes: _Sizes) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Open a connection that writes text; its errors become `ExportFailed` or `DiskFull`."""
    spill, threads = spill_of(columns, os.getpid()), 1 if sizes.heavy else min(THREADS_MAX, os.cpu_count() or 1)
    # large buffers: a batch of large events may exceed 2 GB
    with (
        database_errors(lambda error: unreadable(columns / EVENTS, error)),
        open_database(spill, threads=threads, arrow_large_buffer_size=True) as db,
    ):
        db.execute(f"SET streaming_buffer_size = '{BUFFERED >> 20}MiB'")
        db.create_function("redacted", redacted_json, ["VARCHAR"], "VARCHAR")
        db.create_function("quoted", _quoted, ["VARCHAR"], "VARCHAR")
        yield db


def _quoted(text: str) -> str:
    """Return a text as a JSON string, with less memory than DuckDB's `to_json` takes for large texts."""
    return json.dumps(text, ensure_ascii=False)


def _blocks(
    db: "duckdb.DuckDBPyConnection", rows: str, values: dict[str, str], sizes: _Sizes, *, redact: bool
) -> Iterator[bytes]:
    """Yield the text of all rows, many at a time, with a comma and the separator before each."""
    text = f"SELECT {_row_text(sizes)} AS text FROM {rows}"  # noqa: S608 - made of names in this file
    if redact:
        text = f"SELECT CASE WHEN regexp_matches(text, $suspect) THEN redacted(text) ELSE text END FROM ({text})"  # noqa: S608
        values = values | {"suspect": SUSPECT}
    for batch in db.sql(text, params=values).to_arrow_reader(sizes.rows_at_once):
        yield _joined(batch.column(0))


def _check_version(connection: "duckdb.DuckDBPyConnection", events: Path) -> None:
    """Raise `ExportFailed` if the columns do not have version `COLUMNS_VERSION`."""
    versions = connection.execute(
        "SELECT value FROM parquet_kv_metadata($file) WHERE key = 'tracedock.columns'", {"file": str(events)}
    ).fetchall()
    if versions != [(COLUMNS_VERSION.encode(),)]:
        raise ExportFailed(f"The trace's columns are not of version {COLUMNS_VERSION}: {versions}.")


def _joined(texts: pa.LargeStringArray) -> bytes:
    """Return the concatenated texts of an array, straight from its buffer."""
    if not len(texts):
        return b""
    _, offsets, values = texts.buffers()
    starts = memoryview(offsets).cast("b").cast("q")
    return bytes(memoryview(values)[starts[texts.offset] : starts[texts.offset + len(texts)]])


def _row_text(sizes: _Sizes) -> str:
    """Return the SQL expression of a row's text: a comma, the separator, and the event."""
    as_json = "quoted" if sizes.long else "to_json"
    members = [_member(key, f"{as_json}({key})") for key in ("cat", "name")]
    members += [_member(key, f"coalesce({key}::VARCHAR, {key}_text)") for key in ("pid", "tid")]
    members += [_member(key, _time(key)) for key in ("ts", "dur")]
    members += [_member("id", "coalesce(id::VARCHAR, id_text)"), _member("args", "args")]
    members += ["CASE WHEN rest IS NULL THEN '}' ELSE ',' || substr(rest, 2) END"]
    following = f"concat({', '.join(members)})"
    # almost all events have a phase; without one, the comma before the next member is trimmed
    return f"""CASE
        WHEN verbatim THEN ',{_SEPARATOR}' || rest
        WHEN ph IS NULL THEN concat(',{_SEPARATOR}{{', ltrim({following}, ','))
        ELSE concat(',{_SEPARATOR}{{"ph":', to_json(ph), {following}) END"""


def _member(key: str, text: str) -> str:
    """Return an SQL expression for a JSON member with a comma before it. It is null if the expression `text` is."""
    return f"""',"{key}":' || {text}"""


def _time(key: str) -> str:
    """Return the SQL expression of a time's text: µs with the original number of decimals, or null without a time."""
    ns, digits = f"{key}_ns", f"{key}_digits"
    return f"""CASE {digits}
        WHEN 0 THEN ({ns} // 1000)::VARCHAR
        WHEN 1 THEN (({ns} // 100)::DECIMAL(18, 0) * 0.1::DECIMAL(1, 1))::VARCHAR
        WHEN 2 THEN (({ns} // 10)::DECIMAL(18, 0) * 0.01::DECIMAL(2, 2))::VARCHAR
        WHEN 3 THEN CASE WHEN {ns} BETWEEN -{_NINES} AND {_NINES}  -- faster
            THEN ({ns}::DECIMAL(18, 0) * 0.001::DECIMAL(3, 3))::VARCHAR
            ELSE ({ns}::DECIMAL(19, 0) * 0.001::DECIMAL(3, 3))::VARCHAR END END"""

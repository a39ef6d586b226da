"""From columns back to a document: the envelope's own text, with each event on a line of its own.

DuckDB writes the text of the rows, many at a time, and Arrow hands it over as it lies in memory: an event is never a
Python object. Numbers come out as they came in, for a time is printed from its nanoseconds with as many decimals as
it had, and all other numbers are integers or text.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from service.store.database import connected, spill_errors
from service.store.folder import COLUMNS_VERSION, ENVELOPE, EVENTS, disk_errors, unreadable
from service.trace.errors import ExportFailed, ResultTooLarge
from service.trace.secrets import SUSPECT, redacted_json

Order = Literal["time", "original"]

ENVELOPE_MAX = 8 << 20
"""Bytes of an envelope that is shown."""

THREADS_MAX = 4
BATCH = 1 << 13  # rows in a block, about 2 MB
BUFFERED = 16 << 20  # bytes that DuckDB is ahead
COMPRESSION = 2  # isal's: 1.8 GB/s; its last one makes the file 2 % smaller at a third of the speed

_SEPARATOR = "\x1e"  # stands in no JSON text
_START = f",{_SEPARATOR}".encode()
"""The text before each event."""
_ON_LINES = bytes.maketrans(f"{_SEPARATOR}\r\n".encode(), b"\n  ")  # line breaks inside an event are white space
HEAVY = 64 << 20
"""Bytes of a row group, of up to 32,768 events, from which on its events are read few at a time."""
_REPEATED = 16 << 20
"""Bytes of the dictionary of a row group, likewise."""
_TEXTS = ("cat", "name", "pid_text", "tid_text", "args", "rest")
_HEAVY_BATCH = 64  # rows that are read at once
_HEAVY_ROWS = 2  # that become text at once
_PIECE_BYTES = 16 << 20
_LONG = 8 << 20  # bytes of the words of a row group, of one of which DuckDB's `to_json` could take too much memory
_TOKEN = re.compile(rb'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<empty>\[\s*\])|[\[\]{}]', re.DOTALL)
_NINES = 10**18 - 1


def document(columns: Path, *, order: Order = "time", redact: bool = False) -> Iterator[bytes]:
    """Yield the document of a trace, in pieces of a few MB.

    Args:
        columns: the folder that ingest made of the trace.
        order: of the events; ``time`` is as they lie, ``original`` as in the file that came, which takes a sort.
        redact: hide secrets, in the envelope and in events.

    Raises:
        ExportFailed: the columns can't be read.
        DiskFull: there was no room to sort.
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


def document_of(tables: Iterator[pa.Table], text: bytes, columns: Path, *, redact: bool) -> Iterator[bytes]:
    """Yield a document likewise.

    Args:
        tables: its events, of the columns' schema.
        text: its envelope, as it is to be given.
        columns: the folder that they come from.
        redact: hide secrets in events.
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


class _Sizes(NamedTuple):
    """What DuckDB, which works on thousands of events at a time, has no memory for.

    Attributes:
        heavy: events are large.
        long: categories or names are.
    """

    heavy: bool
    long: bool

    @classmethod
    def of(cls, events: Path) -> "_Sizes":
        """The sizes in a file of columns; raises `ExportFailed`."""
        try:
            told = pq.read_metadata(events)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(events, error) from error
        groups = [told.row_group(index) for index in range(told.num_row_groups)]
        words = [told.schema.names.index(name) for name in ("cat", "name")]
        texts = [told.schema.names.index(name) for name in _TEXTS]
        return cls(
            any(group.total_byte_size > HEAVY for group in groups)
            or any(_repeats(group.column(text)) for group in groups for text in texts),
            any(group.column(word).total_uncompressed_size > _LONG for group in groups for word in words),
        )

    @property
    def rows_at_once(self) -> int:
        """How many rows become text at once."""
        return _HEAVY_ROWS if self.heavy else BATCH


def _repeats(chunk: Any) -> bool:
    """Whether a chunk of a column may be much larger than it tells, as large texts stand in it once for many rows."""
    return "RLE_DICTIONARY" in chunk.encodings and chunk.total_uncompressed_size > _REPEATED


def _heavy_blocks(db: duckdb.DuckDBPyConnection, events: Path, sizes: _Sizes, *, redact: bool) -> Iterator[bytes]:
    """Yield the text of all rows by time, as `_blocks` does, holding few of them at a time."""
    with pq.ParquetFile(events, buffer_size=_PIECE_BYTES) as file:
        db.register("few", _reader(file.schema_arrow, file.iter_batches(_HEAVY_BATCH)))
        yield from _blocks(db, "few", {}, sizes, redact=redact)


def _reader(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """A reader of batches, in pieces that DuckDB can hold."""
    return pa.RecordBatchReader.from_batches(schema, (piece for batch in batches for piece in _pieces(batch)))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch, halved until a piece is small enough or one row."""
    if len(batch) <= 1 or batch.nbytes <= _PIECE_BYTES:
        yield batch
        return
    half = len(batch) // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _by_position(blocks: Iterator[bytes], events: Path) -> Iterator[bytes]:
    """Yield the texts of blocks by time in the order of the file that came; they lie on disk meanwhile."""
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
    first = next(blocks, b"")[1:]  # no comma stands before the first event, and nothing is given before it is there
    yield envelope[: start + 1] + first.translate(_ON_LINES)
    for block in blocks:
        yield block.translate(_ON_LINES)
    yield (b"\n" if first else b"") + envelope[end - 1 :]


def text_sizes(columns: Path) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the bytes that each event takes in a document, by time, many at a time; raises `ExportFailed`."""
    file = columns / EVENTS
    sizes = _Sizes.of(file)
    with _connected(columns, sizes) as db:
        query = f"SELECT strlen({_row_text(sizes)}) AS size FROM read_parquet($file)"  # noqa: S608 - of names in this file
        for batch in db.sql(query, params={"file": str(file)}).to_arrow_reader(BATCH):
            yield batch.column(0).to_numpy(zero_copy_only=False).astype(np.int64)


def packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces as gzip."""
    packer = isal_zlib.compressobj(COMPRESSION, isal_zlib.DEFLATED, 16 + isal_zlib.MAX_WBITS)
    for piece in pieces:
        if done := packer.compress(piece):
            yield done
    yield packer.flush()


def beside_events(columns: Path) -> bytes:
    """The text of an object of all that stands in a trace's document beside its events, without secrets.

    Raises:
        ExportFailed: the envelope can't be read.
        ResultTooLarge: it has more than `ENVELOPE_MAX` bytes.
    """
    text = envelope(columns, redact=False, limit=ENVELOPE_MAX)
    member, _, end = _place_of_events(text)
    if member is None:
        return b"{}"
    before, after = text[:member].rstrip(), text[end:].lstrip()
    if before.endswith(b","):
        before = before[:-1]
    else:
        after = after.removeprefix(b",")
    return _without_secrets(before + after)


def envelope(columns: Path, *, redact: bool, limit: int | None = None) -> bytes:
    """The text of a document with no events.

    Raises:
        ExportFailed: it is not there.
        ResultTooLarge: it has more than `limit` bytes.
    """
    path = columns / ENVELOPE
    try:
        if limit is not None and (size := path.stat().st_size) > limit:
            raise ResultTooLarge(f"The envelope has {size} bytes; at most {limit} are shown.", limit=limit)
        text = path.read_bytes()
    except OSError as error:
        raise ExportFailed(f"The trace's envelope can't be read: {error.strerror}.") from error
    return _without_secrets(text) if redact else text


def envelope_of(columns: Path) -> Mapping[str, Any]:
    """A document with no events, its numbers in doubles; nothing where that is no object that can be read.

    Raises:
        ExportFailed: it is not there.
    """
    try:
        text = envelope(columns, redact=False).decode("utf-8", "replace")
        told = json.loads(text, strict=False, parse_int=lambda digits: float(digits[:400]))
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, Mapping) else {}


def _without_secrets(text: bytes) -> bytes:
    return redacted_json(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def spill_of(columns: Path, pid: int) -> Path:
    """Where the process `pid` puts what it can't hold in memory; whoever ends it removes that."""
    return columns.with_name(f"{columns.name}.spill-{pid}")


def _place_of_events(envelope: bytes) -> tuple[int | None, int, int]:
    """Where in an envelope its empty array of events stands.

    Returns:
        The offsets of its member, None where the document is the array, and of the array's start and end.

    Raises:
        ExportFailed: it has no empty array ``traceEvents``, nor is it one.
    """
    depth, key, place = 0, None, None
    for token in _TOKEN.finditer(envelope):
        if token["string"]:
            key = token if depth == 1 else key
        elif token["empty"]:
            named = key and json.loads(key[0]) == "traceEvents"
            if depth == 0 or (depth == 1 and named):  # the last one, as readers take the last of equal keys
                place = key and key.start(), token.start(), token.end()
        else:
            depth += 1 if token[0] in b"[{" else -1
    if place is None:
        raise ExportFailed("The trace's envelope has no place for its events.")
    return place


@contextmanager
def _connected(columns: Path, sizes: _Sizes) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that writes text; where it can't read the columns, that is an `ExportFailed` or a `DiskFull`."""
    spill, threads = spill_of(columns, os.getpid()), 1 if sizes.heavy else min(THREADS_MAX, os.cpu_count() or 1)
    try:
        # with large buffers, as a batch of large events has more than 2 GB
        with spill_errors(), connected(spill, threads=threads, arrow_large_buffer_size=True) as db:
            db.execute(f"SET streaming_buffer_size = '{BUFFERED >> 20}MiB'")
            db.create_function("redacted", redacted_json, ["VARCHAR"], "VARCHAR")
            db.create_function("quoted", _quoted, ["VARCHAR"], "VARCHAR")
            yield db
    except duckdb.Error as error:
        raise unreadable(columns / EVENTS, error) from error


def _quoted(text: str) -> str:
    """A text as JSON."""
    return json.dumps(text, ensure_ascii=False)


def _blocks(
    db: duckdb.DuckDBPyConnection, rows: str, values: dict[str, str], sizes: _Sizes, *, redact: bool
) -> Iterator[bytes]:
    """Yield the text of all rows, many at a time, each after a comma and the separator."""
    text = f"SELECT {_row_text(sizes)} AS text FROM {rows}"  # noqa: S608 - of names in this file
    if redact:
        text = f"SELECT CASE WHEN regexp_matches(text, $suspect) THEN redacted(text) ELSE text END FROM ({text})"  # noqa: S608
        values = values | {"suspect": SUSPECT}
    for batch in db.sql(text, params=values).to_arrow_reader(sizes.rows_at_once):
        yield _joined(batch.column(0))


def _check_version(connection: duckdb.DuckDBPyConnection, events: Path) -> None:
    found = connection.execute(
        "SELECT value FROM parquet_kv_metadata($file) WHERE key = 'tracedock.columns'", {"file": str(events)}
    ).fetchall()
    if found != [(COLUMNS_VERSION.encode(),)]:
        raise ExportFailed(f"The trace's columns are not of version {COLUMNS_VERSION}: {found}.")


def _joined(texts: pa.LargeStringArray) -> bytes:
    """All texts of the array, one after the other, as they lie in its buffer."""
    if not len(texts):
        return b""
    _, offsets, values = texts.buffers()
    starts = memoryview(offsets).cast("b").cast("q")
    return bytes(memoryview(values)[starts[texts.offset] : starts[texts.offset + len(texts)]])


def _row_text(sizes: _Sizes) -> str:
    """The SQL expression of a row's text: a comma, the separator, and the event."""
    as_json = "quoted" if sizes.long else "to_json"
    members = [_member(key, f"{as_json}({key})") for key in ("cat", "name")]
    members += [_member(key, f"coalesce({key}::VARCHAR, {key}_text)") for key in ("pid", "tid")]
    members += [_member(key, _time(key)) for key in ("ts", "dur")]
    members += [_member("id", "coalesce(id::VARCHAR, id_text)"), _member("args", "args")]
    members += ["CASE WHEN rest IS NULL THEN '}' ELSE ',' || substr(rest, 2) END"]
    following = f"concat({', '.join(members)})"
    # almost all events have a phase; without one, the next member drops its comma
    return f"""CASE
        WHEN verbatim THEN ',{_SEPARATOR}' || rest
        WHEN ph IS NULL THEN concat(',{_SEPARATOR}{{', ltrim({following}, ','))
        ELSE concat(',{_SEPARATOR}{{"ph":', to_json(ph), {following}) END"""


def _member(key: str, text: str) -> str:
    """The SQL expression of a member and the comma before it; null where its text is."""
    return f"""',"{key}":' || {text}"""


def _time(key: str) -> str:
    """The SQL expression of a time's text: its ns as µs, with the decimals that it came with; null without them."""
    ns, digits = f"{key}_ns", f"{key}_digits"
    return f"""CASE {digits}
        WHEN 0 THEN ({ns} // 1000)::VARCHAR
        WHEN 1 THEN (({ns} // 100)::DECIMAL(18, 0) * 0.1::DECIMAL(1, 1))::VARCHAR
        WHEN 2 THEN (({ns} // 10)::DECIMAL(18, 0) * 0.01::DECIMAL(2, 2))::VARCHAR
        WHEN 3 THEN CASE WHEN {ns} BETWEEN -{_NINES} AND {_NINES}  -- which makes it faster
            THEN ({ns}::DECIMAL(18, 0) * 0.001::DECIMAL(3, 3))::VARCHAR
            ELSE ({ns}::DECIMAL(19, 0) * 0.001::DECIMAL(3, 3))::VARCHAR END END"""

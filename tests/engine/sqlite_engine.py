"""Another engine: SQLite in the server's own process. Its UIs send SQL as lines, and receive rows as lines of JSON.

This file contains the whole integration: no other module knows this engine, and tests pass its driver to a pool.
"""

import asyncio
import json
import pickle
import sqlite3
from collections.abc import AsyncIterable, AsyncIterator, Hashable
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from service.engine.engine import BadFrame, Engine, EngineVersion, LoadProgress, QueryResponse
from service.engine.names import Names
from service.engine.resources import ResourceUsage
from service.engine.result import BLOB, DOUBLE, INTEGER, NULL, STRING, Cell
from service.engine.statements import check_sql
from service.trace.errors import EngineFailed, SqlError, TracedockError

BATCH_ROWS = 100
TYPES = {type(None): NULL, int: INTEGER, float: DOUBLE, str: STRING, bytes: BLOB}


class PickledCells:
    """Cells as Python objects; see `PackedCells`."""

    def __init__(self, cells: list[Cell]) -> None:
        self._cells = cells

    def types(self) -> npt.NDArray[np.uint8]:
        return np.array([TYPES[type(cell)] for cell in self._cells], np.uint8)

    def integers(self) -> npt.NDArray[np.int64]:
        return np.array(self._of(int), np.int64)

    def doubles(self) -> npt.NDArray[np.float64]:
        return np.array(self._of(float), np.float64)

    def text(self) -> bytes:
        return b"".join(text.encode() + b"\0" for text in self._of(str))

    def blobs(self) -> list[bytes]:
        return self._of(bytes)

    def pack(self) -> bytes:
        return pickle.dumps(self._cells)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        return cls(pickle.loads(packed))

    def _of(self, kind: type) -> list[Any]:
        return [cell for cell in self._cells if type(cell) is kind]


class SqliteEngine:
    """In-memory database with the table ``slice``; see `Engine`."""

    pid = None

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._lock = Lock()
        self._ended = asyncio.Event()
        self._database.set_progress_handler(self._ended.is_set, 1000)  # a running statement fails once this is true
        self.progress = LoadProgress()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    async def version(self) -> EngineVersion:
        return EngineVersion(f"SQLite {sqlite3.sqlite_version}", sqlite3.sqlite_version)

    def built_in_names(self) -> frozenset[str]:
        return frozenset({"slice"})

    async def feed(self, chunks: AsyncIterable[bytes]) -> None:
        document = b"".join([chunk async for chunk in chunks])
        try:
            events = json.loads(document)["traceEvents"]
        except ValueError as error:
            raise EngineFailed(f"The engine can't load the trace: {error}") from error
        self._database.execute("CREATE TABLE slice(name TEXT, ts INTEGER, dur INTEGER)")
        rows = [(event["name"], event["ts"], event["dur"]) for event in events]
        self._database.executemany("INSERT INTO slice VALUES (?, ?, ?)", rows)
        self.progress = LoadProgress(len(document), is_fed=True, is_loaded=True)

    async def query(self, sql: str) -> AsyncIterator[QueryResponse]:
        response, cursor = await asyncio.to_thread(self._execute, sql)
        yield response
        while cursor and self.running:
            response, cursor = await asyncio.to_thread(self._fetch, cursor)
            yield response
        if not self.running:
            raise await self.failure()

    async def rpc(self, request: bytes) -> AsyncIterator[bytes]:
        async for response in self.query(request.decode()):
            if response.error:
                yield json.dumps({"error": response.error.detail}).encode()
            rows = [pickle.loads(cells.pack()) for cells in response.batches]
            if any(rows):
                yield json.dumps(rows[0]).encode()

    def _execute(self, sql: str) -> tuple[QueryResponse, sqlite3.Cursor | None]:
        try:
            with self._lock:
                cursor = self._database.execute(sql)
                return QueryResponse([column for column, *_ in cursor.description or ()]), cursor
        except sqlite3.Error as error:
            return _failed(error), None

    def _fetch(self, cursor: sqlite3.Cursor) -> tuple[QueryResponse, sqlite3.Cursor | None]:
        try:
            with self._lock:
                rows = cursor.fetchmany(BATCH_ROWS)
        except sqlite3.Error as error:
            return _failed(error), None
        return QueryResponse(batches=[PickledCells([cell for row in rows for cell in row])]), cursor if rows else None

    def usage(self) -> ResourceUsage | None:
        return None

    def limit_memory(self, max_bytes: int) -> None:
        """Do nothing: the database shares the memory of the server."""

    def interrupt(self) -> None:
        self._database.interrupt()

    def kill(self) -> None:
        self._ended.set()

    async def ended(self) -> None:
        await self._ended.wait()

    async def failure(self) -> EngineFailed:
        return EngineFailed("The engine was ended.")

    async def stop(self, grace_s: float) -> None:
        self.kill()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            self._database.close()


def _failed(error: sqlite3.Error) -> QueryResponse:
    return QueryResponse(error=SqlError(str(error), message=str(error)))


class LineRequest:
    """Request that is a line of SQL; see `RpcRequest`."""

    continues_stream = False

    def __init__(self, sql: str) -> None:
        self.statement = sql

    def check(self, names: Names, client: Hashable) -> None:
        self.statement = check_sql(self.statement, names, client)

    def send(self, engine: Engine) -> AsyncIterator[bytes]:
        return engine.rpc(self.statement.encode())

    def local_response(self, version: EngineVersion, trace_name: str) -> bytes | None:
        return f"{trace_name}: {version.name}".encode() if self.statement == "VERSION" else None

    def error_response(self, error: TracedockError) -> bytes | None:
        return json.dumps({"error": error.detail}).encode()


class LineReader:
    """Reader that splits a stream into lines; see `FrameReader`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._partial = b""

    @property
    def unfinished_bytes(self) -> int:
        return len(self._partial)

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._partial = (self._partial + data).split(b"\n")
        if max(map(len, (*lines, self._partial))) > self._max_bytes:
            raise BadFrame("A line is too long.")
        return lines


class LineRpc:
    """Codec for SQL as lines; see `RpcCodec`."""

    def frame_reader(self, max_bytes: int) -> LineReader:
        return LineReader(max_bytes)

    def frame(self, message: bytes) -> bytes:
        return message + b"\n"

    def request(self, message: bytes) -> LineRequest:
        return LineRequest(message.decode())


class SqliteDriver:
    """Driver that starts databases; see `EngineDriver`."""

    rpc: LineRpc | None = LineRpc()

    def binary(self) -> Path:
        return Path(sqlite3.__file__)

    async def start(self, binary: Path) -> SqliteEngine:
        return SqliteEngine()

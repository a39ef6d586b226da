"""The interface of an engine, the program that runs SQL, for sessions, the pool and the relay.

To add another engine, implement `EngineDriver` and `Engine` in a folder of its own, and pass the driver to `EnginePool`
in `service.app`. An engine that UIs can attach to implements `RpcCodec` and `RpcRequest` as well.
"""

from collections.abc import AsyncIterable, AsyncIterator, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from service.engine.names import Names
from service.engine.resources import ResourceUsage
from service.trace.errors import EngineFailed, SqlError, TracedockError

ResponseT_co = TypeVar("ResponseT_co", covariant=True)


class BadFrame(ValueError):
    """The bytes are not an RPC stream, or a frame is larger than its limit."""


@dataclass(frozen=True)
class EngineVersion:
    """The version of an engine.

    Attributes:
        name: the version as text for users.
        code: the version as text for programs.
        is_supported: whether the UI and the service know this version's interface.
    """

    name: str = ""
    code: str = ""
    is_supported: bool = True


@dataclass(frozen=True)
class LoadProgress:
    """The progress of an engine's load.

    Attributes:
        loaded_bytes: bytes of the document that the engine has processed.
        is_fed: whether the engine has received the whole document.
        is_loaded: whether the engine has loaded the whole document.
        waited_s: seconds for which the load has waited for the engine; 0 while the load waits for its source.
    """

    loaded_bytes: int = 0
    is_fed: bool = False
    is_loaded: bool = False
    waited_s: float = 0.0


class PackedCells(Protocol):
    """Cells of some rows as their engine packs them; `service.engine.result` stores them and unpacks them for readers.

    The cells are in row order; the values of each type are in the order of their cells.
    """

    def types(self) -> npt.NDArray[np.uint8]:
        """Return the type of each cell, as numbered in `service.engine.result`."""

    def integers(self) -> npt.NDArray[np.int64]:
        """Return the values of integer cells."""

    def doubles(self) -> npt.NDArray[np.float64]:
        """Return the values of double cells."""

    def text(self) -> bytes:
        """Return the values of string cells as UTF-8, each followed by a NUL."""

    def blobs(self) -> list[bytes]:
        """Return the values of blob cells."""

    def pack(self) -> bytes:
        """Return the cells as bytes."""

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Return the cells that `pack` turned into bytes."""


@dataclass(frozen=True)
class QueryResponse:
    """One of the responses to a query.

    Attributes:
        columns: names of the result's columns, in the first response that has them; else empty.
        batches: rows of the result.
        error: the error of a failed query, which has no rows; else None.
    """

    columns: Sequence[str] = ()
    batches: Sequence[PackedCells] = ()
    error: SqlError | None = None


class Engine(Protocol):
    """A running engine on one trace.

    One request is in flight at a time: the caller reads all responses of `query` or `rpc` before it sends the next
    request. A `Session` calls `version`, `built_in_names` and `feed` once, in this order, then `query` and `rpc`, and
    `stop` once at the end.
    """

    @property
    def pid(self) -> int | None:
        """The process id; None for an engine without a process of its own. Reported to clients."""

    @property
    def running(self) -> bool:
        """Whether the engine is running, as far as is known. `WarmEngine` checks it before it returns the engine."""

    @property
    def progress(self) -> LoadProgress:
        """Progress of the load. The session reads it to report progress and to detect stalled loads."""

    async def version(self) -> EngineVersion:
        """Return the engine's version. The session calls it before the engine has a trace."""

    def built_in_names(self) -> frozenset[str]:
        """Return the names that clients must not change. Blocks: the session calls it in a thread."""

    async def feed(self, chunks: AsyncIterable[bytes]) -> None:
        """Load a trace from its document.

        Raises:
            EngineFailed: the engine ended, or refused the document.
        """

    def query(self, sql: str) -> AsyncIterator[QueryResponse]:
        """Run SQL and yield all its responses; the last statement's rows are the result.

        Raises:
            EngineFailed: the engine ended, or broke its protocol.
        """

    def rpc(self, request: bytes) -> AsyncIterator[bytes]:
        """Forward a UI's request and yield all its responses; see `RpcCodec`.

        Raises:
            EngineFailed: the engine ended, or broke its protocol.
        """

    def usage(self) -> ResourceUsage | None:
        """Return the memory and processor time that the engine uses; None if it has ended or the system has no data.

        The session polls it to enforce its limits; the pool and `WarmEngine` add it to the memory in use.
        """

    def limit_memory(self, max_bytes: int) -> None:
        """Make allocations beyond `max_bytes` fail, if the system supports it. The pool calls it before the load."""

    def interrupt(self) -> None:
        """Stop the running statement, which then responds with an error; has no effect if none runs.

        The session repeats the call until the response arrives.
        """

    def kill(self) -> None:
        """End the engine at once. The session calls it when the engine exceeds a limit."""

    async def ended(self) -> None:
        """Wait until the engine has ended. The session waits for it in a task, to notice a crash."""

    async def failure(self) -> EngineFailed:
        """Return an error that describes how and why the engine ended; an engine that still runs is killed first.

        The error's ``exit_status`` is that of the process, if there is one.
        """

    async def stop(self, grace_s: float) -> None:
        """End the engine gracefully, then by force; `grace_s` is the time in seconds for each step."""


class Request(Protocol[ResponseT_co]):
    """A request to an engine. A session checks it, schedules it, then sends it."""

    @property
    def statement(self) -> str:
        """The text by which `service.engine.breakers` recognises requests that crash engines."""

    def check(self, names: Names, client: Hashable) -> None:
        """Check that the client may send the request, and substitute the client's names in it (see `Names`).

        The session calls it once, on submission.

        Raises:
            SqlRefused: the request is not allowed.
            SqlError: its SQL is malformed.
        """

    def send(self, engine: Engine) -> AsyncIterator[ResponseT_co]:
        """Send the request and yield all its responses. The session calls it when it is the request's turn."""


class RpcRequest(Request[bytes], Protocol):
    """A UI's request in the engine's RPC protocol. `Relay` calls the methods below for each request of a UI."""

    @property
    def continues_stream(self) -> bool:
        """Whether the request's number shows that the client sent earlier requests, perhaps on another connection."""

    def local_response(self, version: EngineVersion, trace_name: str) -> bytes | None:
        """Return the response to a request that must not reach the engine; None for all others.

        Args:
            version: the engine's version.
            trace_name: the name under which the UI offers the trace.
        """

    def error_response(self, error: TracedockError) -> bytes | None:
        """Return the error as the last response; None if responses to such requests have no field for errors."""


class FrameReader(Protocol):
    """Splits a UI's stream of bytes into messages. `Relay` creates a reader for each connection."""

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a message whose end has not arrived."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that these bytes complete; raises `BadFrame`."""


class RpcCodec(Protocol):
    """The engine's RPC protocol, as UIs speak it. `Relay` uses it; it needs no running engine."""

    def frame_reader(self, max_bytes: int) -> FrameReader:
        """Return a reader of messages of at most `max_bytes`."""

    def frame(self, message: bytes) -> bytes:
        """Return a message as a frame of the stream."""

    def request(self, message: bytes) -> RpcRequest:
        """Parse a request; raises `BadFrame`."""


class EngineDriver(Protocol):
    """One kind of engine: finds its program and starts it. `service.app` passes one to the pool."""

    @property
    def rpc(self) -> RpcCodec | None:
        """The protocol in which UIs speak with the engine; None if UIs can't attach to it."""

    def binary(self) -> Path:
        """Return the program to run. The pool calls it before it opens a session; raises `EngineUnavailable`."""

    async def start(self, binary: Path) -> Engine:
        """Start the program, without a trace. `WarmEngine` calls it; raises `EngineUnavailable`."""

"""Support for `async def` tests on the server's event loop, and sessions on real engines and on misbehaving doubles."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop
from hypothesis import strategies as st

from service.engine.engine import QueryResponse
from service.engine.result import Cell, Result
from service.engine.session import EngineLimits, Load, Session
from service.engine.trace_processor import provision, wire
from service.engine.trace_processor.cells import ProtoCells
from service.engine.trace_processor.process import TraceProcessor
from service.engine.trace_processor.rpc import PerfettoRpc
from service.settings import Settings
from service.streaming.codec import plain_chunks
from tests.conftest import DATA
from tests.waiting import PATIENCE_S

DOUBLES = Path(__file__).parent / "doubles"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
ENDLESS_ROWS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"

CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.binary(),
)
TABLES = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[CELLS] * width), max_size=30))
Row = tuple[Cell, ...]

OpenSession = Callable[..., AbstractAsyncContextManager[Session]]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test; it must leave no task behind."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames

    async def tidy() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE_S)
        assert not [task for task in tasks if not task.done()]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(tidy())
    return True


@pytest.fixture(scope="session")
def engine() -> Path:
    """Path of the real engine."""
    return provision.engine_path(Settings())


@pytest.fixture
def one_event(tmp_path: Path) -> Path:
    """A trace of a single slice."""
    path = tmp_path / "one.json"
    path.write_text('{"traceEvents":[{"ph":"X","name":"one","cat":"cpu_op","pid":1,"tid":1,"ts":1,"dur":1}]}')
    return path


def limits(**more: Any) -> EngineLimits:
    """Return the limits of a test's engines."""
    return EngineLimits(**{"load_timeout_s": 30.0, "stop_s": 1.0, "max_result_bytes": 1 << 30} | more)


async def fed(trace: Path) -> AsyncGenerator[bytes]:
    """Yield the decompressed bytes of a trace file."""
    with trace.open("rb") as file:
        for chunk in plain_chunks(file):
            yield chunk


async def launch(binary: Path) -> TraceProcessor:
    """Start an engine; the doubles are scripts, which can't run in the sandbox."""
    return await TraceProcessor.start(binary, sandbox=binary.parent != DOUBLES)


class Driver:
    """Driver that starts real engines and doubles; see `EngineDriver`.

    Args:
        find: returns the program of the next engine.
    """

    def __init__(self, find: Callable[[], Path]) -> None:
        self.rpc = PerfettoRpc()
        self.binary = find

    async def start(self, binary: Path) -> TraceProcessor:
        return await launch(binary)


def session_of(trace: Path, binary: Path, bounds: EngineLimits | None = None, **more: Any) -> Session:
    """Return a session outside of a pool."""
    load = {name: more.pop(name) for name in ("after_load", "events", "args") if name in more}
    rpc = PerfettoRpc()
    source = partial(fed, trace)
    return Session(Load("trace", source, **load), lambda _: launch(binary), bounds or limits(), rpc=rpc, **more)


@asynccontextmanager
async def session_on(trace: Path, binary: Path, **bounds: Any) -> AsyncIterator[Session]:
    """Open a session; at the end, close it and check that its engine has ended."""
    more = {name: bounds.pop(name) for name in ("after_load", "memory_limit_bytes") if name in bounds}
    session = session_of(trace, binary, limits(**bounds), **more)
    try:
        yield session
    finally:
        await session.close()
        assert session.pid is None or not psutil.pid_exists(session.pid)


@pytest.fixture
def open_session(engine: Path) -> OpenSession:
    """Return a function that opens sessions, by default of the real engine on the small trace."""

    def opened(trace: Path = DATA / "cpu_train_steps.pt.trace.json.gz", binary: Path = engine, **bounds: Any) -> Any:
        return session_on(trace, binary, **bounds)

    return opened


async def all_rows(result: Result) -> list[tuple[Cell, ...]]:
    """Return the rows of a result, and close it."""
    try:
        await result.complete()
        return [row async for batch in result.follow() for row in zip(*batch.columns(), strict=True)]
    finally:
        result.close()


async def query_rows(session: Session, sql: str, timeout_s: float = 30, limit: int | None = None) -> list[Row]:
    """Run SQL and return its rows."""
    return await all_rows(session.query(sql, limit=limit, timeout_s=timeout_s))


async def in_time(awaited: Awaitable[Any]) -> Any:
    """Await an operation that never ends if it fails; the time limit suits slow machines."""
    return await within(PATIENCE_S, awaited)


async def within(seconds: float, awaited: Awaitable[Any]) -> Any:
    """Await an operation that must not take longer than `seconds`."""
    async with asyncio.timeout(seconds):
        return await awaited


async def gone(session: Session, within_s: float = PATIENCE_S) -> bool:
    """Return whether a session's engine ends in time. Only the loop may reap the process, so this function does not."""
    with suppress(TimeoutError):
        await within(within_s, session.ended())
    return session.gone and not psutil.pid_exists(session.pid or 0)


def answer(*rows: tuple[Cell, ...], names: tuple[str, ...] = ()) -> QueryResponse:
    """Return a response to a query with one batch of these rows."""
    return QueryResponse(names, [ProtoCells(cells_batch(*rows))])


def cells_batch(*rows: tuple[Cell, ...]) -> Any:
    """Return rows as the engine packs them: cells in row order, values by type, and a NUL after each string."""
    batch = wire.CellsBatch()
    strings = []
    for cell in (cell for row in rows for cell in row):
        match cell:
            case None:
                batch.cells.append(1)
            case int():
                batch.cells.append(2)
                batch.varint_cells.append(cell)
            case float():
                batch.cells.append(3)
                batch.float64_cells.append(cell)
            case str():
                batch.cells.append(4)
                strings.append(cell + "\0")
            case bytes():
                batch.cells.append(5)
                batch.blob_cells.append(cell)
    batch.string_cells = "".join(strings)
    return batch

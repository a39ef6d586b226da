"""Diagnosis of an installation: what is installed, and whether it works."""

import asyncio
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from service import __version__
from service.engine.engine import EngineDriver
from service.engine.result import Batch, Cell
from service.engine.trace_processor import protections, provision
from service.engine.trace_processor.driver import TraceProcessorDriver
from service.settings import Settings
from service.trace.errors import TracedockError

_TRIAL_TIMEOUT_S = 30.0
_ONE_EVENT = b'{"traceEvents":[{"ph":"X","name":"one","cat":"cpu_op","pid":1,"tid":1,"ts":1,"dur":1}]}'


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: the actual value, and whether it is as required."""

    name: str
    ok: bool
    value: str
    detail: str | None = None


def examine(settings: Settings) -> list[Finding]:
    """Check Python, engine, UI and data folder, and load a trace of one event; downloads and changes nothing."""
    driver = TraceProcessorDriver(settings)
    engine = _installed("engine", driver.binary)
    findings = [
        Finding("tracedock", ok=True, value=__version__),
        Finding(
            "python",
            ok=sys.version_info >= (3, 11),
            value=f"{platform.python_version()} on {platform.platform()}",
        ),
        engine,
        _installed("ui", lambda: provision.ui_path(settings)),
        _protections(settings),
    ]
    if engine.ok:
        findings += asyncio.run(_try_engine(driver))
    data = settings.data.absolute()
    writable = _writable(data)
    findings.append(Finding("data folder", writable, str(data), None if writable else "It can't be written to."))
    return findings


def _installed(name: str, find: Callable[[], Path]) -> Finding:
    try:
        path = find()
    except TracedockError as error:
        return Finding(name, ok=False, value="missing", detail=error.detail)
    return Finding(name, ok=True, value=str(path), detail=f"sha256 {provision.digest(path)}")


def _protections(settings: Settings) -> Finding:
    try:
        return Finding("engine guards", ok=True, value=protections.summary(settings))
    except TracedockError as error:
        return Finding("engine guards", ok=False, value="missing", detail=error.detail)


async def _one_event() -> AsyncIterator[bytes]:
    yield _ONE_EVENT


async def _try_engine(driver: EngineDriver) -> list[Finding]:
    """Load a trace of one event and count its slices."""
    slices: list[Cell] = []
    try:
        engine = await driver.start(driver.binary())
        try:
            async with asyncio.timeout(_TRIAL_TIMEOUT_S):
                await engine.feed(_one_event())
                version = await engine.version()
                async for response in engine.query("SELECT count(*) FROM slice"):
                    slices += [cell for cells in response.batches for cell in Batch(cells, 1).columns()[0]]
        finally:
            await engine.stop(1.0)
    except TracedockError as error:
        return [Finding("one-event trace", ok=False, value="failed", detail=error.detail)]
    except TimeoutError:
        return [Finding("one-event trace", ok=False, value="failed", detail=f"No answer in {_TRIAL_TIMEOUT_S:g} s.")]
    return [
        Finding("engine version", ok=version.is_supported, value=version.name),
        Finding("one-event trace", ok=slices == [1], value=f"loads, {', '.join(map(str, slices))} slice"),
    ]


def _writable(folder: Path) -> bool:
    """Return whether files can be created in the folder, or in the nearest parent that exists."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return nearest.is_dir()
    except OSError:
        return False

"""What is installed and whether it works: the questions to ask before anything else."""

import asyncio
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from service import __version__
from service.engine import guards, provision, wire
from service.engine.process import EngineProcess
from service.settings import Settings
from service.trace.errors import TracedockError

_TRY_FOR_S = 30.0
_ONE_EVENT = b'{"traceEvents":[{"ph":"X","name":"one","cat":"cpu_op","pid":1,"tid":1,"ts":1,"dur":1}]}'


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what was found, and whether it is as it should be."""

    name: str
    ok: bool
    value: str
    detail: str | None = None


def examine(settings: Settings) -> list[Finding]:
    """Look at Python, the packages' engine and UI, and load a trace of one event; nothing is fetched or changed."""
    findings = [
        Finding("tracedock", ok=True, value=__version__),
        Finding(
            "python",
            ok=sys.version_info >= (3, 11),
            value=f"{platform.python_version()} on {platform.platform()}",
        ),
        _found("engine", lambda: provision.engine_path(settings)),
        _found("ui", lambda: provision.ui_path(settings)),
    ]
    findings.append(_guards(settings))
    if findings[2].ok:
        findings += asyncio.run(_try_engine(provision.engine_path(settings), settings.engine_sandbox != "off"))
    data = settings.data.absolute()
    writable = _writable(data)
    findings.append(Finding("data folder", writable, str(data), None if writable else "It can't be written to."))
    return findings


def _found(name: str, find: Callable[[], Path]) -> Finding:
    try:
        path = find()
    except TracedockError as error:
        return Finding(name, ok=False, value="missing", detail=error.detail)
    return Finding(name, ok=True, value=str(path), detail=f"sha256 {provision.digest(path)}")


def _guards(settings: Settings) -> Finding:
    try:
        return Finding("engine guards", ok=True, value=guards.in_words(settings))
    except TracedockError as error:
        return Finding("engine guards", ok=False, value="missing", detail=error.detail)


async def _one_event() -> AsyncIterator[bytes]:
    yield _ONE_EVENT


async def _try_engine(binary: Path, sandbox: bool) -> list[Finding]:
    """Load a trace of one event and count its slices."""
    try:
        engine = await EngineProcess.start(binary, sandbox=sandbox)
        try:
            async with asyncio.timeout(_TRY_FOR_S):
                await engine.feed(_one_event())
                status = (await engine.ask(wire.request(wire.GET_STATUS))).status
                question = wire.QueryArgs(sql_query="SELECT count(*) FROM slice")
                answer = await engine.ask(wire.request(wire.QUERY_STREAMING, query_args=question))
        finally:
            await engine.stop(1.0)
    except TracedockError as error:
        return [Finding("one-event trace", ok=False, value="failed", detail=error.detail)]
    except TimeoutError:
        return [Finding("one-event trace", ok=False, value="failed", detail=f"No answer in {_TRY_FOR_S:g} s.")]
    slices = [count for batch in answer.query_result.batch for count in batch.varint_cells]
    return [
        Finding("engine version", ok=status.api_version == wire.API_VERSION, value=status.human_readable_version),
        Finding("one-event trace", ok=slices == [1], value=f"loads, {sum(slices)} slice"),
    ]


def _writable(folder: Path) -> bool:
    """Whether files can be made in the folder, or the folder in its nearest parent."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return nearest.is_dir()
    except OSError:
        return False

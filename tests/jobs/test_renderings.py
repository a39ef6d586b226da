"""Each rendering runs in its own process, which writes the document for an engine and then a report."""

import asyncio
import gzip
import random
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from service.cutting.source import Source
from service.jobs.exports import Renderings
from service.rendering.document import render
from service.rendering.render_report import RenderReport
from service.trace.errors import ExportFailed, NothingSelected, SourceUnavailable, Truncated
from service.trace.selection import Selection
from service.trace.selection_fields import Args
from tests.cutting.test_cut import ingested
from tests.processes import FORK_SERVER, living
from tests.rendering.fuchsia.decoded import Decoder
from tests.traces import TraceShape, sized, trace_chunks

LANES = 16_000  # so many that their report is larger than pipes and their readers hold


def written(trace: Source, selection: Selection | None = None, args: Args = "all") -> tuple[bytes, list[RenderReport]]:
    """Render in a process, and return the document and the reports."""
    reports: list[RenderReport] = []

    async def take() -> bytes:
        renderings = Renderings(FORK_SERVER)
        try:
            document = renderings.document(trace.columns, trace.summary, selection, args, reports.append)
            async with asyncio.timeout(60):
                return b"".join([piece async for piece in document])
        finally:
            await renderings.close()

    return asyncio.run(take()), reports


def expected(trace: Source, selection: Selection | None = None, args: Args = "all") -> tuple[bytes, RenderReport]:
    report = RenderReport()
    document = b"".join(render(trace.columns, trace.summary, report, selection=selection, args=args))
    return document, report


@pytest.fixture(scope="module")
def trace(step_trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return ingested(step_trace.read_bytes(), tmp_path_factory.mktemp("rendering") / "trace")


@pytest.mark.parametrize("args", ["all", "none"])
def test_rendering_yields_the_document_and_then_the_report(trace: Source, args: Args) -> None:
    document, reports = written(trace, args=args)
    assert (document, reports) == (expected(trace, args=args)[0], [expected(trace, args=args)[1]])


def test_rendering_writes_what_a_selection_keeps(trace: Source) -> None:
    selection = Selection(steps=[trace.summary.steps[0]["number"]])
    document, [report] = written(trace, selection)
    assert (document, report) == expected(trace, selection)
    assert report.events < trace.summary.events["kept"]


def test_failed_rendering_raises_its_error_without_a_report(trace: Source) -> None:
    with pytest.raises(NothingSelected):
        written(trace, Selection(names=["there is none"]))
    with pytest.raises(ExportFailed):
        written(Source(trace.columns / "none", trace.name, trace.summary, trace.source))


def test_original_is_yielded_decompressed_and_as_it_is(tmp_path: Path) -> None:
    plain = random.Random(1).randbytes(3_000_000)  # more than pipes and their readers hold
    original = tmp_path / "original"
    original.write_bytes(gzip.compress(plain))

    async def take(path: Path) -> bytes:
        renderings = Renderings(FORK_SERVER)
        try:
            return b"".join([piece async for piece in renderings.original(str(path), None)])
        finally:
            await renderings.close()

    assert asyncio.run(take(original)) == plain
    original.write_bytes(gzip.compress(plain)[:-1000])
    with pytest.raises(Truncated, match="ends at byte"):
        asyncio.run(take(original))
    with pytest.raises(SourceUnavailable, match="gone"):
        asyncio.run(take(tmp_path / "none"))


def test_report_of_many_lanes_is_received_completely(tmp_path: Path) -> None:
    here = '{{"ph":"X","name":"a","pid":1,"tid":{},"ts":1,"dur":1}}'
    trace = ingested(f"[{','.join(here.format(tid) for tid in range(LANES))}]", tmp_path / "trace")
    document, [report] = written(trace)
    assert sum(1 for _ in Decoder(document).events()) == len(report.tracks) == LANES


def test_closed_rendering_ends_its_process(tmp_path: Path) -> None:
    text = b"".join(trace_chunks(sized(TraceShape(), 8_000_000)))  # more than pipes and their readers hold
    trace = ingested(text, tmp_path / "trace")

    async def leave() -> psutil.Process:
        renderings = Renderings(FORK_SERVER)
        async with aclosing(renderings.document(trace.columns, trace.summary, None, "all", lambda _: None)) as document:
            await anext(document)
            (begun,) = living("tracedock render")
        await renderings.close()
        return begun

    assert not asyncio.run(leave()).is_running()

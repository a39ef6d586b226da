"""Each export runs in its own process, which writes the document or fails."""

import asyncio
import subprocess
import sys
import zlib
from contextlib import aclosing, suppress
from pathlib import Path
from typing import get_args

import psutil
import pytest

from service.cutting.cut import cut_document
from service.jobs.children.kinds import Kind
from service.jobs.children.tasks.documents import Cut, ExportTask
from service.jobs.exports import AT_ONCE, Exports
from service.jobs.ingest import ingest
from service.store.export import Order, document, spill_of
from service.trace.errors import ExportFailed, UnknownChoice
from service.trace.selection import Selection
from service.trace.summary import Summary
from tests.columns import write_columns
from tests.jobs import frames
from tests.processes import FORK_SERVER, living
from tests.traces import TraceShape, sized, trace_chunks

CHILD = "tracedock export"
PEAK = """
import resource, subprocess, sys
export = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
export.stdin.write(bytes.fromhex(sys.argv[1]))
export.stdin.flush()
assert export.wait() == 0
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1000)
"""


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The columns of a trace of 5 MB, which is more than pipes hold."""
    text = b"".join(trace_chunks(sized(TraceShape(), 5_000_000)))
    return write_columns(tmp_path_factory.mktemp("export") / "columns", text)


def started(columns: Path) -> "subprocess.Popen[bytes]":
    export = frames.started(Kind.EXPORT)
    frames.send(export, frames.call(ExportTask(columns)))
    return export


def exports() -> list[psutil.Process]:
    """Return the living export children of this process."""
    return living(CHILD)


async def exported(columns: Path, *, pack: bool = False, cut: Cut | None = None) -> bytes:
    writers = Exports(FORK_SERVER)
    try:
        return b"".join([piece async for piece in writers.document(columns, pack=pack, cut=cut)])
    finally:
        await writers.close()


def test_export_writes_the_document(columns: Path) -> None:
    whole = b"".join(document(columns))
    assert asyncio.run(exported(columns)) == whole
    assert zlib.decompress(asyncio.run(exported(columns, pack=True)), 31) == whole


def test_export_writes_what_a_selection_keeps(step_trace: Path, tmp_path: Path) -> None:
    with step_trace.open("rb") as file:
        summary = ingest(file, tmp_path / "columns", "t.json", lambda _: None)
    selection = Selection(steps=[summary.steps[0]["number"]])
    cut = Cut(selection, summary, "it")
    expected = b"".join(cut_document(tmp_path / "columns", selection, summary, source="it"))
    assert asyncio.run(exported(tmp_path / "columns", cut=cut)) == expected
    with pytest.raises(UnknownChoice, match="no step '77'") as refused:
        asyncio.run(exported(tmp_path / "columns", cut=Cut(Selection(steps=[77]), summary, "it")))
    assert refused.value.extra["known_steps"] == sorted({step["number"] for step in summary.steps})


def test_export_process_without_a_call_ends() -> None:
    done = subprocess.run(frames.command(Kind.EXPORT), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_export_process_ends_with_its_server_and_with_its_reader(columns: Path) -> None:
    for end in ("stdin", "stdout"):
        with started(columns) as export:
            assert export.stdout
            assert export.stdout.read(10)
            getattr(export, end).close()
            assert export.wait(20) == 1
            assert export.stderr
            assert export.stderr.read() == b""


def test_export_of_damaged_columns_fails_before_the_first_byte(columns: Path, tmp_path: Path) -> None:
    (tmp_path / "envelope.json").write_text("[]")
    (tmp_path / "events.parquet").write_bytes(b"no columns")
    with pytest.raises(ExportFailed, match=r"events\.parquet can't be read"):
        asyncio.run(exported(tmp_path))
    with pytest.raises(ExportFailed, match="envelope can't be read"):
        asyncio.run(exported(tmp_path / "nowhere"))


def test_crash_of_an_export_is_an_orderly_failure_and_is_logged(
    caplog: pytest.LogCaptureFixture, columns: Path
) -> None:
    async def ask() -> None:
        writers = Exports(FORK_SERVER)
        try:
            broken = Summary(steps=None)  # type: ignore[arg-type] # makes the child crash
            cut = Cut(Selection(steps=[1]), broken, "a broken summary")
            async with aclosing(writers.document(columns, cut=cut)) as pieces:
                await anext(pieces)
        finally:
            await writers.close()

    with pytest.raises(ExportFailed, match="ended with status 1; the server's log says more"):
        asyncio.run(ask())
    assert "TypeError: 'NoneType' object is not iterable" in caplog.text


def test_killed_export_has_failed(columns: Path) -> None:
    async def killed() -> None:
        writers = Exports(FORK_SERVER)
        try:
            async with aclosing(writers.document(columns)) as pieces:
                async for _ in pieces:
                    for export in exports():
                        with suppress(psutil.NoSuchProcess):  # the process has just ended
                            export.kill()
        finally:
            await writers.close()

    with pytest.raises(ExportFailed, match="was killed by SIGKILL"):
        asyncio.run(killed())


def test_closed_export_ends_its_process_and_removes_its_spill(columns: Path) -> None:
    async def abandoned_export() -> Path:
        writers = Exports(FORK_SERVER)
        async with aclosing(writers.document(columns, order="original")) as pieces:
            await anext(pieces)
            (export,) = exports()
            spill = spill_of(columns, export.pid)
            spill.mkdir(exist_ok=True)
            assert spill.exists()
        await writers.close()
        return spill

    assert not asyncio.run(abandoned_export()).exists()
    assert exports() == []


def test_number_of_concurrent_exports_is_bounded(columns: Path) -> None:
    async def crowd() -> int:
        writers = Exports(FORK_SERVER)
        readers = [writers.document(columns) for _ in range(AT_ONCE + 1)]
        for reader in readers[:AT_ONCE]:
            await anext(reader)
        waiting = asyncio.ensure_future(anext(readers[AT_ONCE]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.1)
        most = len(exports())
        await readers[0].aclose()
        assert await waiting
        for reader in readers:
            await reader.aclose()
        await writers.close()
        return most

    assert asyncio.run(crowd()) == AT_ONCE
    assert exports() == []


def test_closing_ends_all_exports_even_those_that_are_not_read(columns: Path) -> None:
    async def closed() -> None:
        writers = Exports(FORK_SERVER)
        reader = writers.document(columns)
        await anext(reader)
        await writers.close()
        with pytest.raises(ExportFailed):
            async for _ in reader:
                pass

    asyncio.run(closed())
    assert exports() == []


@pytest.mark.slow
def test_memory_of_an_export_is_bounded(tmp_path: Path) -> None:
    text = b"".join(trace_chunks(sized(TraceShape(), 300_000_000)))
    folder = write_columns(tmp_path / "columns", text, row_group=1 << 15)
    for order in get_args(Order):
        call = frames.call(ExportTask(folder, order=order))
        command = [sys.executable, "-c", PEAK, call.hex(), *frames.command(Kind.EXPORT)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        assert int(done.stdout) < 1000

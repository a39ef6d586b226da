"""Exports as the server sees them: a few processes at a time, each with one reader."""

import asyncio
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from service.store.export import Order, spill_of
from service.trace.errors import ExportFailed, TracedockError, again, fate
from service.trace.selection import Selection

AT_ONCE = 2
MODULE = "service.jobs.export"
READ_SIZE = 1 << 20


@dataclass(frozen=True)
class Cut:
    """What is to be written of a trace: a selection, and what the catalog knows of the trace."""

    selection: Selection
    summary: dict[str, Any]
    source: str


class Exports:
    """Writes documents, each in a process of its own; who asks for more than `AT_ONCE` of them waits.

    One process is kept ready: to start one takes longer than to cut a step out of a large trace.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)
        self._running: set[Process] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._spare: asyncio.Task[Process] | None = None
        self._closed = False

    async def document(
        self, columns: Path, *, pack: bool = False, order: Order = "time", redact: bool = False, cut: Cut | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the bytes of a trace's document, packed as gzip if asked; to close this ends its process.

        Args:
            columns: where its columns lie.
            pack: whether as gzip.
            order: of the events; a cut is always by time.
            redact: hide secrets.
            cut: what to write, if not all.

        Raises:
            SelectionError: the trace has nothing of what is to be cut out of it.
            ExportFailed: the process failed, before its first byte or after it.
            DiskFull: it had no room to sort.
        """
        request = {"columns": str(columns), "pack": pack, "order": order, "redact": redact, "selection": None}
        if cut:
            request |= {"selection": cut.selection.as_dict(), "summary": cut.summary, "source": cut.source}
        async with self._free:
            process = await self._take()
            try:
                if process.stdin is None or process.stdout is None or process.stderr is None:
                    raise RuntimeError("an export is started with pipes")
                process.stdin.write(orjson.dumps(request) + b"\n")
                while piece := await process.stdout.read(READ_SIZE):
                    yield piece
                said = await process.stderr.read()
                if status := await process.wait():
                    raise _failure(status, said)
            finally:
                # on its own: a request whose client has left may wait for nothing more
                ending = asyncio.create_task(self._end(process, spill_of(columns, process.pid)))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

    def prepare(self) -> None:
        """Keep a process ready from now on."""
        if not self._closed and self._spare is None:
            self._spare = asyncio.create_task(self._start())

    async def close(self) -> None:
        """End all of them; their readers learn that they failed."""
        self._closed = True
        if spare := self._spare:
            with suppress(ExportFailed):
                await self._end(await spare)
        for process in self._running:
            _kill(process)
        await asyncio.gather(*self._ending)

    async def _take(self) -> Process:
        """The process that is ready, or one that is started now."""
        spare, self._spare = self._spare, None
        if spare:
            with suppress(ExportFailed):
                process = await spare
                if process.returncode is None:
                    return process
                await self._end(process)
        return await self._start()

    async def _start(self) -> Process:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", MODULE,
                stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=READ_SIZE,
            )  # fmt: skip
        except OSError as error:
            raise ExportFailed(f"The process that writes the document can't be started: {error}.") from error
        self._running.add(process)
        return process

    async def _end(self, process: Process, spill: Path | None = None) -> None:
        _kill(process)
        for pipe in (process.stdout, process.stderr):
            while pipe and await pipe.read(READ_SIZE):  # with something in its pipes, a process does not count as ended
                pass
        await process.wait()
        self._running.discard(process)
        if spill:
            await asyncio.to_thread(shutil.rmtree, spill, ignore_errors=True)
            self.prepare()


def _kill(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


def _failure(status: int, said: bytes) -> TracedockError:
    """What a process that ended so wanted to tell."""
    with suppress(ValueError, KeyError, IndexError):
        return again(orjson.loads(said.splitlines()[-1]))
    return ExportFailed(f"The process that writes the document {fate(status)}.")

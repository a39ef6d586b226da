"""Exports as the server sees them: a few processes at a time, each with one reader."""

import asyncio
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import orjson

from service.jobs.export import command
from service.store.export import Order, spill_of
from service.trace.errors import DiskFull, ExportFailed, TracedockError, fate

AT_ONCE = 2
READ_SIZE = 1 << 20

_TOLD = {kind.code: kind for kind in (DiskFull, ExportFailed)}


class Exports:
    """Writes documents, each in a process of its own; who asks for more than `AT_ONCE` of them waits."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)
        self._running: set[Process] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def document(
        self, columns: Path, *, pack: bool = False, order: Order = "time", redact: bool = False
    ) -> AsyncGenerator[bytes]:
        """Yield the bytes of a trace's document, packed as gzip if asked; to close this ends its process.

        Raises:
            ExportFailed: the process failed, before its first byte or after it.
            DiskFull: it had no room to sort.
        """
        async with self._free:
            process = await self._start(columns, pack=pack, order=order, redact=redact)
            try:
                if process.stdout is None or process.stderr is None:
                    raise RuntimeError("an export is started with pipes")
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

    async def close(self) -> None:
        """End all of them; their readers learn that they failed."""
        for process in self._running:
            _kill(process)
        await asyncio.gather(*self._ending)

    async def _start(self, columns: Path, *, pack: bool, order: Order, redact: bool) -> Process:
        try:
            process = await asyncio.create_subprocess_exec(
                *command(columns, pack=pack, order=order, redact=redact),
                stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=READ_SIZE,
            )  # fmt: skip
        except OSError as error:
            raise ExportFailed(f"The process that writes the document can't be started: {error}.") from error
        self._running.add(process)
        return process

    async def _end(self, process: Process, spill: Path) -> None:
        _kill(process)
        for pipe in (process.stdout, process.stderr):
            while pipe and await pipe.read(READ_SIZE):  # with something in its pipes, a process does not count as ended
                pass
        await process.wait()
        self._running.discard(process)
        await asyncio.to_thread(shutil.rmtree, spill, ignore_errors=True)


def _kill(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


def _failure(status: int, said: bytes) -> TracedockError:
    """What a process that ended so wanted to tell."""
    with suppress(ValueError, KeyError, IndexError):
        told = orjson.loads(said.splitlines()[-1])
        return _TOLD[told["code"]](told["detail"])
    return ExportFailed(f"The process that writes the document {fate(status)}.")

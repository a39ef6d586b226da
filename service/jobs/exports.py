"""Processes that write documents, as the server sees them: a few at a time, each with one reader."""

import asyncio
import logging
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from service.jobs.process import kill, started
from service.store.export import Order, spill_of
from service.store.room import Room
from service.trace.errors import DeadlineExceeded, ExportFailed, TracedockError, describe_exit, error_from_dict
from service.trace.selection import Selection

AT_ONCE = 2
READ_SIZE = 1 << 20
_SAID_MAX = 4000  # bytes of what it said last, as they go into the log

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cut:
    """What is to be written of a trace: a selection, and what the catalog knows of the trace."""

    selection: Selection
    summary: dict[str, Any]
    source: str


class Writers:
    """Writes documents, each in a process of its own; who asks for more than `AT_ONCE` of them waits.

    One process is kept ready: to start one takes longer than to cut a step out of a large trace.

    Args:
        module: what the processes run.
        keep_ready: whether one is.
        deadline_s: seconds after which a document fails that has not begun.
        room: of the data folder, which bounds what is spilled.
    """

    def __init__(
        self, module: str, *, keep_ready: bool, deadline_s: float | None = None, room: Room | None = None
    ) -> None:
        self._module = module
        self._room = room
        self._deadline_s = deadline_s
        self._keep_ready = keep_ready
        self._free = asyncio.Semaphore(AT_ONCE)
        self._running: set[Process] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._spare: asyncio.Task[Process] | None = None
        self._closed = False

    async def written(
        self, request: dict[str, Any], spill: Path, on_said: Callable[[bytes], object] = lambda _: None
    ) -> AsyncGenerator[bytes]:
        """Yield what a process writes; to close this ends it.

        Args:
            request: what it is to write.
            spill: the folder beside which it may put what it can't hold in memory.
            on_said: hears the last line that it said, once all is written.

        Raises:
            TracedockError: what it failed with.
            DeadlineExceeded: there was no first byte in time.
            ExportFailed: it failed, and did not say with what.
        """
        async with self._free:
            process = await self._take()
            saying: asyncio.Task[bytes] | None = None
            try:
                if process.stdin is None or process.stdout is None or process.stderr is None:
                    raise RuntimeError("a writer is started with pipes")
                spill_max = None if self._room is None else await asyncio.to_thread(self._room.left)
                process.stdin.write(orjson.dumps(request | {"spill_max": spill_max}) + b"\n")
                saying = asyncio.create_task(process.stderr.read())  # meanwhile: it may be more than the pipe holds
                piece = await self._first(process.stdout)
                while piece:
                    yield piece
                    piece = await process.stdout.read(READ_SIZE)
                said = await saying
                if status := await process.wait():
                    raise _failure(status, said)
                on_said(said.splitlines()[-1] if said else b"")
            finally:
                # on its own: a request whose client has left may wait for nothing more
                ending = asyncio.create_task(self._end(process, saying, spill_of(spill, process.pid)))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

    async def _first(self, output: asyncio.StreamReader) -> bytes:
        """The first piece of a document, empty if there is none; raises `DeadlineExceeded`."""
        try:
            async with asyncio.timeout(self._deadline_s):
                return await output.read(READ_SIZE)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"The document had not begun after {self._deadline_s:g} s: select less.", limit_s=self._deadline_s
            ) from error

    def prepare(self) -> None:
        """Keep a process ready from now on, if any is to be."""
        if self._keep_ready and not self._closed and self._spare is None:
            self._spare = asyncio.create_task(self._start())

    async def close(self) -> None:
        """End all of them; their readers learn that they failed."""
        self._closed = True
        if spare := self._spare:
            with suppress(ExportFailed):
                await self._end(await spare)
        for process in self._running:
            kill(process)
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
            process = await started(self._module, stderr=PIPE, limit=READ_SIZE)
        except OSError as error:
            raise ExportFailed(f"The process that writes the document can't be started: {error}.") from error
        self._running.add(process)
        return process

    async def _end(
        self, process: Process, saying: asyncio.Task[bytes] | None = None, spill: Path | None = None
    ) -> None:
        kill(process)
        for pipe in (process.stdout, None if saying else process.stderr):
            while pipe and await pipe.read(READ_SIZE):  # with something in its pipes, a process does not count as ended
                pass
        if saying:
            await asyncio.wait([saying])
        await process.wait()
        self._running.discard(process)
        if spill:
            await asyncio.to_thread(shutil.rmtree, spill, ignore_errors=True)
            self.prepare()


class Exports(Writers):
    """Writes the documents that clients fetch."""

    def __init__(self, *, keep_ready: bool = True, deadline_s: float | None = None, room: Room | None = None) -> None:
        super().__init__("service.jobs.export", keep_ready=keep_ready, deadline_s=deadline_s, room=room)

    def document(
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
        return self.written(request, columns)


class Renderings(Writers):
    """Writes the documents that engines are fed; downloads do not hold them up."""

    def __init__(self, *, keep_ready: bool = True, room: Room | None = None) -> None:
        super().__init__("service.jobs.rendering", keep_ready=keep_ready, room=room)

    def document(
        self,
        columns: Path,
        summary: dict[str, Any],
        selection: Selection | None,
        args: str,
        on_account: Callable[[dict[str, Any]], object],
    ) -> AsyncGenerator[bytes]:
        """Yield the document of a trace, or of a selection of it, that an engine is fed.

        Args:
            columns: where its columns lie.
            summary: of the trace, as the catalog has it.
            selection: what of it, or None.
            args: which arguments events keep: all, essential or none.
            on_account: is given what the document holds, once all is written; see `service.rendering.render_report`.

        Raises:
            SelectionError: the trace has nothing of the selection.
            ExportFailed: the process failed, before its first byte or after it.
        """
        chosen = None if selection is None else selection.as_dict()
        request = {"columns": str(columns), "summary": summary, "selection": chosen, "args": args}
        return self.written(request, columns, lambda said: on_account(orjson.loads(said)))


def _failure(status: int, said: bytes) -> TracedockError:
    """What a process that ended so wanted to tell."""
    with suppress(ValueError, KeyError, IndexError):
        return error_from_dict(orjson.loads(said.splitlines()[-1]))
    log.error(
        "a process that writes documents %s: %s", describe_exit(status), said[-_SAID_MAX:].decode("utf-8", "replace")
    )
    return ExportFailed(f"The process that writes the document {describe_exit(status)}; the server's log says more.")

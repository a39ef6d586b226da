"""Writing of documents in child processes: a few at a time, each for one reader."""

import asyncio
import logging
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from service.jobs.children.encoding import decode
from service.jobs.children.fork_server import ForkServer
from service.jobs.children.kinds import Kind
from service.jobs.children.messages import Crashed, Done, Failed, Output
from service.jobs.children.process import ChildProcess
from service.jobs.children.tasks.documents import Cut, ExportTask, OriginalTask, PerfettoTask, RenderTask
from service.rendering.render_report import RenderReport
from service.store.export import Order, spill_of
from service.store.room import Room
from service.trace.errors import DeadlineExceeded, ExportFailed, describe_exit, error_from_document
from service.trace.selection import Selection
from service.trace.selection_fields import Args
from service.trace.summary import Summary

AT_ONCE = 2
"""Maximum number of documents of a kind that are written at the same time."""

log = logging.getLogger(__name__)


class DocumentWriters:
    """Writes documents, each in its own child process. At most `AT_ONCE` are written at a time; other callers wait.

    Args:
        kind: the kind of children.
        fork_server: starts the children.
        deadline_s: seconds after which a document without a first byte fails; None for no deadline.
        room: disk space of the data folder, which bounds the data that a child spills; None for no bound.
    """

    def __init__(
        self, kind: Kind, fork_server: ForkServer, *, deadline_s: float | None = None, room: Room | None = None
    ) -> None:
        self._kind = kind
        self._fork_server = fork_server
        self._room = room
        self._deadline_s = deadline_s
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._running: set[ChildProcess] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def write(
        self,
        task: ExportTask | PerfettoTask | RenderTask | OriginalTask,
        on_result: Callable[[bytes], object] = lambda _: None,
    ) -> AsyncGenerator[bytes]:
        """Yield the document of a task; closing the generator ends its child.

        Args:
            task: the task that writes the document.
            on_result: called with the JSON of the task's result, once the whole document has been yielded.

        Raises:
            TracedockError: the task failed with this error.
            DeadlineExceeded: the first byte took longer than `deadline_s`.
            ExportFailed: the child can't be started, crashed or died.
        """
        async with self._slots:
            child = await self._start()
            try:
                spill_max = None if self._room is None else await asyncio.to_thread(self._room.left)
                child.call(task, spill_max=spill_max)
                async with aclosing(self._pieces(child, on_result)) as pieces:
                    yield await self._first(pieces)
                    async for piece in pieces:
                        yield piece
            finally:
                # a separate task: the request of a disconnected client must not wait for the end of the child
                spill = None if isinstance(task, OriginalTask) else spill_of(task.columns, child.pid)
                ending = asyncio.create_task(self._end(child, spill))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all children; their documents fail."""
        await asyncio.gather(*(child.kill_and_wait() for child in self._running), *self._ending)

    async def _start(self) -> ChildProcess:
        try:
            child = await self._fork_server.fork(self._kind)
        except OSError as error:
            raise ExportFailed(f"The process that writes the document can't be started: {error}.") from error
        self._running.add(child)
        return child

    async def _first(self, pieces: AsyncGenerator[bytes]) -> bytes:
        """Return the first piece of a document, empty if there is none; raises `DeadlineExceeded`."""
        try:
            async with asyncio.timeout(self._deadline_s):
                return await anext(pieces, b"")
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"The first byte of the document was not ready after {self._deadline_s:g} s: select less of the trace.",
                limit_s=self._deadline_s,
            ) from error

    @staticmethod
    async def _pieces(child: ChildProcess, on_result: Callable[[bytes], object]) -> AsyncGenerator[bytes]:
        """Yield the output of a child; raises the error that its task failed with."""
        result: bytes | None = None
        while message := await child.receive():
            match message:
                case Output():
                    while piece := await child.read_body():
                        yield piece
                case Done():
                    result = await child.whole_body()
                case Failed(error):
                    raise error_from_document(error)
                case Crashed(_, traceback):
                    log.error("a process that writes documents crashed:\n%s", traceback)
        status = await child.wait()
        if result is None:
            log.error("a process that writes documents %s", describe_exit(status))
            raise ExportFailed(
                f"The process that writes the document {describe_exit(status)}; the server's log says more."
            )
        on_result(result)

    async def _end(self, child: ChildProcess, spill: Path | None) -> None:
        await child.end()
        self._running.discard(child)
        if spill:
            await asyncio.to_thread(shutil.rmtree, spill, ignore_errors=True)


class Exports(DocumentWriters):
    """Writes the documents that clients download."""

    def __init__(self, fork_server: ForkServer, *, deadline_s: float | None = None, room: Room | None = None) -> None:
        super().__init__(Kind.EXPORT, fork_server, deadline_s=deadline_s, room=room)

    def document(
        self, columns: Path, *, pack: bool = False, order: Order = "time", redact: bool = False, cut: Cut | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the bytes of a trace's document; closing the generator ends its child.

        Args:
            columns: the folder of the trace's columns.
            pack: whether to compress the document with gzip.
            order: order of the events; a cut is always in order of time.
            redact: whether to hide secrets.
            cut: the part of the trace to write; None for the whole trace.

        Raises:
            SelectionError: the cut's selection is invalid or matches no event.
            ExportFailed: the child failed, before its first byte or after it.
            DiskFull: the disk has no room for sorting.
        """
        return self.write(ExportTask(columns, pack=pack, order=order, redact=redact, cut=cut))

    def pftrace(
        self, columns: Path, summary: Summary, *, pack: bool = False, redact: bool = False, cut: Cut | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield a trace as Perfetto's protobuf; closing the generator ends its child.

        Args:
            columns: the folder of the trace's columns.
            summary: the trace's summary.
            pack: whether to compress the packets with gzip.
            redact: whether to hide secrets.
            cut: the part of the trace to write; None for the whole trace.

        Raises:
            FormatUnavailable: the trace does not fit the format.
            SelectionError, ExportFailed, DiskFull: as for `document`.
        """
        return self.write(PerfettoTask(columns, summary, pack=pack, redact=redact, cut=cut))


class Renderings(DocumentWriters):
    """Writes the documents that engines load. It has slots of its own, so that downloads do not delay engines."""

    def __init__(self, fork_server: ForkServer, *, room: Room | None = None) -> None:
        super().__init__(Kind.RENDER, fork_server, room=room)

    def document(
        self,
        columns: Path,
        summary: Summary,
        selection: Selection | None,
        args: Args,
        on_report: Callable[[RenderReport], object],
    ) -> AsyncGenerator[bytes]:
        """Yield the document of a trace, or of a selection of it, for an engine.

        Args:
            columns: the folder of the trace's columns.
            summary: the trace's summary.
            selection: the part of the trace to write; None for the whole trace.
            args: the arguments that events keep.
            on_report: called with the report on the rendering, once the whole document has been yielded.

        Raises:
            SelectionError: the selection is invalid or matches no event.
            ExportFailed: the child failed, before its first byte or after it.
        """
        task = RenderTask(columns, summary, selection, args)
        return self.write(task, lambda result: on_report(decode(RenderReport, result)))

    def original(self, path: str, mark: str | None) -> AsyncGenerator[bytes]:
        """Yield the decompressed original of a trace, as it is, for an engine.

        Args:
            path: its path, or the URL of an object.
            mark: the mark of an original that other programs can change; see `service.store.original_files`.

        Raises:
            SourceUnavailable: it is missing.
            OriginalChanged: it was changed since it became a trace.
            BadCompression, Truncated: it is damaged or cut; its earlier bytes were yielded.
            LocationError: the bucket can't be used.
            ExportFailed: the child failed.
        """
        return self.write(OriginalTask(path, mark))

"""A worker process: does one job and tells of it in lines of JSON on its standard output.

On its input the server tells, in such lines too, what there is of the trace: ``grown``, to so many bytes, now and
then while it is received, and ``complete`` once it is safe on disk. When the server ends, however it ends, or gives
the trace up, this pipe closes, and the worker ends too. Its memory has a limit, lest a file that nobody thought of take
the machine down.
"""

import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from io import BufferedReader
from pathlib import Path
from typing import Any

import orjson

from service.jobs.ingest import ingest, prepare
from service.store.external_files import check_unchanged, open_unchanged
from service.streaming.codec import READ_SIZE
from service.streaming.source import GrowingFile, Progress
from service.trace.errors import IngestError, NotATrace, TracedockError

PROGRESS_EVERY_S = 0.1
NICE = 10
"""Requests go before: with all its threads, a worker would leave them little of a small machine."""
MEMORY_MAX = 4 << 30
"""Bytes that may be allocated, used or not. DuckDB and the compiler take a third of that for any trace, but use little
of it; address space as such has no limit, for each thread sets aside much more than it may ever use."""


class Reporter:
    """Writes the lines: ``progress`` now and then, and at the end one more.

    ``result``; ``error``, which lies in the trace; or ``failure``, which says nothing of it.
    """

    def __init__(self) -> None:
        self._next = 0.0

    def progress(self, progress: Progress) -> None:
        """Tell how far the job has come, not more often than anyone looks."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_EVERY_S
            self.tell("progress", asdict(progress))

    @contextmanager
    def failing(self, fault: type[TracedockError]) -> Iterator[None]:
        """Tell of what fails within: an ``error`` where it is that kind of fault, else a ``failure``."""
        try:
            yield
        except TracedockError as error:
            self.tell("error" if isinstance(error, fault) else "failure", error.as_dict())
        except Exception as error:  # noqa: BLE001 - the process ends here, and the server must hear why
            traceback.print_exc()
            self.tell("failure", {"code": "internal", "title": "The service has a bug", "detail": repr(error)})

    def tell(self, kind: str, value: Any) -> None:
        """Write one line."""
        sys.stdout.buffer.write(orjson.dumps({kind: value}) + b"\n")
        sys.stdout.buffer.flush()


def opened(incoming: Path, original: Path, mark: str) -> GrowingFile:
    """The trace's file, from where it is received or, once it is kept, from where it lies.

    Raises:
        OriginalChanged: others can change it, and `mark` tells that they have.
    """
    if mark:
        return GrowingFile(open_unchanged(original, mark))
    with suppress(FileNotFoundError):
        return GrowingFile(incoming)
    return GrowingFile(original)


def listen(original: GrowingFile) -> None:
    """Pass on what the server tells; end this process when it tells no more."""

    def follow() -> None:
        for line in sys.stdin.buffer:
            news = orjson.loads(line)
            if "grown" in news:
                original.grow(news["grown"])
            else:
                original.finish()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _told() -> list[str]:
    """The arguments, once they are told."""
    prepare()
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)
    arguments: list[str] = orjson.loads(line)
    return arguments


def main() -> int:
    """Ingest the trace that the command line names: INCOMING ORIGINAL COLUMNS NAME, and MARK if there is one.

    Without these, get ready, and take them as a list from the first line of the input.
    """
    with suppress(ValueError, OSError):  # there is a lower limit already, or the system knows none
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
    os.nice(NICE)
    with suppress(OSError):  # where Linux shares the processor among sessions first, that alone says nothing
        Path("/proc/self/autogroup").write_text(str(NICE))
    incoming, original, columns, file_name, mark = (*(sys.argv[1:] or _told()), "")[:5]
    reporter = Reporter()
    with reporter.failing(IngestError):
        source = opened(Path(incoming), Path(original), mark)
        listen(source)
        file: BufferedReader = BufferedReader(source, READ_SIZE)
        try:
            with file:
                summary = ingest(file, Path(columns), file_name, reporter.progress)
                if mark:
                    check_unchanged(source.fileno(), mark)
        except MemoryError as error:
            detail = f"Reading the file takes more than {MEMORY_MAX >> 20} MiB of memory, as no trace does."
            raise NotATrace(detail) from error
        reporter.tell("result", asdict(summary))
    return 0


if __name__ == "__main__":
    os._exit(main())  # all is told and flushed; an orderly end would wait for the thread that listens, and for DuckDB

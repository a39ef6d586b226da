"""A worker process: does one job and tells of it in lines of JSON on its standard output.

Its input is a pipe that the server holds open and never writes to: when the server ends, however it ends, the
pipe closes, and the worker ends too. Its memory has a limit, for what a small file can ask for has none: the parser
keeps the path of each open bracket, and a hundred thousand brackets that stay open fill gigabytes.
"""

import os
import resource
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from service.jobs.ingest import ingest
from service.streaming.ingest import Progress
from service.trace.errors import NotATrace, TracedockError

PROGRESS_EVERY_S = 0.1
DIGITS_MAX = 100_000  # of one number; ijson does not outlive one that Python refuses to read
MEMORY_MAX = 2 << 30
"""Bytes of address space. An ordinary trace takes a twentieth, the largest envelope about half."""


class Reporter:
    """Writes the lines: ``progress`` now and then, and at the end ``result`` or ``error``."""

    def __init__(self) -> None:
        self._next = 0.0

    def progress(self, progress: Progress) -> None:
        """Tell how far the job has come, not more often than anyone looks."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_EVERY_S
            self.tell("progress", asdict(progress))

    def tell(self, kind: str, value: Any) -> None:
        """Write one line."""
        sys.stdout.buffer.write(orjson.dumps({kind: value}) + b"\n")
        sys.stdout.buffer.flush()


def end_with_server() -> None:
    """End this process when its input closes."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    """Ingest the trace that the command line names: ORIGINAL COLUMNS NAME."""
    end_with_server()
    with suppress(ValueError, OSError):  # there is a lower limit already, or the system knows none
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    sys.set_int_max_str_digits(DIGITS_MAX)
    original, columns, file_name = sys.argv[1:]
    reporter = Reporter()
    try:
        summary = ingest(Path(original), Path(columns), file_name, reporter.progress)
        reporter.tell("result", asdict(summary))
    except TracedockError as error:
        reporter.tell("error", error.as_dict())
    except MemoryError:
        detail = f"Reading the file takes more than {MEMORY_MAX >> 20} MiB of memory, as no trace does."
        reporter.tell("error", NotATrace(detail).as_dict())
    except Exception as error:  # noqa: BLE001 - the process ends here, and the server must hear why
        traceback.print_exc()
        reporter.tell("error", {"code": "internal", "title": "The service has a bug", "detail": repr(error)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

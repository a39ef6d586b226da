"""A process that writes one trace's document to its standard output, so that the server's memory and loop stay free.

It gets ready, and then takes what it is to write, an object of JSON, as the first line of its input. That stays open
and says nothing more: when the server ends, however it ends, so does the process. It fails with a status other than 0;
the last line of its standard error then tells why, as the JSON of the error.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import orjson

from service.cutting.cut import cut_document
from service.jobs.input import end_with_input
from service.store.database import limit_spill
from service.store.export import document, packed
from service.trace.errors import ExportFailed, TracedockError
from service.trace.selection import Selection


def requested(request: dict[str, Any]) -> Iterator[bytes]:
    """The pieces of the document that a request is for.

    Args:
        request: ``columns``, ``pack``, ``redact``, and ``order``, or ``selection`` with the trace's ``summary`` and
            ``source``; see `document` and `cut_document`.
    """
    columns, redact = Path(request["columns"]), request["redact"]
    if request["selection"] is None:
        pieces = document(columns, order=request["order"], redact=redact)
    else:
        selection = Selection.parsed(request["selection"])
        pieces = cut_document(columns, selection, request["summary"], source=request["source"], redact=redact)
    return packed(pieces) if request["pack"] else pieces


def main(pieces: Callable[[dict[str, Any]], Iterator[bytes]] = requested) -> int:
    """Write the document that the first line of the input asks for; the status to end with.

    Beside what `pieces` takes, a request has ``spill_max``: bytes that may be spilled, or null.

    Args:
        pieces: yields the document of a request.
    """
    line = sys.stdin.buffer.readline()
    if not line:
        return 0
    end_with_input()
    try:
        request = orjson.loads(line)
        limit_spill(request.get("spill_max"))
        for piece in pieces(request):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # nobody reads any more
        return 1
    except MemoryError:
        return _fail(ExportFailed("The document takes more memory than there is."))
    except TracedockError as error:
        return _fail(error)
    return 0


def _fail(error: TracedockError) -> int:
    sys.stderr.buffer.write(orjson.dumps(error.as_dict()) + b"\n")
    sys.stderr.flush()
    return 1


def run(pieces: Callable[[dict[str, Any]], Iterator[bytes]] = requested) -> NoReturn:
    """Be such a process, and end without what DuckDB's module has to say of one that ends amid its work."""
    try:
        status = main(pieces)
    except BaseException:  # noqa: BLE001 - the process ends with it, and says all that is known
        traceback.print_exc()
        status = 1
    os._exit(status)


if __name__ == "__main__":
    run()

"""A process that writes one trace's document to its standard output, so that the server's memory and loop stay free.

It fails with a status other than 0; the last line of its standard error then tells why, as the JSON of the error. Its
input is a pipe that the server holds open and never writes to: when the server ends, however it ends, so does it.
"""

import os
import sys
import threading
from pathlib import Path

import orjson

from service.store.export import Order, document, packed
from service.trace.errors import ExportFailed, TracedockError


def command(columns: Path, *, pack: bool, order: Order, redact: bool) -> list[str]:
    """The command line of such a process; the arguments are those of `document`, and whether its bytes are packed."""
    flags = [name for name, wanted in (("pack", pack), ("redact", redact)) if wanted]
    return [sys.executable, "-m", "service.jobs.export", str(columns), order, *flags]


def end_with_server() -> None:
    """End this process when its input closes."""

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    """Write the document that the command line asks for: COLUMNS ORDER [pack] [redact]."""
    end_with_server()
    columns, order, *flags = sys.argv[1:]
    pieces = document(Path(columns), order="original" if order == "original" else "time", redact="redact" in flags)
    try:
        for piece in packed(pieces) if "pack" in flags else pieces:
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


if __name__ == "__main__":
    os._exit(main())  # without what DuckDB's module has to say of a process that ends amid its work

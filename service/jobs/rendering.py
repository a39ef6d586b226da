"""A process that writes to its standard output what an engine is to be fed, as `service.jobs.export` writes downloads.

When all is written, the last line of its standard error is the account of it, an object of JSON.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from service.jobs.export import run
from service.rendering.document import prepare, render
from service.rendering.render_report import RenderReport
from service.trace.selection import Selection


def requested(request: dict[str, Any]) -> Iterator[bytes]:
    """The pieces of the document that a request is for.

    Args:
        request: ``columns``, ``summary``, ``selection`` or null, and ``args``; see `render`.
    """
    report = RenderReport()
    selection = None if request["selection"] is None else Selection.parsed(request["selection"])
    yield from render(Path(request["columns"]), request["summary"], report, selection=selection, args=request["args"])
    sys.stderr.buffer.write(orjson.dumps(report) + b"\n")
    sys.stderr.flush()


if __name__ == "__main__":
    prepare()
    run(requested)

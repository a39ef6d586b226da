"""Messages on stderr: errors and notes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from tracedock.errors import ApiError

from service.cli.render import Column, draw_table, visible

_REQUEST_STATUS = 200
"""HTTP status of the error of a trace: the request for the trace itself succeeded."""


def note(text: str) -> None:
    """Print a note that is not part of the result."""
    print(_escape_lines(text), file=sys.stderr, flush=True)


def note_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table of notes, on a terminal only."""
    if sys.stderr.isatty():
        draw_table(columns, rows, sys.stderr)


def report(error: Exception) -> None:
    """Print an error; for an API error its title, code, detail and position."""
    if isinstance(error, ApiError):
        note(_describe(error))
    elif isinstance(error, OSError) and error.filename is not None:
        note(f"error: {error.filename}: {error.strerror}")
    else:
        note(f"error: {error}")


def ingest_error(trace: dict[str, Any]) -> ApiError | None:
    """Return the error of a trace whose ingest failed, else None."""
    if trace["state"] != "failed":
        return None
    return ApiError.of_problem(trace["error"] or {}, _REQUEST_STATUS)


def _describe(error: ApiError) -> str:
    lines = [f"error: {error.title} ({error.code})", error.detail]
    message = error.extras.get("message")  # the engine's own message, unless the detail quotes it
    if isinstance(message, str) and message not in error.detail:
        lines.append(message)
    if error.position:
        lines.append(f"at {error.position}")
    return "\n".join(line for line in lines if line)


def _escape_lines(text: str) -> str:
    return "\n".join(visible(line) for line in text.splitlines())

"""Messages on stderr: errors and notes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from tracedock.errors import ApiError, UnreachableError

from service.cli.render import Column, draw_table, visible
from service.cli.terminal import preferences

_REQUEST_STATUS = 200
"""HTTP status of the error of a trace: the request for the trace itself succeeded."""


def note(text: str) -> None:
    """Print a note that is not part of the result; --quiet leaves it out."""
    if not preferences.quiet:
        say(text)


def say(text: str) -> None:
    """Print a part of an error or of a question, which --quiet keeps."""
    print(_escape_lines(text), file=sys.stderr, flush=True)


def confirm(question: str) -> None:
    """Ask a question on stderr, since stdout has only results; raise `typer.Abort` unless the answer is yes."""
    print(f"{_escape_lines(question)} [y/N]: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise typer.Abort


def note_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table of notes, on a terminal only."""
    if sys.stderr.isatty() and not preferences.quiet:
        draw_table(columns, rows, sys.stderr)


def report(error: Exception) -> None:
    """Print an error; for an API error its title, code, detail and position."""
    if isinstance(error, ApiError):
        say(_describe(error))
    elif isinstance(error, OSError) and error.filename is not None:
        say(f"error: {error.filename}: {error.strerror}")
    else:
        say(f"error: {error}")


def advise(error: Exception, url: str) -> None:
    """Print what to do about an error that may come from the URL of the server."""
    if isinstance(error, UnreachableError) and "SSL" in error.reason:
        say(f"That port may not use TLS: try {url.replace('https:', 'http:', 1)}.")
    elif isinstance(error, UnreachableError) and error.connected:
        say(f"If it happens again, another program may listen at {url}; --url or TRACEDOCK_URL names the server.")
    elif isinstance(error, ApiError) and error.code == "not_found":
        say(f"The path may be wrong: {url} is the URL of the server, which is usually like http://127.0.0.1:8700.")


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

"""Messages for a person, on stderr: what went wrong, and what is worth knowing beside the answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from service.cli.errors import ApiError
from service.cli.render import Column, draw_table, visible


def note(text: str) -> None:
    """Something to know that is no part of the answer."""
    print(_lines(text), file=sys.stderr, flush=True)


def note_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """A table of such things, for a person alone."""
    if sys.stderr.isatty():
        draw_table(columns, rows, sys.stderr)


def report(error: Exception) -> None:
    """Why it failed; of the server's refusals the title, detail, code and position."""
    if isinstance(error, ApiError):
        note(_refusal(error))
    elif isinstance(error, OSError) and error.filename is not None:
        note(f"error: {error.filename}: {error.strerror}")
    else:
        note(f"error: {error}")


def failure(trace: dict[str, Any]) -> ApiError | None:
    """The error of a trace whose ingest failed."""
    if trace["state"] != "failed":
        return None
    return ApiError.of_problem(trace["error"] or {}, 200)


def _refusal(error: ApiError) -> str:
    lines = [f"error: {error.title} ({error.code})", error.detail]
    message = error.extras.get("message")
    if isinstance(message, str) and message not in error.detail:
        lines.append(message)
    if error.position:
        lines.append(f"at {error.position}")
    return "\n".join(line for line in lines if line)


def _lines(text: str) -> str:
    return "\n".join(visible(line) for line in text.splitlines())

"""Resolution of a TRACE argument: a local file, or a trace or group on the server; the same for all commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from tracedock.errors import (
    AmbiguousFileError,
    AmbiguousTargetError,
    AmbiguousTraceError,
    ApiError,
    ClientError,
    UnreachableError,
)

from service.cli.report import note

if TYPE_CHECKING:
    from tracedock.client import Client

_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))
_PATHS = tuple(f"{start}{separator}" for start in (".", "..", "~", "") for separator in _SEPARATORS)
"""Prefixes of arguments that always mean a file."""


def file_of(client: Client, text: str, *, groups: bool = False) -> Path | None:
    """Return the local file that an argument means; None if it means a trace or group on the server.

    Args:
        client: client of the server, which is searched if the argument is the bare name of a file.
        text: the argument.
        groups: whether the argument may also mean a group. A group's name may contain a slash.

    Raises:
        AmbiguousFileError: the bare name matches both a local file, and a trace or a group on the server.
        typer.BadParameter: the argument is a path, but no file is there.
    """
    path = Path(text).expanduser()
    has_path = any(separator in text for separator in _SEPARATORS)
    if not path.is_file():
        if has_path and (text.startswith(_PATHS) or path.is_dir() or not groups):
            reason = "this is a folder" if path.is_dir() else "no such file"
            raise typer.BadParameter(f"{text}: {reason}", param_hint="TRACE")
        return None
    if text.startswith(_PATHS):
        return path
    if has_path:
        note(f"Reading the file .{os.sep}{text}.")
        return path
    _check_server(client, text, client.target if groups else client.find)
    return path


def _check_server(client: Client, text: str, find: Callable[[str], Any]) -> None:
    """Print a note that the file is read; raise `AmbiguousFileError` if a trace or a group has its name."""
    try:
        match = find(text)
    except AmbiguousTraceError as error:
        raise AmbiguousFileError(text, client.url, [trace["id"] for trace in error.traces]) from error
    except AmbiguousTargetError as error:
        ids = [target["id"] for target in (*error.traces, error.group)]
        raise AmbiguousFileError(text, client.url, ids) from error
    except ClientError as error:
        note(f"Reading the file .{os.sep}{text}; {_reason(client, error)}.")
    else:
        target = match[1] if isinstance(match, tuple) else match
        raise AmbiguousFileError(text, client.url, [target["id"]])


def _reason(client: Client, error: ClientError) -> str:
    """Describe why the search on the server has found no trace."""
    if isinstance(error, UnreachableError):
        return f"no server answers at {client.url}"
    if isinstance(error, ApiError) and error.code == "unknown_trace":
        return f"{client.url} has no trace of that name"
    return f"{client.url} may have a trace of that name, too: {error}"

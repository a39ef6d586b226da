"""What a TRACE argument means: a file here, or what the server has of that name. One rule for all commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from service.cli.client import Client
from service.cli.errors import (
    AmbiguousFileError,
    AmbiguousTargetError,
    AmbiguousTraceError,
    ApiError,
    ClientError,
    UnreachableError,
)
from service.cli.report import note

_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))
_PATHS = tuple(f"{start}{separator}" for start in (".", "..", "~", "") for separator in _SEPARATORS)
"""How arguments begin that are files, whatever the server has."""


def file_of(client: Client, text: str, *, groups: bool = False) -> Path | None:
    """The file that an argument means; None of what the server has.

    Args:
        client: is asked about a bare name for which there is a file.
        text: the argument.
        groups: whether it may also be a group, which may have a slash in its name.

    Raises:
        AmbiguousFileError: it is a bare name of a file here and of a trace or a group on the server.
        typer.BadParameter: it is a path of no file.
    """
    path = Path(text).expanduser()
    has_path = any(separator in text for separator in _SEPARATORS)
    if not path.is_file():
        if has_path and (text.startswith(_PATHS) or path.is_dir() or not groups):
            what = "that is a folder" if path.is_dir() else "there is no such file"
            raise typer.BadParameter(f"{text}: {what}", param_hint="TRACE")
        return None
    if text.startswith(_PATHS):
        return path
    if has_path:
        note(f"Reading the file .{os.sep}{text}.")
        return path
    _check_server(client, text, client.target if groups else client.find)
    return path


def _check_server(client: Client, text: str, find: Callable[[str], Any]) -> None:
    """Say that the file is read, unless the server has something of its name; raises `AmbiguousFileError`."""
    try:
        found = find(text)
    except AmbiguousTraceError as error:
        raise AmbiguousFileError(text, client.url, [one["id"] for one in error.traces]) from error
    except AmbiguousTargetError as error:
        both = [*error.traces, error.group]
        raise AmbiguousFileError(text, client.url, [one["id"] for one in both]) from error
    except ClientError as error:
        note(f"Reading the file .{os.sep}{text}; {_why_not(client, error)}.")
    else:
        trace = found[1] if isinstance(found, tuple) else found
        raise AmbiguousFileError(text, client.url, [trace["id"]])


def _why_not(client: Client, error: ClientError) -> str:
    """Why the server's trace of a name is not meant."""
    if isinstance(error, UnreachableError):
        return f"no server is reached at {client.url}"
    if isinstance(error, ApiError) and error.code == "unknown_trace":
        return f"{client.url} has no trace of that name"
    return f"whether {client.url} has a trace of that name is not known: {error}"

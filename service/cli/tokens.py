"""The commands `token`: add, list and remove the API tokens of a data folder.

A running server applies changes at once.
"""

# ruff: noqa: PLC0415 - only these commands need the service, which is slow to import

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tracedock.errors import ApiError

from service.cli.render import Column, moment, print_json, print_table
from service.cli.report import note
from service.cli.server import settings_of
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson

if TYPE_CHECKING:
    from service.store.tokens import Tokens

app = typer.Typer(
    help="Create, list and revoke API tokens. Once a token exists, the API requires one.",
)

_COLUMNS = (Column("name"), Column("scope"), Column("created_at", person=moment))
_LOCAL_STATUS = 422  # `ApiError` requires a status, but no request was sent

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token, for the audit log.")]
Data = Annotated[
    Path | None, typer.Option(file_okay=False, metavar="DIR", help="Data folder of the server, as in `serve --data`.")
]


class Scope(StrEnum):
    """Scopes of a token: a copy of `service.store.tokens.Scope`, whose module is slow to import."""

    READ = "read"
    WRITE = "write"


@app.command()
def add(
    name: Name,
    scope: Annotated[Scope, typer.Option(help="`write` also allows uploads, deletions and other changes.")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Create a token, and print it; it can't be shown again."""
    from service.store.tokens import Scope as StoredScope

    with _tokens(data, change="add token", token=name, scope=scope) as tokens:
        secret = tokens.add(name, StoredScope(scope))
    if on_terminal():
        note("The token is shown only once. Keep it like a password; commands read it from TRACEDOCK_TOKEN.")
    if as_json:
        print_json({"name": name, "scope": scope.value, "token": secret})
    else:
        print(secret)


@app.command("ls")
def list_tokens(data: Data = None, as_json: AsJson = False) -> None:
    """List the names, scopes and times of the tokens, not the tokens themselves."""
    with _tokens(data) as tokens:
        rows = [
            (token.name, token.scope.value, f"{datetime.fromtimestamp(token.created_ns / 1e9, UTC):%Y-%m-%dT%H:%M:%SZ}")
            for token in tokens.all()
        ]
    if as_json:
        print_json([dict(zip((column.title for column in _COLUMNS), row, strict=True)) for row in rows])
    else:
        print_table(_COLUMNS, rows)


@app.command("rm")
def remove(name: Name, data: Data = None, as_json: AsJson = False) -> None:
    """Revoke a token, and end the browser sessions that logged in with it."""
    with _tokens(data, change="remove token", token=name) as tokens:
        tokens.remove(name)
    if as_json:
        print_json({"name": name})


@contextmanager
def _tokens(data: Path | None, *, change: str = "", **fields: str) -> Iterator[Tokens]:
    """Open the token store of a data folder.

    If the block succeeds, append `change` to the audit log, with `fields`.
    """
    from service.store import audit
    from service.store.folder import Folder
    from service.store.tokens import Tokens
    from service.trace.errors import TracedockError

    folder = Folder(settings_of(data=data).data)
    try:
        with closing(Tokens(folder.tokens)) as tokens:
            yield tokens
    except TracedockError as error:
        raise ApiError(error.code, error.title, error.detail, _LOCAL_STATUS) from error
    if change:
        with closing(audit.Audit(folder.audit, rotate=False)):
            audit.note("local", did=change, **fields)

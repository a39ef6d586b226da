"""Commands about the tokens of a data folder: add, ls, rm; a server that runs there heeds them at once."""

# ruff: noqa: PLC0415 - as in `service.cli.server`: who asks for help must not wait for the service

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.errors import ApiError
from service.cli.render import Column, on_terminal, print_table
from service.cli.report import note
from service.cli.server import settings_of

if TYPE_CHECKING:
    from service.store.tokens import Tokens

app = typer.Typer(
    no_args_is_help=True,
    help="Make, list and revoke the tokens that open a server's doors. Where there is one, the server asks for it.",
)

_LISTED = (Column("name"), Column("scope"), Column("created_at"))
_REFUSED = 422

Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is: it stands in the audit log.")]
Data = Annotated[
    Path | None, typer.Option(file_okay=False, metavar="DIR", help="The server's folder, as `serve` is told it.")
]


class Scope(StrEnum):
    """What a token may do."""

    READ = "read"
    WRITE = "write"


@app.command()
def add(
    name: Name,
    scope: Annotated[Scope, typer.Option(help="Whether uploads, deletions and the like are allowed.")],
    data: Data = None,
) -> None:
    """Make a token, and print it: it can't be shown again."""
    from service.store import tokens

    with _tokens(data, change="add token", name=name, scope=scope) as found:
        secret = found.add(name, tokens.Scope(scope))
    if on_terminal():
        note("This is shown once. Keep it like a password; the commands take it from TRACEDOCK_TOKEN.")
    print(secret)


@app.command("ls")
def list_tokens(data: Data = None) -> None:
    """List the tokens: their names, not they themselves."""
    with _tokens(data) as found:
        rows = [
            (one.name, one.scope.value, f"{datetime.fromtimestamp(one.created_ns / 1e9, UTC):%Y-%m-%dT%H:%M:%SZ}")
            for one in found.all()
        ]
    print_table(_LISTED, rows)


@app.command("rm")
def remove(name: Name, data: Data = None) -> None:
    """Revoke a token: from now on it opens nothing, nor does a browser that was logged in with it."""
    with _tokens(data, change="remove token", name=name) as found:
        found.remove(name)


@contextmanager
def _tokens(data: Path | None, *, change: str = "", **facts: str) -> Iterator[Tokens]:
    """The tokens of the folder; a change of them that succeeds is noted in its audit log."""
    from service.store import audit
    from service.store.folder import Folder
    from service.store.tokens import Tokens
    from service.trace.errors import TracedockError

    folder = Folder(settings_of(data=data).data)
    try:
        with closing(Tokens(folder.tokens)) as found:
            yield found
    except TracedockError as error:
        raise ApiError(error.code, error.title, error.detail, _REFUSED) from error
    if change:
        with closing(audit.Audit(folder.audit, rotate=False)):
            audit.note("local", did=change, **{"token" if key == "name" else key: text for key, text in facts.items()})

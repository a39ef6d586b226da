"""Commands about the engines that a server holds: list them, close those of a trace."""

from __future__ import annotations

from typing import Any

import typer

from service.cli.client import Client, Json
from service.cli.errors import ApiError
from service.cli.render import Column, grouped, on_terminal, print_json, print_table, size, visible
from service.cli.report import note
from service.cli.selection import as_text
from service.cli.traces import AsJson, TraceArgument

app = typer.Typer(help="List the engines that the server holds: with what in memory, and how much of it they show.")


def _bytes(count: int | None) -> str:
    return "-" if count is None else size(count)


_LISTED = (
    Column("trace"),
    Column("args"),
    Column("state"),
    Column("memory", right=True, person=_bytes),
    Column("predicted", right=True, person=_bytes),
    Column("clients", right=True),
    Column("idle_s", right=True, person=lambda seconds: f"{seconds:.0f}"),
    Column("shown", right=True, person=grouped),
    Column("events", right=True, person=grouped),
    Column("note"),
    Column("selection"),
)


@app.callback(invoke_without_command=True)
def list_sessions(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the engines that the server holds."""
    if ctx.invoked_subcommand is not None:
        return
    client: Client = ctx.obj
    found = client.sessions()
    if as_json:
        print_json(found)
        return
    print_table(_LISTED, [_listed(session) for session in found["sessions"]])
    if on_terminal():
        memory = found["memory"]
        note(f"They and a spare one hold {size(memory['held_bytes'])} of {size(memory['budget_bytes'])} of memory.")


@app.command()
def close(ctx: typer.Context, trace: TraceArgument) -> None:
    """Stop the engines on a trace and on parts of it; tables that clients created in them are gone."""
    client: Client = ctx.obj
    found = client.find(trace)
    mine = [session for session in client.sessions()["sessions"] if session["trace"] == found["id"]]
    if not mine:
        raise ApiError("not_ready", "No engine", f"No engine runs on {found['name']}.", 409)
    for session in mine:
        client.close_session(found["id"], selection=session["selection"], args=session["args"])
        told = ("closed", found["id"], session["args"], visible(as_text(session["selection"])))
        print(*told, sep="  " if on_terminal() else "\t")


def _listed(session: Json) -> tuple[Any, ...]:
    engine, account = session["engine"], session["account"] or {}
    return (
        session["trace"], session["args"], session["state"], engine["rss_bytes"], engine["predicted_bytes"],
        session["clients"], session["idle_s"], account.get("shown"), account.get("events"), _noted(session),
        as_text(session["selection"]),
    )  # fmt: skip


def _noted(session: Json) -> str | None:
    """What is wrong with it, in a word or two."""
    if session["error"]:
        return str(session["error"]["code"])
    if session["account"] and not session["account"]["complete"]:
        return "incomplete"
    return "importer complains" if session["account"] and session["account"]["stats"] else None

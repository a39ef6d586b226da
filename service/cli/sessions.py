"""The commands `sessions`: list the server's engines, and close those of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from tracedock.errors import ApiError

from service.cli.quantities import grouped, size
from service.cli.render import Column, print_json, print_table, visible
from service.cli.report import note
from service.cli.selection import Json, as_text
from service.cli.terminal import on_terminal
from service.cli.traces import AsJson, TraceArgument

if TYPE_CHECKING:
    from tracedock.client import Client

app = typer.Typer(help="List the server's engines, with their memory and the events that they show.")


def _bytes(count: int | None) -> str:
    return "-" if count is None else size(count)


_LISTED = (
    Column("trace"),
    Column("args"),
    Column("source"),
    Column("state"),
    Column("memory", right=True, person=_bytes),
    Column("predicted", right=True, person=_bytes),
    Column("clients", right=True),
    Column("idle_s", right=True, person=lambda seconds: f"{seconds:.0f} s"),
    Column("shown", right=True, person=grouped),
    Column("events", right=True, person=grouped),
    Column("note"),
    Column("selection", cut=True),
)


@app.callback(invoke_without_command=True)
def list_sessions(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the server's engines."""
    if ctx.invoked_subcommand is not None:
        return
    client: Client = ctx.obj
    status = client.sessions()
    if as_json:
        print_json(status)
        return
    print_table(_LISTED, map(_row, status["sessions"]))
    if on_terminal():
        memory = status["memory"]
        note(f"Engines use {size(memory['held_bytes'])} of {size(memory['budget_bytes'])} of memory.")


@app.command()
def close(ctx: typer.Context, trace: TraceArgument, as_json: AsJson = False) -> None:
    """Stop the engines of a trace and of its selections; tables that clients created in them are deleted."""
    client: Client = ctx.obj
    resolved = client.find(trace)
    sessions = [session for session in client.sessions()["sessions"] if session["trace"] == resolved["id"]]
    if not sessions:
        raise ApiError("not_ready", "No engine", f"No engine runs on {resolved['name']}.", 409)
    for session in sessions:
        client.close_session(
            resolved["id"], selection=session["selection"], args=session["args"], source=session["source"]
        )
        if as_json:
            continue
        row = ("closed", resolved["id"], session["args"], session["source"], visible(as_text(session["selection"])))
        print(*row, sep="  " if on_terminal() else "\t")
    if as_json:
        print_json([{key: session[key] for key in ("trace", "selection", "args", "source")} for session in sessions])


def _row(session: Json) -> tuple[Any, ...]:
    engine, account = session["engine"], session["account"] or {}
    return (
        session["trace"], session["args"], session["source"], session["state"], engine["rss_bytes"],
        engine["predicted_bytes"], session["clients"], session["idle_s"], account.get("shown"), account.get("events"),
        _problem(session), as_text(session["selection"]),
    )  # fmt: skip


def _problem(session: Json) -> str | None:
    """Return the problem of a session in a word or two, or None."""
    if session["error"]:
        return str(session["error"]["code"])
    if session["account"] and not session["account"]["complete"]:
        return "incomplete"
    return "importer complains" if session["stats"] else None

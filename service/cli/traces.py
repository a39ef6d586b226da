"""Commands about whole traces: upload, ls, show, open, rm."""

from __future__ import annotations

import sys
import webbrowser
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.client import Client, Json
from service.cli.errors import ApiError, ClientError, DigestMismatchError
from service.cli.progress import stages
from service.cli.render import Column, grouped, on_terminal, print_facts, print_json, print_table, size, visible
from service.cli.report import failure, note, report
from service.cli.selection import ArgsOption, selecting
from service.cli.summary import damage, facts

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="Id, start of an id, name, or `latest`.")]
AsJson = Annotated[bool, typer.Option("--json", help="As the API gives it.")]

_LISTED = (
    Column("id"),
    Column("state"),
    Column("size", right=True, person=size),
    Column("events", right=True, person=grouped),
    Column("rank", right=True),
    Column("created"),
    Column("name"),
)


def upload(
    ctx: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False, readable=True)],
    wait: Annotated[bool, typer.Option(help="Wait until the trace is ready.")] = True,
    open_it: Annotated[bool, typer.Option("--open", help="Open each in the Perfetto UI.")] = False,
    group: Annotated[str | None, typer.Option(help="Name of the group they belong to; made if there is none.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on when the link drops; without, each is one PUT.")] = True,
) -> None:
    """Send trace files to the server, and check that they arrived whole. Prints the ids."""
    client: Client = ctx.obj
    refused = False
    for file in files:
        try:
            trace = send(client, file, wait=wait or open_it, group=group, resume=resume)
        except (ApiError, DigestMismatchError, OSError) as error:
            note(f"{file}:")  # the other files may still be fine
            report(error)
            refused = True
            continue
        _print_sent(trace)
        if said := damage(trace):
            note(f"{file.name}: {said}; `tracedock show {trace['id']}` tells what and where.")
        failed = failure(trace)
        if failed:
            report(failed)
            refused = True
        elif open_it:
            _open_link(client.perfetto_url(trace["id"]))
    if refused:
        raise typer.Exit(1)


def send(client: Client, file: Path, *, wait: bool, group: str | None = None, resume: bool = True) -> dict[str, Any]:
    """Upload one file with progress, and return its trace."""
    name = file.name

    def lost(error: ClientError, pause_s: float) -> None:
        note(f"{name}: {error}; trying again in {pause_s:g} s")

    with stages() as shown:
        return client.upload(
            file, group=group, resume=resume, wait=wait,
            on_bytes=shown.uploading(name), on_ingest=shown.ingesting(name), on_lost=lost,
        )  # fmt: skip


def list_traces(
    ctx: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only queued, ingesting, ready or failed ones.")] = None,
    name: Annotated[str | None, typer.Option(help="Only those with this in their name.")] = None,
    parent: Annotated[str | None, typer.Option(metavar="TRACE", help="Only those that were cut out of this.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the traces, newest first."""
    client: Client = ctx.obj
    every = client.traces(state=state, name=name, parent=client.find(parent)["id"] if parent else None)
    found = list(islice(every, limit or None))
    more = next(every, None) is not None
    if as_json:
        print_json(found)
    else:
        print_table(_LISTED, [_listed(trace) for trace in found])
    if more:
        note(f"These are the newest {limit}; there are more (--limit).")


def show(ctx: typer.Context, trace: TraceArgument, as_json: AsJson = False) -> None:
    """Describe one trace."""
    client: Client = ctx.obj
    found = client.find(trace)
    if as_json:
        print_json(found)
    else:
        print_facts(facts(found))


@selecting
def open_trace(
    ctx: typer.Context,
    trace: TraceArgument,
    selection: Json | None,
    browser: Annotated[bool, typer.Option("--browser", help="Open the link in the browser.")] = False,
    listener: Annotated[
        bool, typer.Option("--listener", help="Serve this trace on the server's local port, usually 9001.")
    ] = False,
    args: ArgsOption = "all",
    slice_: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="REF",
            help="Open at this slice: position:N of the event in the columns, at:TIME_NS:NAME, or id:N of SQL.",
        ),
    ] = None,
) -> None:
    """Print the link that opens a trace, or the part of it that is selected, in the Perfetto UI."""
    if listener and slice_:
        raise typer.BadParameter("its viewer opens on all of the trace", param_hint="--slice")
    if listener and selection:
        raise typer.BadParameter(
            "it serves whole traces; `tracedock split` makes one of a part", param_hint="--listener"
        )
    if listener and args != "all":
        raise typer.BadParameter("it serves traces with all arguments of their events", param_hint="--listener")
    client: Client = ctx.obj
    found = client.find(trace)
    if listener:
        chosen = client.listen(found["id"])
        if not chosen["enabled"]:
            reason = chosen.get("error") or "Start the server with a Perfetto port."
            raise ApiError("listener_off", "The listener is off", reason, 409)
        note(f"{chosen['host']}:{chosen['port']} on the server's machine now serves {found['name']}.")
        note('In a browser there, https://ui.perfetto.dev offers it: answer "YES, use loaded trace".')
    link = client.perfetto_url(found["id"], selection=selection, args=args, slice_=slice_)
    if found["state"] != "ready":
        note(f"{found['name']} is {found['state']}; the link works once it is ready.")
    elif selection or slice_:
        client.check_perfetto(found["id"], selection=selection, args=args, slice_=slice_)
    print(link)
    if browser:
        _browse(link)


def remove(
    ctx: typer.Context,
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Ids, names, or `latest`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete traces, with everything made from them."""
    client: Client = ctx.obj
    # By id, for one trace may be named twice.
    found = list({trace["id"]: trace for trace in map(client.find, traces)}.values())
    if not yes:
        _confirm(found)
    for trace in found:
        client.delete(trace["id"])
        print(f"deleted {trace['id']}  {visible(trace['name'])}" if on_terminal() else trace["id"])


def _confirm(traces: list[dict[str, Any]]) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody is there to ask; add --yes", param_hint="--yes")
    for trace in traces:
        note(f"{trace['id']}  {trace['name']}")
    typer.confirm(f"Delete {len(traces)} trace{'s' if len(traces) > 1 else ''}?", abort=True, err=True)


def _listed(trace: dict[str, Any]) -> tuple[Any, ...]:
    kept = trace["events"]["kept"] if trace["state"] == "ready" else None
    return trace["id"], trace["state"], trace["size"], kept, trace["rank"], trace["created_at"], trace["name"]


def _print_sent(trace: dict[str, Any]) -> None:
    """A pipe gets the id alone: `ID=$(tracedock upload FILE)`."""
    if on_terminal():
        print(f"{trace['id']}  {trace['state']}  {visible(trace['name'])}", flush=True)
    else:
        print(trace["id"], flush=True)


def _open_link(link: str) -> None:
    print(link, flush=True)
    _browse(link)


def _browse(link: str) -> None:
    if not webbrowser.open(link):
        note("There is no browser here to open the link with.")

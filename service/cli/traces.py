"""The commands `upload`, `ls`, `show`, `open` and `rm`."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from tracedock.errors import ApiError, ClientError, DigestMismatchError

from service.cli.output import STDOUT
from service.cli.progress import stages
from service.cli.quantities import grouped, size
from service.cli.render import Column, moment, print_facts, print_json, print_table, visible
from service.cli.report import confirm, ingest_error, note, report, say
from service.cli.selection import Json, SourceOption, UiArgsOption, selecting
from service.cli.summary import damage, facts
from service.cli.terminal import on_terminal

if TYPE_CHECKING:
    from tracedock.client import Client

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="Id, start of an id, name, or `latest`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document with exact values.")]
State = Literal["queued", "ingesting", "ready", "failed"]

_LISTED = (
    Column("id"),
    Column("state"),
    Column("size", right=True, person=size),
    Column("events", right=True, person=grouped),
    Column("rank", right=True),
    Column("created", person=moment),
    Column("name", cut=True),
)


def upload(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE…",
            help="Trace files; `-` reads one from the standard input.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the trace is ready.")] = True,
    open_it: Annotated[bool, typer.Option("--open", help="Open each trace in the Perfetto UI.")] = False,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Name of their group, which is created if it does not exist."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the trace, by default that of its file; `-` needs one."),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Resume after a lost connection; otherwise send each file in one request.")
    ] = True,
    direct: Annotated[
        bool, typer.Option("--direct", help="Send the bytes into the server's bucket, past the server.")
    ] = False,
    spool: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", file_okay=False, exists=True, help="Send what training has left there, and remove it."
        ),
    ] = None,
    any_url: Annotated[
        bool, typer.Option("--any-url", help="With --spool: also send what is meant for other servers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Upload trace files, and verify their digests. Prints the ids."""
    if bool(files) == bool(spool):
        raise typer.BadParameter("give either FILE… or --spool FOLDER", param_hint="FILE…")
    client: Client = ctx.obj
    if spool:
        from tracedock.uploading import send_spool  # noqa: PLC0415 - it loads argparse

        raise typer.Exit(send_spool(client, spool, any_url=any_url))
    paths = files or []
    _check_files(paths, name)
    if direct and STDOUT in paths:
        raise typer.BadParameter("the size of the standard input is not known", param_hint="--direct")
    sent: list[Json] = []
    refused = False
    for file in paths:
        try:
            trace = send(client, file, wait=wait or open_it, name=name, group=group, resume=resume, direct=direct)
        except (ApiError, DigestMismatchError, OSError) as error:
            say(f"{name or file}:")  # continue with the other files
            report(error)
            refused = True
            continue
        sent.append(trace)
        if not as_json:
            _print_uploaded(trace)
        if report_of_damage := damage(trace):
            note(f"{trace['name']}: {report_of_damage}; see `tracedock show {trace['id']}`.")
        failed = ingest_error(trace)
        if failed:
            report(failed)
            refused = True
        elif open_it:
            _open_link(client.perfetto_url(trace["id"]), printed=not as_json)
    if as_json:
        print_json(sent)
    if refused:
        raise typer.Exit(1)


def _check_files(paths: list[Path], name: str | None) -> None:
    """Raise `typer.BadParameter` unless all files exist, and the name, if there is one, is for one of them."""
    if missing := next((file for file in paths if file != STDOUT and not file.is_file()), None):
        reason = f"this is a folder; name its files, like {missing}/*.json.gz" if missing.is_dir() else "no such file"
        raise typer.BadParameter(f"{missing}: {reason}", param_hint="FILE…")
    if name is None and STDOUT in paths:
        raise typer.BadParameter("the standard input has no name; give one", param_hint="--name")
    if name is not None and len(paths) > 1:
        raise typer.BadParameter(f"one name for {len(paths)} files", param_hint="--name")


def send(
    client: Client,
    file: Path,
    *,
    wait: bool,
    name: str | None = None,
    group: str | None = None,
    resume: bool = True,
    direct: bool = False,
) -> Json:
    """Upload a file, or the standard input if it is `-`, with progress, and return its trace."""
    shown_name = name or file.name

    def on_retry(error: ClientError, pause_s: float) -> None:
        note(f"{shown_name}: {error}; retrying in {pause_s:g} s")

    with stages() as progress:
        return client.upload(
            sys.stdin.buffer if file == STDOUT else file, name=name, group=group,
            resume=resume, direct=direct, wait=wait,
            on_bytes=progress.uploading(shown_name), on_ingest=progress.ingesting(shown_name), on_retry=on_retry,
        )  # fmt: skip


def list_traces(
    ctx: typer.Context,
    state: Annotated[State | None, typer.Option(help="Only traces in this state.")] = None,
    name: Annotated[str | None, typer.Option(metavar="PART", help="Only traces with this text in their name.")] = None,
    parent: Annotated[
        str | None, typer.Option(metavar="TRACE", help="Only traces that were derived from this one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Maximum number of traces; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the traces, newest first."""
    client: Client = ctx.obj
    matching = client.traces(state=state, name=name, parent=client.find(parent)["id"] if parent else None)
    listed = list(islice(matching, limit or None))
    more = next(matching, None) is not None
    if as_json:
        print_json(listed)
    else:
        print_table(_LISTED, map(_row, listed))
    if more:
        note(f"These are the newest {limit}; there are more (--limit).")


def show(ctx: typer.Context, trace: TraceArgument, as_json: AsJson = False) -> None:
    """Show a trace."""
    client: Client = ctx.obj
    resolved = client.find(trace)
    if as_json:
        print_json(resolved)
    else:
        print_facts(facts(resolved))


@selecting
def open_trace(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    trace: TraceArgument,
    selection: Json | None,
    browser: Annotated[bool, typer.Option("--browser", help="Open the link in the browser.")] = False,
    listener: Annotated[
        bool, typer.Option("--listener", help="Serve this trace on the server's local Perfetto port, usually 9001.")
    ] = False,
    as_json: AsJson = False,
    args: UiArgsOption = None,
    source: SourceOption = None,
    slice_: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="REF",
            help="Open at this slice: position:N (position of the event), at:TIME_NS:NAME, or id:N (id in SQL).",
        ),
    ] = None,
) -> None:
    """Print the link that opens a trace, a selection of it, or its original in the Perfetto UI."""
    if listener and slice_:
        raise typer.BadParameter("--listener serves the whole trace", param_hint="--slice")
    if listener and selection:
        raise typer.BadParameter(
            "it serves whole traces; `tracedock split` creates a trace of a selection", param_hint="--listener"
        )
    if listener and args not in {None, "all"}:
        raise typer.BadParameter("it serves traces with all event arguments", param_hint="--listener")
    if listener and source:
        raise typer.BadParameter("it serves the default source of a trace", param_hint="--listener")
    client: Client = ctx.obj
    resolved = client.find(trace)
    if listener:
        status = client.listen(resolved["id"])
        if not status["enabled"]:
            reason = status.get("error") or "Start the server with a Perfetto port."
            raise ApiError("listener_off", "The listener is off", reason, 409)
        note(f"{status['host']}:{status['port']} on the server's machine now serves {resolved['name']}.")
        note('In a browser there, https://ui.perfetto.dev offers it: answer "YES, use loaded trace".')
    view: dict[str, Any] = {"selection": selection, "args": args, "source": source, "slice_": slice_}
    link = client.perfetto_url(resolved["id"], **view)
    if resolved["state"] != "ready":
        note(f"{resolved['name']} is {resolved['state']}; the link works once it is ready.")
    elif selection or source or slice_:
        client.check_perfetto(resolved["id"], **view)
    if as_json:
        print_json({"trace": resolved["id"], "url": link})
    else:
        print(link)
    if browser:
        _browse(link)


def remove(
    ctx: typer.Context,
    traces: Annotated[list[str], typer.Argument(metavar="TRACE…", help="Ids, names, or `latest`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete traces, with their columns and engines."""
    client: Client = ctx.obj
    resolved = list({trace["id"]: trace for trace in map(client.find, traces)}.values())  # without duplicates
    if not yes:
        _confirm(resolved)
    for trace in resolved:
        client.delete(trace["id"])
        if not as_json:
            print(f"deleted {trace['id']}  {visible(trace['name'])}" if on_terminal() else trace["id"])
    if as_json:
        print_json([{"id": trace["id"], "name": trace["name"]} for trace in resolved])


def _confirm(traces: list[dict[str, Any]]) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("confirmation requires a terminal; add --yes", param_hint="--yes")
    for trace in traces:
        say(f"{trace['id']}  {trace['name']}")
    confirm(f"Delete {len(traces)} trace{'s' if len(traces) > 1 else ''}?")


def _row(trace: dict[str, Any]) -> tuple[Any, ...]:
    kept = trace["events"]["kept"] if trace["state"] == "ready" else None
    return trace["id"], trace["state"], trace["size"], kept, trace["rank"], trace["created_at"], trace["name"]


def _print_uploaded(trace: dict[str, Any]) -> None:
    """Print the new trace; a pipe receives only its id: `ID=$(tracedock upload FILE)`."""
    if on_terminal():
        print(f"{trace['id']}  {trace['state']}  {visible(trace['name'])}", flush=True)
    else:
        print(trace["id"], flush=True)


def _open_link(link: str, *, printed: bool) -> None:
    if printed:
        print(link, flush=True)
    _browse(link)


def _browse(link: str) -> None:
    import webbrowser  # noqa: PLC0415 - only links need it

    if not webbrowser.open(link):
        note("No browser is available to open the link.")

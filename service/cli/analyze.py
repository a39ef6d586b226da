"""The command `analyze`: built-in analyses of traces on the server, or of local files without a server."""

from __future__ import annotations

import json
import sys
from collections import Counter
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TextIO

import typer

from service.analysis.names import COMPARISONS
from service.cli import local
from service.cli.arguments import file_of
from service.cli.jobs import run_job
from service.cli.output import Force, OutputFile, atomic, destination
from service.cli.quantities import grouped
from service.cli.render import Column, dashed, print_json, print_result, print_table, write_lines
from service.cli.report import note
from service.cli.selection import Json, parsed, selecting
from service.cli.split_merge import BaseCycleOption, CycleOption, TargetArgument
from service.cli.sql import chosen_format, write_bytes
from service.cli.terminal import has_color, on_terminal
from service.cli.traces import AsJson

if TYPE_CHECKING:
    from tracedock.client import Client

_LISTED = (
    Column("name"),
    Column("answers", wrap=True),
    Column("applies", person=lambda value: "yes" if value else "no"),
    Column("reason", person=dashed, wrap=True),
)


class Format(StrEnum):
    """Output formats."""

    table = "table"
    json = "json"
    csv = "csv"
    arrow = "arrow"


@selecting
def analyze(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    trace: TargetArgument,
    selection: Json | None,
    name: Annotated[
        str | None,
        typer.Argument(metavar="ANALYSIS", help="Name of the analysis; without it, the available ones are listed."),
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="TRACE|FILE", help="A further rank of the run, or a trace to compare with (repeatable)."
        ),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--base",
            metavar="TRACE|GROUP|FILE",
            help="For comparisons: a trace or a group to compare all others with (repeatable).",
        ),
    ] = None,
    base_selection: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="For comparisons: selection of the base, as JSON or @FILE; by default that of the other side."
            " `{}` is all of it.",
        ),
    ] = None,
    cycle: CycleOption = None,
    base_cycle: BaseCycleOption = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the analysis (repeatable)."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE", help="Print only this table; csv and arrow have one table, by default the first."
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=3600, help="Wait for traces that are not ready.")
    ] = 0,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="A table is tab-separated when piped; each of several follows a line `# NAME`, with an empty line "
            "between them.",
        ),
    ] = Format.table,
    output: OutputFile = None,
    overlay: Annotated[
        bool,
        typer.Option(
            "--overlay",
            help="For critical_path: create a trace that shows the path as a track with arrows, instead of a table."
            " Prints its id, or for a local file the name of the new file.",
        ),
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Run a built-in analysis: time breakdown, cost of kernels and operators, stragglers, and more.

    TRACE may also be the id or the name of a group, for all its ranks. Local files need no server. `compare` takes two
    sides: of two traces or groups the first is the base; otherwise --base names it.
    """
    if overlay:
        if name != "critical_path" or others or values or table or cycle is not None or form is not Format.table:
            raise typer.BadParameter(
                "only for `critical_path` of one trace, without other output options", param_hint="--overlay"
            )
        _overlay(ctx.obj, trace, selection, output, force=force, as_json=as_json)
        return
    form = chosen_format(form, Format.table, Format.json, as_json=as_json)
    output = destination(output, force=force)
    if form is Format.arrow and output is None and on_terminal():
        raise typer.BadParameter("arrow is binary; pipe it, or name a file with --output", param_hint="--format")
    requested = Format.json if form is Format.table else form
    targets = [trace, *(others or ())]
    paths = [file_of(ctx.obj, text, groups=True) for text in (*targets, *(base or ()))]
    files = [path for path in paths if path]
    if files and len(files) < len(paths):
        raise typer.BadParameter("traces on the server and local files can't be combined", param_hint="--with")
    parsed_base = None if base_selection is None else parsed(base_selection, "--base-selection")
    only = None if form is Format.table else table  # the tables of a terminal are chosen below
    request = _Request(
        targets, base or [], parsed_base, cycle, base_cycle, name, parameters_of(values), selection, requested.value,
        only,
    )  # fmt: skip
    answer = _analyze_files(request, files) if files else _analyze_on_server(ctx.obj, request, wait)
    if name is None:
        _print_list(json.loads(answer), as_json=form is Format.json)
    elif form is Format.table:
        write_tables(json.loads(answer), table, output)
    else:
        write_bytes([answer, b"\n"] if form is Format.json else [answer], output)


def _overlay(
    client: Client, trace: str, selection: Json | None, output: Path | None, *, force: bool, as_json: bool
) -> None:
    """Create a trace with its critical path as a track, and print its id or its file."""
    if file := file_of(client, trace):
        written = local.overlay(file, output, selection=selection, force=force)
        if as_json:
            print_json({"file": str(written), "size": written.stat().st_size})
        else:
            print(written)
        return
    if output or force:
        raise typer.BadParameter(
            "only for a local file; a trace on the server stays there, see `tracedock download`",
            param_hint="--output" if output else "--force",
        )
    source = client.find(trace)
    job = run_job(
        client,
        f"critical path of {source['name']}",
        lambda: client.overlay(source["id"], "critical_path", selection=selection),
    )
    (child,) = job["result"]["traces"]
    if as_json:
        print_json(job)
    else:
        print(child)


class _Request(NamedTuple):
    """Request for an analysis.

    Attributes:
        targets: the traces, groups or files to analyse.
        base: the traces, groups or files to compare them with.
        base_selection: the events of the base; None for those of `selection`.
        cycle: number of the only cycle of the targets; None for all.
        base_cycle: number of the only cycle of the base; None for the default.
        name: the name of the analysis; None for the list of analyses.
        parameters: the parameters of the analysis.
        selection: the events to analyse; None for all.
        form: the format of the answer.
        table: the only table of the answer; None for the format's default.
    """

    targets: list[str]
    base: list[str]
    base_selection: Json | None
    cycle: int | None
    base_cycle: int | None
    name: str | None
    parameters: dict[str, str]
    selection: Json | None
    form: str
    table: str | None


def _analyze_on_server(client: Client, request: _Request, wait: float) -> bytes:
    targets = [client.target(text) for text in request.targets]
    base = [target["id"] for _, target in map(client.target, request.base)]
    groups = [kind == "group" for kind, _ in targets]
    if request.name in COMPARISONS and not base and len(targets) == 2 and any(groups):
        base, targets = [targets[0][1]["id"]], targets[1:]
    if len(targets) == 1:
        ((kind, target),) = targets
        first, others = target["id"], list[str]()
    else:
        kind = "trace"
        first, *others = (trace for target in targets for trace in _traces_of(client, *target))
    return client.analysis(
        first, request.name, of=kind, traces=others, base=base, base_selection=request.base_selection,
        cycle=request.cycle, base_cycle=request.base_cycle, wait=wait,
        parameters=request.parameters, selection=request.selection, form=request.form, table=request.table,
        on_tables=lambda tables: _note_tables(request.form, request.table, tables),
    )  # fmt: skip


def _traces_of(client: Client, kind: str, target: Json) -> list[str]:
    """Return the id of a trace, or the ids of a group's traces that did not fail."""
    if kind == "trace":
        return [target["id"]]
    return [rank["trace"] for rank in client.group(target["id"])["ranks"] if rank["state"] != "failed"]


def _analyze_files(request: _Request, files: list[Path]) -> bytes:
    """Analyse local files. `files` lists the files of the targets first, then those of the base."""
    count = len(request.targets)
    return local.analysis(
        files[:count], request.name, base=files[count:], base_selection=request.base_selection,
        cycle=request.cycle, base_cycle=request.base_cycle,
        parameters=request.parameters, selection=request.selection,
        form=request.form, table=request.table,
        on_tables=lambda tables: _note_tables(request.form, request.table, tables),
    )  # fmt: skip


def parameters_of(values: list[str] | None) -> dict[str, str]:
    """Return the values of the option --set by name."""
    pairs = [value.partition("=") for value in values or ()]
    if any(not name or not separator for name, separator, _ in pairs):
        raise typer.BadParameter("the form is NAME=VALUE", param_hint="--set")
    return {name: value for name, _, value in pairs}


def _print_list(document: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        rows = [[analysis[column.title] for column in _LISTED] for analysis in document["analyses"]]
        print_table(_LISTED, rows)


def write_tables(answer: Json, table: str | None, output: Path | None) -> None:
    """Write all tables, or the named one. A pipe or a file receives the output of `_write_lines`."""
    tables: dict[str, Json] = answer["tables"]
    if table is not None:
        if table not in tables:
            raise typer.BadParameter(f"the tables are {', '.join(tables)}", param_hint="--table")
        tables = {table: tables[table]}
    if output is not None:
        with atomic(output) as file, TextIOWrapper(file, "utf-8", newline="") as text:
            _write_lines(tables, text)
    elif on_terminal():
        _draw(tables)
    else:
        _write_lines(tables, sys.stdout)
    for name, rows in tables.items():
        if rows["truncated"]:
            note(f"{name}: truncated after {grouped(len(rows['rows']))} rows.")
    for text in answer.get("notes", ()):
        note(text)
    names = Counter(trace["name"] for trace in answer["skipped"])
    for trace in answer["skipped"]:
        rank = f", rank {trace['rank']}" if names[trace["name"]] > 1 else ""  # of a merged trace
        note(f"{trace['name']}{rank}: {trace['reason']}")


def _draw(tables: dict[str, Json]) -> None:
    """Draw tables on a terminal. If there are several, each has its name above it."""
    for place, (name, table) in enumerate(tables.items()):
        if len(tables) > 1:
            title = f"\x1b[1;4m{name}\x1b[0m" if has_color(sys.stdout) else name
            print(f"{chr(10) if place else ''}{title}")
        print_result(table, null="-")


def _write_lines(tables: dict[str, Json], to: TextIO) -> None:
    """Write tab-separated tables. Several tables have a line `# NAME` before each, and an empty line between them."""
    for place, (name, table) in enumerate(tables.items()):
        if len(tables) > 1:
            to.write(f"{chr(10) if place else ''}# {name}\n")
        write_lines(to, [column["name"] for column in table["columns"]], table["rows"])


def _note_tables(form: str, table: str | None, tables: list[str]) -> None:
    """Print a note if csv or arrow contains only the first of several tables, because none was named."""
    if table is None and form != "json" and len(tables) > 1:
        note(f"{form} contains one table, {tables[0]}, of {', '.join(tables)}; --table selects another, json has all.")

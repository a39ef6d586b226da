"""The command `analyze`: questions that are often asked, of a trace on the server or of files here without one."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NamedTuple, TextIO

import typer

from service.cli import local
from service.cli.arguments import file_of
from service.cli.client import Client, Json
from service.cli.making import Force, LocalArgument, done
from service.cli.output import whole
from service.cli.render import Column, dashed, on_terminal, print_json, print_result, print_table, write_lines
from service.cli.report import note
from service.cli.selection import selecting
from service.cli.sql import write_bytes

_LISTED = (Column("name"), Column("answers"), Column("applies", person=lambda value: "yes" if value else "no"),
           Column("reason", person=dashed))  # fmt: skip


class Format(StrEnum):
    """The forms of an answer."""

    table = "table"
    json = "json"
    csv = "csv"
    arrow = "arrow"


@selecting
def analyze(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    trace: LocalArgument,
    selection: Json | None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="What to ask; without it, what can be asked is listed.")
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="TRACE", help="A further rank of the run, or what to compare with; repeatable."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--base", metavar="TRACE", help="Of compare: a trace or a group to compare all others with; repeatable."
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the analysis; may be given again."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="Only this table, instead of all; csv and arrow have one, the first if not named."),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=3600, help="Wait for traces that the server still reads.")
    ] = 0,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="A table is tab-separated when piped; of several each follows a line `# NAME`, with an empty line "
            "between two.",
        ),
    ] = Format.table,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here; the file appears when it is whole.")
    ] = None,
    overlay: Annotated[
        bool,
        typer.Option(
            "--overlay",
            help="Of critical_path: make a trace that shows the path as a track with arrows, instead of a table. Prints"
            " its id, or of a file here the name of the new file.",
        ),
    ] = False,
    force: Force = False,
) -> None:
    """Ask what is often asked: where the time goes, what kernels and ops cost, who is late, and more.

    TRACE may also be the id or the name of a group: all of its ranks are asked. Of files that are here no server is
    needed. Several ranks are asked together. `compare` takes two sides: of two traces or groups the first is the base;
    else --base names it.
    """
    if overlay:
        if name != "critical_path" or others or values or table or form is not Format.table:
            raise typer.BadParameter(
                "this is for `critical_path` of one trace, without other options of the answer", param_hint="--overlay"
            )
        _overlay(ctx.obj, trace, selection, output, force=force)
        return
    if force:
        raise typer.BadParameter("this is for --overlay of a file here", param_hint="--force")
    if form is Format.arrow and output is None and on_terminal():
        raise typer.BadParameter("arrow is binary; pipe it, or name a file with --output", param_hint="--format")
    asked_as = Format.json if form is Format.table else form
    targets = [trace, *(others or ())]
    paths = [file_of(ctx.obj, one, groups=True) for one in (*targets, *(base or ()))]
    files = [path for path in paths if path]
    if files and len(files) < len(paths):
        raise typer.BadParameter("traces of the server and files here can't be asked together", param_hint="--with")
    wanted = _Wanted(targets, base or [], name, _parameters(values), selection, asked_as.value, table)
    answer = _of_files(wanted, files) if files else _of_server(ctx.obj, wanted, wait)
    if name is None:
        _print_list(json.loads(answer), as_json=form is Format.json)
    elif form is Format.table:
        _write_tables(json.loads(answer), table, output)
    else:
        write_bytes([answer], output)


def _overlay(client: Client, trace: str, selection: Json | None, output: Path | None, *, force: bool) -> None:
    """Have a trace made that shows its critical path, and print its id or its file."""
    if file := file_of(client, trace):
        print(local.overlay(file, output, selection=selection, force=force))
        return
    if output or force:
        raise typer.BadParameter(
            "this is for a file here; a trace on the server is kept there, see `tracedock download`",
            param_hint="--output" if output else "--force",
        )
    found = client.find(trace)
    job = done(
        client,
        f"critical path of {found['name']}",
        lambda: client.overlay(found["id"], "critical_path", selection=selection),
    )
    (made,) = job["result"]["traces"]
    print(made)


class _Wanted(NamedTuple):
    """What is asked: traces, groups or files, and those to compare with; by which analysis, and how."""

    targets: list[str]
    base: list[str]
    name: str | None
    parameters: dict[str, str]
    selection: Json | None
    form: str
    table: str | None


def _of_server(client: Client, wanted: _Wanted, wait: float) -> bytes:
    targets = [client.target(one) for one in wanted.targets]
    base = [found["id"] for _, found in map(client.target, wanted.base)]
    groups = [kind == "group" for kind, _ in targets]
    if wanted.name == "compare" and not base and len(targets) == 2 and any(groups):
        base, targets = [targets[0][1]["id"]], targets[1:]
    if len(targets) == 1:
        ((kind, found),) = targets
        first, others = found["id"], list[str]()
    else:
        kind = "trace"
        first, *others = (one for each in targets for one in _traces_of(client, *each))
    return client.analysis(
        first, wanted.name, of=kind, traces=others, base=base, wait=wait, parameters=wanted.parameters,
        selection=wanted.selection, form=wanted.form, table=wanted.table,
        on_tables=lambda tables: _say_which(wanted.form, wanted.table, tables),
    )  # fmt: skip


def _traces_of(client: Client, kind: str, found: Json) -> list[str]:
    """The ids of a group's traces that could be read, or that of a trace."""
    if kind == "trace":
        return [found["id"]]
    return [one["trace"] for one in client.group(found["id"])["ranks"] if one["state"] != "failed"]


def _of_files(wanted: _Wanted, files: list[Path]) -> bytes:
    """Ask files: as many as there are targets, and then those of the base."""
    count = len(wanted.targets)
    return local.analysis(
        files[:count], wanted.name, base=files[count:], parameters=wanted.parameters, selection=wanted.selection,
        form=wanted.form, table=wanted.table, on_tables=lambda tables: _say_which(wanted.form, wanted.table, tables),
    )  # fmt: skip


def _parameters(values: list[str] | None) -> dict[str, str]:
    told = [value.partition("=") for value in values or ()]
    if any(not name or not separator for name, separator, _ in told):
        raise typer.BadParameter("a parameter is written NAME=VALUE", param_hint="--set")
    return {name: value for name, _, value in told}


def _print_list(listed: Json, *, as_json: bool) -> None:
    if as_json:
        print_json(listed)
    else:
        print_table(_LISTED, [[one[column.title] for column in _LISTED] for one in listed["analyses"]])


def _write_tables(answer: Json, table: str | None, output: Path | None) -> None:
    """Write all tables, or the one that is named; see `_write_lines` for a pipe or a file."""
    tables: dict[str, Json] = answer["tables"]
    if table is not None:
        if table not in tables:
            raise typer.BadParameter(f"there are {', '.join(tables)}", param_hint="--table")
        tables = {table: tables[table]}
    if output is not None:
        with whole(output) as file, TextIOWrapper(file, "utf-8", newline="") as text:
            _write_lines(tables, text)
    elif on_terminal():
        _draw(tables)
    else:
        _write_lines(tables, sys.stdout)
    for name, rows in tables.items():
        if rows["truncated"]:
            note(f"{name}: cut after {len(rows['rows'])} rows; there are more.")
    for text in answer.get("notes", ()):
        note(text)
    for one in answer["skipped"]:
        note(f"{one['name']}: {one['reason']}")


def _draw(tables: dict[str, Json]) -> None:
    """Draw tables for a person, several each under its name."""
    for place, (name, table) in enumerate(tables.items()):
        if len(tables) > 1:
            print(f"{chr(10) if place else ''}{name}")
        print_result(table)


def _write_lines(tables: dict[str, Json], to: TextIO) -> None:
    """Write tab-separated tables; of several each follows a line `# NAME`, and an empty line if it is not the first."""
    for place, (name, table) in enumerate(tables.items()):
        if len(tables) > 1:
            to.write(f"{chr(10) if place else ''}# {name}\n")
        write_lines(to, [column["name"] for column in table["columns"]], table["rows"])


def _say_which(form: str, chosen: str | None, tables: list[str]) -> None:
    """Say which of several tables csv or arrow has, where none was named."""
    if chosen is None and form != "json" and len(tables) > 1:
        note(f"{form} has one table: {tables[0]}, of {', '.join(tables)}; --table names another, json has all.")

"""The commands `gate` and `history`, and the command group `baseline`."""

# ruff: noqa: PLC0415 - what these commands need is imported when they run, so that others start quickly

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tracedock.errors import ClientError
from tracedock.gate.defaults import LEVEL, LIMIT, WAIT_S, WARMUP, exit_code_of

from service.cli import local
from service.cli.arguments import file_of
from service.cli.report import report
from service.cli.traces import AsJson
from service.formats.names import SUFFIXES

if TYPE_CHECKING:
    from tracedock.client import Client
    from tracedock.gate.command import Resolve
    from tracedock.gate.rules import Figure
    from tracedock.gate.runs import Run

_TRACES = tuple(f"*{suffix}" for suffix in SUFFIXES)
"""Patterns of the files of a folder that are the ranks of a run."""


class Form(StrEnum):
    """Forms of a verdict."""

    table = "table"
    json = "json"
    junit = "junit"
    markdown = "markdown"


class Undecided(StrEnum):
    """What becomes of a gate that can't be decided."""

    stop = "stop"
    passes = "pass"
    fail = "fail"


WarmupOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="Leave out this many steps at the start of each cycle.")
]


def gate(  # noqa: PLR0913, PLR0917 - a parameter is an option of the command
    ctx: typer.Context,
    baseline: Annotated[
        str, typer.Argument(metavar="BASELINE", help="Trace, group, file, folder of ranks, or @NAME of a baseline.")
    ],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="Trace, group, file, or folder of ranks.")],
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "--rule", metavar="RULE", help="Such as 'step.median<+3%' or 'kernel:nccl*.sum<+10%' (repeatable)."
        ),
    ] = None,
    level: Annotated[float, typer.Option(metavar="P", help="Level of significance of all rules together.")] = LEVEL,
    warmup: WarmupOption = WARMUP,
    each_rank: Annotated[
        bool, typer.Option("--each-rank", help="Apply each rule to each rank, not to the slowest rank of each step.")
    ] = False,
    undecided: Annotated[
        Undecided, typer.Option(help="What too few steps for a decision mean: exit code 4, or 0, or 1.")
    ] = Undecided.stop,
    form: Annotated[
        Form, typer.Option("--format", "-f", help="Form of the standard output; a table is tab-separated when piped.")
    ] = Form.table,
    outputs: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a .json, .xml (JUnit) or .md, too (repeatable)."),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=3600, help="Wait for traces that are not ready.")
    ] = WAIT_S,
) -> None:
    """Fail if a candidate's steps cost more than a baseline's allow, by a test of significance.

    Exit codes: 0 passed, 1 regression, 2 refused or wrong usage, 3 no server reached, 4 undecided: too few steps.
    """
    from tracedock.gate import command

    client: Client = ctx.obj
    options = command.GateOptions(
        baseline, candidate, rules or [], level, warmup, each_rank, undecided.value, form.value, outputs or [], wait
    )
    _exit(lambda: command.run_gate(options, _resolving(client, wait), client.url))


def _resolving(client: Client, wait: float) -> Resolve:
    """Return a function that finds runs in files, and on the server."""
    from tracedock.gate.command import on_server
    from tracedock.gate.server import BASELINE_PREFIX

    find = on_server(client, wait)

    def resolve(text: str, figures: Sequence[Figure]) -> Run:
        files = [] if text.startswith(BASELINE_PREFIX) else _files_of(client, text)
        return _run_of_files(files, text, figures) if files else find(text, figures)

    return resolve


def _files_of(client: Client, text: str) -> list[Path]:
    """Return the files that an argument means; none if it means a trace or a group on the server."""
    folder = Path(text).expanduser()
    if folder.is_dir() and "/" in text:
        files = sorted(path for pattern in _TRACES for path in folder.glob(pattern))
        if not files:
            raise typer.BadParameter(f"{text} has no file like {', '.join(_TRACES)}", param_hint="TRACE")
        return files
    file = file_of(client, text, groups=True)
    return [file] if file else []


def _run_of_files(files: Sequence[Path], name: str, figures: Sequence[Figure]) -> Run:
    from tracedock.gate.runs import ANALYSIS, Run, tables_of, wanted_tables

    answer = local.analysis(
        files, ANALYSIS, parameters={"only": wanted_tables(figures)}, selection=None, form="json", table=None
    )
    tables, notes = tables_of(answer)
    return Run(name, tables, notes=notes)


def history(
    ctx: typer.Context,
    figure: Annotated[str, typer.Argument(metavar="FIGURE", help="Such as step.median or 'kernel:nccl*.sum'.")],
    name: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Uploads with these names, such as 'main-*'.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="The traces and groups that a baseline has had.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most this many, the latest.")] = LIMIT,
    warmup: WarmupOption = WARMUP,
    as_json: AsJson = False,
) -> None:
    """Show a figure of the latest uploads in order of time, and when it has grown.

    A group counts as one upload, and its traces do not count again.
    """
    from tracedock.gate.command import run_history

    client: Client = ctx.obj
    _exit(
        lambda: run_history(client, figure, name=name, baseline=baseline, limit=limit, warmup=warmup, as_json=as_json)
    )


app = typer.Typer(help="List named baselines, with which a gate compares.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the baseline.")]


@app.callback(invoke_without_command=True)
def list_baselines(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the baselines, by name."""
    if ctx.invoked_subcommand is None:
        _baseline(ctx.obj, "ls", as_json=as_json)


@app.command()
def show(ctx: typer.Context, name: NameArgument, as_json: AsJson = False) -> None:
    """List the traces and groups that a baseline has had, the present one first."""
    _baseline(ctx.obj, "show", name, as_json=as_json)


@app.command("set")
def set_to(
    ctx: typer.Context,
    name: NameArgument,
    target: Annotated[str, typer.Argument(metavar="TRACE", help="Trace or group, which retention then keeps.")],
    as_json: AsJson = False,
) -> None:
    """Set a baseline to a trace or a group."""
    _baseline(ctx.obj, "set", name, target, as_json=as_json)


@app.command()
def rm(ctx: typer.Context, name: NameArgument, as_json: AsJson = False) -> None:
    """Delete a baseline with its history; its traces and groups stay."""
    _baseline(ctx.obj, "rm", name, as_json=as_json)


def _baseline(client: Client, action: str, name: str = "", target: str = "", *, as_json: bool = False) -> None:
    from tracedock.gate.command import run_baseline

    _exit(lambda: run_baseline(client, action, name, target, as_json=as_json))


def _exit(run: Callable[[], int]) -> None:
    """End with the exit code of a command; an error has never that of a regression."""
    try:
        code = run()
    except BrokenPipeError:
        raise
    except (ClientError, OSError) as error:
        report(error)
        code = exit_code_of(error)
    raise typer.Exit(code)

"""The command `tracedock`: its subcommands and exit codes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from tracedock.client import DEFAULT_URL, Client, Retries
from tracedock.errors import AmbiguousFileError, AmbiguousTraceError, ClientError, UnreachableError
from typer.core import TyperGroup

from service.cli import (
    agents,
    analyze,
    download,
    gate,
    groups,
    imports,
    jobs,
    server,
    sessions,
    split_merge,
    sql,
    tokens,
    traces,
    write_report,
)
from service.cli.report import report

REFUSED, USAGE, UNREACHABLE, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 130, 141


SECTIONS = {
    "Traces": ("upload", "import", "ls", "show", "download", "rm", "groups"),
    "Questions": ("analyze", "report", "query", "open"),
    "Regressions": ("gate", "baseline", "history"),
    "Parts and runs": ("split", "merge"),
    "Server": ("serve", "doctor", "jobs", "sessions", "imports", "token", "mcp"),
}
"""The commands as the help lists them."""

ANYWHERE = ("--url", "--token")
"""Options that may stand before or after the command."""
_WITH_VALUE = tuple(f"{option}=" for option in ANYWHERE)


class Commands(TyperGroup):
    """Command group that converts exceptions into messages on stderr and exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; the options of `ANYWHERE` after the command count as if they stood before it."""
        return super().parse_args(ctx, _options_first(args))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click passes it
        """Write the commands into the help, by section."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                width = formatter.width - 6 - max(map(len, self.commands))
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe can still become an exit code
        except BrokenPipeError as error:
            _forget_stdout()  # the reader has closed the pipe, as in `tracedock ls | head`
            raise typer.Exit(PIPE_CLOSED) from error
        except ClientError as error:
            report(error)
            raise typer.Exit(_exit_code(error)) from error
        except OSError as error:
            report(error)
            raise typer.Exit(REFUSED) from error
        except KeyboardInterrupt as interrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from interrupt
        return result


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Upload traces of torch.profiler, query them with SQL, split and merge them, and open them in the "
    "Perfetto UI.\n\n"
    "A TRACE is an id, the start of an id, a name, or `latest`. split, merge, download, analyze and report also accept "
    "a local file, and then need no server. A TRACE with a path, like ./rank0.json, is always a file. A bare name is a "
    "file if there is one and the server has no trace of that name; if both exist, the command is refused.\n\n"
    "--url and --token may stand before or after the command.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no server reached, 130 interrupted, "
    "141 output pipe closed.",
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - it loads the parser of emails, which no other command needs

        print(f"tracedock {version('tracedock-server')}")
        raise typer.Exit


@app.callback()
def server_url(
    ctx: typer.Context,
    url: Annotated[str, typer.Option(envvar="TRACEDOCK_URL", metavar="URL", help="URL of the server.")] = DEFAULT_URL,
    token: Annotated[
        str,
        typer.Option(
            envvar="TRACEDOCK_TOKEN",
            metavar="TOKEN",
            help="API token; other users of this machine can see the option, but not the variable.",
        ),
    ] = "",
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Create the client for the commands."""
    try:
        # a person who has forgotten to start the server learns it at once
        ctx.obj = ctx.with_resource(Client(url, token, retries=Retries(unreachable=False)))
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint="--url, --token") from exc


app.command()(server.serve)
app.command()(traces.upload)
app.command("ls")(traces.list_traces)
app.command()(traces.show)
app.command()(download.download)
app.command()(split_merge.split)
app.command()(split_merge.merge)
app.command()(sql.query)
app.command()(analyze.analyze)
app.command("report")(write_report.write_report)
app.command()(gate.gate)
app.command()(gate.history)
app.command("import")(imports.import_files)
app.command("open")(traces.open_trace)
app.command("rm")(traces.remove)
app.command()(server.doctor)
app.add_typer(gate.app, name="baseline")
app.command("mcp")(agents.serve_agents)
app.add_typer(groups.app, name="groups")
app.add_typer(imports.app, name="imports")
app.add_typer(jobs.app, name="jobs")
app.add_typer(sessions.app, name="sessions")
app.add_typer(tokens.app, name="token")


def main() -> NoReturn:
    """Run the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name that the locale can't encode must not end a listing early.
            stream.reconfigure(errors="backslashreplace")
    code: str | int | None = 0
    try:
        app(prog_name="tracedock")
    except SystemExit as end:
        code = end.code
    with suppress(OSError):  # the reader has closed the pipe
        if isinstance(code, str):
            print(code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    status = 1 if isinstance(code, str) else code or 0
    os._exit(status)  # all files are closed; a regular exit takes up to two seconds to finalise all modules


def _options_first(args: list[str]) -> list[str]:
    """Return the arguments with the options of `ANYWHERE` moved to the front; those after `--` stay."""
    end = args.index("--") if "--" in args else len(args)
    moved: list[str] = []
    kept: list[str] = []
    rest = iter(args[:end])
    for argument in rest:
        if argument not in ANYWHERE:
            (moved if argument.startswith(_WITH_VALUE) else kept).append(argument)
        elif (value := next(rest, None)) is not None:
            moved += [argument, value]
        else:
            return [argument]  # the parser reports that its value is missing
    return moved + kept + args[end:]


def _exit_code(error: ClientError) -> int:
    if isinstance(error, UnreachableError):
        return UNREACHABLE
    return USAGE if isinstance(error, AmbiguousTraceError | AmbiguousFileError) else REFUSED


def _forget_stdout() -> None:
    """Discard buffered output, which the interpreter would fail to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()

"""The command `tracedock`: its subcommands and exit codes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from tracedock.errors import AmbiguousFileError, AmbiguousTraceError, ClientError, UnreachableError
from typer.exceptions import TyperException
from typer.main import get_command

from service.cli import (
    agents,
    analyze,
    attachments,
    completion,
    download,
    fleet,
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
from service.cli.commands import App, Group
from service.cli.report import advise, report, say
from service.cli.terminal import preferences

REFUSED, USAGE, UNREACHABLE, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 130, 141


SECTIONS = {
    "Traces": ("upload", "import", "ls", "show", "download", "rm", "groups", "attach", "detach"),
    "Questions": ("analyze", "report", "query", "open"),
    "Regressions": ("gate", "baseline", "history"),
    "Parts and runs": ("split", "merge", "fleet"),
    "Server": ("serve", "doctor", "jobs", "sessions", "imports", "token", "mcp"),
    "Shell": ("completion",),
}
"""The commands as the help lists them."""

_WHOLE = 1000  # characters of a command's first sentence, which is wrapped, not cut
ANYWHERE = {"--url": True, "--token": True, "--quiet": False, "-q": False, "--wide": False}
"""Options that may stand before or after the command, and whether each takes a value."""
TRACEBACK = "TRACEDOCK_TRACEBACK"
"""Variable of the environment that shows the traceback of an internal error."""


class Commands(Group):
    """Command group that converts exceptions into messages on stderr and exit codes."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command line; print a usage error in the form of all other errors."""
        is_standalone = settings.pop("standalone_mode", True)
        settings["standalone_mode"] = False
        if not is_standalone:
            return super().main(*args, **settings)
        try:
            code = super().main(*args, **settings)
        except TyperException as error:
            _report_usage(error)
            code = error.exit_code
        except typer.Abort:
            say("aborted: nothing was changed")
            code = REFUSED
        except KeyboardInterrupt:
            say("interrupted")
            code = INTERRUPTED
        sys.exit(code or 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; the options of `ANYWHERE` after the command count as if they stood before it."""
        options, others = _parted(args)
        return super().parse_args(ctx, options + others)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click passes it
        """Write the commands into the help, by section."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(_WHOLE)) for name in names])

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
            advise(error, ctx.obj.url)
            raise typer.Exit(_exit_code(error)) from error
        except OSError as error:
            report(error)
            raise typer.Exit(REFUSED) from error
        except KeyboardInterrupt as interrupt:
            say("interrupted")
            raise typer.Exit(INTERRUPTED) from interrupt
        except (TyperException, typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if os.environ.get(TRACEBACK):
                raise
            say(f"error: internal error: {type(error).__name__}: {error}")
            say(f"This is a fault of tracedock. {TRACEBACK}=1 shows its place; please report it.")
            raise typer.Exit(REFUSED) from error
        return result


app = App(
    cls=Commands,
    help="Upload traces of torch.profiler, query them with SQL, split and merge them, and open them in the "
    "Perfetto UI.\n\n"
    "A TRACE is an id, the start of an id, a name, or `latest`. split, merge, download, analyze and report also accept "
    "a local file, and then need no server. A TRACE with a path, like ./rank0.json, is always a file. A bare name is a "
    "file if there is one and the server has no trace of that name; if both exist, the command is refused.\n\n"
    "--url, --token, --quiet and --wide may stand before or after the command. --json prints exact values as JSON, and "
    "a pipe receives exact values as tab-separated lines.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no server reached, 130 interrupted, "
    "141 output pipe closed.",
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import

        print(f"tracedock {version('tracedock-server')}")
        raise typer.Exit


@app.callback()
def server_url(
    ctx: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="TRACEDOCK_URL", metavar="URL", help="URL of the server, by default http://127.0.0.1:8700."
        ),
    ] = None,
    token: Annotated[
        str,
        typer.Option(
            envvar="TRACEDOCK_TOKEN",
            metavar="TOKEN",
            help="API token; other users of this machine can see the option, but not the variable.",
        ),
    ] = "",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only results and errors, no notes and no progress.")
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="On a terminal: one line for a row of a table, with whole names.")
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Create the client for the commands."""
    preferences.quiet, preferences.wide = quiet, wide
    if ctx.invoked_subcommand == "serve":  # the client would take memory of the server as long as it runs
        return
    from tracedock.client import Client, Retries  # noqa: PLC0415 - slow to import, and completions need no client

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
app.command()(attachments.attach)
app.command()(attachments.detach)
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
app.command("mcp")(agents.serve_agents)
app.command()(completion.completion)
app.add_typer(gate.app, name="baseline")
app.add_typer(fleet.app, name="fleet")
app.add_typer(groups.app, name="groups")
app.add_typer(imports.app, name="imports")
app.add_typer(jobs.app, name="jobs")
app.add_typer(sessions.app, name="sessions")
app.add_typer(tokens.app, name="token")


def main() -> NoReturn:
    """Run the console script."""
    # A module of None can't be imported, and httpx does without its own command line, which takes as long as ours.
    # https://docs.python.org/3/reference/import.html#the-module-cache
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name that the locale can't encode must not end a listing early.
            stream.reconfigure(errors="backslashreplace")
    code: str | int | None = 0
    try:
        if (line := os.environ.get(completion.VARIABLE)) is not None:
            completion.print_completions(get_command(app), line)
        else:
            app.keep_only(command_in(sys.argv[1:]))
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


def _parted(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of `ANYWHERE` with their values, and all other arguments, such as those after `--`."""
    end = args.index("--") if "--" in args else len(args)
    moved: list[str] = []
    kept: list[str] = []
    rest = iter(args[:end])
    for argument in rest:
        name, assigned, _ = argument.partition("=")
        takes_value = ANYWHERE.get(name)
        if takes_value is None or (assigned and not takes_value):
            kept.append(argument)
        elif assigned or not takes_value:
            moved.append(argument)
        elif (value := next(rest, None)) is not None:
            moved += [argument, value]
        else:
            return [argument], []  # the parser reports that its value is missing
    return moved, kept + args[end:]


def command_in(args: list[str]) -> str:
    """Return the command that the arguments name; empty if another option than those of `ANYWHERE` precedes it."""
    _, others = _parted(args)
    return others[0] if others and not others[0].startswith("-") else ""


def _report_usage(error: TyperException) -> None:
    """Print a usage error, and the command whose help describes the right usage."""
    text = error.format_message().rstrip(".").replace("Value error, ", "")  # pydantic's words
    say(f"error: {text[:1].lower()}{text[1:]}")
    context = getattr(error, "ctx", None)
    say(f"See `{context.command_path if context else 'tracedock'} --help`.")


def _exit_code(error: ClientError) -> int:
    if isinstance(error, UnreachableError):
        return UNREACHABLE
    return USAGE if isinstance(error, AmbiguousTraceError | AmbiguousFileError) else REFUSED


def _forget_stdout() -> None:
    """Discard buffered output, which the interpreter would fail to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()

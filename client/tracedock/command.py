"""The console script `tracedock`: the full command line where the server is installed, else the client's commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from typing import NoReturn

from tracedock import __version__, uploading
from tracedock.gate import parser as gating

PASSED, REFUSED, USAGE, UNREACHABLE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 130, 141
SERVER_COMMANDS = (
    *("import", "ls", "show", "download", "rm", "groups", "analyze", "report", "query", "open", "split", "merge"),
    *("attach", "detach"),
    *("fleet", "serve", "doctor", "jobs", "sessions", "imports", "token", "mcp", "completion"),
)
"""Commands of the package tracedock-server alone."""
_SERVER, _GROUP = "tracedock-server", "tracedock.command"
"""The package of the server, and the group of its entry point with the full command line."""


def main() -> NoReturn:
    """Run the console script."""
    try:
        # a search for the group in all packages would take 5 ms
        commands = [each for each in distribution(_SERVER).entry_points if each.group == _GROUP]
    except PackageNotFoundError:
        sys.exit(run(sys.argv[1:]))
    try:
        for command in commands:
            command.load()()
    except KeyboardInterrupt:  # while the modules are imported; later, the command line reports it
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    sys.exit()


def run(words: Sequence[str]) -> int:
    """Run the client's own command line, and return its exit code."""
    from tracedock.client import Client  # noqa: PLC0415 - httpx loads slowly, and --version does not need it
    from tracedock.errors import ClientError, UnreachableError  # noqa: PLC0415

    parser = _parser()
    arguments = parser.parse_args(words)
    if arguments.command in SERVER_COMMANDS:
        parser.error(f"`tracedock {arguments.command}` needs the package tracedock-server, which has the server")
    try:
        client = Client(arguments.url, arguments.token)
    except ValueError as error:
        parser.error(str(error))
    try:
        with client:
            code: int = arguments.run(arguments, client)
            sys.stdout.flush()  # here, where a closed pipe can still become an exit code
            return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest can't be written at exit, either
        return PIPE_CLOSED
    except argparse.ArgumentError as error:
        parser.error(str(error))
    except (ClientError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNREACHABLE if isinstance(error, UnreachableError) else REFUSED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tracedock",
        description="Client of a Tracedock server. The package tracedock-server has the full command line.",
        epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no server reached, 130 interrupted, "
        "141 output pipe closed.",
    )
    parser.add_argument("--version", action="version", version=f"tracedock {__version__}")
    parser.add_argument("--url", help="URL of the server; by default TRACEDOCK_URL, then http://127.0.0.1:8700")
    parser.add_argument("--token", help="API token; by default TRACEDOCK_TOKEN, which other users can't see")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    uploading.add_commands(commands)
    gating.add_commands(commands)
    for name in SERVER_COMMANDS:
        commands.add_parser(name, add_help=False, prefix_chars="\0").add_argument("rest", nargs="*")
    return parser

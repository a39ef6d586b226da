"""The commands `gate`, `baseline` and `history` for a parser of argparse.

After `add_commands`, the parsed arguments have `run`: a function that takes them and a client, and returns the exit
code.
"""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs, so that others start quickly

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracedock.errors import ClientError
from tracedock.gate.defaults import EXIT_CODES, FORMS, LEVEL, LIMIT, WAIT_S, WARMUP, WHEN_UNDECIDED, exit_code_of

if TYPE_CHECKING:
    from tracedock.client import Client


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `gate`, `baseline` and `history` to the subcommands of a parser."""
    gate = commands.add_parser(
        "gate", help="Fail if a candidate's steps cost more than a baseline's.", epilog=EXIT_CODES
    )
    gate.add_argument("baseline", metavar="BASELINE", help="Trace, group, or @NAME of a baseline.")
    gate.add_argument("candidate", metavar="CANDIDATE", help="Trace or group.")
    gate.add_argument(
        "--rule", action="append", default=[], metavar="RULE", help="Such as step.median<+3%% (repeatable)."
    )
    gate.add_argument("--level", type=float, default=LEVEL, help="Level of significance of all rules together.")
    gate.add_argument(
        "--warmup", type=int, default=WARMUP, metavar="N", help="Steps to leave out at each cycle's start."
    )
    gate.add_argument("--each-rank", action="store_true", help="Apply each rule to each rank.")
    gate.add_argument("--undecided", choices=[*WHEN_UNDECIDED], default="stop", help="What too few steps mean.")
    gate.add_argument("--format", "-f", choices=FORMS, default="table", help="Form of the standard output.")
    gate.add_argument("--output", "-o", type=Path, action="append", default=[], metavar="FILE",
                      help="Write .json, .xml or .md, too (repeatable).")  # fmt: skip
    gate.add_argument("--wait", type=float, default=WAIT_S, metavar="SECONDS", help="Wait for traces.")
    gate.set_defaults(run=_guarded(_gate))
    baseline = commands.add_parser("baseline", help="List, show, set or remove named baselines.")
    baseline.add_argument("action", choices=["ls", "show", "set", "rm"], nargs="?", default="ls")
    baseline.add_argument("name", nargs="?", default="", metavar="NAME")
    baseline.add_argument("target", nargs="?", default="", metavar="TARGET", help="Trace or group.")
    baseline.add_argument("--json", action="store_true", help="Print JSON.")
    baseline.set_defaults(run=_guarded(_baseline))
    past = commands.add_parser("history", help="Show a figure of the latest uploads.")
    past.add_argument("figure", metavar="FIGURE", help="Such as step.median.")
    past.add_argument("--name", metavar="PATTERN", help="Uploads with these names, such as 'main-*'.")
    past.add_argument("--baseline", metavar="NAME", help="The targets that a baseline has had.")
    past.add_argument("--limit", type=int, default=LIMIT, metavar="N", help="At most this many uploads.")
    past.add_argument(
        "--warmup", type=int, default=WARMUP, metavar="N", help="Steps to leave out at each cycle's start."
    )
    past.add_argument("--json", action="store_true", help="Print JSON.")
    past.set_defaults(run=_guarded(_history))


def _guarded(run: Callable[[argparse.Namespace, Client], int]) -> Callable[[argparse.Namespace, Client], int]:
    """Return a command that reports errors, and returns their exit code."""

    def guarded(args: argparse.Namespace, client: Client) -> int:
        try:
            return run(args, client)
        except BrokenPipeError:
            raise
        except (ClientError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return exit_code_of(error)

    return guarded


def _gate(args: argparse.Namespace, client: Client) -> int:
    from tracedock.gate.command import GateOptions, on_server, run_gate

    options = GateOptions(
        args.baseline, args.candidate, args.rule, args.level, args.warmup, args.each_rank, args.undecided, args.format,
        args.output, args.wait,
    )  # fmt: skip
    for text in (args.baseline, args.candidate):
        if Path(text).exists() and ("/" in text or "\\" in text):
            raise ClientError(f"{text} is on this machine: comparing files needs the package tracedock-server.")
    return run_gate(options, on_server(client, args.wait), client.url)


def _baseline(args: argparse.Namespace, client: Client) -> int:
    from tracedock.gate.command import run_baseline

    if (args.action != "ls" and not args.name) or (args.action == "set") != bool(args.target):
        raise ClientError("The forms are: baseline ls; baseline show NAME; baseline set NAME TARGET; baseline rm NAME.")
    return run_baseline(client, args.action, args.name, args.target, as_json=args.json)


def _history(args: argparse.Namespace, client: Client) -> int:
    from tracedock.gate.command import run_history

    return run_history(
        client, args.figure, name=args.name, baseline=args.baseline, limit=args.limit, warmup=args.warmup,
        as_json=args.json,
    )  # fmt: skip

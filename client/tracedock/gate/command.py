"""The commands `gate`, `baseline` and `history`, for both command lines.

`run_gate`, `run_baseline` and `run_history` do the work; `add_commands` adds them to a parser of argparse, whose
arguments then have `run`, a function that takes the arguments and a client, and returns the exit code.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracedock.client import Client
from tracedock.errors import ClientError, UnreachableError
from tracedock.gate import history, rendering, server
from tracedock.gate.rules import Figure, RuleError, parse_figure, parse_rule
from tracedock.gate.runs import WARMUP, Run
from tracedock.gate.verdicts import LEVEL, Outcome, Verdict, judge

PASSED, REGRESSION, REFUSED, UNREACHABLE, UNDECIDED = 0, 1, 2, 3, 4
"""Exit codes of `gate`: a refusal is never mistaken for a regression."""
EXIT_CODES = (
    "Exit codes: 0 passed, 1 regression, 2 refused or wrong usage, 3 no server reached, 4 undecided: too few steps."
)
FORMS = ("table", "json", "junit", "markdown")
WHEN_UNDECIDED = {"stop": UNDECIDED, "pass": PASSED, "fail": REGRESSION}
"""Exit codes for an undecided gate, by the value of `--undecided`."""
_JUNIT = {"stop": "error", "pass": "skipped", "fail": "failure"}
_SUFFIXES = {".json": "json", ".xml": "junit", ".md": "markdown", ".markdown": "markdown"}

Resolve = Callable[[str, Sequence[Figure]], Run]
"""A function that returns the run of an argument, with what the figures need."""


@dataclass(frozen=True)
class GateOptions:
    """Options of `gate`; see the help of the command.

    Args:
        baseline: a trace, a group, or `@` and the name of a baseline.
        candidate: a trace or a group.
        rules: the texts of the rules.
        level: level of significance.
        warmup: number of steps to leave out at the start of each cycle.
        each_rank: whether to apply each rule to each rank.
        undecided: a key of `WHEN_UNDECIDED`.
        form: a form of `FORMS` for the standard output.
        outputs: files to write as well, in the forms of their suffixes.
        wait: seconds to wait for traces that are not ready.
    """

    baseline: str
    candidate: str
    rules: Sequence[str]
    level: float = LEVEL
    warmup: int = WARMUP
    each_rank: bool = False
    undecided: str = "stop"
    form: str = "table"
    outputs: Sequence[Path] = ()
    wait: float = server.WAIT_S


def on_server(client: Client, wait: float = server.WAIT_S) -> Resolve:
    """Return a function that finds runs on a server."""
    return lambda text, figures: server.run_of(client, server.find_target(client, text), figures, wait)


def run_gate(options: GateOptions, resolve: Resolve, url: str = "") -> int:
    """Judge a candidate, print and write the verdict, and return the exit code.

    Args:
        options: the options.
        resolve: returns the runs that the options name.
        url: address of the server, for links; empty for none.

    Raises:
        RuleError: a rule or an option can't be understood, or a figure is not known.
        ClientError: the server refuses a request, or does not respond.
        OSError: a file can't be written.
    """
    verdict = _verdict(options, resolve)
    junit = _JUNIT[options.undecided]
    for output in options.outputs:
        output.write_text(rendered(verdict, _form_of(output), url, junit), encoding="utf-8")
    if options.form != "table":
        sys.stdout.write(rendered(verdict, options.form, url, junit))
    elif sys.stdout.isatty():
        sys.stdout.write(rendering.as_table(verdict))
    else:
        sys.stdout.write(rendering.as_lines(verdict))
        for line in (*verdict.notes, rendering.conclusion(verdict)):
            print(rendering.visible(line), file=sys.stderr)
    if verdict.outcome is Outcome.UNDECIDED:
        return WHEN_UNDECIDED[options.undecided]
    return REGRESSION if verdict.outcome is Outcome.REGRESSION else PASSED


def _verdict(options: GateOptions, resolve: Resolve) -> Verdict:
    if not options.rules:
        raise RuleError('A gate needs a rule, such as --rule "step.median<+3%".')
    if not 0 < options.level < 1:
        raise RuleError(f"The level of significance is between 0 and 1, like {LEVEL}, not {options.level:g}.")
    if options.warmup < 0:
        raise RuleError("The number of steps to leave out can't be negative.")
    for output in options.outputs:
        _form_of(output)  # before the long work
    rules = [parse_rule(text) for text in options.rules]
    figures = [rule.figure for rule in rules]
    runs = [resolve(text, figures) for text in (options.baseline, options.candidate)]
    return judge(rules, *runs, level=options.level, warmup=options.warmup, each_rank=options.each_rank)


def _form_of(output: Path) -> str:
    if output.suffix.lower() not in _SUFFIXES:
        raise RuleError(f"{output} has no known form; the suffixes are {', '.join(_SUFFIXES)}.")
    return _SUFFIXES[output.suffix.lower()]


def rendered(verdict: Verdict, form: str, url: str, junit_undecided: str) -> str:
    """Return a verdict in a form of `FORMS` other than `table`."""
    if form == "json":
        return rendering.as_json(verdict, url)
    return rendering.as_junit(verdict, url, junit_undecided) if form == "junit" else rendering.as_markdown(verdict, url)


def run_baseline(client: Client, action: str, name: str = "", target: str = "", *, as_json: bool = False) -> int:
    """List the baselines (`ls`), or `show`, `set` or `rm` one; return the exit code."""
    if action == "rm":
        server.delete_baseline(client, name)
        return PASSED
    if action == "ls":
        found: Any = list(server.baselines(client))
        rows = found
    else:
        is_set = action == "set"
        found = (
            server.set_baseline(client, name, server.find_target(client, target))
            if is_set
            else server.baseline(client, name)
        )
        rows = [found] if is_set else [{"name": name, **entry} for entry in found["history"]]
    if as_json:
        print(json.dumps(found))
        return PASSED
    titles = ("name", "kind", "target", "set_at", "target_name")
    cells = [[_cell(row[title]) for title in titles] for row in rows]
    _print_rows(titles, cells)
    return PASSED


def _cell(value: str | None) -> str:
    return ("deleted" if sys.stdout.isatty() else r"\N") if value is None else rendering.visible(value)


def _print_rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if sys.stdout.isatty():
        print("\n".join(rendering.aligned(titles, rows, right=())))
    else:
        print("\n".join("\t".join(cells) for cells in (titles, *rows)))


def run_history(
    client: Client,
    figure: str,
    *,
    name: str | None = None,
    baseline: str | None = None,
    limit: int = history.LIMIT,
    warmup: int = WARMUP,
    as_json: bool = False,
) -> int:
    """Print a figure of the latest uploads that match a name, or of the targets of a baseline; return the exit code."""
    parsed = parse_figure(figure)
    if name is not None and baseline is not None:
        raise RuleError("Give --name or --baseline, not both.")
    uploads = (
        history.uploads_named(client, "*" if name is None else name, limit)
        if baseline is None
        else history.uploads_of_baseline(client, baseline.lstrip(server.BASELINE_PREFIX), limit)
    )
    points = [*history.history_of(client, parsed, uploads, warmup)]
    if as_json:
        print(json.dumps([history.fields_of(point, parsed) for point in points]))
    elif sys.stdout.isatty():
        sys.stdout.write(history.as_table(points, parsed))
    else:
        rows = [history.fields_of(point, parsed) for point in points]
        print("\n".join("\t".join(map(str, cells)) for cells in _exact(rows)))
    return PASSED


def _exact(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    lines = [
        [r"\N" if row[name] is None else rendering.visible(str(row[name])) for name in history.COLUMNS] for row in rows
    ]
    return [[*history.COLUMNS], *lines]


# -- argparse ---------------------------------------------------------------------------------------------------------


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
    gate.add_argument("--wait", type=float, default=server.WAIT_S, metavar="SECONDS", help="Wait for traces.")
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
    past.add_argument("--limit", type=int, default=history.LIMIT, metavar="N", help="At most this many uploads.")
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


def exit_code_of(error: Exception) -> int:
    """Return the exit code of an error, which is never that of a regression."""
    return UNREACHABLE if isinstance(error, UnreachableError) else REFUSED


def _gate(args: argparse.Namespace, client: Client) -> int:
    options = GateOptions(
        args.baseline, args.candidate, args.rule, args.level, args.warmup, args.each_rank, args.undecided, args.format,
        args.output, args.wait,
    )  # fmt: skip
    for text in (args.baseline, args.candidate):
        if Path(text).exists() and ("/" in text or "\\" in text):
            raise RuleError(f"{text} is a file: comparing files without a server needs the package tracedock-server.")
    return run_gate(options, on_server(client, args.wait), client.url)


def _baseline(args: argparse.Namespace, client: Client) -> int:
    if (args.action != "ls" and not args.name) or (args.action == "set") != bool(args.target):
        raise RuleError("The forms are: baseline ls; baseline show NAME; baseline set NAME TARGET; baseline rm NAME.")
    return run_baseline(client, args.action, args.name, args.target, as_json=args.json)


def _history(args: argparse.Namespace, client: Client) -> int:
    return run_history(
        client, args.figure, name=args.name, baseline=args.baseline, limit=args.limit, warmup=args.warmup,
        as_json=args.json,
    )  # fmt: skip

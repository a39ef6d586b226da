"""The commands `gate`, `baseline` and `history`: what both command lines run; each returns the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracedock.client import Client
from tracedock.gate import history, rendering, server
from tracedock.gate.defaults import LEVEL, LIMIT, PASSED, REGRESSION, WAIT_S, WARMUP, WHEN_UNDECIDED
from tracedock.gate.rules import Figure, RuleError, parse_figure, parse_rule
from tracedock.gate.runs import Run
from tracedock.gate.verdicts import Outcome, Verdict, judge

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
    wait: float = WAIT_S


def on_server(client: Client, wait: float = WAIT_S) -> Resolve:
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
        client.delete_baseline(name)
        if as_json:
            print(json.dumps({"name": name}))
        return PASSED
    if action == "ls":
        found: Any = list(client.baselines())
        rows = found
    else:
        is_set = action == "set"
        found = client.set_baseline(name, server.find_target(client, target).id) if is_set else client.baseline(name)
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
    limit: int = LIMIT,
    warmup: int = WARMUP,
    as_json: bool = False,
) -> int:
    """Print a figure of the latest uploads that match a name, or of the targets of a baseline; return the exit code."""
    parsed = parse_figure(figure)
    if limit < 1 or warmup < 0:
        raise RuleError("The limit is at least 1, and the number of steps to leave out can't be negative.")
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

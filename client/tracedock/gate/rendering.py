"""Forms of a verdict: a table for people, tab-separated lines, JSON, JUnit XML and Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any
from urllib.parse import quote, urlencode
from xml.sax.saxutils import quoteattr

from tracedock.gate.rules import Figure
from tracedock.gate.runs import Run
from tracedock.gate.significance import Value
from tracedock.gate.verdicts import Outcome, RuleVerdict, Verdict

Scales = tuple[tuple[int, str], ...]

_TIMES: Scales = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_SIZES: Scales = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_LINE_COLUMNS = (
    *("outcome", "rule", "rank", "baseline", "candidate", "unit", "change_pct", "p_value", "adjusted_p"),
    *("baseline_steps", "candidate_steps"),
)


def as_table(verdict: Verdict) -> str:
    """Return the verdict as a table for a terminal, with the notes and the conclusion below."""
    titles = ("outcome", "rule", "baseline", "candidate", "change", "p", "steps")
    rows = [
        (
            rule.outcome.value,
            visible(rule.label),
            shown(rule.baseline, rule.rule.figure),
            shown(rule.candidate, rule.rule.figure),
            _change(rule),
            _p(rule),
            f"{rule.baseline_steps}, {rule.candidate_steps}",
        )
        for rule in verdict.rules
    ]
    lines = aligned(titles, rows, right=range(2, 7))
    return "\n".join([*lines, *map(visible, [*verdict.notes, conclusion(verdict)])]) + "\n"


def aligned(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Return the lines of a table whose columns are aligned, to the right for those of the numbers `right`."""
    widths = [max(map(len, column)) for column in zip(titles, *rows)]
    return [
        "  ".join(
            cell.rjust(widths[place]) if place in right else cell.ljust(widths[place])
            for place, cell in enumerate(cells)
        ).rstrip()
        for cells in (titles, *rows)
    ]


def as_lines(verdict: Verdict) -> str:
    """Return the verdict as tab-separated lines with exact values, for a pipe."""
    lines = [list(_LINE_COLUMNS)]
    for rule in verdict.rules:
        fields = _rule_fields(rule)
        lines.append([_plain(fields[name]) for name in _LINE_COLUMNS])
    return "".join("\t".join(line) + "\n" for line in lines)


def as_json(verdict: Verdict, url: str = "") -> str:
    """Return the verdict as a JSON document; `url` is that of the server, for links."""
    document = {
        "outcome": verdict.outcome.value,
        "level": verdict.level,
        "warmup": verdict.warmup,
        "baseline": _run_fields(verdict.baseline, url),
        "candidate": _run_fields(verdict.candidate, url),
        "compare": compare_url(verdict, url),
        "rules": [{**_rule_fields(rule), "test": rule.test, "notes": list(rule.notes)} for rule in verdict.rules],
        "notes": verdict.notes,
    }
    return json.dumps(document, indent=2) + "\n"


def as_junit(verdict: Verdict, url: str = "", undecided: str = "error") -> str:
    """Return the verdict as JUnit XML, with a test case for each rule.

    Args:
        verdict: the verdict.
        url: that of the server, for links.
        undecided: what becomes of undecided rules: `error`, `failure`, or `skipped`.
    """
    elements = {Outcome.PASS: "", Outcome.REGRESSION: "failure", Outcome.UNDECIDED: undecided}
    counts = {
        name: sum(elements[rule.outcome] == name for rule in verdict.rules) for name in ("failure", "error", "skipped")
    }
    suite = f"tracedock gate: {verdict.candidate.name} against {verdict.baseline.name}"
    head = {
        "name": suite, "tests": len(verdict.rules), "failures": counts["failure"], "errors": counts["error"],
        "skipped": counts["skipped"],
    }  # fmt: skip
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites><testsuite{_attributes(head)}>"]
    link = compare_url(verdict, url)
    for rule in verdict.rules:
        text = sentence(rule, verdict.level)
        lines.append(f"  <testcase{_attributes({'classname': 'tracedock.gate', 'name': rule.label})}>")
        if element := elements[rule.outcome]:
            lines.append(f"    <{element}{_attributes({'message': text})}/>")
        lines.append(f"    <system-out>{_escaped(' '.join(filter(None, [text, *rule.notes, link])))}</system-out>")
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite></testsuites>"]) + "\n"


def as_markdown(verdict: Verdict, url: str = "") -> str:
    """Return the verdict as Markdown, for a comment on a pull request; `url` is that of the server, for links."""
    titles = {
        Outcome.PASS: "Passed",
        Outcome.REGRESSION: "Regression",
        Outcome.UNDECIDED: "Undecided",
    }
    lines = [
        f"### {titles[verdict.outcome]}: {_linked(verdict.candidate, url)} against {_linked(verdict.baseline, url)}",
        "",
        "| outcome | rule | baseline | candidate | change | p | steps |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for rule in verdict.rules:
        cells = (
            rule.outcome.value, code(rule.label), shown(rule.baseline, rule.rule.figure),
            shown(rule.candidate, rule.rule.figure), _change(rule), _p(rule),
            f"{rule.baseline_steps}, {rule.candidate_steps}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", escaped_markdown(conclusion(verdict)), *(f"\n{escaped_markdown(note)}" for note in verdict.notes)]
    links = [f"[compare]({link})"] if (link := compare_url(verdict, url)) else []
    for side, run in (("baseline", verdict.baseline), ("candidate", verdict.candidate)):
        links += [
            f"[{side} {escaped_markdown(name)} in Perfetto]({url}/api/v1/traces/{trace}/perfetto)"
            for name, trace in run.traces[:2]
        ]
    return "\n".join(lines + (["", " · ".join(links)] if links else [])) + "\n"


def conclusion(verdict: Verdict) -> str:
    """Return the conclusion in a sentence for each rule that did not pass, or one sentence for all."""
    failed = [rule for rule in verdict.rules if rule.outcome is not Outcome.PASS]
    if not failed:
        count = len(verdict.rules)
        which = "the rule holds" if count == 1 else f"all {count} rules hold"
        return f"Passed: {which} at the level {verdict.level:g}."
    return " ".join(sentence(rule, verdict.level) for rule in failed)


def sentence(rule: RuleVerdict, level: float) -> str:
    """Return the verdict of a rule as a sentence."""
    figure = rule.rule.figure
    if rule.outcome is Outcome.UNDECIDED:
        return (
            f"{rule.label} is undecided: {rule.baseline_steps} and {rule.candidate_steps} steps can't be significant;"
            f" {rule.needed_steps} on each side can."
        )
    values = f"{shown(rule.baseline, figure)} to {shown(rule.candidate, figure)} ({_change(rule)})"
    if rule.outcome is Outcome.REGRESSION:
        return f"{rule.label} fails: {values}, {rule.test}, p = {_p(rule)}."
    exceeds = rule.candidate is not None and rule.limit is not None and rule.candidate > rule.limit
    why = f", which is beyond the limit but not significant at {level:g} (p = {_p(rule)})" if exceeds else ""
    return f"{rule.label} holds: {values}{why}."


def compare_url(verdict: Verdict, url: str) -> str:
    """Return the address of the page that compares both runs; empty if one of them is not on the server."""
    if not (url and verdict.baseline.id and verdict.candidate.id):
        return ""
    sides = {
        name: run.id if run.kind == "trace" else f"run:{run.id}"
        for name, run in (("base", verdict.baseline), ("other", verdict.candidate))
    }
    return f"{url}/compare?{urlencode(sides)}"


def shown(value: Value | None, figure: Figure) -> str:
    """Return a value with a unit that people read; a dash for None."""
    if value is None:
        return "-"
    if not figure.unit:
        return f"{float(value):,.10g}"
    size = abs(Fraction(value))
    scales = _TIMES if figure.unit == "ns" else _SIZES
    for factor, unit in scales:
        if size >= factor:
            return (
                f"{float(value) / factor:.4g} {unit}"
                if size < 1000 * factor
                else f"{float(value) / factor:,.1f} {unit}"
            )
    return f"{float(value):.4g} {'ns' if figure.unit == 'ns' else 'B'}"


def visible(text: str) -> str:
    """Return the text with unprintable characters escaped: a name in a trace must not move a terminal's cursor."""
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)


def number(value: Value | None) -> int | float | None:
    """Return a value as a JSON number: an integer stays exact."""
    if value is None:
        return None
    return int(value) if Fraction(value).denominator == 1 else float(value)


def code(text: str) -> str:
    """Return the text as Markdown code within a table."""
    plain = visible(text).replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", plain)), default=0) + 1)
    return f"{fence}{plain}{fence}" if "`" not in plain else f"{fence} {plain} {fence}"


def escaped_markdown(text: str) -> str:
    """Return the text with the characters escaped that Markdown or HTML would interpret."""
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", visible(text))


def _change(rule: RuleVerdict) -> str:
    if rule.change_pct is None:
        return "new" if rule.baseline == 0 and rule.candidate else "-"
    return f"{rule.change_pct:+.2f} %"


def _p(rule: RuleVerdict) -> str:
    return "-" if rule.adjusted_p is None else f"{rule.adjusted_p:.2g}"


def _rule_fields(rule: RuleVerdict) -> dict[str, Any]:
    return {
        "rule": rule.rule.text,
        "rank": rule.rank,
        "outcome": rule.outcome.value,
        "baseline": number(rule.baseline),
        "candidate": number(rule.candidate),
        "limit": number(rule.limit),
        "unit": rule.rule.figure.unit or None,
        "change_pct": rule.change_pct,
        "p_value": rule.p_value,
        "adjusted_p": rule.adjusted_p,
        "baseline_steps": rule.baseline_steps,
        "candidate_steps": rule.candidate_steps,
        "needed_steps": rule.needed_steps,
    }


def _run_fields(run: Run, url: str) -> dict[str, Any]:
    return {
        "name": run.name,
        "kind": run.kind,
        "id": run.id or None,
        "url": page_url(run, url) or None,
        "traces": [trace for _, trace in run.traces],
    }


def page_url(run: Run, url: str) -> str:
    """Return the address of the page of a run; empty if it is not on the server."""
    return f"{url}/{'traces' if run.kind == 'trace' else 'groups'}/{quote(run.id)}" if url and run.id else ""


def _linked(run: Run, url: str) -> str:
    link, name = page_url(run, url), escaped_markdown(run.name)
    return f"[{name}]({link})" if link else name


def _plain(value: object) -> str:
    r"""Return a field of a tab-separated line; None is `\N`."""
    return r"\N" if value is None else visible(str(value).replace("\\", "\\\\"))


def _attributes(values: dict[str, Any]) -> str:
    return "".join(f" {name}={quoteattr(visible(str(value)))}" for name, value in values.items())


def _escaped(text: str) -> str:
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

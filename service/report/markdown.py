"""A report as Markdown for a pull request: the figures, with at most `ROWS_MAX` rows of each table."""

import re
from collections.abc import Iterator

from service.report.document import CODE, Advice, Bars, Cell, Fact, Report, Section, Sentence, Table, Unknown
from service.report.units import readable

ROWS_MAX = 10
_NAME_MAX = 100
"""Maximum number of characters of a name in a table."""
_PUNCTUATION = re.compile(r"([\\`*_\[\]<>#|~$]|^[-+])")
_BACKTICKS = re.compile(r"`+")


def as_markdown(report: Report) -> str:
    """Return a report as GitHub-flavored Markdown; texts from the trace are escaped."""
    lines = [f"# {_escaped(report.title)}", ""]
    lines += [f"- {fact.label}: {_text(fact.value, fact.unit)}" for fact in report.facts]
    if report.problems:
        lines += ["", "Notes on the input:", "", *(f"- {_escaped(problem)}" for problem in report.problems)]
    for section in report.sections:
        lines += ["", f"## {section.title}", *_content(section)]
    calls = [f"- {section.title}: {_code(section.call)}" for section in report.sections]
    details = ["<details><summary>All figures</summary>", "", *calls, "", "</details>"]
    return "\n".join([*lines, "", *details, "", f"Tracedock {report.version}", ""])


def _content(section: Section) -> Iterator[str]:
    number = 0
    for block in section.blocks:
        yield ""
        match block:
            case Sentence(text):
                yield _escaped(text)
            case Unknown(reason):
                yield f"Not known: {_escaped(reason)}"
            case Advice(advice, reason, figures):
                number += 1
                yield f"{number}. **{_escaped(advice)}** {_escaped(reason)}"
                if figures:
                    yield f"   ({'; '.join(map(_figure, figures))})"
            case Table(title, columns, rows, left_out):
                yield from _table(
                    title,
                    [column.title for column in columns],
                    [[_text(cell, column.unit) for cell, column in zip(row, columns, strict=True)] for row in rows],
                    left_out,
                )
            case Bars(title, series, bars, left_out):
                used = [place for place in range(len(series)) if any(bar.lengths[place] for bar in bars)]
                rows_of_bars = [
                    [_escaped(bar.label), *(_part(bar.lengths[place], sum(bar.lengths)) for place in used)]
                    for bar in bars
                ]
                yield from _table(title, ["", *(series[place].label for place in used)], rows_of_bars, left_out)


def _part(length: int, whole: int) -> str:
    share = f" ({readable(100 * length / whole, '%')})" if whole else ""
    return f"{readable(length, 'ns')}{share}"


def _figure(fact: Fact) -> str:
    return f"{_escaped(fact.label)}: {_text(fact.value, fact.unit)}"


def _table(title: str, heads: list[str], rows: list[list[str]], left_out: int) -> Iterator[str]:
    """Yield the lines of a table, its first `ROWS_MAX` rows."""
    if not rows:
        yield f"{title}: none."
        return
    shown = rows[:ROWS_MAX]
    left_out += len(rows) - len(shown)
    yield f"{title}{f' (the first {len(shown)} of {len(shown) + left_out:,})' if left_out else ''}:"
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('---' for _ in heads)}|"
    for row in shown:
        yield f"| {' | '.join(row)} |"


def _text(value: Cell, unit: str | None) -> str:
    """Return a value with its unit; texts are escaped."""
    if value is None:
        return "unknown"
    if unit == CODE:
        name = _one_line(str(value))
        return _code(name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…")
    return _escaped(value) if isinstance(value, str) else readable(value, unit)


def _code(text: str) -> str:
    """Return a text as code, in which nothing but the end of a table's cell has a meaning."""
    line = _one_line(text)
    if not line:
        return "(empty)"
    fence = "`" * (max(map(len, _BACKTICKS.findall(line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}".replace("|", "\\|")


def _escaped(text: str) -> str:
    """Return a text on one line, in which no character has a meaning in Markdown, HTML or GitHub's links."""
    line = _PUNCTUATION.sub(r"\\\1", _one_line(text).replace("&", "&amp;"))
    return line.replace("@", "&#64;").replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def _one_line(text: str) -> str:
    """Return a text with a space for each run of white space; Markdown has no NUL."""
    return " ".join(text.replace("\0", "\ufffd").split())

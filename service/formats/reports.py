"""Tables of reports that profilers print: cells are the text of the file, with its rounding and its units."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from service.formats.attachments import AttachmentKind
from service.streaming.codec import decompressed
from service.trace.errors import BadCompression, Truncated

SIZE_MAX = 4 << 20
"""Maximum bytes of a report that are read."""

_NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?: ?(?:%|[A-Za-z]{1,6}))?")
_WITH_UNIT = re.compile(r"(.*\S)\s*\(([^()]+)\)")
_GAP = re.compile(r"\s{2,}")
_PROCESSING = re.compile(r"Processing \[.*\] with \[(?:.*/)?(\w+)(?:\.py)?[^\]]*\]")
_DASHES = re.compile(r"-{5,}(?: +-{5,})* *")
_LOGGED = re.compile(r"\[(\d{4}-\d\d-\d\d [\d:,.]+)\].*?\b(rank=\d+) \| (comm op: .*)")
_FIGURE = re.compile(r"(\S.*?):\s{2,}(\S+)(?: (.*\S))?\s*")


@dataclass(frozen=True)
class ReportColumn:
    """A column of a report.

    Attributes:
        name: its heading, without the unit.
        unit: the unit in its heading; None without one. Cells may have units of their own.
        is_number: whether each cell is a number, with or without a unit, or empty.
    """

    name: str
    unit: str | None
    is_number: bool


@dataclass(frozen=True)
class ReportTable:
    """A table of a report; each row has a text for each column."""

    name: str
    columns: list[ReportColumn]
    rows: list[list[str]]


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        tables: its tables.
        text: its whole text.
        truncated: whether the file is longer than `SIZE_MAX` or damaged, so that the text ends early.
        reason: why some or all of it is not in the tables; None if nothing is missing.
    """

    tables: list[ReportTable]
    text: str
    truncated: bool
    reason: str | None


class _Unparsable(Exception):
    """A line does not fit its table."""


def read_report(path: Path, kind: AttachmentKind) -> Report:
    """Read a report: plain, gzip or zstd."""
    text, cut_reason = _text_of(path)
    truncated = cut_reason is not None
    if kind not in _PARSERS:
        return Report([], text, truncated, cut_reason or _NO_TABLES.get(kind))
    try:
        tables = [_with_kinds(table) for table in _PARSERS[kind](text.splitlines())]
    except _Unparsable as error:
        return Report([], text, truncated, str(error))
    return Report(tables, text, truncated, cut_reason or (None if tables else _NONE_KNOWN))


def as_csv(table: ReportTable) -> str:
    """Return a table as CSV (RFC 4180); the unit of a column is in its heading."""
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(f"{column.name} ({column.unit})" if column.unit else column.name for column in table.columns)
    writer.writerows(table.rows)
    return sink.getvalue()


_NONE_KNOWN = "It has none of the tables that are known."
_NO_TABLES = {"execution_trace": "An execution trace has no tables; `match` compares it with traces."}


def _text_of(path: Path) -> tuple[str, str | None]:
    """Return the text of a file, and the reason if it ends early."""
    content, reason = bytearray(), None
    with path.open("rb") as file:
        try:
            for piece in decompressed(file):
                content += piece
                if len(content) > SIZE_MAX:
                    reason = f"Only its first {SIZE_MAX:,} bytes are read."
                    break
        except (BadCompression, Truncated) as error:
            reason = error.detail
    return bytes(content[:SIZE_MAX]).decode(errors="replace"), reason


def _with_kinds(table: ReportTable) -> ReportTable:
    """Return a table with the kind of each column, which follows from its cells."""
    cells = [[row[place] for row in table.rows] for place in range(len(table.columns))]
    columns = [
        ReportColumn(column.name, column.unit, bool(values) and all(not v or _NUMBER.fullmatch(v) for v in values))
        for column, values in zip(table.columns, cells, strict=True)
    ]
    return ReportTable(table.name, columns, table.rows)


def _columns(headings: Sequence[str]) -> list[ReportColumn]:
    """Return columns by their headings; a unit in parentheses at the end of a heading is that of the column."""
    parts = [(heading, _WITH_UNIT.fullmatch(heading)) for heading in headings]
    return [
        ReportColumn(match[1], match[2], False) if match else ReportColumn(heading, None, False)
        for heading, match in parts
    ]


def _row(cells: Sequence[str], columns: Sequence[ReportColumn], number: int) -> list[str]:
    """Return the cells of a row; raises `_Unparsable` if there are not as many as columns."""
    if len(cells) != len(columns):
        raise _Unparsable(f"Line {number} has {len(cells)} cells, and its table {len(columns)} columns.")
    return [cell.strip() for cell in cells]


def _nsys_summary(lines: Sequence[str]) -> Iterator[ReportTable]:
    """Yield the tables of `nsys stats --format csv`: each has a header, and ends at an empty line."""
    name, table = "summary", None
    for number, line in enumerate(lines, 1):
        if match := _PROCESSING.match(line):
            name = match[1]
        elif not line.strip():
            if table:
                yield table
            table = None
        elif table is None:
            headings = next(csv.reader([line]))
            if len(headings) > 2:
                table = ReportTable(name, _columns(headings), [])
        else:
            table.rows.append(_row(next(csv.reader([line])), table.columns, number))
    if table:
        yield table


def _key_averages(lines: Sequence[str]) -> Iterator[ReportTable]:
    """Yield the tables of `key_averages().table()`: lines of dashes show where columns begin and end."""
    table: ReportTable | None = None
    spans: list[tuple[int, int]] = []
    for number, line in enumerate(lines, 1):
        if _DASHES.fullmatch(line):
            if table and table.rows:
                yield table
                table, spans = None, []
            elif not spans:
                spans = [match.span() for match in re.finditer("-+", line)]
        elif spans and table is None:
            table = ReportTable("key_averages", _columns(_cut(line, spans)), [])
        elif table is not None:
            table.rows.append(_row(_cut(line, spans), table.columns, number))


def _cut(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Return the cells of a line of fixed columns. A cell that is wider than its column moves those after it."""
    gaps = [line[end:start] for (_, end), (start, _) in pairwise(spans)]
    if any(gap.strip() for gap in gaps) or line[spans[-1][1] :].strip():
        return _GAP.split(line.strip())
    return [line[start:end].strip() for start, end in spans]


def _deepspeed_comms(lines: Sequence[str]) -> Iterator[ReportTable]:
    """Yield the summaries of communication, and the lines of the log as one table."""
    yield from _communication_summaries(lines)
    logged = [match for match in map(_LOGGED.match, lines) if match]
    if not logged:
        return
    fields = [_logged_fields(match) for match in logged]
    columns = list(dict.fromkeys(name for row in fields for name in row))
    rows = [[row.get(name, "") for name in columns] for row in fields]
    yield ReportTable("log", _columns(columns), rows)


def _logged_fields(match: re.Match[str]) -> dict[str, str]:
    logged_at, rank, text = match.groups()
    pairs = (part.partition(": ") for part in text.split(" | "))
    return {
        "logged at": logged_at,
        "rank": rank.removeprefix("rank="),
        **{key: value.strip() for key, _, value in pairs},
    }


def _communication_summaries(lines: Sequence[str]) -> Iterator[ReportTable]:
    table: ReportTable | None = None
    operation = ""
    for number, line in enumerate(lines, 1):
        if line.startswith("Comm. Op "):
            if table:
                yield table
            table = ReportTable("summary", _columns(_GAP.split(line.strip())), [])
        elif table is None or not line.strip() or _LOGGED.match(line):
            continue
        elif line[:1].isspace():
            table.rows.append(_row([operation, *_GAP.split(line.strip())], table.columns, number))
        else:
            operation = line.strip()
    if table:
        yield table


def _deepspeed_flops(lines: Sequence[str]) -> Iterator[ReportTable]:
    """Yield the figures of the summary: lines like `fwd latency:   76.67 ms`."""
    matches = [match for match in map(_FIGURE.fullmatch, lines) if match]
    if matches:
        rows = [[figure, value, unit or ""] for figure, value, unit in (match.groups() for match in matches)]
        yield ReportTable("summary", _columns(["figure", "value", "unit"]), rows)


_PARSERS: Mapping[AttachmentKind, Callable[[Sequence[str]], Iterator[ReportTable]]] = {
    "nsys_summary": _nsys_summary,
    "key_averages": _key_averages,
    "deepspeed_comms": _deepspeed_comms,
    "deepspeed_flops": _deepspeed_flops,
}
"""For each kind with tables, a function that yields them from the lines of a report."""

"""NVTX ranges and marks as events of the host, and for each range the span of the GPU work that was launched inside it.

``torch.autograd.profiler.emit_nvtx`` writes operators as ranges named like ``aten::mm, seq = 5, op_id = 7``. These
become operators, without the suffixes, as in a trace of Kineto.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.formats.events import events, words
from service.formats.nsys.allowed import NVTX
from service.formats.nsys.batches import LeftOut
from service.formats.nsys.database import Database
from service.formats.nsys.identifiers import Ints, pid_of, tid_of
from service.formats.nsys.projection import Projection
from service.formats.nsys.strings import UNKNOWN, Strings
from service.trace.health import Health

CATEGORY, MARK, DOMAIN = 33, 34, 75
RANGES = (59, 60, 70, 71)
"""Types of ranges: pushed and popped, started and ended, and the same two from NVTX's text files."""

_ROWS_AT_ONCE = 1 << 13
_TIME_MAX = 1 << 62
_UNSOUND = "no start or no thread, values that are no integers, or times beyond 146 years"
_DEFINITIONS_MAX = 100_000
_OPERATOR_NAME_MAX = 4096  # characters; the expression takes a time that grows with the square of the length
_OPERATOR = re.compile(
    r"(?P<name>.+?)(?:, seq = (?P<seq>\d{1,18}))?, op_id = (?P<id>\d{1,18})(?:, sizes = (?P<sizes>\[.*?\]))?"
    r"(?:, input_op_ids = .*)?",
    re.DOTALL,
)


class _Annotation(NamedTuple):
    """A range or a mark."""

    start: int
    end: int
    kind: int
    thread: int
    name: str
    category: str
    arguments: str | None


class Annotations:
    """Reads the annotations of an export.

    Args:
        database: the export, which has the table `NVTX`.
        strings: its texts.
        health: gets notes on open ranges and missing names.
    """

    def __init__(self, database: Database, strings: Strings, health: Health) -> None:
        self._database = database
        self._strings = strings
        self._health = health
        self._columns = database.columns[NVTX]
        self._names: dict[tuple[int, int, int, int | None], str] = {}
        """Names of domains and categories, by type, process, domain and category."""

    def batches(self, last_end: int, projection: Projection) -> Iterator[pa.RecordBatch]:
        """Yield the annotations, and their spans on devices.

        Args:
            last_end: end of the last other event in ns. A range that was never closed ends with the last event.
            projection: the work by its launches.
        """
        end = max([last_end, *self._latest()])
        self._read_definitions()
        rows = self._rows((MARK, *RANGES))
        while batch := [*islice(rows, _ROWS_AT_ONCE)]:
            annotations = self._annotations(batch, end)
            yield from _host_events([each for each in annotations if each.kind != MARK])
            yield from _marks([each for each in annotations if each.kind == MARK])
            yield from _spans([each for each in annotations if each.category == "user_annotation"], projection)
        if projection.left_out:
            self._health.add("spans_left_out", count=projection.left_out)

    def _latest(self) -> list[int]:
        times = [column for column in ("start", "end") if column in self._columns]
        columns = (column for batch in self._database.integers(NVTX, times, reports=False) for column in batch.columns)
        latest = (pc.max(column.filter(pc.less(column, _TIME_MAX))).as_py() for column in columns)
        return [time for time in latest if time is not None]

    def _rows(self, kinds: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        """Yield the valid rows of some types, as values by column."""
        texts = ["text"] if "text" in self._columns else []
        left_out = 0
        for _, *values in self._database.rows(NVTX, self._columns, texts, kinds=kinds):
            row = dict(zip(self._columns, values, strict=True))
            if _is_sound(row):
                yield row
            else:
                left_out += 1
        if left_out:
            self._database.leave_out(LeftOut(NVTX, left_out, _UNSOUND))

    def _read_definitions(self) -> None:
        for row in islice(self._rows((CATEGORY, DOMAIN)), _DEFINITIONS_MAX):
            process, domain = row["globalTid"] >> 24, row.get("domainId") or 0
            category = row.get("category") if row["eventType"] == CATEGORY else None
            if name := self._name(row):
                self._names[row["eventType"], process, domain, category] = name

    def _name(self, row: dict[str, Any]) -> str | None:
        if row.get("text"):
            text: bytes = row["text"]
            return text.decode(errors="replace")
        number = row.get("textId")
        return self._strings.texts([number])[number] if isinstance(number, int) else None

    def _annotations(self, rows: list[dict[str, Any]], end: int) -> list[_Annotation]:
        self._strings.texts(list({row["textId"] for row in rows if row.get("textId") is not None}))
        annotations, unknown, still_open = [], 0, 0
        for row in rows:
            name, kind, stop = self._name(row), row["eventType"], row.get("end")
            unknown += name is None
            still_open += kind != MARK and stop is None
            operator = _operator(name) if name and kind != MARK else None
            annotations.append(
                _Annotation(
                    row["start"], end if stop is None else stop, kind, row["globalTid"],
                    operator["name"] if operator else name or UNKNOWN,
                    "cpu_op" if operator else "user_annotation" if kind != MARK else "cpu_instant_event",
                    self._arguments(row, operator),
                )
            )  # fmt: skip
        for code, count in (("unknown_names", unknown), ("open_ranges", still_open)):
            if count:
                self._health.add(code, count=count)
        return annotations

    def _arguments(self, row: dict[str, Any], operator: re.Match[str] | None) -> str | None:
        process, domain, category = row["globalTid"] >> 24, row.get("domainId") or 0, row.get("category")
        fields: dict[str, Any] = {
            "domain": self._names.get((DOMAIN, process, domain, None)),
            "category": self._names.get((CATEGORY, process, domain, category), category),
        }
        if operator:
            fields["Record function id"] = int(operator["id"])
            fields["Sequence number"] = int(operator["seq"]) if operator["seq"] else None
            fields["Input Dims"] = _parsed(operator["sizes"])
        fields = {key: value for key, value in fields.items() if value is not None}
        return json.dumps(fields, ensure_ascii=False) if fields else None


def _operator(name: str) -> re.Match[str] | None:
    """Return the parts of a name that ``emit_nvtx`` wrote; None for any other name."""
    return _OPERATOR.fullmatch(name) if ", op_id = " in name and len(name) <= _OPERATOR_NAME_MAX else None


def _is_sound(row: dict[str, Any]) -> bool:
    has_bytes = any(isinstance(value, bytes) for key, value in row.items() if key != "text")
    if has_bytes or row["start"] is None or row["globalTid"] is None:
        return False
    return all(abs(row.get(column) or 0) < _TIME_MAX for column in ("start", "end"))


def _parsed(sizes: str | None) -> Any:
    try:
        return json.loads(sizes) if sizes else None
    except (ValueError, RecursionError):
        return None


def _column(annotations: list[_Annotation], name: str) -> Ints:
    return np.array([getattr(each, name) for each in annotations], np.int64)


def _texts(annotations: list[_Annotation], name: str) -> pa.Array:
    return pa.array([getattr(each, name) for each in annotations], pa.string())


def _host_events(ranges: list[_Annotation]) -> Iterator[pa.RecordBatch]:
    if ranges:
        starts, threads = _column(ranges, "start"), _column(ranges, "thread")
        yield events(
            len(ranges), cat=_texts(ranges, "category").dictionary_encode(),
            name=_texts(ranges, "name").dictionary_encode(), ts=starts, dur=_column(ranges, "end") - starts,
            pid=pid_of(threads), tid=tid_of(threads), args=_texts(ranges, "arguments"),
        )  # fmt: skip


def _marks(marks: list[_Annotation]) -> Iterator[pa.RecordBatch]:
    if marks:
        threads = _column(marks, "thread")
        yield events(
            len(marks), ph="i", cat="cpu_instant_event", name=_texts(marks, "name").dictionary_encode(),
            ts=_column(marks, "start"), pid=pid_of(threads), tid=tid_of(threads), args=_texts(marks, "arguments"),
            rest='{"s": "t"}',
        )  # fmt: skip


def _spans(ranges: list[_Annotation], projection: Projection) -> Iterator[pa.RecordBatch]:
    starts, ends, threads = (_column(ranges, name) for name in ("start", "end", "thread"))
    for thread in np.unique(threads).tolist():
        rows = np.flatnonzero(threads == thread)
        names = [ranges[row].name for row in rows]
        for spans in projection.spans(thread, starts[rows], ends[rows]):
            count = len(spans.ranges)
            yield events(
                count, cat="gpu_user_annotation", name=words(spans.ranges, names), ts=spans.starts,
                dur=spans.ends - spans.starts, pid=np.full(count, spans.device), tid=np.full(count, spans.stream),
            )  # fmt: skip

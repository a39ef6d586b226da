"""The library: runs and single traces as one list, which is searched, filtered, sorted and paged."""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import orjson

from service.store.catalog import State
from service.store.connection import Connection
from service.trace.errors import ErrorDocument
from service.trace.summary import Summary

Kind = Literal["run", "file", "derived"]
Sort = Literal["uploaded", "name", "size", "span", "ranks", "events", "rank"]

_READ_AT_ONCE = 100
"""Maximum number of summaries in one query, because a query locks the catalog."""
_PAGES_KEPT = 16
"""Maximum number of pages in memory."""
_DIGITS = re.compile(r"(\d+)")


class TraceFacts(NamedTuple):
    """The facts of a summary that the library shows.

    Attributes:
        span_ns: the time from its first to its last event; None without timed events.
        merged: the number of ranks that it was merged from; 0 if it was not merged.
        gpus: the names of the devices with work, each once; devices without a name are left out.
        has_gpu_work: whether work ran on a device.
        is_incomplete: whether a part of the file could not be read, though no element was refused.
    """

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    merged: int = 0
    span_ns: int | None = None
    events: int = 0
    steps: int = 0
    gpus: tuple[str, ...] = ()
    has_gpu_work: bool = False
    repaired: int = 0
    refused: int = 0
    is_incomplete: bool = False

    @property
    def is_damaged(self) -> bool:
        """Whether elements were refused or repaired, or the file is incomplete."""
        return bool(self.repaired or self.refused or self.is_incomplete)


NO_FACTS = TraceFacts()


class ListedTrace(NamedTuple):
    """A trace of the library; its facts are empty until it is ready."""

    id: str
    name: str
    state: str
    created_ns: int
    size: int
    group_id: str | None
    is_derived: bool
    pinned: bool
    facts: TraceFacts


class TraceDetails(NamedTuple):
    """Fields of a trace that are read only for the traces on a page.

    Attributes:
        parent: id of the trace that it was cut out of.
        error: the error of a failed ingest.
    """

    parent: str | None
    error: ErrorDocument | None


class Run(NamedTuple):
    """A run of the library: a group, with or without traces."""

    id: str
    name: str
    run_id: str | None
    created_ns: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the library: a run with all of its traces, or a single trace.

    Attributes:
        run: the run; None for a single trace.
        traces: all traces of the run, or the single trace.
        matching: the number of these traces that match the query.
    """

    run: Run | None
    traces: Sequence[ListedTrace]
    matching: int = 1

    @property
    def id(self) -> str:
        """The id of the run or of the trace."""
        return self.run.id if self.run else self.traces[0].id

    @property
    def name(self) -> str:
        """The name of the run or of the trace."""
        return self.run.name if self.run else self.traces[0].name

    @property
    def uploaded_ns(self) -> int:
        """The time at which its newest trace was added; for a run without traces, the time of its creation."""
        if self.run is None:
            return self.traces[0].created_ns
        return max((trace.created_ns for trace in self.traces), default=self.run.created_ns)

    @property
    def size(self) -> int:
        """The size of all its files in bytes."""
        return sum(trace.size for trace in self.traces)

    @property
    def span_ns(self) -> int | None:
        """The longest span of its traces; None if it is unknown."""
        return max((trace.facts.span_ns for trace in self.traces if trace.facts.span_ns is not None), default=None)

    @property
    def events(self) -> int | None:
        """The number of events of its traces that are ready; None if none is ready."""
        ready = [trace.facts.events for trace in self.traces if trace.state == State.READY]
        return sum(ready) if ready else None

    @property
    def ranks(self) -> list[int]:
        """The known ranks of its traces, in order."""
        return sorted({trace.facts.rank for trace in self.traces if trace.facts.rank is not None})


@dataclass(frozen=True)
class LibraryQuery:
    """Selects and orders entries of the library. A run is selected if one of its traces is.

    Attributes:
        text: words that must all occur in the names of a trace, its run and its GPUs, or in their ids; case is
            ignored.
        states: select only traces in one of these states; all if empty.
        pinned: True selects only pinned traces, False only others.
        gpu: True selects only traces with work on a device, False only ready traces without such work.
        damaged: True selects only traces that were damaged, False only ready traces that were not.
        kind: select only runs, only uploaded or imported files in no run, or only traces that were made here.
        run: id of the run whose traces to list, each as an entry; None for the whole library.
        sort: the column to sort by; unknown values come last.
        descending: whether the largest values come first.
    """

    text: str = ""
    states: tuple[State, ...] = ()
    pinned: bool | None = None
    gpu: bool | None = None
    damaged: bool | None = None
    kind: Kind | None = None
    run: str | None = None
    sort: Sort = "uploaded"
    descending: bool = True

    @cached_property
    def words(self) -> list[str]:
        """The words of the text."""
        return self.text.casefold().split()

    @property
    def filters_traces(self) -> bool:
        """Whether a filter needs the facts of a trace; a run without traces cannot pass it."""
        return bool(self.states) or any(wanted is not None for wanted in (self.pinned, self.gpu, self.damaged))

    def matches(self, trace: ListedTrace, run: Run | None) -> bool:
        """Return whether a trace passes all filters except the one by kind."""
        facts = trace.facts
        is_ready = trace.state == State.READY
        return (
            (not self.states or trace.state in self.states)
            and (self.pinned is None or trace.pinned == self.pinned)
            and (self.gpu is None or (is_ready and facts.has_gpu_work == self.gpu))
            and (self.damaged is None or (is_ready and facts.is_damaged == self.damaged))
            and (not self.words or self.has_words(" ".join((trace.name, trace.id, *facts.gpus)), run))
        )

    def has_words(self, text: str, run: Run | None) -> bool:
        """Return whether each word of the query occurs in a text, or in the name and ids of a run."""
        searched = f"{text} {run.name} {run.run_id or ''} {run.id}" if run else text
        folded = searched.casefold()
        return all(word in folded for word in self.words)

    def takes_kind(self, run: Run | None, trace: ListedTrace | None) -> bool:
        """Return whether the filter by kind selects a run or, if that is None, a single trace."""
        if self.kind is None:
            return True
        if run:
            return self.kind == "run"
        return trace is not None and self.kind == ("derived" if trace.is_derived else "file")


@dataclass(frozen=True)
class LibraryPage:
    """A page of the library.

    Attributes:
        entries: its entries.
        total: number of entries that match the query.
        traces: number of traces that match the query.
        stored: number of all traces and of runs without traces; on the page of a run, number of its traces.
        single: the details of its single traces, by id.
    """

    entries: list[Entry]
    total: int
    traces: int
    stored: int
    single: dict[str, TraceDetails]


class Library:
    """The library in the catalog's file; its methods may be called from any thread.

    The facts of traces that are ready are kept in memory, because summaries are long and do not change. So are the last
    pages, because open tabs request them each second; they are valid until the file changes.
    """

    def __init__(self, connection: Connection) -> None:
        self._rows = connection.rows
        self._version = connection.version
        self._facts: dict[str, TraceFacts] = {}
        self._pages: dict[tuple[LibraryQuery, int, int], tuple[object, LibraryPage]] = {}
        self._lock = threading.Lock()

    def page(self, query: LibraryQuery, *, limit: int, offset: int = 0) -> LibraryPage:
        """Return at most `limit` entries of a query, from `offset` on."""
        key, version = (query, limit, offset), self._version()
        with self._lock:
            cached = self._pages.pop(key, None)
            if cached and cached[0] == version:
                self._pages[key] = cached
                return cached[1]
            page = self._read(query, limit, offset)
            self._pages[key] = version, page
            if len(self._pages) > _PAGES_KEPT:
                del self._pages[next(iter(self._pages))]  # the page whose last request is the oldest
            return page

    def _read(self, query: LibraryQuery, limit: int, offset: int) -> LibraryPage:
        traces = self._traces()
        runs = {row["id"]: Run(**row) for row in self._rows("SELECT id, name, run_id, created_ns FROM run_group")}
        if query.run is not None:
            members = [trace for trace in traces if trace.group_id == query.run]
            run = runs.get(query.run)
            entries = [Entry(None, [trace]) for trace in members if query.matches(trace, run)]
            stored = len(members)
        else:
            entries = list(_entries(query, traces, runs))
            stored = len(traces) + len(runs.keys() - {trace.group_id for trace in traces})
        entries = _sorted(entries, query)
        matching = sum(entry.matching for entry in entries)
        listed = entries[offset : offset + limit]
        single = self._details([entry.id for entry in listed if entry.run is None])
        return LibraryPage(listed, len(entries), matching, stored, single)

    def _details(self, trace_ids: list[str]) -> dict[str, TraceDetails]:
        rows = self._rows(
            "SELECT id, parent, error FROM trace WHERE id IN (SELECT value FROM json_each(?))",
            (orjson.dumps(trace_ids).decode(),),
        )
        return {
            row["id"]: TraceDetails(
                row["parent"], ErrorDocument.from_dict(orjson.loads(row["error"])) if row["error"] else None
            )
            for row in rows
        }

    def _traces(self) -> list[ListedTrace]:
        rows = self._rows(
            "SELECT id, name, state, created_ns, size, group_id, sha256 = '' AS is_derived, pinned FROM trace"
        )
        facts = self._facts_of({row["id"] for row in rows if row["state"] == State.READY})
        return [
            ListedTrace(
                trace_id, name, state, created_ns, size, group_id, bool(is_derived), bool(pinned),
                facts.get(trace_id, NO_FACTS),
            )
            for trace_id, name, state, created_ns, size, group_id, is_derived, pinned in rows
        ]  # fmt: skip

    def _facts_of(self, ready: set[str]) -> dict[str, TraceFacts]:
        """Return the facts of these traces, and drop those of all others."""
        for trace_id in self._facts.keys() - ready:
            del self._facts[trace_id]
        unread = list(ready - self._facts.keys())
        for start in range(0, len(unread), _READ_AT_ONCE):
            ids = orjson.dumps(unread[start : start + _READ_AT_ONCE]).decode()
            rows = self._rows(
                "SELECT id, summary FROM trace WHERE summary IS NOT NULL AND id IN (SELECT value FROM json_each(?))",
                (ids,),
            )
            self._facts |= {row["id"]: facts_of(Summary.from_json(row["summary"])) for row in rows}
        return self._facts


def facts_of(summary: Summary) -> TraceFacts:
    """Return the facts of a summary that the library shows."""
    health = summary.health
    repaired, refused = health.get("repaired", 0), health.get("refused", 0)
    busy_devices = [device for device in summary.devices if device["events"]]
    return TraceFacts(
        rank=summary.rank,
        world_size=summary.world_size,
        backend=summary.backend,
        merged=summary.totals.get("ranks", len(summary.ranks)),
        span_ns=summary.bounds["end_ns"] - summary.bounds["start_ns"] if summary.bounds else None,
        events=summary.kept_events,
        steps=summary.steps_count,
        gpus=tuple(dict.fromkeys(device["name"] for device in busy_devices if device["name"])),
        has_gpu_work=bool(busy_devices),
        repaired=repaired,
        refused=refused,
        is_incomplete=not refused and any(note["kind"] == "refused" for note in health.get("notes", ())),
    )


def _entries(query: LibraryQuery, traces: Sequence[ListedTrace], runs: dict[str, Run]) -> Iterable[Entry]:
    """Yield the single traces and the runs that a query selects."""
    members: dict[str, list[ListedTrace]] = {run: [] for run in runs}
    for trace in traces:
        if trace.group_id in runs:
            members[trace.group_id].append(trace)
        elif query.takes_kind(None, trace) and query.matches(trace, None):
            yield Entry(None, [trace])
    for run_id, run in runs.items():
        if query.takes_kind(run, None):
            matching = sum(query.matches(trace, run) for trace in members[run_id])
            if matching or (not members[run_id] and not query.filters_traces and query.has_words("", run)):
                yield Entry(run, members[run_id], matching)


def _sorted(entries: list[Entry], query: LibraryQuery) -> list[Entry]:
    """Sort entries by a column; equal ones are newest first, and unknown values come last in either order."""
    entries.sort(key=lambda entry: (-entry.uploaded_ns, entry.id))
    value = _SORT_VALUES[query.sort]
    values = [(value(entry), entry) for entry in entries]
    known = [(key, entry) for key, entry in values if key is not None]
    known.sort(key=lambda pair: pair[0], reverse=query.descending)
    return [entry for _, entry in known] + [entry for key, entry in values if key is None]


def _natural_key(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key of a name: with it, rank2 comes before rank10."""
    parts = _DIGITS.split(name.casefold())
    return [(False, int(part), "") if part.isdecimal() else (True, 0, part) for part in parts if part]


_SORT_VALUES: dict[Sort, Callable[[Entry], Any]] = {
    "uploaded": lambda entry: entry.uploaded_ns,
    "name": lambda entry: _natural_key(entry.name),
    "size": lambda entry: entry.size,
    "span": lambda entry: entry.span_ns,
    "ranks": lambda entry: len(entry.ranks) or len(entry.traces),
    "events": lambda entry: entry.events,
    "rank": lambda entry: entry.ranks[0] if entry.ranks else None,
}

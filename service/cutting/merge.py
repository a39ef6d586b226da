"""Merge of traces: of the ranks of a run, or of the parts of one trace.

Each trace is sorted by time, and shifting its clock keeps it sorted, so the traces can be interleaved as streams.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from service.cutting.alignment import align_clocks, collective_ends
from service.cutting.children import Child, ColumnWriter, summarised
from service.cutting.envelope import without_fact
from service.cutting.inputs import TITLES, kind_of
from service.cutting.renumber import RankRenumberer, new_pids, process_names
from service.cutting.source import Source
from service.store.anomalies import EPOCH_NS
from service.store.columns import MERGED, WORDS, by_time
from service.store.export import parsed_envelope
from service.store.folder import ENVELOPE, EVENTS, write_whole
from service.store.parts import Part, Parts, Tracks, Words, mixed
from service.trace.errors import CannotMerge
from service.trace.piece import Align
from service.trace.process_groups import ProcessGroups
from service.trace.summary import Key, MergedInput, MergedRank, Process, Summary

Tables = Iterator[pa.Table]

_UNTIMED = np.iinfo(np.int64).max  # time of untimed events, so that they sort last
_INTS = ("ts_ns", "dur_ns", "id", "correlation", "external_id", "bytes", "pid", "tid")


def merge(
    sources: Sequence[Source], folder: Path, *, name: str, align: Align, on_written: Callable[[int, int], object]
) -> Child:
    """Merge traces into a new one.

    Parts of one trace become that trace again, with each event once. For traces of several ranks, pids and ids become
    distinct, process names contain the rank, and a column ``rank`` is added. The new envelope then contains the
    envelope and the clock alignment of each rank.

    A rank may have several inputs of different kinds, such as a trace and a memory snapshot. One is the rank's trace;
    events of the others have no rank, and their process names contain the kind.

    Args:
        sources: the traces, at least two.
        folder: the folder to create for the columns; its name is the new trace's id.
        name: the name of the new trace.
        align: ``none`` keeps all times; ``base`` aligns the clocks by the traces' base times; ``collectives`` aligns
            them by the base times, then by the ends of the collectives.
        on_written: receives the number of events written so far, and their total.

    Raises:
        CannotMerge: two traces have the same rank and kind, or the same rank and no common clock; a trace has no known
            rank, or is itself merged.
        DiskFull: the disk is full.
    """
    groups: dict[str, list[Source]] = {}
    for index, source in enumerate(sources):
        groups.setdefault(source.whole_id or f"#{index}", []).append(source.with_whole_lists())
    with ExitStack() as stack:
        ranks = [_Rank(group, stack) for group in groups.values()]
        total = sum(rank.events for rank in ranks)
        if len(ranks) == 1:
            (only,) = ranks
            text, summary, schema = without_fact(only.sources[0].envelope, "part"), only.summary, only.parts[0].schema
            tables = only.tables()
        else:
            _check_ranks(ranks)
            run = _Run(ranks, align)
            text, summary, schema, tables = run.envelope, run.summary, MERGED, run.tables()
        on_written(0, total)
        threads = stack.enter_context(ThreadPoolExecutor(2, "merge"))
        with ColumnWriter(folder, schema, threads) as writer:
            for table in tables:
                positions = pa.array(np.arange(writer.rows, writer.rows + len(table)))
                writer.add(table.set_column(0, schema.field(0), positions))
                on_written(min(writer.rows, total), total)
            writer.finish()
    write_whole(folder / ENVELOPE, text)
    return summarised(writer, name, summary, selection=None)


def _check_ranks(ranks: "Sequence[_Rank]") -> None:
    """Raise `CannotMerge` unless all ranks are known and distinct, and no trace is itself merged."""
    for rank in ranks:
        if rank.summary.ranks:
            raise CannotMerge(f"{rank.name} is a merged trace; merge the traces of its ranks instead.", trace=rank.name)
        if rank.known_number is None:
            raise CannotMerge(
                f"The rank of {rank.name} is unknown; give the rank of each trace as `ranks`, which a merge of named"
                " traces takes.",
                trace=rank.name,
            )
    counts = Counter((rank.number, rank.kind) for rank in ranks)
    for rank in ranks:
        if counts[rank.number, rank.kind] > 1:
            same = [other.name for other in ranks if (other.number, other.kind) == (rank.number, rank.kind)]
            raise CannotMerge(
                f"{' and '.join(same[:3])} are both of rank {rank.number} and not parts of one trace;"
                " give the rank of each trace as `ranks`.",
                traces=same,
            )


def _check_clock(rank: "_Rank", beside: "_Rank") -> None:
    """Raise `CannotMerge` unless an input beside a rank's trace has the same clock."""
    for input_ in (rank, beside):
        if input_.base_ns is None:
            raise CannotMerge(
                f"{rank.name} and {beside.name} are both of rank {rank.number}, but their clocks can't be aligned:"
                f" {input_.name} does not say at which time it begins. Merge without {beside.name}, or keep all times"
                " as they are with `align=none`.",
                trace=input_.name,
            )


class _Rank:
    """A rank of a run or an input beside its trace, made of one trace or of the parts of one trace."""

    def __init__(self, sources: Sequence[Source], stack: ExitStack) -> None:
        self.sources = sources
        self.parts = [stack.enter_context(closing(Parts(source.columns / EVENTS))) for source in sources]
        self.summary = sources[0].summary
        if self.summary.ranks:  # pieces of a merged trace list the ranks of which they have events
            merged = {rank["rank"]: rank for source in sources for rank in source.summary.ranks}
            only = next(iter(merged)) if len(merged) == 1 else None
            self.summary = replace(self.summary, ranks=[merged[rank] for rank in sorted(merged)], rank=only)
        self.name = sources[0].name
        self.known_number = sources[0].rank if sources[0].rank is not None else self.summary.rank
        # -1 stands for an unknown rank, which `_check_ranks` refuses
        self.number: int = self.known_number if self.known_number is not None else -1
        self.kind = kind_of(self.summary)
        self.events = sum(parts.rows for parts in self.parts)

    @property
    def base_ns(self) -> int | None:
        """The zero of the rank's clock in ns since the epoch; None if unknown."""
        bounds = self.summary.bounds
        since_epoch = bounds is not None and bounds["start_ns"] >= EPOCH_NS
        return 0 if self.summary.base_ns is None and since_epoch else self.summary.base_ns

    @property
    def groups(self) -> ProcessGroups:
        """The process groups that the trace lists."""
        return ProcessGroups.listed(parsed_envelope(self.sources[0].columns), None, self.summary.world_size)

    @property
    def processes(self) -> list[Process]:
        """The processes of all parts."""
        processes: dict[Key, Process] = {}
        for source in self.sources:
            for process in source.summary.processes:
                processes.setdefault(process["pid"], process)
        return list(processes.values())

    @property
    def pids(self) -> set[Key]:
        """The pids of all events, including metadata."""
        pids = {process["pid"] for process in self.processes}
        for parts in self.parts:
            tracks = Tracks()
            for part in parts.read(Tracks.columns, filter(parts.has_untimed, range(len(parts)))):
                tracks.of(part)
            pids |= {pid for pid, _ in tracks.keys}
        return pids

    def tables(self) -> Tables:
        """Return the events of all parts sorted by time, without duplicates."""
        if len(self.parts) == 1:
            (parts,) = self.parts
            return (part.table for part in parts.read(parts.schema.names))
        streams = [(part.table for part in parts.read(parts.schema.names)) for parts in self.parts]
        words = Words()
        return (
            by_time(pa.concat_tables(_deduplicated(tables, words)))[0] for tables in interleave(streams, keep_ties=True)
        )


class _Run:
    """The ranks of a run, and the inputs beside their traces, that are merged into one trace."""

    def __init__(self, inputs: Sequence[_Rank], align: Align) -> None:
        order = [*TITLES]
        inputs = sorted(inputs, key=lambda one: (one.number, order.index(one.kind)))
        first = {one.number: one for one in reversed(inputs)}
        self._ranks = [one for one in inputs if first[one.number] is one]
        self._beside = [one for one in inputs if first[one.number] is not one]
        self._inputs = [*self._ranks, *self._beside]
        if align != "none":
            for one in self._beside:
                _check_clock(first[one.number], one)
        bases = [rank.base_ns for rank in self._ranks if rank.base_ns is not None]
        self._base = bases[0] if bases and align != "none" else None
        ends = [collective_ends(rank.parts, rank.groups) for rank in self._ranks]
        alignments = align_clocks(ends, [*map(self._base_shift, self._ranks)], refine=align == "collectives")
        self._alignments = {rank.number: one for rank, one in zip(self._ranks, alignments, strict=True)}
        self._shifts = {one: self._shift(one, first[one.number]) for one in self._inputs}
        self._pids = dict(zip(self._inputs, new_pids(one.pids for one in self._inputs), strict=True))
        self._renumberers = [self._renumberer(place, one) for place, one in enumerate(self._inputs)]
        self._provenance = [*map(self._merged, self._ranks)]

    def _base_shift(self, one: _Rank) -> int:
        """Return the ns to add to an input's times by the base times alone; 0 if they are unknown."""
        return 0 if one.base_ns is None or self._base is None else one.base_ns - self._base

    def _shift(self, one: _Rank, rank: _Rank) -> int:
        """Return the ns to add to an input's times: collectives move it together with the trace of its rank."""
        return self._alignments[rank.number].shift_ns - self._base_shift(rank) + self._base_shift(one)

    def _renumberer(self, place: int, one: _Rank) -> RankRenumberer:
        devices = {device["id"] for device in one.summary.devices if device["events"]}
        title, number = f"rank {one.number}", one.number if one in self._ranks else None
        if number is None:
            title += f" · {TITLES[one.kind]}"
        names = process_names(title, one.processes, devices)
        return RankRenumberer(number, title, place, len(self._inputs), self._pids[one], names, self._shifts[one])

    def _merged(self, rank: _Rank) -> MergedRank:
        alignment = self._alignments[rank.number]
        merged: MergedRank = {
            "rank": rank.number,
            "name": rank.name,
            "base_ns": rank.base_ns,
            "shift_ns": alignment.shift_ns,
            "collectives": alignment.collectives,
            "residual_ns": alignment.residual_ns,
            "pids": self._pairs(rank),
        }
        beside: list[MergedInput] = [
            {
                "kind": one.kind,
                "name": one.name,
                "base_ns": one.base_ns,
                "shift_ns": self._shifts[one],
                "pids": self._pairs(one),
            }
            for one in self._beside
            if one.number == rank.number
        ]
        return {**merged, "beside": beside} if beside else merged

    def _pairs(self, one: _Rank) -> list[list[Key]]:
        """Return the new and the old pid of each process of an input."""
        return [[new, old] for old, new in self._pids[one].items()]

    @property
    def summary(self) -> Summary:
        """The summary's fields that do not depend on the events of the run."""
        summaries = [one.summary for one in self._inputs]
        devices = {device["id"]: device for summary in reversed(summaries) for device in summary.devices}
        return Summary(
            world_size=max((summary.world_size for summary in summaries if summary.world_size), default=None),
            backend=next((summary.backend for summary in summaries if summary.backend), None),
            base_ns=self._base,
            devices=list(devices.values()),
            ranks=self._provenance,
        )

    @property
    def envelope(self) -> bytes:
        """The envelope of the merged trace, with the envelope of each input."""
        members = [("tracedock", json.dumps({"merged": self._provenance}).encode()), ("schemaVersion", b"1")]
        summary = self.summary
        facts = {"backend": summary.backend, "world_size": summary.world_size}
        if info := {key: value for key, value in facts.items() if value is not None}:
            members.append(("distributedInfo", json.dumps(info).encode()))
        properties = [
            {"id": device["id"], "name": device["name"], "totalGlobalMem": device["memory_bytes"]}
            for device in summary.devices
            if device["name"] or device["memory_bytes"] is not None
        ]
        if properties:
            members.append(("deviceProperties", json.dumps(properties).encode()))
        if self._base is not None:
            members.append(("baseTimeNanoseconds", str(self._base).encode()))
        envelopes = [
            b'"%b": %b' % (key.encode(), without_fact(one.sources[0].envelope, "part").strip())
            for key, one in self._envelope_keys()
        ]
        members += [
            ("displayTimeUnit", b'"ms"'),
            ("envelopes", b"{\n%b\n}" % b",\n".join(envelopes)),
            ("traceEvents", b"[]"),
        ]
        return b"{%b}\n" % b",\n".join(b'"%b": %b' % (key.encode(), value) for key, value in members)

    def _envelope_keys(self) -> Iterator[tuple[str, _Rank]]:
        """Yield each input with the key of its envelope: the rank, and beside its trace also the kind."""
        yield from ((str(rank.number), rank) for rank in self._ranks)
        yield from ((f"{one.number} {one.kind}", one) for one in self._beside)

    def tables(self) -> Tables:
        """Yield the events of all inputs sorted by time, then metadata events that name unnamed processes."""
        pairs = [*zip(self._renumberers, self._inputs, strict=True)]
        streams = [map(renumberer.renumber, rank.tables()) for renumberer, rank in pairs]
        for tables in interleave(streams, keep_ties=False):
            yield by_time(pa.concat_tables(tables))[0]
        for renumberer, rank in pairs:
            missing = [process["pid"] for process in rank.processes if process["events"] and process["name"] is None]
            if missing:
                yield renumberer.naming_events(missing, MERGED)


def interleave(streams: Sequence[Tables], *, keep_ties: bool) -> Iterator[list[pa.Table]]:
    """Cut sorted streams into consecutive spans of time, and yield the tables of each span.

    Args:
        streams: tables with the column ``ts_ns``, sorted by it, with null last.
        keep_ties: whether all events of the same time must be in the same span.
    """
    heads = [next(stream, None) for stream in streams]
    while any(head is not None for head in heads):
        limit = min(_last(head) for head in heads if head is not None)
        if keep_ties:
            heads = [head and _extended(limit, head, stream) for head, stream in zip(heads, streams, strict=True)]
            limit = min(limit, *(_last(head) for head in heads if head is not None))
        tables = []
        for index, head in enumerate(heads):
            if head is None:
                continue
            times = head["ts_ns"].fill_null(_UNTIMED).to_numpy()
            size = int(np.searchsorted(times, limit, "right"))
            if size:
                tables.append(head.slice(0, size))
            rest: pa.Table | None = head.slice(size)
            while rest is not None and not len(rest):
                rest = next(streams[index], None)
            heads[index] = rest
        yield tables


def _extended(time: int, head: pa.Table, stream: Tables) -> pa.Table:
    """Return `head` with tables of its stream appended until its last event is after a time, or the stream ends."""
    while _last(head) <= time and (more := next(stream, None)) is not None:
        head = pa.concat_tables([head, more])
    return head


def _last(table: pa.Table) -> int:
    """Return the time of the last event; `_UNTIMED` if it has none."""
    last = table["ts_ns"][-1].as_py()
    return _UNTIMED if last is None else int(last)


def _deduplicated(tables: Sequence[pa.Table], words: Words) -> list[pa.Table]:
    """Drop duplicates between tables. Keep as many copies of an event as the table with the most copies of it."""
    hashes = [_hashes(table, words) for table in tables]
    distinct, counts = np.unique(np.concatenate([np.unique(column) for column in hashes]), return_counts=True)
    shared = distinct[counts > 1]
    seen: Counter[tuple[Any, ...]] = Counter()
    deduplicated = []
    for table, column in zip(tables, hashes, strict=True):
        rows = np.flatnonzero(np.isin(column, shared))
        keep = np.ones(len(table), np.bool_)
        counted: Counter[tuple[Any, ...]] = Counter()
        for row, event in zip(rows.tolist(), _events(table.take(pa.array(rows))), strict=True):
            counted[event] += 1
            keep[row] = counted[event] > seen[event]
        seen |= counted
        deduplicated.append(table if keep.all() else table.filter(pa.array(keep)))
    return deduplicated


def _events(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield all cells of each event except its position."""
    return zip(*(table[name].to_pylist() for name in table.schema.names if name != "position"), strict=True)


def _hashes(table: pa.Table, words: Words) -> Any:
    """Return a hash for each event."""
    part = Part(0, 0, table)
    coded = [name for name in WORDS if pa.types.is_dictionary(table.schema.field(name).type)]
    return mixed(*(part.ints(name) for name in _INTS), *(words.of(part, name) for name in coded))

"""One trace of several: of the ranks of a run, or of the parts of one trace.

Each is in order of time, and a shift of its clock leaves it so: they are read side by side, a part of each at a time.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from service.cutting.alignment import aligned, collective_ends
from service.cutting.children import Child, Writing, described
from service.cutting.envelope import without_fact
from service.cutting.renumber import Renumbered, new_pids, process_names
from service.cutting.source import Source
from service.store.anomalies import EPOCH_NS
from service.store.columns import MERGED, WORDS, by_time
from service.store.folder import ENVELOPE, EVENTS, write_whole
from service.store.parts import Part, Parts, Tracks, Words, mixed
from service.trace.errors import CannotMerge
from service.trace.piece import Align
from service.trace.summary import Key

Tables = Iterator[pa.Table]

_LAST = np.iinfo(np.int64).max
_INTS = ("ts_ns", "dur_ns", "id", "correlation", "external_id", "bytes", "pid", "tid")


def merge(
    sources: Sequence[Source], folder: Path, *, name: str, align: Align, on_written: Callable[[int, int], object]
) -> Child:
    """Make one trace of several, in `folder`, which it makes; its name is the trace's id.

    Parts of one trace become that trace again, each event once, however often it is in them. Ranks are told apart by
    their processes, whose names tell the rank, and in the column ``rank``; ids that belong to several ranks are told
    apart; the envelope of each is kept, and so is how its clock was aligned.

    Args:
        sources: at least two.
        folder: where its columns are made.
        name: of the trace.
        align: ``none`` leaves all times as they are; ``base`` moves them onto one clock by what the traces tell of
            theirs; ``collectives`` also by when these end.
        on_written: is told now and then how many events are written, and of how many.

    Raises:
        CannotMerge: two have the same rank, or one has none that is known.
        DiskFull: there was no room.
    """
    groups: dict[str, list[Source]] = {}
    for place, one in enumerate(sources):
        groups.setdefault(one.whole or f"#{place}", []).append(one.with_whole_lists())
    with ExitStack() as stack:
        ranks = [_Rank(some, stack) for some in groups.values()]
        total = sum(rank.events for rank in ranks)
        if len(ranks) == 1:
            (only,) = ranks
            text, told, schema = without_fact(only.sources[0].envelope, "part"), only.summary, only.parts[0].schema
            tables = only.tables()
        else:
            _check(ranks)
            ranks.sort(key=lambda rank: rank.number)
            run = _Run(ranks, align)
            text, told, schema, tables = run.envelope, run.summary, MERGED, run.tables()
        on_written(0, total)
        threads = stack.enter_context(ThreadPoolExecutor(2, "merge"))
        with Writing(folder, schema, threads) as writing:
            for table in tables:
                positions = pa.array(np.arange(writing.rows, writing.rows + len(table)))
                writing.add(table.set_column(0, schema.field(0), positions))
                on_written(min(writing.rows, total), total)
            writing.finish()
    write_whole(folder / ENVELOPE, text)
    return described(writing, name, told, selection=None)


def _check(ranks: "Sequence[_Rank]") -> None:
    """Raise `CannotMerge` unless each rank is known, and they differ."""
    for rank in ranks:
        if rank.summary.get("ranks"):
            raise CannotMerge(f"{rank.name} is merged of ranks already: merge these.", trace=rank.name)
        if rank.told is None:
            raise CannotMerge(
                f"Nothing tells the rank of {rank.name}: give the rank of each trace as `ranks`.", trace=rank.name
            )
    counts = Counter(rank.number for rank in ranks)
    for rank in ranks:
        if counts[rank.number] > 1:
            same = [other.name for other in ranks if other.number == rank.number]
            raise CannotMerge(
                f"{' and '.join(same[:3])} are both of rank {rank.number}, and not parts of one trace:"
                " give the rank of each trace as `ranks`.",
                traces=same,
            )


class _Rank:
    """A rank: one trace, or parts of it."""

    def __init__(self, sources: Sequence[Source], stack: ExitStack) -> None:
        self.sources = sources
        self.parts = [stack.enter_context(closing(Parts(one.columns / EVENTS))) for one in sources]
        self.summary = sources[0].summary
        self.name = sources[0].name
        self.told = sources[0].rank if sources[0].rank is not None else self.summary["rank"]
        self.number: int = self.told if self.told is not None else -1
        self.events = sum(parts.rows for parts in self.parts)

    @property
    def base_ns(self) -> int | None:
        """The zero of its clock, in ns since the epoch, where it is told or is the epoch itself."""
        bounds = self.summary["bounds"]
        since_epoch = bounds is not None and bounds["start_ns"] >= EPOCH_NS
        base: int | None = 0 if self.summary["base_ns"] is None and since_epoch else self.summary["base_ns"]
        return base

    @property
    def processes(self) -> list[dict[str, Any]]:
        """All processes that its parts name or have events of."""
        found: dict[Key, dict[str, Any]] = {}
        for one in self.sources:
            for process in one.summary["processes"]:
                found.setdefault(process["pid"], process)
        return list(found.values())

    @property
    def pids(self) -> set[Key]:
        """All pids that it has, also those that are only named."""
        pids = {process["pid"] for process in self.processes}
        for parts in self.parts:
            tracks = Tracks()
            for part in parts.read(Tracks.columns, filter(parts.has_untimed, range(len(parts)))):
                tracks.of(part)
            pids |= {pid for pid, _ in tracks.keys}
        return pids

    def tables(self) -> Tables:
        """Its events in order of time, each once."""
        if len(self.parts) == 1:
            (parts,) = self.parts
            return (part.table for part in parts.read(parts.schema.names))
        streams = [(part.table for part in parts.read(parts.schema.names)) for parts in self.parts]
        words = Words()
        return (by_time(pa.concat_tables(_each_once(tables, words)))[0] for tables in side_by_side(streams, whole=True))


class _Run:
    """Ranks that become one trace, as what they are together."""

    def __init__(self, ranks: Sequence[_Rank], align: Align) -> None:
        bases = [rank.base_ns for rank in ranks]
        known = [base for base in bases if base is not None]
        self._base = known[0] if known and align != "none" else None
        shifts = [base - self._base if base is not None and self._base is not None else 0 for base in bases]
        found = aligned([collective_ends(rank.parts) for rank in ranks], shifts, refine=align == "collectives")
        pids = new_pids(rank.pids for rank in ranks)
        devices = [{one["id"] for one in rank.summary["devices"] if one["events"]} for rank in ranks]
        names = [process_names(rank.number, rank.processes, ids) for rank, ids in zip(ranks, devices, strict=True)]
        self._ranks = ranks
        self._renumbered = [
            Renumbered(rank.number, place, len(ranks), pids[place], names[place], found[place].shift_ns)
            for place, rank in enumerate(ranks)
        ]
        self._told = [
            {
                "rank": rank.number,
                "name": rank.name,
                "base_ns": rank.base_ns,
                **asdict(one),
                "pids": [[new, old] for old, new in pids[place].items()],
            }
            for place, (rank, one) in enumerate(zip(ranks, found, strict=True))
        ]

    @property
    def summary(self) -> dict[str, Any]:
        """What is known of all ranks before their events are counted."""
        each = [rank.summary for rank in self._ranks]
        devices = {device["id"]: device for summary in reversed(each) for device in summary["devices"]}
        return {
            "rank": None,
            "world_size": max((one["world_size"] for one in each if one["world_size"]), default=None),
            "backend": next((one["backend"] for one in each if one["backend"]), None),
            "host": None,
            "base_ns": self._base,
            "devices": list(devices.values()),
            "ranks": self._told,
        }

    @property
    def envelope(self) -> bytes:
        """A document that tells of the merge, with the envelope of each rank."""
        members = [("tracedock", json.dumps({"merged": self._told}).encode()), ("schemaVersion", b"1")]
        told = self.summary
        if info := {key: told[key] for key in ("backend", "world_size") if told[key] is not None}:
            members.append(("distributedInfo", json.dumps(info).encode()))
        properties = [
            {"id": one["id"], "name": one["name"], "totalGlobalMem": one["memory_bytes"]}
            for one in told["devices"]
            if one["name"] or one["memory_bytes"] is not None
        ]
        if properties:
            members.append(("deviceProperties", json.dumps(properties).encode()))
        if self._base is not None:
            members.append(("baseTimeNanoseconds", str(self._base).encode()))
        own = [
            b'"%d": %b' % (rank.number, without_fact(rank.sources[0].envelope, "part").strip()) for rank in self._ranks
        ]
        members += [("displayTimeUnit", b'"ms"'), ("envelopes", b"{\n%b\n}" % b",\n".join(own)), ("traceEvents", b"[]")]
        return b"{%b}\n" % b",\n".join(b'"%b": %b' % (key.encode(), value) for key, value in members)

    def tables(self) -> Tables:
        """The events of all ranks in order of time."""
        streams = [map(one.table, rank.tables()) for one, rank in zip(self._renumbered, self._ranks, strict=True)]
        for tables in side_by_side(streams, whole=False):
            yield by_time(pa.concat_tables(tables))[0]
        for one, rank in zip(self._renumbered, self._ranks, strict=True):
            missing = [process["pid"] for process in rank.processes if process["events"] and process["name"] is None]
            if missing:
                yield one.names(missing, MERGED)


def side_by_side(streams: Sequence[Tables], *, whole: bool) -> Iterator[list[pa.Table]]:
    """Yield what each of some streams, in order of time, has of one span of time after the other.

    Args:
        streams: tables with the column ``ts_ns``, null at the end.
        whole: whether all events of one time are to be given together.
    """
    heads = [next(stream, None) for stream in streams]
    while any(head is not None for head in heads):
        limit = min(_last(head) for head in heads if head is not None)
        if whole:
            heads = [head and _to_behind(limit, head, stream) for head, stream in zip(heads, streams, strict=True)]
            limit = min(limit, *(_last(head) for head in heads if head is not None))
        taken = []
        for place, head in enumerate(heads):
            if head is None:
                continue
            times = head["ts_ns"].fill_null(_LAST).to_numpy()
            size = int(np.searchsorted(times, limit, "right"))
            if size:
                taken.append(head.slice(0, size))
            rest: pa.Table | None = head.slice(size)
            while rest is not None and not len(rest):
                rest = next(streams[place], None)
            heads[place] = rest
        yield taken


def _to_behind(time: int, head: pa.Table, stream: Tables) -> pa.Table:
    """The events with more of them, until some are behind a time or there are no more."""
    while _last(head) <= time and (more := next(stream, None)) is not None:
        head = pa.concat_tables([head, more])
    return head


def _last(table: pa.Table) -> int:
    last = table["ts_ns"][-1].as_py()
    return _LAST if last is None else int(last)


def _each_once(tables: Sequence[pa.Table], words: Words) -> list[pa.Table]:
    """The tables, without what one before had as well: of equal events, as many stay as there are in one of them."""
    keys = [_keys(table, words) for table in tables]
    different, counts = np.unique(np.concatenate([np.unique(one) for one in keys]), return_counts=True)
    shared = different[counts > 1]
    seen: Counter[tuple[Any, ...]] = Counter()
    kept = []
    for table, key in zip(tables, keys, strict=True):
        rows = np.flatnonzero(np.isin(key, shared))
        stays = np.ones(len(table), np.bool_)
        here: Counter[tuple[Any, ...]] = Counter()
        for row, event in zip(rows.tolist(), _events(table.take(pa.array(rows))), strict=True):
            here[event] += 1
            stays[row] = here[event] > seen[event]
        seen |= here
        kept.append(table if stays.all() else table.filter(pa.array(stays)))
    return kept


def _events(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """All cells of each event but its position."""
    return zip(*(table[name].to_pylist() for name in table.schema.names if name != "position"), strict=True)


def _keys(table: pa.Table, words: Words) -> Any:
    """A number for each event, equal for equal ones."""
    part = Part(0, 0, table)
    coded = [name for name in WORDS if pa.types.is_dictionary(table.schema.field(name).type)]
    return mixed(*(part.ints(name) for name in _INTS), *(words.of(part, name) for name in coded))

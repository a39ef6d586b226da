"""Oracle for the tables of `torch`, in plain Python on a trace's JSON, with the document of the trace for an engine.

The oracle does not use the service's rendering; it independently implements a small part of the same contract.
"""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from service.engine.result import Batch
from service.engine.sql import PACKAGE
from service.engine.trace_processor import wire
from service.engine.trace_processor.cells import ProtoCells
from service.engine.trace_processor.process import TraceProcessor

OPS = {"cpu_op", "Operator"}
WORK = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"} | {
    "Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset",
}  # fmt: skip
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}
HOST = OPS | CALLS | {"user_annotation", "python_function"}
LEFT_OUT = {
    "[memory]", "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new",
    "profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version",
}  # fmt: skip


@dataclass(eq=False)
class Slice:
    """An `X` or `i` event. Its times are in ns from the first event of the trace."""

    number: int
    name: str
    category: str | None
    track: tuple[str, str, int | None]
    ts: int
    dur: int
    args: dict[str, Any]
    instant: bool
    parent: "Slice | None" = None
    lane: int = 1

    @property
    def end(self) -> int:
        return self.ts + self.dur

    @property
    def rank(self) -> int | None:
        return self.track[2]

    @property
    def step(self) -> int | None:
        return int(match[1]) if (match := re.fullmatch(r"ProfilerStep#(\d+)", self.name)) else None

    @property
    def is_op(self) -> bool:
        return self.category in OPS and not self.name.startswith("ProfilerStep#") and self.name not in LEFT_OUT

    @property
    def external_id(self) -> int | None:
        return self.args.get("External id", self.args.get("external id")) or None

    def around(self) -> Iterator["Slice"]:
        """Yield the slices that enclose this slice, innermost first."""
        slice_ = self.parent
        while slice_:
            yield slice_
            slice_ = slice_.parent


@dataclass
class Oracle:
    """Oracle for a trace, or for several traces as ranks of one trace."""

    documents: list[Any]
    ranks: list[int | None]
    keep_args: bool = True
    slices: list[Slice] = field(default_factory=list)

    def __post_init__(self) -> None:
        for document, rank in zip(self.documents, self.ranks, strict=True):
            events = document["traceEvents"] if isinstance(document, dict) else document
            for event in events:
                if event["ph"] in "Xi":
                    self.slices.append(_slice(len(self.slices), event, rank))
        base = min(slice_.ts for slice_ in self.slices)
        for slice_ in self.slices:
            slice_.ts -= base
        self.base_ns = base
        self.slices.sort(key=lambda slice_: (slice_.ts, -slice_.dur, slice_.number))
        self.devices = {
            slice_.track: int(slice_.track[0])
            for slice_ in self.slices
            if slice_.category in {*WORK, "gpu_user_annotation", "cuda_sync"} and slice_.track[0].isdigit()
        }
        for slice_ in self.slices:
            slice_.number = -1
        for number, slice_ in enumerate(self.slices):
            slice_.number = number
        self._nest()
        self._assign_lanes()

    def _nest(self) -> None:
        """Find parents as torch's `key_averages` does: pop slices that have ended or end before the new slice ends."""
        stacks: dict[Any, list[Slice]] = defaultdict(list)
        for slice_ in self.host:
            stack = stacks[slice_.track]
            while stack and (slice_.ts >= stack[-1].end or slice_.end > stack[-1].end):
                stack.pop()
            slice_.parent = stack[-1] if stack else None
            stack.append(slice_)

    def _assign_lanes(self) -> None:
        lanes: dict[Any, list[list[int]]] = defaultdict(list)
        for slice_ in self.slices:
            if slice_.instant:
                continue
            for number, ends in enumerate(lanes[slice_.track], 1):
                slice_.lane = number
                while ends and ends[-1] <= slice_.ts:
                    ends.pop()
                if not ends or ends[-1] >= slice_.end:
                    break
            else:
                ends = []
                lanes[slice_.track].append(ends)
                slice_.lane = len(lanes[slice_.track])
            ends.append(slice_.end)

    @cached_property
    def host(self) -> list[Slice]:
        """Host slices that can enclose others."""
        return [
            slice_
            for slice_ in self.slices
            if slice_.category in HOST
            and not slice_.instant
            and slice_.name not in LEFT_OUT
            and slice_.track not in self.devices
        ]

    @cached_property
    def ops(self) -> list[Slice]:
        return [slice_ for slice_ in self.host if slice_.is_op]

    @cached_property
    def work(self) -> list[Slice]:
        return [slice_ for slice_ in self.slices if slice_.category in WORK]

    @cached_property
    def calls(self) -> dict[Any, Slice]:
        """The first call of each rank and correlation."""
        calls: dict[Any, Slice] = {}
        for slice_ in self.host:
            if slice_.category in CALLS and "correlation" in slice_.args:
                calls.setdefault((slice_.rank, slice_.args["correlation"]), slice_)
        return calls

    @cached_property
    def _by_external_id(self) -> dict[Any, Slice]:
        ops: dict[Any, list[Slice]] = defaultdict(list)
        for slice_ in self.ops:
            ops[slice_.rank, slice_.external_id].append(slice_)
        return {key: ones[0] for key, ones in ops.items() if len(ones) == 1}

    def launch(self, work: Slice) -> Slice | None:
        return self.calls.get((work.rank, work.args.get("correlation")))

    @cached_property
    def _around(self) -> dict[int, Slice | None]:
        """The innermost op that runs as each call begins, by the number of the call."""
        innermost: dict[int, Slice | None] = {}
        open_ops: dict[Any, list[Slice]] = defaultdict(list)
        for slice_ in self.host:
            track_ops = open_ops[slice_.track]
            if slice_.is_op:
                track_ops.append(slice_)
            elif slice_.category in CALLS:
                track_ops[:] = [op for op in track_ops if op.end > slice_.ts]
                innermost[slice_.number] = track_ops[-1] if track_ops else None
        return innermost

    def _by_launch(self, work: Slice) -> Slice | None:
        launch = self.launch(work)
        return self._around[launch.number] if launch else None

    def _external(self, work: Slice) -> int | None:
        launch = self.launch(work)
        return work.external_id or (launch.external_id if launch else None)

    @cached_property
    def external_ids(self) -> str:
        """The kind of External ids, determined by work with an op around its launch."""
        pairs = [(self._external(slice_), self._by_launch(slice_)) for slice_ in self.work]
        compared = [external == op.external_id for external, op in pairs if external and op]
        if not compared:
            return "unknown"
        return "operators" if sum(compared) * 100 >= len(compared) * 99 else "other"

    def op(self, work: Slice) -> Slice | None:
        external = self._external(work)
        named = self._by_external_id.get((work.rank, external)) if self.external_ids == "operators" else None
        return self._by_launch(work) or (named if external else None)

    def rule(self, work: Slice) -> str:
        launch = self.launch(work)
        kind = "graph" if launch and "GraphLaunch" in launch.name else "launch"
        if self._by_launch(work):
            return kind
        return "external_id" if self.op(work) else f"{kind}_outside_operators" if launch else "no_launch"

    @cached_property
    def steps(self) -> list[Slice]:
        return [slice_ for slice_ in self.host if slice_.step is not None]

    def step_at(self, ts: int, rank: int | None) -> int | None:
        steps = [slice_ for slice_ in self.steps if slice_.ts <= ts and slice_.rank == rank]
        return steps[-1].step if steps and steps[-1].end > ts else None

    def self_dur(self) -> dict[int, int]:
        """Return each op's duration without its direct children, in ns, by the number of the op."""
        self_ns = {slice_.number: slice_.dur for slice_ in self.host}
        for slice_ in self.host:
            if slice_.parent:
                self_ns[slice_.parent.number] -= slice_.dur
        return {slice_.number: self_ns[slice_.number] for slice_ in self.ops}

    def _threads(self) -> dict[Any, int]:
        keys = sorted({(*slice_.track, slice_.lane) for slice_ in self.slices}, key=str)
        return {key: 1000 + number for number, key in enumerate(keys)}

    @cached_property
    def document(self) -> bytes:
        """The trace as JSON for the engine; lists in arguments are text, and each event has its number there."""
        threads, events = self._threads(), []
        for slice_ in self.slices:
            args = {name: _shown(value) for name, value in slice_.args.items()} if self.keep_args else {}
            args["number"] = slice_.number
            event = {
                "name": slice_.name, "pid": 7, "tid": threads[*slice_.track, slice_.lane], "args": args,
                "ts": Decimal(slice_.ts) / 1000,
            }  # fmt: skip
            event |= {"ph": "i", "s": "t"} if slice_.instant else {"ph": "X", "dur": Decimal(slice_.dur) / 1000}
            events.append(event | ({"cat": slice_.category} if slice_.category else {}))
        for track, tid in threads.items():
            device = self.devices.get(track[:3])
            name = f"stream {track[1]}" if device is not None else f"thread {track[1]}"
            events.append({"ph": "M", "name": "thread_name", "pid": 7, "tid": tid, "args": {"name": name}})
        return json.dumps({"traceEvents": events}, default=float).encode()

    def tables(self) -> str:
        """Return the SQL of the tables that the server creates after a load."""
        rows = []
        for (pid, tid, rank, lane), number in self._threads().items():
            device = self.devices.get((pid, tid, rank))
            stream = None if device is None else int(re.sub(r"\D", "", tid) or 0)
            values = (pid, tid, rank, device, stream, lane)
            rows.append(f"SELECT (SELECT utid FROM thread WHERE tid = {number}), {', '.join(map(_literal, values))}")
        args = "all" if self.keep_args else "none"
        return f"""
            CREATE PERFETTO TABLE _torch_track AS
            WITH listed(utid, pid, tid, rank, device, stream, lane) AS ({" UNION ALL ".join(rows)})
            SELECT * FROM listed;
            CREATE TABLE _torch_group(rank, name, group_size, description, ranks, is_assumed);
            {"".join(f"INSERT INTO _torch_group VALUES ({', '.join(map(_literal, group))});" for group in self.groups)}
            CREATE PERFETTO TABLE _torch_facts AS
            SELECT {self.base_ns} AS base_ns, '{args}' AS args, '{self.external_ids}' AS external_ids"""

    @property
    def groups(self) -> list[tuple[Any, ...]]:
        """The groups that each rank lists: rank, name, size, description, ranks, and whether the size is assumed."""
        groups: list[tuple[Any, ...]] = []
        for document, rank in zip(self.documents, self.ranks, strict=True):
            info = (document.get("distributedInfo") or {}) if isinstance(document, dict) else {}
            listed = info.get("pg_config", [])
            groups += [
                (rank, group["pg_name"], group["pg_size"], group.get("pg_desc"), str(group.get("ranks")), 0)
                for group in listed
            ]
            sizes = {group["pg_size"] for group in listed} or {info.get("world_size")}
            groups.append((rank, None, sizes.pop() if len(sizes) == 1 else None, None, None, int(not listed)))
        return groups


def _literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _shown(value: Any) -> Any:
    """Return an argument as documents show it: lists and objects are text."""
    return json.dumps(value, default=float) if isinstance(value, list | dict) else value


def _ns(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def _slice(number: int, event: Any, rank: int | None) -> Slice:
    track = (str(event["pid"]), str(event["tid"]), rank)
    return Slice(
        number, event["name"], event.get("cat"), track, _ns(event["ts"]), _ns(event.get("dur", 0)),
        event.get("args") or {}, instant=event["ph"] == "i",
    )  # fmt: skip


def read(path: Path) -> Any:
    """Return the document of a trace, with exact numbers."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file, parse_float=Decimal)


class Sql:
    """Function that runs SQL on an engine and returns rows as dicts."""

    def __init__(self, process: TraceProcessor) -> None:
        self._process = process

    async def __call__(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of the last statement."""
        names: list[str] = []
        rows: list[dict[str, Any]] = []
        request = wire.request(wire.QUERY_STREAMING, query_args=wire.QueryArgs(sql_query=sql))
        async for message in self._process.exchange(request):
            result = message.query_result
            assert not result.error, result.error
            names = list(result.column_names) or names
            for packed in result.batch:
                columns = Batch(ProtoCells(packed), len(names)).columns()
                rows += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return rows

    async def numbers(self) -> dict[int, int]:
        """Return the oracle's number of each slice, by the engine's id."""
        rows = await self("SELECT id, extract_arg(arg_set_id, 'args.number') AS number FROM slice")
        return {row["id"]: row["number"] for row in rows}


@asynccontextmanager
async def engine_on(binary: Path, oracle: Oracle) -> AsyncIterator[Sql]:
    """Run the real engine on the oracle's trace, with the package and the server's tables; yield its `Sql`."""
    process = await TraceProcessor.start(binary, package=PACKAGE)
    try:
        await process.feed(_pieces(oracle.document))
        sql = Sql(process)
        await sql(oracle.tables())
        yield sql
    finally:
        await process.stop(5)


async def _pieces(document: bytes, size: int = 1 << 20) -> AsyncIterator[bytes]:
    for start in range(0, len(document), size):
        yield document[start : start + size]


def by_number(rows: Iterable[dict[str, Any]], numbers: dict[int, int], *ids: str) -> dict[int, dict[str, Any]]:
    """Return rows by the number of their slice; in the columns `ids`, numbers replace ids, too."""
    numbered = {}
    for row in rows:
        changed = {name: numbers[row[name]] if row[name] is not None else None for name in ("id", *ids)}
        numbered[numbers[row["id"]]] = row | changed
    assert len(numbered) == len(list(rows))
    return numbered

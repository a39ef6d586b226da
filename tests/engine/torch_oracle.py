"""What PyTorch's terms mean, in plain Python on the trace's JSON, and that trace as the service gives it to an engine.

The service's own rendering is not used: its contract is made here a second time, in small.
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
    """An `X` or `i` event; times in ns from the trace's first."""

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
        """What encloses it, the innermost first."""
        one = self.parent
        while one:
            yield one
            one = one.parent


@dataclass
class Oracle:
    """One trace, or several as ranks of one."""

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
        base = min(one.ts for one in self.slices)
        for one in self.slices:
            one.ts -= base
        self.base_ns = base
        self.slices.sort(key=lambda one: (one.ts, -one.dur, one.number))
        self.devices = {
            one.track: int(one.track[0])
            for one in self.slices
            if one.category in {*WORK, "gpu_user_annotation", "cuda_sync"} and one.track[0].isdigit()
        }
        for one in self.slices:
            one.number = -1
        for number, one in enumerate(self.slices):
            one.number = number
        self._nest()
        self._lay()

    def _nest(self) -> None:
        """Parents, as torch's `key_averages` has them: an ended slice, or one that ends within another, is popped."""
        stacks: dict[Any, list[Slice]] = defaultdict(list)
        for one in self.host:
            stack = stacks[one.track]
            while stack and (one.ts >= stack[-1].end or one.end > stack[-1].end):
                stack.pop()
            one.parent = stack[-1] if stack else None
            stack.append(one)

    def _lay(self) -> None:
        lanes: dict[Any, list[list[int]]] = defaultdict(list)
        for one in self.slices:
            if one.instant:
                continue
            for number, ends in enumerate(lanes[one.track], 1):
                one.lane = number
                while ends and ends[-1] <= one.ts:
                    ends.pop()
                if not ends or ends[-1] >= one.end:
                    break
            else:
                ends = []
                lanes[one.track].append(ends)
                one.lane = len(lanes[one.track])
            ends.append(one.end)

    @cached_property
    def host(self) -> list[Slice]:
        """Slices that can enclose others on the host."""
        return [
            one
            for one in self.slices
            if one.category in HOST and not one.instant and one.name not in LEFT_OUT and one.track not in self.devices
        ]

    @cached_property
    def ops(self) -> list[Slice]:
        return [one for one in self.host if one.is_op]

    @cached_property
    def work(self) -> list[Slice]:
        return [one for one in self.slices if one.category in WORK]

    @cached_property
    def calls(self) -> dict[Any, Slice]:
        """The first call of each rank and correlation."""
        calls: dict[Any, Slice] = {}
        for one in self.host:
            if one.category in CALLS and "correlation" in one.args:
                calls.setdefault((one.rank, one.args["correlation"]), one)
        return calls

    @cached_property
    def _by_external_id(self) -> dict[Any, Slice]:
        ops: dict[Any, list[Slice]] = defaultdict(list)
        for one in self.ops:
            ops[one.rank, one.external_id].append(one)
        return {key: ones[0] for key, ones in ops.items() if len(ones) == 1}

    def launch(self, work: Slice) -> Slice | None:
        return self.calls.get((work.rank, work.args.get("correlation")))

    @cached_property
    def _around(self) -> dict[int, Slice | None]:
        """The innermost op that lasts as each call begins, by the number of the call."""
        found: dict[int, Slice | None] = {}
        lasting: dict[Any, list[Slice]] = defaultdict(list)
        for one in self.host:
            mine = lasting[one.track]
            if one.is_op:
                mine.append(one)
            elif one.category in CALLS:
                mine[:] = [op for op in mine if op.end > one.ts]
                found[one.number] = mine[-1] if mine else None
        return found

    def _by_launch(self, work: Slice) -> Slice | None:
        launch = self.launch(work)
        return self._around[launch.number] if launch else None

    def _external(self, work: Slice) -> int | None:
        launch = self.launch(work)
        return work.external_id or (launch.external_id if launch else None)

    @cached_property
    def external_ids(self) -> str:
        """What External ids are, by work that has an op around its launch."""
        pairs = [(self._external(one), self._by_launch(one)) for one in self.work]
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
        return [one for one in self.host if one.step is not None]

    def step_at(self, ts: int, rank: int | None) -> int | None:
        begun = [one for one in self.steps if one.ts <= ts and one.rank == rank]
        return begun[-1].step if begun and begun[-1].end > ts else None

    def self_dur(self) -> dict[int, int]:
        """Of each op by number: its duration without what it encloses directly."""
        left = {one.number: one.dur for one in self.host}
        for one in self.host:
            if one.parent:
                left[one.parent.number] -= one.dur
        return {one.number: left[one.number] for one in self.ops}

    def _threads(self) -> dict[Any, int]:
        keys = sorted({(*one.track, one.lane) for one in self.slices}, key=str)
        return {key: 1000 + number for number, key in enumerate(keys)}

    @cached_property
    def document(self) -> bytes:
        """The trace for the engine; each event tells its number."""
        threads, events = self._threads(), []
        for one in self.slices:
            args = one.args | {"number": one.number} if self.keep_args else {"number": one.number}
            event = {
                "name": one.name, "pid": 7, "tid": threads[*one.track, one.lane], "args": args,
                "ts": Decimal(one.ts) / 1000,
            }  # fmt: skip
            event |= {"ph": "i", "s": "t"} if one.instant else {"ph": "X", "dur": Decimal(one.dur) / 1000}
            events.append(event | ({"cat": one.category} if one.category else {}))
        for track, tid in threads.items():
            device = self.devices.get(track[:3])
            name = f"stream {track[1]}" if device is not None else f"thread {track[1]}"
            events.append({"ph": "M", "name": "thread_name", "pid": 7, "tid": tid, "args": {"name": name}})
        return json.dumps({"traceEvents": events}, default=float).encode()

    def tables(self) -> str:
        """What the server creates after a load."""
        rows = []
        for (pid, tid, rank, lane), number in self._threads().items():
            device = self.devices.get((pid, tid, rank))
            stream = None if device is None else int(re.sub(r"\D", "", tid) or 0)
            told = (pid, tid, rank, device, stream, lane)
            rows.append(f"SELECT (SELECT utid FROM thread WHERE tid = {number}), {', '.join(map(_literal, told))}")
        args = "all" if self.keep_args else "none"
        return f"""
            CREATE PERFETTO TABLE _torch_track AS
            WITH told(utid, pid, tid, rank, device, stream, lane) AS ({" UNION ALL ".join(rows)})
            SELECT * FROM told;
            CREATE TABLE _torch_group(rank, name, group_size, description, ranks, is_assumed);
            {"".join(f"INSERT INTO _torch_group VALUES ({', '.join(map(_literal, one))});" for one in self.groups)}
            CREATE PERFETTO TABLE _torch_facts AS
            SELECT {self.base_ns} AS base_ns, '{args}' AS args, '{self.external_ids}' AS external_ids"""

    @property
    def groups(self) -> list[tuple[Any, ...]]:
        """Of each rank the groups that it lists: rank, name, size, description, ranks, and whether it is assumed."""
        found: list[tuple[Any, ...]] = []
        for document, rank in zip(self.documents, self.ranks, strict=True):
            info = (document.get("distributedInfo") or {}) if isinstance(document, dict) else {}
            listed = info.get("pg_config", [])
            found += [
                (rank, one["pg_name"], one["pg_size"], one.get("pg_desc"), str(one.get("ranks")), 0) for one in listed
            ]
            sizes = {one["pg_size"] for one in listed} or {info.get("world_size")}
            found.append((rank, None, sizes.pop() if len(sizes) == 1 else None, None, None, int(not listed)))
        return found


def _literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _ns(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def _slice(number: int, event: Any, rank: int | None) -> Slice:
    track = (str(event["pid"]), str(event["tid"]), rank)
    return Slice(
        number, event["name"], event.get("cat"), track, _ns(event["ts"]), _ns(event.get("dur", 0)),
        event.get("args") or {}, instant=event["ph"] == "i",
    )  # fmt: skip


def read(path: Path) -> Any:
    """The document of a trace, with its numbers as they are written."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file, parse_float=Decimal)


class Sql:
    """Asks an engine."""

    def __init__(self, process: TraceProcessor) -> None:
        self._process = process

    async def __call__(self, sql: str) -> list[dict[str, Any]]:
        """The rows of the last statement."""
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
        """The oracle's number of each slice, by the engine's id."""
        rows = await self("SELECT id, extract_arg(arg_set_id, 'args.number') AS number FROM slice")
        return {row["id"]: row["number"] for row in rows}


@asynccontextmanager
async def engine_on(binary: Path, oracle: Oracle) -> AsyncIterator[Sql]:
    """The real engine on that trace, with the package and the server's tables."""
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
    """The rows by the number of their slice, their other columns of ids as numbers too."""
    told = {}
    for row in rows:
        changed = {name: numbers[row[name]] if row[name] is not None else None for name in ("id", *ids)}
        told[numbers[row["id"]]] = row | changed
    assert len(told) == len(list(rows))
    return told

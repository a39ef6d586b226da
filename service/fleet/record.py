"""Records: the outcome of each source of a dataset."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson
import pyarrow as pa

from service.fleet.documents import from_json
from service.fleet.sources import Source
from service.trace.errors import BadFleetRequest, IngestError, TracedockError, UnknownFleetRun
from service.trace.summary import SNAPSHOT_CATEGORY, Summary

State = Literal["done", "failed"]
DONE: State = "done"
FAILED: State = "failed"

SCHEMA = pa.schema(
    {
        **dict.fromkeys(("run", "trace", "source", "name"), pa.string()),
        **dict.fromkeys(("rank", "world_size"), pa.int64()),
        "host": pa.string(),
        **dict.fromkeys(("base_ns", "start_ns", "end_ns", "steps", "first_step", "last_step"), pa.int64()),
        **dict.fromkeys(("events", "size_bytes"), pa.int64()),
    }
)
"""The columns of the table of traces, which has a row for each source that is done."""


@dataclass(frozen=True)
class Record:
    """Outcome of a source: the trace that was made of it, or the error that it failed with.

    Attributes:
        key: name of the record; see `Source.key`.
        run: name of the run.
        source: path or URL of the file.
        name: its file name.
        size_bytes: its size.
        state: `done` or `failed`.
        attempts: number of attempts so far.
        worker: host and process of the last attempt.
        seconds: duration of the last attempt.
        ended_ns: its end, in ns since 1970.
        error: the error that it failed with, as JSON values.
        in_input: whether the error lies in the file, so that another attempt would fail, too.
        trace: name of the trace in the dataset, if it is done.
        digest: SHA-256 of the file, if it is done; empty in datasets of earlier versions.
        rank: its rank, if it is known.
        ranks: the ranks of a merged trace.
        world_size: number of ranks, if it is known.
        host: name of the host that ran it, if it is known.
        base_ns: zero of its clock, in ns since 1970.
        start_ns: start of its first event, in ns of its clock.
        end_ns: end of its last event.
        steps: number of its steps.
        first_step: smallest number of its steps.
        last_step: largest number of its steps.
        processes: its processes on hosts, which tell the processes of ranks without a number apart.
        is_memory_snapshot: whether it is a memory snapshot.
        events: number of its events.
    """

    key: str
    run: str
    source: str
    name: str
    size_bytes: int
    state: State
    attempts: int = 1
    worker: str = ""
    seconds: float = 0.0
    ended_ns: int = 0
    error: dict[str, Any] | None = None
    in_input: bool = False
    trace: str = ""
    digest: str = ""
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    world_size: int | None = None
    host: str | None = None
    base_ns: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    processes: tuple[str, ...] = ()
    is_memory_snapshot: bool = False
    events: int = 0

    @classmethod
    def done(
        cls, source: Source, trace: str, digest: str, summary: Summary, worker: str, seconds: float, attempts: int
    ) -> "Record":
        """Return the record of a source that has become a trace."""
        numbers = [step["number"] for step in summary.steps]
        bounds = summary.bounds
        return cls(
            key=source.key, run=source.run, source=source.url, name=source.name, size_bytes=source.entry.size,
            state=DONE, attempts=attempts, worker=worker, seconds=round(seconds, 3),
            ended_ns=time.time_ns(), trace=trace, digest=digest,
            rank=summary.rank, ranks=tuple(merged["rank"] for merged in summary.ranks),
            world_size=summary.world_size, host=summary.host, base_ns=summary.base_ns,
            start_ns=bounds["start_ns"] if bounds else None, end_ns=bounds["end_ns"] if bounds else None,
            steps=summary.steps_count, first_step=min(numbers, default=None), last_step=max(numbers, default=None),
            processes=tuple(str(process["pid"]) for process in summary.processes if process["labels"] == "CPU"),
            is_memory_snapshot=summary.is_memory_history, events=summary.kept_events,
        )  # fmt: skip

    @classmethod
    def failed(cls, source: Source, error: TracedockError, attempts: int, worker: str = "") -> "Record":
        """Return the record of a source that has failed."""
        return cls(
            key=source.key, run=source.run, source=source.url, name=source.name, size_bytes=source.entry.size,
            state=FAILED, attempts=attempts, worker=worker, ended_ns=time.time_ns(), error=error.as_dict(),
            in_input=isinstance(error, IngestError),
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: bytes) -> "Record":
        """Parse what `as_json` returned; raises `pydantic.ValidationError`."""
        return from_json(cls, text)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return asdict(self)

    def as_json(self) -> bytes:
        """Return the record as JSON."""
        return orjson.dumps(self.as_dict())

    def as_summary(self) -> Summary:
        """Return what tells the ranks and the cycles of a run, as a summary."""
        ends = [number for number in (self.first_step, self.last_step) if number is not None]
        steps: Any = [{"number": number} for number in ends]
        processes: Any = [{"pid": pid, "labels": "CPU"} for pid in self.processes]
        ranks: Any = [{"rank": rank} for rank in self.ranks]
        bounds: Any = None if self.start_ns is None else {"start_ns": self.start_ns, "end_ns": self.end_ns}
        counts = {f"X|{SNAPSHOT_CATEGORY}": 1} if self.is_memory_snapshot else {}
        return Summary(
            rank=self.rank, host=self.host, base_ns=self.base_ns, bounds=bounds, counts=counts, steps=steps,
            processes=processes, ranks=ranks,
        )  # fmt: skip


def current_records(records: Iterable[Record]) -> list[Record]:
    """Return the newest record of each file of a run, in order of runs and files; files change, or are read again."""
    newest: dict[tuple[str, str], Record] = {}
    for record in sorted(records, key=lambda record: record.ended_ns):
        newest[record.run, record.source] = record
    return [newest[place] for place in sorted(newest)]


def current_traces(records: Iterable[Record]) -> list[Record]:
    """Return the newest record of each trace that is done, in order of runs and ranks; copies of a file count once."""
    by_trace = {
        (record.run, record.trace): record for record in reversed(current_records(records)) if record.state == DONE
    }
    return sorted(
        by_trace.values(), key=lambda record: (record.run, record.rank is None, record.rank or 0, record.source)
    )


def chosen_run(runs: Sequence[str], run: str | None) -> str:
    """Return a run that exists.

    Args:
        runs: names of the runs whose traces are done.
        run: name of one; None for the only one.

    Raises:
        BadFleetRequest: no run is named, and there are several or none.
        UnknownFleetRun: none has this name.
    """
    if run in runs or (run is None and len(runs) == 1):
        return run or runs[0]
    wanted = "Name a run" if run is None else f"There is no run {run[:100]!r}"
    known = f"Done are traces of {', '.join(sorted(runs))}" if runs else "No trace is done yet"
    refusal = BadFleetRequest if run is None else UnknownFleetRun
    raise refusal(f"{wanted}. {known}.", known=sorted(runs))


def as_table(records: Iterable[Record]) -> pa.Table:
    """Return the table of traces; see `SCHEMA`."""
    return pa.Table.from_pylist([record.as_dict() for record in records], SCHEMA)

"""Parameters of the simulation: what is measured, what is assumed, and the run that is simulated."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import orjson

MEASURED = Path(__file__).with_name("measured.json")
"""The figures that `python -m tests.bench.scale measure` has measured."""
GB = 1e9


@dataclass(frozen=True)
class Line:
    """A straight line through measured times: a fixed part, and a part for each GB of JSON.

    Attributes:
        fixed_s: seconds for a trace of no size.
        per_gb_s: seconds for each GB.
    """

    fixed_s: float
    per_gb_s: float

    def at(self, gigabytes: float) -> float:
        """Return the seconds for a size in GB of JSON."""
        return self.fixed_s + self.per_gb_s * gigabytes


@dataclass(frozen=True)
class Requests:
    """Measured numbers of requests to a bucket. Those that write are `put`, also the parts of an upload.

    Attributes:
        rank_get: requests that read, of a small trace.
        rank_put: requests that write, of a small trace.
        part_get: further ones that read, of an ingest with one part.
        part_put: further ones that write.
        part_list: those that list.
        get_per_gb: further ones that read, for each GB of packed files.
        put_per_gb: further ones that write, for each GB that is written.
    """

    rank_get: float
    rank_put: float
    part_get: float
    part_put: float
    part_list: float
    get_per_gb: float
    put_per_gb: float


@dataclass(frozen=True)
class Costs:
    """Measured costs of a task, by one processor.

    Attributes:
        reading: reading the file into columns.
        facts: computing the facts.
        answers: computing the answers that are kept.
        task_gap_s: seconds from the end of a task to the start of the next one on the same worker.
        head_s: processor seconds of the command, with scheduler and client, for each task.
        heartbeat_s: its processor seconds for each heartbeat of a worker.
        merge_trace_s: seconds to merge the facts of a trace.
        packed_ratio: size of the gzip file, as a share of the JSON.
        columns_ratio: size of what is written, as a share of the JSON.
        requests: requests to a bucket.
    """

    reading: Line
    facts: Line
    answers: Line
    task_gap_s: float
    head_s: float
    heartbeat_s: float
    merge_trace_s: float
    packed_ratio: float
    columns_ratio: float
    requests: Requests

    def seconds(self, gigabytes: float) -> float:
        """Return the processor seconds of a task, for a trace of so many GB of JSON."""
        return sum(line.at(gigabytes) for line in (self.reading, self.facts, self.answers))

    @classmethod
    def measured(cls) -> Self:
        """Return the costs of `MEASURED`."""
        return cls.from_values(orjson.loads(MEASURED.read_bytes()))

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Restore costs from JSON values."""
        lines = {name: Line(**values[name]) for name in ("reading", "facts", "answers")}
        return cls(**{**values, **lines, "requests": Requests(**values["requests"])})

    def as_json(self) -> bytes:
        """Return the costs as JSON."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2) + b"\n"


@dataclass(frozen=True)
class Assumptions:
    """Parameters that can't be measured here. Each is an option of `python -m tests.bench.scale`.

    Attributes:
        store_gb_s: throughput of the store for all workers together, in GB/s.
        worker_gb_s: throughput of the store for one worker, in GB/s.
        lifetime_s: seconds until a worker's job ends, from its start.
        start_s: seconds from the end of a job until the worker of its successor takes tasks.
        deaths_per_hour: number of unexpected deaths of a worker in an hour.
        workers_per_node: number of workers, each with one processor, on a node.
        node_hour_usd: price of a node for an hour.
        put_usd: price of a thousand requests that write or list.
        get_usd: price of a thousand requests that read.
    """

    store_gb_s: float = 50.0
    worker_gb_s: float = 0.2
    lifetime_s: float = 3600.0
    start_s: float = 60.0
    deaths_per_hour: float = 0.01
    workers_per_node: int = 64
    node_hour_usd: float = 3.0
    put_usd: float = 0.005
    get_usd: float = 0.0004


@dataclass(frozen=True)
class Work:
    """The run that is simulated.

    Attributes:
        ranks: number of its traces.
        gigabytes: size of the JSON of each trace, in GB.
        workers: number of workers.
        flight: maximum number of tasks that the scheduler has at a time.
        part: number of traces whose facts are merged at a time.
        spread: standard deviation of the logarithm of a task's time.
        seed: seed of the times and deaths.
    """

    ranks: int
    gigabytes: float
    workers: int
    flight: int = 2000
    part: int = 512
    spread: float = 0.1
    seed: int = 0

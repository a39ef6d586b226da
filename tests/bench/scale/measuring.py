"""Measures the costs of a task of an ingest, in processor seconds, which other work on the machine does not change."""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from distributed import Client, LocalCluster
from distributed.scheduler import heartbeat_interval

from service.analysis.kept_answers import keep_answers
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.fleet.dataset import FACTS, SUMMARY, Dataset
from service.fleet.facts import encoded, facts_of
from service.fleet.ingesting import ingest_sources
from service.fleet.merging import PART_MAX, merge_facts
from service.fleet.sources import find_sources
from service.fleet.workers.here import Here
from service.fleet.workers.request import WorkersRequest
from service.fleet.workers.start import workers_of
from service.jobs.ingest import ingest
from service.jobs.machine_code import load_machine_code
from service.store.locations.location import location_of
from service.streaming.codec import plain_chunks
from service.streaming.processors import limit_processors
from service.trace.errors import LocationUnavailable
from tests.bench.fleet import REAL, made_record
from tests.bench.scale.counting import counting
from tests.bench.scale.parameters import GB, Costs, Line, Requests
from tests.fleet.work import Square
from tests.store.s3 import S3Server
from tests.traces import TraceShape, sized, write_trace
from tests.waiting import until

T = TypeVar("T")

MEGABYTES = (15, 60, 240, 960, 2700)
"""Sizes of the JSON of the generated traces."""
TASKS, WORKERS, IDLE_S = 2000, (2, 10), 10.0


class TaskCosts(NamedTuple):
    """Costs of the task of one trace: sizes in bytes, times in processor seconds."""

    name: str
    json_bytes: int
    packed_bytes: int
    written_bytes: int
    reading_s: float
    facts_s: float
    answers_s: float

    @property
    def gigabytes(self) -> float:
        """The size of the JSON in GB."""
        return self.json_bytes / GB


def measured_costs(folder: Path, traces: Sequence[Path], say: Callable[[str], None]) -> Costs:
    """Measure all costs.

    Args:
        folder: an empty folder.
        traces: further traces, whose costs are said, too.
        say: called with a line for each result.
    """
    limit_processors(1)
    pa.set_cpu_count(1)
    load_machine_code()
    task_costs(folder, REAL[0])  # the first one is slower
    for path in (*REAL, *traces):
        _said(task_costs(folder, path), say)
    paths = [_made(folder, megabytes) for megabytes in MEGABYTES]
    made = [_said(task_costs(folder, path), say) for path in paths]
    reading, facts, answers = (_line(made, name) for name in ("reading_s", "facts_s", "answers_s"))
    gap_s, head_s = _dispatch()
    costs = Costs(
        reading, facts, answers, gap_s, head_s, _heartbeat(), _merging(folder),
        packed_ratio=made[-1].packed_bytes / made[-1].json_bytes,
        columns_ratio=made[-1].written_bytes / made[-1].json_bytes, requests=_requests(folder, paths[-1]),
    )  # fmt: skip
    say(costs.as_json().decode())
    return costs


def _said(costs: TaskCosts, say: Callable[[str], None]) -> TaskCosts:
    whole = costs.reading_s + costs.facts_s + costs.answers_s
    say(
        f"{costs.name:50} {costs.json_bytes / 1e6:8.2f} MB, packed {costs.packed_bytes / costs.json_bytes:.3f}, written"
        f" {costs.written_bytes / costs.json_bytes:.3f}; reading {costs.reading_s:.3f} s, facts {costs.facts_s:.3f} s,"
        f" answers {costs.answers_s:.3f} s; {whole / costs.gigabytes:.0f} s per GB"
    )
    return costs


def task_costs(folder: Path, path: Path) -> TaskCosts:
    """Measure the parts of a task, as `IngestSource` does them."""
    with path.open("rb") as file:
        size = sum(map(len, plain_chunks(file)))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        columns = Path(scratch, "columns")
        with path.open("rb") as file:
            summary, reading_s = _timed(lambda: ingest(file, columns, path.name, lambda _: None))
        readings = ReadingCache(Path(scratch, "spill"))
        trace = AnalysisInput(columns, summary)
        facts, facts_s = _timed(lambda: facts_of(trace, "trace", readings))
        _, answers_s = _timed(lambda: keep_answers(trace, readings))
        readings.close()
        (columns / FACTS).write_bytes(encoded(facts))
        (columns / SUMMARY).write_text(summary.as_json())
        written = sum(file.stat().st_size for file in columns.rglob("*") if file.is_file())
    return TaskCosts(path.name, size, path.stat().st_size, written, reading_s, facts_s, answers_s)


def _timed(act: Callable[[], T]) -> tuple[T, float]:
    """Return a result, and the processor seconds that it took."""
    started = time.process_time()
    result = act()
    return result, time.process_time() - started


def _made(folder: Path, megabytes: int) -> Path:
    shape = sized(TraceShape(world_size=64), megabytes * 10**6)
    return write_trace(folder / f"made-{megabytes}.json.gz", shape, compress="gzip")


def _line(costs: Sequence[TaskCosts], name: str) -> Line:
    """Return the line that fits a part of tasks best, by the squares of relative errors."""
    sizes, seconds = ([getattr(each, field) for each in costs] for field in ("gigabytes", name))
    per_gb_s, fixed_s = np.polyfit(sizes, seconds, 1, w=1 / np.array(seconds))
    return Line(float(fixed_s), float(per_gb_s))


def _dispatch() -> tuple[float, float]:
    """Return the seconds between two tasks of a worker, and the processor seconds of this process for each task."""
    tasks = {str(number): Square(number) for number in range(TASKS)}
    with workers_of(WorkersRequest(mode="local", count=1)) as found:
        dict(found.results({"first": Square(0)}))
        started, before = time.perf_counter(), time.process_time()
        dict(found.results(tasks))
        gap, head = time.perf_counter() - started, time.process_time() - before
    return gap / TASKS, head / TASKS


def _heartbeat() -> float:
    """Return the processor seconds of a scheduler for a heartbeat of a worker, from idle clusters of two sizes."""
    few, many = (_idle(count) / IDLE_S for count in WORKERS)
    of_few, of_many = (float(count / heartbeat_interval(count)) for count in WORKERS)
    return max(0.0, many - few) / (of_many - of_few)


def _idle(workers: int) -> float:
    """Return the processor seconds of this process, with a scheduler, while so many workers elsewhere are idle."""
    with LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs="CRITICAL"
    ) as cluster:
        options = ["--nworkers", str(workers), "--nthreads", "1", "--dashboard-address", "127.0.0.1:0"]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with Client(cluster) as client:
                client.wait_for_workers(workers, timeout=120)
                time.sleep(IDLE_S / 2)  # until all have reported for the first time
                before = time.process_time()
                time.sleep(IDLE_S)
                return time.process_time() - before
        finally:
            process.terminate()
            process.wait()


def _merging(folder: Path) -> float:
    """Return the seconds to merge the facts of a trace, with those of a whole part."""
    dataset = Dataset.create(str(folder / "merged"))
    random = np.random.default_rng(0)
    records = [made_record(dataset, "made-0", rank, random) for rank in range(PART_MAX)]
    _, seconds = _timed(lambda: merge_facts(dataset, records, ()))
    return seconds / PART_MAX


def _requests(folder: Path, large: Path) -> Requests:
    """Count the requests of ingests from a bucket into a bucket: of one small trace, of some, and of a large one."""
    server = S3Server(_new(folder / "s3"))
    server.start()
    try:
        with counting(server.url) as (url, counts), _environment(server.environment | {"AWS_ENDPOINT_URL": url}):
            until(_accepts)
            one, some, big = (
                _counted(paths, counts, name) for name, paths in (("one", REAL[:1]), ("some", REAL), ("big", [large]))
            )
    finally:
        server.kill()
    further = len(REAL) - 1
    rank_get, rank_put = ((some[kind] - one[kind]) / further for kind in ("get", "put"))
    return Requests(
        rank_get, rank_put, one["get"] - rank_get, one["put"] - rank_put, one["list"],
        (big["get"] - one["get"]) / (large.stat().st_size / GB),
        (big["put"] - one["put"]) / ((big["written"] - one["written"]) / GB),
    )  # fmt: skip


def _counted(paths: Sequence[Path], counts: Counter[str], name: str) -> Counter[str]:
    """Return the number of requests of each kind, and the bytes that were written, of an ingest."""
    sources, store = f"s3://traces/{name}", f"s3://facts/{name}"
    for path in paths:
        location_of(sources).write(path.name, path.read_bytes())
    dataset = Dataset.create(store)
    counts.clear()
    ingest_sources(dataset, find_sources([sources], None, store), Here())
    found = Counter(counts)
    found["written"] = sum(entry.size for entry in dataset.location.entries("traces"))
    return found


def _accepts() -> bool:
    """Return whether a server has room; it answers before that."""
    with suppress(LocationUnavailable):
        location_of("s3://traces").write("ready", b"")
        return True
    return False


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder

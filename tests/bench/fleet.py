"""Times of fleets: from one worker to two, the overhead of a task, questions about 10,000 ranks, windows of a rank.

python -m tests.bench.fleet [workers] [overhead] [questions] [window]
"""

import argparse
import gzip
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa

from service.fleet.dataset import Dataset
from service.fleet.facts import TABLES, encoded
from service.fleet.ingesting import ingest_sources
from service.fleet.merging import PART_MAX, merge_facts
from service.fleet.questions.catalogue import QUESTIONS
from service.fleet.questions.facts_database import FactsDatabase
from service.fleet.questions.question import ask
from service.fleet.record import DONE, Record
from service.fleet.sources import Source, find_sources
from service.fleet.tasks import IngestSource
from service.fleet.workers.request import WorkersRequest
from service.fleet.workers.start import workers_of
from service.fleet.workers.task import Task, Workers
from service.trace.errors import TracedockError
from tests.bench.fleet_windows import windows
from tests.fleet.work import InOrder, Square
from tests.traces import TraceShape, write_trace

RANKS, STEPS, KERNELS, COLLECTIVES = 10_000, 10, 150, 400
REAL = sorted((Path(__file__).parents[1] / "data").glob("*.json.gz"))
"""Small real traces."""


def main() -> None:
    """Measure what is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures: dict[str, Callable[[Path], None]] = {
        "workers": workers, "overhead": overhead, "questions": questions, "window": windows,
    }  # fmt: skip
    parser.add_argument("what", nargs="*", choices=[*measures, []], default=[])
    for name in parser.parse_args().what or measures:
        with tempfile.TemporaryDirectory() as folder:
            measures[name](Path(folder))


def workers(folder: Path) -> None:
    """Print the efficiency of two worker processes beside one, in alternating runs."""
    runs = measured_workers(folder)
    times = {count: [run.seconds for run in of_count] for count, of_count in runs.items()}
    one, two = (statistics.median(times[count]) for count in (1, 2))
    first = runs[1][0]
    _say(
        f"{first.ranks} traces of {first.trace_bytes / 1e6:.1f} MB: 1 worker {one:.1f} s, 2 workers {two:.1f} s,"
        f" {first.ranks * first.trace_bytes / 1e6 / two:.0f} MB/s; speed-up {one / two:.2f}, efficiency"
        f" {one / two / 2:.2f}; all: {times}"
    )


class MeasuredIngest(NamedTuple):
    """An ingest: number and size of its traces, its seconds, and the mean seconds of its tasks in their workers."""

    ranks: int
    trace_bytes: float
    seconds: float
    task_s: float


def measured_workers(
    folder: Path, ranks: int = 64, megabytes: float = 15, pairs: int = 3
) -> dict[int, list[MeasuredIngest]]:
    """Ingest generated traces by one worker and by two, in alternating runs, each worker on its own processor."""
    run = folder / "run"
    run.mkdir()
    first = write_trace(run / "rank0.json", TraceShape(rank=0, world_size=ranks, steps=_steps_of(folder, megabytes)))
    _copied(first, ranks)
    trace_bytes = sum(path.stat().st_size for path in run.iterdir()) / ranks
    processors = sorted(os.sched_getaffinity(0))
    runs: dict[int, list[MeasuredIngest]] = {1: [], 2: []}
    for pair in range(pairs):
        for count in (1, 2) if pair % 2 else (2, 1):
            os.sched_setaffinity(0, processors[:count])
            with workers_of(WorkersRequest(mode="local", count=count)) as found:
                _ingested(folder / f"warm-{pair}-{count}", run, found, 2 * count)
                store = folder / f"{pair}-{count}"
                seconds = _ingested(store, run, found, ranks)
            task_s = statistics.fmean(record.seconds for record in Dataset.open(str(store)).records().values())
            runs[count].append(MeasuredIngest(ranks, trace_bytes, seconds, task_s))
            for made in folder.glob(f"*{pair}-{count}"):
                shutil.rmtree(made)
    os.sched_setaffinity(0, processors)
    return runs


def overhead(folder: Path, count: int = 1000, pairs: int = 10) -> None:
    """Print the time that a task takes beyond the bare call: of tasks that do almost nothing, and of real traces."""
    with workers_of(WorkersRequest(mode="local", count=1)) as found:
        _seconds(found, {"first": Square(0)})
        seconds = _seconds(found, {str(number): Square(number) for number in range(count)})
        _say(f"{count} tasks on one worker: {1000 * seconds / count:.1f} ms each")
        _overhead_of_traces(folder, found, count // pairs, pairs)


class _Passing(NamedTuple):
    """Times of a run of tasks, in ms for each: all, within the task, and of the worker's processor."""

    wall: float
    within: float
    processor: float

    def beyond(self, bare: "_Passing") -> tuple[float, float, float]:
        """Return what bare calls do not take: of all time, of that outside the task, and of the processor's."""
        outside = self.wall - self.within - (bare.wall - bare.within)
        return self.wall - bare.wall, outside, self.processor - bare.processor


def _overhead_of_traces(folder: Path, found: Workers, count: int, pairs: int) -> None:
    """Print what an ingest of small real traces takes beyond bare calls in the worker's process, in pairs of runs.

    Other work on the machine changes the time within tasks from run to run. So the time beyond it is compared, too,
    and that of the worker's processor.
    """
    times: dict[bool, list[_Passing]] = {True: [], False: []}
    size = sum(_distinct(REAL, folder / str(pair), count) for pair in range(pairs)) / pairs / count
    for pair in range(pairs):
        for is_bare in (True, False) if pair % 2 else (False, True):
            times[is_bare].append(_passed(folder / "dataset", folder / str(pair), found, is_bare=is_bare))
        bare, ingest = times[True][-1], times[False][-1]
        _say(f"  pair {pair + 1}: bare {_figures(bare)}; ingest {_figures(ingest)}")
    over = [ingest.beyond(bare) for bare, ingest in zip(times[True], times[False], strict=True)]
    wall, outside, processor = map(statistics.median, zip(*over, strict=True))
    _say(
        f"{pairs * count} real traces of {size / 1e3:.0f} kB on one worker, each beyond the bare call: {wall:+.1f} ms,"
        f" outside the task {outside:+.1f} ms, processor of the worker {processor:+.1f} ms"
    )


def _passed(store: Path, run: Path, found: Workers, *, is_bare: bool) -> _Passing:
    """Ingest the traces of a folder, by an ingest or by bare calls, and return the times."""
    dataset = Dataset.create(str(store))
    url = dataset.location.url
    sources = find_sources([str(run)], None, url)
    tasks = tuple(IngestSource(url, source) for source in sources)
    _outcomes(found, {"warm": InOrder(tasks[: len(REAL)])})
    process = psutil.Process(int(next(iter(dataset.records().values())).worker.rpartition(":")[2]))
    shutil.rmtree(store)
    Dataset.create(url)
    before = process.cpu_times()
    seconds = _outcomes(found, {"": InOrder(tasks)})[""] if is_bare else _ingested_in(dataset, sources, found)
    after = process.cpu_times()
    within = sum(record.seconds for record in dataset.records().values())
    shutil.rmtree(store)
    processor = after.user + after.system - before.user - before.system
    return _Passing(*(1000 * each / len(sources) for each in (seconds, within, processor)))


def _figures(passing: _Passing) -> str:
    return f"{passing.wall:.1f} ms, within {passing.within:.1f} ms, processor {passing.processor:.1f} ms"


def _distinct(paths: Sequence[Path], run: Path, count: int) -> int:
    """Copy traces, each packed at another time so that no two are the same file; return their size in bytes."""
    run.mkdir()
    texts = [gzip.decompress(path.read_bytes()) for path in paths]
    contents = [gzip.compress(texts[number % len(texts)], 1, mtime=number) for number in range(count)]
    for number, content in enumerate(contents):
        (run / f"trace{number}.json.gz").write_bytes(content)
    return sum(map(len, contents))


def _outcomes(found: Workers, tasks: Mapping[str, Task]) -> dict[str, Any]:
    """Run tasks, and return their results."""
    outcomes = dict(found.results(tasks))
    for outcome in outcomes.values():
        if isinstance(outcome, TracedockError):
            raise outcome
    return outcomes


def _seconds(found: Workers, tasks: Mapping[str, Task]) -> float:
    """Run tasks, and return the seconds."""
    started = time.perf_counter()
    _outcomes(found, tasks)
    return time.perf_counter() - started


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _copied(first: Path, count: int) -> None:
    """Copy a trace of rank 0 for the other ranks, which their names tell."""
    for rank in range(1, count):
        shutil.copy(first, first.with_name(f"rank{rank}.json"))


def _ingested(store: Path, run: Path, found: Workers, count: int) -> float:
    """Ingest the first sources of a run, and return the seconds."""
    dataset = Dataset.create(str(store))
    return _ingested_in(dataset, find_sources([str(run)], None, dataset.location.url)[:count], found)


def _ingested_in(dataset: Dataset, sources: Sequence[Source], found: Workers) -> float:
    """Ingest sources, and return the seconds."""
    started = time.perf_counter()
    progress = ingest_sources(dataset, sources, found)
    assert progress.failed == 0, progress
    return time.perf_counter() - started


def _steps_of(folder: Path, megabytes: float) -> int:
    """Return the number of steps of a trace of about this size."""
    size = write_trace(folder / "probe.json", TraceShape(steps=4)).stat().st_size
    return max(1, round(4 * megabytes * 1e6 / size))


def questions(folder: Path) -> None:
    """Print the time of each question about a made run of 10,000 ranks, with opening the facts."""
    dataset = Dataset.create(str(folder / "dataset"))
    random = np.random.default_rng(0)
    records = [made_record(dataset, "made-0", rank, random) for rank in range(8)]
    records += [made_record(dataset, "made-1", rank, random) for rank in range(RANKS)]
    for first in range(0, len(records), PART_MAX):
        merge_facts(dataset, records[first : first + PART_MAX], ())
    size = sum(path.stat().st_size for path in (folder / "dataset" / "facts").rglob("*.parquet")) / 1e6
    _say(
        f"{RANKS:,} ranks, {STEPS} steps, {KERNELS} kernels, {COLLECTIVES} collectives of each: {size:.0f} MB of facts"
    )
    for question in QUESTIONS.values():
        started = time.perf_counter()
        with FactsDatabase.of(dataset) as facts:
            opened = time.perf_counter()
            answer = ask(question, facts, "made-1", {})
        ended = time.perf_counter()
        rows = len(answer.tables[next(iter(question.tables))])
        _say(f"  {question.name:16} {ended - started:5.2f} s, of which opening {opened - started:.2f} s; {rows:,} rows")


def made_record(dataset: Dataset, run: str, rank: int, random: np.random.Generator) -> Record:
    """Write the facts of a made rank."""
    trace = f"{run}-{rank:032}"
    starts = np.arange(COLLECTIVES) * 1_000_000
    tables: dict[str, dict[str, Any]] = {
        "steps": {
            "step": range(STEPS), "total_ns": [10**9] * STEPS, "communication_ns": random.integers(0, 10**8, STEPS),
        },
        "kernels": {
            "type": ["COMP"] * KERNELS, "name": [f"void at::native::kernel_{number}" for number in range(KERNELS)],
            "count": [100] * KERNELS, "sum_ns": random.integers(10**6, 2 * 10**6, KERNELS),
        },
        "collectives": {
            "process_group": ["0"] * COLLECTIVES, "collective": ["allreduce"] * COLLECTIVES,
            "by_seq": [1] * COLLECTIVES, "number": range(COLLECTIVES), "group_size": [RANKS] * COLLECTIVES,
            "start_ns": starts, "end_ns": starts + random.integers(10**5, 10**6, COLLECTIVES),
        },
        "devices": {"device": [0]},
    }  # fmt: skip
    made = {}
    for name, values in tables.items():
        rows = len(next(iter(values.values())))
        filled = {"trace": [trace] * rows, "rank": [rank] * rows, **values}
        columns = {
            field.name: filled.get(field.name, [0 if field.type == pa.int64() else None] * rows)
            for field in TABLES[name]
        }
        made[name] = pa.table(columns, TABLES[name])
    dataset.location.write(f"traces/{trace}/facts.arrow", encoded(made))
    return Record(
        key=trace, run=run, source=f"/{trace}", name=trace, size_bytes=1, state=DONE, trace=trace, rank=rank,
        world_size=RANKS, host=f"node{rank // 8}", base_ns=int(run[-1]), start_ns=0, end_ns=1, ended_ns=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()

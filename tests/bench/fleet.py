"""Times of fleets: from one worker to two, the overhead of a task, and questions about 10,000 ranks.

python -m tests.bench.fleet [workers] [overhead] [questions]
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
from service.fleet.workers.start import WorkersRequest, workers_of
from service.fleet.workers.task import Workers
from tests.fleet.work import Square
from tests.traces import TraceShape, write_trace

RANKS, STEPS, KERNELS, COLLECTIVES = 10_000, 10, 150, 400


def main() -> None:
    """Measure what is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures: dict[str, Callable[[Path], None]] = {"workers": workers, "overhead": overhead, "questions": questions}
    parser.add_argument("what", nargs="*", choices=[*measures, []], default=[])
    for name in parser.parse_args().what or measures:
        with tempfile.TemporaryDirectory() as folder:
            measures[name](Path(folder))


def workers(folder: Path, ranks: int = 64, megabytes: float = 15, pairs: int = 3) -> None:
    """Print the efficiency of two worker processes beside one, in alternating runs."""
    run = folder / "run"
    run.mkdir()
    first = write_trace(run / "rank0.json", TraceShape(rank=0, world_size=ranks, steps=_steps_of(folder, megabytes)))
    _copied(first, ranks)
    size = sum(path.stat().st_size for path in run.iterdir()) / 1e6
    processors = sorted(os.sched_getaffinity(0))
    times: dict[int, list[float]] = {1: [], 2: []}
    for pair in range(pairs):
        for count in (1, 2) if pair % 2 else (2, 1):
            os.sched_setaffinity(0, processors[:count])
            with workers_of(WorkersRequest(mode="local", count=count)) as found:
                _ingested(folder / f"warm-{pair}-{count}", run, found, 2 * count)
                times[count].append(_ingested(folder / f"{pair}-{count}", run, found, ranks))
            for made in folder.glob(f"*{pair}-{count}"):
                shutil.rmtree(made)
    os.sched_setaffinity(0, processors)
    one, two = (statistics.median(times[count]) for count in (1, 2))
    _say(
        f"{ranks} traces of {size / ranks:.1f} MB: 1 worker {one:.1f} s, 2 workers {two:.1f} s, {size / two:.0f} MB/s;"
        f" speed-up {one / two:.2f}, efficiency {one / two / 2:.2f}; all: {times}"
    )


def overhead(_: Path, count: int = 1000) -> None:
    """Print the time that a task takes beyond the bare call, for tasks that do almost nothing."""
    tasks = {str(number): Square(number) for number in range(count)}
    with workers_of(WorkersRequest(mode="local", count=1)) as found:
        dict(found.results({"first": Square(0)}))
        started = time.perf_counter()
        dict(found.results(tasks))
        seconds = time.perf_counter() - started
    _say(f"{count} tasks on one worker: {1000 * seconds / count:.1f} ms each")


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
    sources: list[Source] = find_sources([str(run)], None, dataset.location.url)[:count]
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
    records = [_made(dataset, "made-0", rank, random) for rank in range(8)]
    records += [_made(dataset, "made-1", rank, random) for rank in range(RANKS)]
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


def _made(dataset: Dataset, run: str, rank: int, random: np.random.Generator) -> Record:
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

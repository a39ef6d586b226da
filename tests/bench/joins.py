"""Time to join the answers of thousands of ranks, of each analysis.

python -m tests.bench.joins [--ranks N …] [--only ANALYSIS …] [TRACE …]

The ranks are made: the answers of the given traces are repeated with other rank numbers. By default, these are two
generated traces with a collective in each of 400 steps.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from service.analysis.answers import RankResult, asked_ranks, join_answers, rank_answer, ranks_of
from service.analysis.catalogue import QUESTIONS
from service.analysis.facts.scope import Scope, scope_of
from service.analysis.names import OF_SNAPSHOTS
from service.analysis.question import Question, Tables
from service.analysis.reading_cache import AnalysisInput, ReadingCache
from service.jobs.ingest import ingest
from service.trace.errors import TracedockError
from tests.traces import TraceShape, write_trace

STEPS = 400


def main() -> None:
    """Print the seconds of each join, with the number of rows of the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, default=[])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1000, 4000])
    parser.add_argument("--only", nargs="+", default=[name for name in QUESTIONS if name not in OF_SNAPSHOTS])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, read(options.traces or made(Path(folder))) as (traces, readings):
        for name in options.only:
            question = QUESTIONS[name]
            answers = [_answer(question, trace, readings) for trace in traces]
            if not any(isinstance(answer, dict) for answer in answers):
                sys.stdout.write(f"{name:20} does not apply: {answers[0]}\n")
                continue
            for count in options.ranks:
                seconds, rows = joined(question, traces, answers, count, readings)
                sys.stdout.write(f"{name:20} {count:6,} ranks {seconds:8.2f} s {rows:12,} rows\n")
                sys.stdout.flush()


def made(folder: Path) -> list[Path]:
    """Generate the traces of two ranks."""
    shapes = (TraceShape(rank=rank, world_size=2, steps=STEPS, seed=rank) for rank in range(2))
    return [write_trace(folder / f"rank{rank}.json", shape) for rank, shape in enumerate(shapes)]


@contextmanager
def read(paths: Sequence[Path]) -> Iterator[tuple[list[AnalysisInput], ReadingCache]]:
    """Lend traces that are read, and a cache of their readings."""
    with tempfile.TemporaryDirectory() as folder:
        traces = []
        for number, path in enumerate(paths):
            columns = Path(folder, str(number))
            with path.open("rb") as file:
                traces.append(AnalysisInput(columns, ingest(file, columns, path.name, lambda _: None), name=path.name))
        readings = ReadingCache(Path(folder, "spill"))
        try:
            yield traces, readings
        finally:
            readings.close()


def _answer(question: Question, trace: AnalysisInput, readings: ReadingCache) -> RankResult:
    with readings.of(ranks_of(trace)[0]) as reading, scope_of(reading) as scope:
        try:
            return rank_answer(question, question.parameters(), scope, of_several=True)
        except TracedockError as error:
            return str(error)


def joined(
    question: Question,
    traces: Sequence[AnalysisInput],
    answers: Sequence[RankResult],
    count: int,
    readings: ReadingCache,
) -> tuple[float, int]:
    """Join the answers of traces, repeated for a number of ranks; return the seconds, and the rows of all tables.

    A question that compares two sides compares the ranks with themselves.
    """
    ranks, results = [], []
    for rank in range(count):
        trace, answer = traces[rank % len(traces)], answers[rank % len(answers)]
        ranks.append(replace(trace, summary=replace(trace.summary, rank=rank), is_base=False))
        results.append(_of_rank(answer, rank, count) if isinstance(answer, dict) else answer)
    if question.compare_sides:
        ranks, results = [*(replace(trace, is_base=True) for trace in ranks), *ranks], [*results, *results]
    started = time.perf_counter()
    asked = asked_ranks(question, ranks)
    tables = join_answers(question, question.parameters(), asked, results, partial(_ask_again, readings)).tables
    return time.perf_counter() - started, sum(map(len, tables.values()))


def _of_rank(answer: Tables, rank: int, ranks: int) -> Tables:
    """Return an answer with the number of another rank, in groups of all ranks."""
    values: dict[str, Any] = {"rank": rank, "group_size": ranks}
    return {name: _with_values(table, values) for name, table in answer.items()}


def _with_values(table: pa.Table, values: dict[str, Any]) -> pa.Table:
    """Replace the values of columns, where there are such columns and values."""
    for name in set(values) & set(table.column_names):
        type_ = table.schema.field(name).type
        column = pa.array([None if value is None else values[name] for value in table[name].to_pylist()], type_)
        table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
    return table


def _ask_again(readings: ReadingCache, trace: AnalysisInput, ask: Callable[[Scope], pa.Table]) -> pa.Table:
    with readings.of(trace) as reading, scope_of(reading) as scope:
        return ask(scope)


if __name__ == "__main__":
    main()

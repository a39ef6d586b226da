"""Runs that a gate compares: the figures of their steps, from the analysis `step_figures`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Optional

from tracedock.gate.defaults import WARMUP
from tracedock.gate.rules import Figure, RuleError
from tracedock.gate.significance import Value

ANALYSIS = "step_figures"
"""The analysis that has the figures of steps."""
_LISTED_MAX = 8

Row = Mapping[str, Any]
Rank = Optional[int]
Cycle = int
Step = int
Key = tuple[Rank, Cycle, Step]


@dataclass(frozen=True)
class Run:
    """A trace, a group or files, with the figures of its steps.

    Args:
        name: its name.
        tables: rows of each table of `step_figures`.
        kind: `trace`, `group` or `file`.
        id: its id on the server; empty for files.
        traces: name and id of each of its traces on the server.
        notes: remarks for readers, such as what was left out.
    """

    name: str
    tables: Mapping[str, Sequence[Row]]
    kind: str = "file"
    id: str = ""
    traces: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()

    @property
    def ranks(self) -> list[Rank]:
        """Ranks of the run, in order; None for a trace without a rank."""
        return sorted({row["rank"] for row in self.tables["steps"]}, key=lambda rank: -1 if rank is None else rank)


@dataclass
class Samples:
    """Values of a figure, one for each step.

    Args:
        values: the values in order of cycles and steps.
        notes: remarks about steps that were left out.
    """

    values: list[Value] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def tables_of(answer: bytes) -> tuple[dict[str, list[Row]], list[str]]:
    """Return the rows of each table of an answer, as dictionaries, and notes about the traces that it left out."""
    document = json.loads(answer)
    tables: dict[str, list[Row]] = {}
    for name, table in document["tables"].items():
        names = [column["name"] for column in table["columns"]]
        tables[name] = [dict(zip(names, row)) for row in table["rows"]]
    return tables, [f"{skipped['name']} is left out: {skipped['reason']}" for skipped in document["skipped"]]


def wanted_tables(figures: Iterable[Figure]) -> str:
    """Return the parameter `only` of `step_figures` that has all that the figures need."""
    tables = {figure.subject.table for figure in figures} - {"steps"}
    return "all" if len(tables) > 1 else tables.pop() if tables else "steps"


def samples_of(
    run: Run, figure: Figure, *, warmup: int = WARMUP, rank: Rank = None, each_rank: bool = False
) -> Samples:
    """Return the values of a figure in the steps of a run.

    Of several ranks, the value of a step is the largest of any rank: a step is as slow as its slowest rank.

    Args:
        run: the run.
        figure: the figure.
        warmup: number of steps to leave out at the start of each cycle.
        rank: the rank to take, if `each_rank` is set.
        each_rank: whether to take the steps of one rank.

    Raises:
        RuleError: the figure is not known, because the trace does not record it.
    """
    samples = Samples()
    steps = _steps(run, warmup, samples.notes)
    steps = [key for key in steps if key[0] == rank] if each_rank else _common(steps, samples.notes)
    values = _values(run, figure, steps)
    by_step: dict[tuple[Cycle, Step], list[Value]] = {}
    for (_, cycle, step), value in values.items():
        by_step.setdefault((cycle, step), []).append(value)
    samples.values = [max(values) for values in by_step.values()]
    return samples


def _steps(run: Run, warmup: int, notes: list[str]) -> list[Key]:
    """Return the steps of a run in order of time, without the first of each cycle, and without ambiguous ones."""
    keys = [_key(row) for row in run.tables["steps"] if row["step"] is not None]
    ambiguous = {key for key, count in Counter(keys).items() if count > 1}
    if ambiguous:
        numbers = _listed(sorted({step for _, _, step in ambiguous}))
        notes.append(f"{run.name}: left out steps that a rank has more than once: {numbers}.")
    seen: Counter[tuple[Rank, Cycle]] = Counter()
    kept = []
    for key in keys:
        seen[key[:2]] += 1
        if seen[key[:2]] > warmup and key not in ambiguous:
            kept.append(key)
    return kept


def _common(steps: Sequence[Key], notes: list[str]) -> list[Key]:
    """Return the steps that all ranks of their cycle have: without a rank, a step may seem faster than it was."""
    ranks_of_cycle: dict[Cycle, set[Rank]] = {}
    ranks_of_step: dict[tuple[Cycle, Step], set[Rank]] = {}
    for rank, cycle, step in steps:
        ranks_of_cycle.setdefault(cycle, set()).add(rank)
        ranks_of_step.setdefault((cycle, step), set()).add(rank)
    partial = {key for key, ranks in ranks_of_step.items() if ranks != ranks_of_cycle[key[0]]}
    if partial:
        notes.append(f"Left out steps that not all ranks have: {_listed(sorted({step for _, step in partial}))}.")
    return [key for key in steps if key[1:] not in partial]


def _values(run: Run, figure: Figure, steps: Sequence[Key]) -> dict[Key, Value]:
    """Return the value of a figure in each of the steps; a mean or a maximum of nothing is left out."""
    if not figure.quantity:
        return _numbers_of_steps(run, figure, steps)
    _check_recorded(run, figure)
    rows_of: dict[Key, list[Row]] = {key: [] for key in steps}
    for row in matching_rows(run, figure):
        if _key(row) in rows_of:
            rows_of[_key(row)].append(row)
    values = {key: _quantity(figure.quantity, rows) for key, rows in rows_of.items()}
    return {key: value for key, value in values.items() if value is not None}


def _numbers_of_steps(run: Run, figure: Figure, steps: Sequence[Key]) -> dict[Key, Value]:
    chosen = set(steps)
    values = {_key(row): row[figure.subject.column] for row in run.tables["steps"] if _key(row) in chosen}
    if None in values.values():
        reason = "it was recorded without `profile_memory=True`" if figure.name == "memory" else "nothing runs on a GPU"
        raise RuleError(f"{figure.text} is not known of {run.name}: {reason}.")
    return values


def _check_recorded(run: Run, figure: Figure) -> None:
    """Raise `RuleError` if a trace does not record the figure; a trace that records it may still have none."""
    table = figure.subject.table
    has_rows = bool(run.tables[table])
    has_work = any(row["busy_ns"] is not None for row in run.tables["steps"])
    if not has_rows and (table == "operators" or not has_work):
        reason = "it has no operators" if table == "operators" else "nothing runs on a GPU"
        raise RuleError(f"{figure.text} is not known of {run.name}: {reason}.")


def matching_rows(run: Run, figure: Figure) -> list[Row]:
    """Return the rows of what the figure counts."""
    kinds, name = figure.subject.kinds, _name_column(figure)
    rows = run.tables[figure.subject.table]
    return [row for row in rows if (not kinds or row["kind"] in kinds) and figure.matches(row[name])]


def names_of(run: Run, figure: Figure) -> dict[str, int]:
    """Return the names that the figure's subject has in a run, with their time in ns."""
    kinds, name = figure.subject.kinds, _name_column(figure)
    time = "host_total_ns" if figure.subject.table == "operators" else "sum_ns"
    times: Counter[str] = Counter()
    for row in run.tables[figure.subject.table]:
        if row[name] is not None and (not kinds or row["kind"] in kinds):
            times[row[name]] += row[time]
    return times


def _name_column(figure: Figure) -> str:
    return "collective" if figure.subject.table == "collectives" else "name"


def _quantity(quantity: str, rows: Sequence[Row]) -> Value | None:
    """Return a quantity of the rows of one step; None for a mean or a maximum of nothing."""
    if quantity == "device":
        return _total(rows, "device_total_ns")
    is_call = bool(rows) and "calls" in rows[0]
    total = _total(rows, "host_total_ns" if is_call else "sum_ns")
    count = _total(rows, "calls" if is_call else "count")
    if quantity in {"sum", "count"}:
        return total if quantity == "sum" else count
    if not count:
        return None
    return Fraction(total, count) if quantity == "mean" else max(int(row["max_ns"]) for row in rows)


def _total(rows: Sequence[Row], column: str) -> int:
    return sum(int(row[column]) for row in rows)


def _key(row: Row) -> Key:
    return row["rank"], row.get("cycle", 0), row["step"]


def _listed(numbers: Sequence[int]) -> str:
    more = len(numbers) - _LISTED_MAX
    return ", ".join(map(str, numbers[:_LISTED_MAX])) + (f" and {more} more" if more > 0 else "")

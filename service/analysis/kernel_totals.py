"""Totals of kernels and types of work over all ranks."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from service.analysis.facts.intervals import clamp_int64, percentage
from service.analysis.facts.scope import Scope
from service.analysis.question import Tables, concatenated
from service.analysis.table import count, ns, number, pct, table_of_rows, word

_Row = dict[str, Any]

_RANKS = count("ranks", "with such work")
_SUMS = (
    count("count", "how many ran"),
    ns("sum", "of their durations on all ranks"),
    pct("sum", "of the durations of all work"),
)
TOTAL_TYPES = (word("type", "COMP, COMM, MEM or OTHER"), _RANKS, *_SUMS)
TOTAL_KERNELS = (
    word("type", "COMP, COMM, MEM or OTHER"),
    word("name", "of the kernel; `others` beyond `top`"),
    _RANKS,
    *_SUMS,
    number("mean_ns", "of their durations", "ns"),
    ns("min", "of their durations"),
    ns("max", "of their durations"),
    number("mean_rank_sum_ns", "mean of the sums of ranks with such work", "ns"),
    ns("max_rank_sum", "the largest sum of a rank"),
)
NAMES = "names"
"""Name of the table with all names of a rank, from which the totals are computed."""

_NAMES = """
SELECT
    type::VARCHAR AS type, name, sum(events)::BIGINT AS count, sum(total)::HUGEINT::VARCHAR AS total,
    min(shortest) AS shortest, max(longest) AS longest
FROM grouped GROUP BY ALL
"""


class _Total:
    """Total of a type or name over ranks."""

    def __init__(self) -> None:
        self.count = 0
        self.of_ranks = Counter[int]()
        self.shortest: list[int] = []
        self.longest: list[int] = []

    @property
    def sum(self) -> int:
        """Sum of the durations on all ranks, in ns."""
        return self.of_ranks.total()

    def add(self, rank: int, row: _Row) -> None:
        """Add a row of a rank; `rank` is the index of its answer."""
        self.count += row["count"]
        self.of_ranks[rank] += int(row["total"])
        self.shortest.append(row["shortest"])
        self.longest.append(row["longest"])


def names_of(scope: Scope) -> pa.Table:
    """Sum up all work of a rank by type and name, from its table ``grouped``."""
    return scope.table(_NAMES)


def joined(answers: Sequence[Tables], top: int) -> Tables:
    """Concatenate the rows of all ranks, and add the totals over them.

    Args:
        answers: the tables of each rank, `NAMES` among them.
        top: maximum number of names listed for each type.
    """
    names = [tables[NAMES].to_pylist() for tables in answers]
    rows = concatenated([{name: table for name, table in tables.items() if name != NAMES} for tables in answers])
    return {**rows, "total_types": _types(names), "total_kernels": _kernels(names, top)}


def _types(ranks: Sequence[list[_Row]]) -> pa.Table:
    totals = _totals(ranks, lambda row: row["type"])
    whole = sum(total.sum for total in totals.values())
    order = sorted(totals, key=lambda type_: (-totals[type_].sum, type_))
    return table_of_rows(TOTAL_TYPES, [[type_, *_sums(totals[type_], whole)] for type_ in order])


def _kernels(ranks: Sequence[list[_Row]], top: int) -> pa.Table:
    """Return a row for each of the `top` names of a type by sum, and one row for the other names of the type."""
    sums = _totals(ranks, lambda row: (row["type"], row["name"]))
    named: dict[str, set[str | None]] = defaultdict(set)
    for type_, name in sorted(sums, key=lambda key: (-sums[key].sum, key[1] or "")):
        if len(named[type_]) < top:
            named[type_].add(name)

    def key_of(row: _Row) -> tuple[bool, str, str | None]:
        is_named = row["name"] in named[row["type"]]
        return not is_named, row["type"], row["name"] if is_named else "others"

    totals = _totals(ranks, key_of)
    whole = sum(total.sum for total in totals.values())
    rows = []
    for key in sorted(totals, key=lambda key: (key[0], -totals[key].sum, key[1], key[2] or "")):
        total, (_, type_, name) = totals[key], key
        durations = total.sum / total.count, min(total.shortest), max(total.longest)
        of_rank = total.sum / len(total.of_ranks), clamp_int64(max(total.of_ranks.values()))
        rows.append([type_, name, *_sums(total, whole), *durations, *of_rank])
    return table_of_rows(TOTAL_KERNELS, rows)


def _sums(total: _Total, whole: int) -> list[Any]:
    return [len(total.of_ranks), total.count, clamp_int64(total.sum), percentage(total.sum, whole)]


def _totals(ranks: Sequence[list[_Row]], key_of: Callable[[_Row], Any]) -> dict[Any, _Total]:
    """Sum up the rows of each key."""
    totals: dict[Any, _Total] = defaultdict(_Total)
    for rank, rows in enumerate(ranks):
        for row in rows:
            totals[key_of(row)].add(rank, row)
    return totals

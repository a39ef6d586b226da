"""Totals of kernels and types of work over all ranks."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from service.analysis.facts.intervals import clamp_int64, percentage
from service.analysis.facts.scope import Scope
from service.analysis.question import Tables, concatenated
from service.analysis.table import count, ns, number, pct, rows_made, word

_Row = dict[str, Any]

_RANKS = count("ranks", "that ran any")
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
    number("mean_rank_sum_ns", "sum of a rank that ran any, on the mean", "ns"),
    ns("max_rank_sum", "the largest sum of a rank"),
)
NAMES = "names"
"""The table of a rank's answer with all names, of which these totals are made."""

_NAMES = """
SELECT
    type::VARCHAR AS type, name, sum(events)::BIGINT AS count, sum(total)::HUGEINT::VARCHAR AS total,
    min(shortest) AS shortest, max(longest) AS longest
FROM grouped GROUP BY ALL
"""


class _Total:
    """What ranks have of something."""

    def __init__(self) -> None:
        self.count = 0
        self.of_ranks = Counter[int]()
        self.shortest: list[int] = []
        self.longest: list[int] = []

    @property
    def sum(self) -> int:
        """The durations on all ranks."""
        return self.of_ranks.total()

    def add(self, rank: int, row: _Row) -> None:
        """Add what the rank of a place has."""
        self.count += row["count"]
        self.of_ranks[rank] += int(row["total"])
        self.shortest.append(row["shortest"])
        self.longest.append(row["longest"])


def names_of(scope: Scope) -> pa.Table:
    """All work of a rank by type and name, from its table ``grouped``."""
    return scope.table(_NAMES)


def joined(answers: Sequence[Tables], top: int) -> Tables:
    """The rows of all ranks, and the totals over them.

    Args:
        answers: of the ranks, each with the table `NAMES`.
        top: how many names of each type are told.
    """
    names = [one[NAMES].to_pylist() for one in answers]
    rows = concatenated([{name: table for name, table in one.items() if name != NAMES} for one in answers])
    return {**rows, "total_types": _types(names), "total_kernels": _kernels(names, top)}


def _types(ranks: Sequence[list[_Row]]) -> pa.Table:
    found = _added(ranks, lambda row: row["type"])
    whole = sum(one.sum for one in found.values())
    order = sorted(found, key=lambda type_: (-found[type_].sum, type_))
    return rows_made(TOTAL_TYPES, [[type_, *_sums(found[type_], whole)] for type_ in order])


def _kernels(ranks: Sequence[list[_Row]], top: int) -> pa.Table:
    """The names of each type with the largest sums; the rest of the type is one row."""
    sums = _added(ranks, lambda row: (row["type"], row["name"]))
    named: dict[str, set[str | None]] = defaultdict(set)
    for type_, name in sorted(sums, key=lambda key: (-sums[key].sum, key[1] or "")):
        if len(named[type_]) < top:
            named[type_].add(name)

    def key_of(row: _Row) -> tuple[bool, str, str | None]:
        is_named = row["name"] in named[row["type"]]
        return not is_named, row["type"], row["name"] if is_named else "others"

    found = _added(ranks, key_of)
    whole = sum(one.sum for one in found.values())
    rows = []
    for key in sorted(found, key=lambda key: (key[0], -found[key].sum, key[1], key[2] or "")):
        one, (_, type_, name) = found[key], key
        each = one.sum / one.count, min(one.shortest), max(one.longest)
        of_rank = one.sum / len(one.of_ranks), clamp_int64(max(one.of_ranks.values()))
        rows.append([type_, name, *_sums(one, whole), *each, *of_rank])
    return rows_made(TOTAL_KERNELS, rows)


def _sums(total: _Total, whole: int) -> list[Any]:
    return [len(total.of_ranks), total.count, clamp_int64(total.sum), percentage(total.sum, whole)]


def _added(ranks: Sequence[list[_Row]], key_of: Callable[[_Row], Any]) -> dict[Any, _Total]:
    """The totals of what has the same key."""
    found: dict[Any, _Total] = defaultdict(_Total)
    for rank, rows in enumerate(ranks):
        for row in rows:
            found[key_of(row)].add(rank, row)
    return found

"""Matching of kernels whose names differ between two runs, by the op that launches them, its shapes and its place."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CallTotal = tuple[int, int]
"""Number of calls, and the sum of their durations in ns."""


class KernelRename(NamedTuple):
    """Work of the base that was matched with work of another name on the other side."""

    base_name: str
    name: str
    kind: str
    base: CallTotal
    other: CallTotal


class _Site(NamedTuple):
    name: str
    exact_place: int
    calls: int
    duration_ns: int


_Sites = Mapping[tuple[str, int], list[_Site]]


def match_renamed_kernels(pairs: Sequence[tuple[pa.Table, pa.Table]]) -> list[KernelRename]:
    """Match the launch sites of two sides.

    If all work at a place has one name on each side, the names match. Otherwise sites match by their order among
    siblings. A site without such a match takes the partner of its name, if the name has only one partner.

    Args:
        pairs: for each pair of ranks, two tables of `launch_sites`: of the work that only the base has, and of the
            work that only the other side has.
    """
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for tables in pairs:
        ambiguous = np.unique(np.concatenate([_ambiguous(table) for table in tables]))
        base, other = (_by_place(_condensed(table, ambiguous)) for table in tables)
        for kind, place in base.keys() & other.keys():
            sides = base[kind, place], other[kind, place]
            partners = _partners(*sides)
            for side, sites in enumerate(sides):
                for site in sites:
                    partner = partners[side].get((site.name, site.exact_place)) or partners[side].get((site.name, None))
                    if partner:
                        amount = sums[(partner, site.name, kind) if side else (site.name, partner, kind)]
                        amount[2 * side] += site.calls
                        amount[2 * side + 1] += site.duration_ns
    return [
        KernelRename(base_name, name, kind, (amount[0], amount[1]), (amount[2], amount[3]))
        for (base_name, name, kind), amount in sums.items()
    ]


def _ambiguous(table: pa.Table) -> Any:
    """Return the places with work of several names."""
    names = table.group_by(["kind", "place"]).aggregate([("name", "count_distinct")])
    return names.filter(pc.greater(names["name_count_distinct"], 1))["place"].to_numpy()


def _condensed(table: pa.Table, ambiguous: Any) -> pa.Table:
    """Sum up the sites of a table; only sites at ambiguous places keep their exact place, since there can be many."""
    exact = np.where(np.isin(table["place"].to_numpy(), ambiguous), table["exact_place"].to_numpy(), np.uint64(0))
    keys, sums = ["name", "kind", "place", "exact_place"], ["count", "duration_ns"]
    sites = table.set_column(table.schema.get_field_index("exact_place"), "exact_place", pa.array(exact))
    total = sites.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in sums])
    return total.rename_columns([*keys, *sums])


def _by_place(table: pa.Table) -> _Sites:
    """Group the sites by kind and place."""
    places: dict[tuple[str, int], list[_Site]] = defaultdict(list)
    for row in table.to_pylist():
        site = _Site(row["name"], row["exact_place"], row["count"], row["duration_ns"])
        places[row["kind"], row["place"]].append(site)
    return places


def _partners(base: list[_Site], other: list[_Site]) -> tuple[dict[Any, str], dict[Any, str]]:
    """Return the other side's name for each name and exact place, and for each name with only one partner."""
    names = {site.name for site in base}, {site.name for site in other}
    if len(names[0]) == len(names[1]) == 1:
        (base_name,), (name,) = names
        return {(base_name, None): name}, {(name, None): base_name}
    exact = [_exact(base), _exact(other)]
    partners: tuple[dict[Any, str], dict[Any, str]] = ({}, {})
    for side in (0, 1):
        by_name: dict[str, set[str]] = defaultdict(set)
        for place, name in exact[side].items():
            if partner := exact[1 - side].get(place):
                partners[side][name, place] = partner
                by_name[name].add(partner)
        partners[side].update({(name, None): min(names) for name, names in by_name.items() if len(names) == 1})
    return partners


def _exact(sites: list[_Site]) -> dict[int, str]:
    """Return the name of each exact place that has only one."""
    names: dict[int, set[str]] = defaultdict(set)
    for site in sites:
        names[site.exact_place].add(site.name)
    return {place: min(unique) for place, unique in names.items() if len(unique) == 1}

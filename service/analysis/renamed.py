"""Kernels that were renamed from one run to another: matched by the op that launches them, its shapes and its place."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Sum = tuple[int, int]
"""How many, and how long in all."""
Key = tuple[str, str]
"""The name and the kind of work."""


class Renamed(NamedTuple):
    """Work of a base that was matched with other work, by the names and kind of both."""

    base_name: str
    name: str
    kind: str
    base: Sum
    other: Sum


class _Site(NamedTuple):
    name: str
    exact_place: int
    calls: int
    duration_ns: int


_Sites = Mapping[tuple[str, int], list[_Site]]


def renamed(pairs: Sequence[tuple[pa.Table, pa.Table]]) -> list[Renamed]:
    """Match the launch sites of two sides.

    All work of a place has one name on each side in the simplest case: then it is a match. Else the order among the
    siblings decides; work of further siblings follows its name if that was matched with only one.

    Args:
        pairs: for each two ranks, the `launch_sites` of what only the base does, and of what only the other side does.
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
                    names = partners[side].get((site.name, site.exact_place)) or partners[side].get((site.name, None))
                    if names:
                        amount = sums[(names, site.name, kind) if side else (site.name, names, kind)]
                        amount[2 * side] += site.calls
                        amount[2 * side + 1] += site.duration_ns
    return [
        Renamed(base_name, name, kind, (amount[0], amount[1]), (amount[2], amount[3]))
        for (base_name, name, kind), amount in sums.items()
    ]


def _ambiguous(table: pa.Table) -> Any:
    """The places that have work of several names."""
    names = table.group_by(["kind", "place"]).aggregate([("name", "count_distinct")])
    return names.filter(pc.greater(names["name_count_distinct"], 1))["place"].to_numpy()


def _condensed(table: pa.Table, ambiguous: Any) -> pa.Table:
    """The sites of a table, of which only those at ambiguous places have an exact place: there can be many."""
    exact = np.where(np.isin(table["place"].to_numpy(), ambiguous), table["exact_place"].to_numpy(), np.uint64(0))
    keys, sums = ["name", "kind", "place", "exact_place"], ["count", "duration_ns"]
    sites = table.set_column(table.schema.get_field_index("exact_place"), "exact_place", pa.array(exact))
    total = sites.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in sums])
    return total.rename_columns([*keys, *sums])


def _by_place(table: pa.Table) -> _Sites:
    """The sites of each kind and place."""
    places: dict[tuple[str, int], list[_Site]] = defaultdict(list)
    for row in table.to_pylist():
        site = _Site(row["name"], row["exact_place"], row["count"], row["duration_ns"])
        places[row["kind"], row["place"]].append(site)
    return places


def _partners(base: list[_Site], other: list[_Site]) -> tuple[dict[Any, str], dict[Any, str]]:
    """The name of the other side for each name and exact place, and for a name alone that has only one partner."""
    names = {site.name for site in base}, {site.name for site in other}
    if len(names[0]) == len(names[1]) == 1:
        (base_name,), (name,) = names
        return {(base_name, None): name}, {(name, None): base_name}
    exact = [_exact(base), _exact(other)]
    found: tuple[dict[Any, str], dict[Any, str]] = ({}, {})
    for side in (0, 1):
        matched: dict[str, set[str]] = defaultdict(set)
        for place, name in exact[side].items():
            if partner := exact[1 - side].get(place):
                found[side][name, place] = partner
                matched[name].add(partner)
        found[side].update({(name, None): min(partners) for name, partners in matched.items() if len(partners) == 1})
    return found


def _exact(sites: list[_Site]) -> dict[int, str]:
    """The name of each exact place that has only one."""
    names: dict[int, set[str]] = defaultdict(set)
    for site in sites:
        names[site.exact_place].add(site.name)
    return {place: min(found) for place, found in names.items() if len(found) == 1}

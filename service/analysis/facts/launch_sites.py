"""Launch sites: where in the call tree work is launched, told so that those of two traces can be matched."""

import hashlib
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from service.analysis.facts.host import IS_ANNOTATION, IS_MODULE, IS_OP, SHAPES, Host, host_where
from service.analysis.facts.intervals import Ints
from service.analysis.facts.scope import Scope
from service.attribution.nesting import factorize, parents_of
from service.trace.summary import STEP_PREFIX

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_WORK = """
SELECT
    name::VARCHAR AS name, kind::VARCHAR AS kind, dur_ns, coalesce(operator_row, -1) AS operator_row
FROM device_events ORDER BY start_ns, position
"""


def launch_sites(scope: Scope, names: Collection[str]) -> pa.Table:
    """Work of some names by the place in the call tree from which it is launched.

    A place is the innermost op around the launch, the shapes of its inputs, the names of all that encloses it, and
    which of the op's own pieces of work of that kind it is. Steps are of one name, whatever their numbers. Work that no
    op launches is left out.

    Args:
        scope: of the rank.
        names: of the work.

    Returns:
        ``name, kind, place, exact_place, count, duration_ns``. The `place` and the `exact_place` are hashes, comparable
        with those of other traces; the exact one also tells the order of each slice among its siblings of that name.
    """
    scope.slices()
    work = scope.table(_WORK)
    host = host_where(scope, f"({IS_MODULE} OR {IS_OP} OR {IS_ANNOTATION})", SHAPES)
    parents = parents_of(host.threads, host.starts, host.ends)
    ops = host.places(work["operator_row"].to_numpy())
    pieces = _orders(_keys(ops, work["kind"]))
    chosen = np.flatnonzero((ops >= 0) & np.isin(work["name"].to_numpy(), list(names)))
    place, exact_place = _places(host, parents, ops[chosen])
    shapes = _hashes(host.extra_words)[np.asarray(host.extras)[ops[chosen]]]
    own = _mixed(shapes, pieces[chosen].astype(np.uint64))
    sites = work.select(["name", "kind", "dur_ns"]).take(pa.array(chosen))
    sites = sites.append_column("place", pa.array(_mixed(place, own)))
    sites = sites.append_column("exact_place", pa.array(_mixed(exact_place, own)))
    total = sites.group_by(["name", "kind", "place", "exact_place"], use_threads=False).aggregate(
        [("dur_ns", "count"), ("dur_ns", "sum")]
    )
    return total.rename_columns(["name", "kind", "place", "exact_place", "count", "duration_ns"])


def _keys(ops: Any, kinds: pa.ChunkedArray) -> Ints:
    """A number for each op and kind of work."""
    coded = kinds.combine_chunks().dictionary_encode()
    keys: Ints = (ops.astype(np.int64) + 1) * (len(coded.dictionary) + 1) + coded.indices.to_numpy()
    return keys


def _orders(keys: Ints) -> Ints:
    """The place of each key among the equal ones, from 0."""
    groups, count = factorize(keys)
    order = np.argsort(groups, kind="stable")
    firsts = np.searchsorted(groups[order], np.arange(count))
    orders = np.empty(len(keys), np.int64)
    orders[order] = np.arange(len(keys)) - firsts[groups[order]]
    return orders


def _places(host: Host, parents: Any, ops: Any) -> tuple[Any, Any]:
    """Hashes of each op's path, without the orders of its slices and with them."""
    is_step = np.array([word.startswith(STEP_PREFIX) for word in host.words])
    names = _hashes(["ProfilerStep" if step else word for word, step in zip(host.words, is_step, strict=True)])
    siblings = _orders((parents.astype(np.int64) + 1) * (len(host.words) + 1) + host.names)
    siblings[is_step[host.names]] = 0
    paths, exact = np.zeros(len(ops), np.uint64), np.zeros(len(ops), np.uint64)
    at, rows = ops, np.arange(len(ops))
    while len(rows):
        name = names[host.names[at]]
        paths[rows] = _mixed(paths[rows], name)
        exact[rows] = _mixed(exact[rows], _mixed(name, siblings[at].astype(np.uint64)))
        at = parents[at]
        at, rows = at[at >= 0], rows[at >= 0]
    return paths, exact


def _mixed(hashes: Any, more: Any) -> Any:
    """Hashes of two hashes."""
    mixed = (hashes ^ (more + _FACTOR + (hashes << np.uint64(6)))) * _FACTOR
    return mixed ^ (mixed >> np.uint64(29))


def _hashes(words: list[str]) -> Any:
    """A hash of each word, the same for all traces."""
    digests = [hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest() for word in words]
    return np.frombuffer(b"".join(digests), np.uint64)
